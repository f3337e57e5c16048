//! `--jq`: a jq program computes the new payload of each letter.
//!
//! It runs in a child process of this command and not in the processor: a program may run for ever or take all memory.
//! Only changed values are written into the payload, so that everything else keeps its exact text, down to the digits
//! of numbers.

use jaq_core::data::JustLut;
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Native, Vars, compile, unwrap_valr};
use jaq_json::{Val, read};
use redrive::internal::letters::json_text::JsonText;
use redrive::letters::edit::Pointer;

/// Functions of jq's library that depend on functions not built in here: regular expressions, dates, mathematics beyond
/// arithmetic, encodings, and access to anything outside the program.
#[rustfmt::skip]
const NOT_BUILT_IN: &[&str] = &[
    "test", "scan_", "scan", "match", "capture", "splits", "sub", "gsub",
    "todate", "fromdate",
    "logb", "significand", "pow10", "drem", "nexttoward", "scalb", "gamma",
    "@html", "@htmld", "@uri", "@urid", "@base64", "@base64d",
    "stderr", "debug", "halt", "halt_error",
];

/// The maximum size of a payload that a program returns.
const OUTPUT_BYTES_MAX: usize = 8 << 20;

/// A parsed program, ready to run.
pub struct JqProgram {
    filter: compile::Filter<Native<JustLut<Val>>>,
}

impl JqProgram {
    pub fn parse(code: &str) -> Result<Self, String> {
        let library = jaq_std::defs().filter(|def| {
            // `split` with a regular expression has two arguments.
            !NOT_BUILT_IN.contains(&def.name) && (def.name != "split" || def.args.len() == 1)
        });
        let loader = Loader::new(jaq_core::defs().chain(library).chain(jaq_json::defs()));
        let arena = Arena::default();
        let modules = loader.load(&arena, File { code, path: () });
        let modules = modules.map_err(|errors| unreadable(code, &errors))?;
        let funs = jaq_core::funs().chain(jaq_std::base_funs()).chain(jaq_json::funs());
        let filter = Compiler::default().with_funs(funs).compile(modules);
        let filter = filter.map_err(|errors| undefined(&errors))?;
        Ok(Self { filter })
    }

    /// The new payload for this one; `None` if the program changes nothing, or returns no value.
    pub fn apply(&self, payload: &str) -> Result<Option<String>, String> {
        // Values nested more deeply than this parser allows would overflow the stack of the next one.
        serde_json::from_str::<serde_json::Value>(payload).map_err(|error| error.to_string())?;
        let input = read::parse_single(payload.as_bytes()).map_err(|error| error.to_string())?;
        let context = Ctx::<JustLut<Val>>::new(&self.filter.lut, Vars::new([]));
        let mut outputs = self.filter.id.run((context, input.clone())).map(unwrap_valr);
        let Some(output) = outputs.next() else { return Ok(None) };
        let output = output.map_err(|error| format!("the jq program failed: {error}"))?;
        if outputs.next().is_some() {
            return Err("the jq program gives more than one value".to_owned());
        }
        let mut text = JsonText::parse(payload.as_bytes()).map_err(|fault| fault.to_string())?;
        write(&mut text, "", &input, &output)?;
        if text.as_str() == payload {
            return Ok(None);
        }
        if text.as_str().len() > OUTPUT_BYTES_MAX {
            return Err(format!("the jq program gives more than {} MB", OUTPUT_BYTES_MAX >> 20));
        }
        // Later readers have the same limit.
        serde_json::from_str::<serde_json::Value>(text.as_str()).map_err(|_| {
            "the jq program gives a value that is nested more deeply than 127 times".to_owned()
        })?;
        Ok(Some(text.into_string()))
    }
}

impl std::fmt::Debug for JqProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JqProgram").finish_non_exhaustive()
    }
}

/// Writes the differences, value by value. An array whose length changed is written as a whole.
fn write(text: &mut JsonText, at: &str, before: &Val, after: &Val) -> Result<(), String> {
    match (before, after) {
        (Val::Obj(before), Val::Obj(after)) => {
            for (key, old) in before.iter() {
                let at = child(at, key)?;
                match after.get(key) {
                    Some(new) => write(text, &at, old, new)?,
                    None => text.unset(&pointer(&at)?).map_err(|fault| fault.to_string())?,
                }
            }
            for (key, new) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
                set(text, &child(at, key)?, new)?;
            }
            Ok(())
        }
        (Val::Arr(before), Val::Arr(after)) if before.len() == after.len() => {
            let items = before.iter().zip(after.iter()).enumerate();
            items
                .into_iter()
                .try_for_each(|(index, (old, new))| write(text, &format!("{at}/{index}"), old, new))
        }
        // Compare the texts: 1 and 1.0 are different texts of one number.
        _ if before.to_string() == after.to_string() => Ok(()),
        _ => set(text, at, after),
    }
}

fn set(text: &mut JsonText, at: &str, value: &Val) -> Result<(), String> {
    let written = value.to_string();
    // jq has values that JSON lacks: NaN, bytes, non-text keys.
    let value = JsonText::parse(written.as_bytes())
        .map_err(|_| format!("the jq program gives {written}, which is not JSON"))?;
    if at.is_empty() {
        *text = value;
        return Ok(());
    }
    text.set(&pointer(at)?, &value).map_err(|fault| fault.to_string())
}

/// The JSON pointer to a field.
fn child(at: &str, key: &Val) -> Result<String, String> {
    let (Val::TStr(name), parent) = (key, at) else {
        return Err(format!("the jq program gives an object with the key {key}, which is not JSON"));
    };
    let name = String::from_utf8_lossy(name).replace('~', "~0").replace('/', "~1");
    Ok(format!("{parent}/{name}"))
}

fn pointer(at: &str) -> Result<Pointer, String> {
    Pointer::parse(at).ok_or_else(|| format!("{at:?} is not a JSON pointer"))
}

/// Where a program cannot be parsed, and what was expected there.
fn unreadable(code: &str, errors: &load::Errors<&str, ()>) -> String {
    let found = errors.iter().find_map(|(_, error)| match error {
        load::Error::Lex(all) => all.first().map(|(expect, rest)| (expect.as_str(), *rest)),
        load::Error::Parse(all) => all.first().map(|(expect, rest)| (expect.as_str(), *rest)),
        load::Error::Io(_) => None,
    });
    let Some((expected, rest)) = found else { return "modules cannot be loaded here".to_owned() };
    // `rest` is a slice of the program.
    let column = code.len().saturating_sub(rest.len());
    let column = if rest.is_empty() { code.len() } else { code.find(rest).unwrap_or(column) };
    format!("column {}: {expected} was expected", code[..column].chars().count() + 1)
}

fn undefined(errors: &compile::Errors<&str, ()>) -> String {
    let first = errors.iter().flat_map(|(_, errors)| errors).next();
    let Some((name, what)) = first else { return "it cannot be compiled".to_owned() };
    match what {
        compile::Undefined::Filter(arguments) => format!(
            "there is no function `{name}/{arguments}`; regular expressions, dates and encodings are not built in"
        ),
        other => format!("there is no {} `{name}`", other.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(code: &str, payload: &str) -> Result<Option<String>, String> {
        JqProgram::parse(code).unwrap().apply(payload)
    }

    const PAYLOAD: &str =
        r#"{ "n": 12345678901234567890, "price":1.10,"z":-0, "s":"a\u00e9", "lines":[{"q":1},{"q":2.50}] }"#;

    #[test]
    fn only_what_the_program_changes_is_written() {
        let changed = apply(r#".currency = "EUR" | .lines[0].q += 1 | .s = "b""#, PAYLOAD).unwrap().unwrap();
        assert!(
            changed.starts_with(r#"{ "n": 12345678901234567890, "price":1.10,"z":-0, "s":"b", "#),
            "{changed}"
        );
        assert!(changed.contains(r#""lines":[{"q":2},{"q":2.50}]"#), "{changed}");
        assert!(changed.contains(r#""currency":"EUR""#), "{changed}");
        let removed = apply("del(.lines, .s)", PAYLOAD).unwrap().unwrap();
        assert!(removed.starts_with(r#"{ "n": 12345678901234567890, "price":1.10,"z":-0"#), "{removed}");
        assert!(!removed.contains("lines") && !removed.contains("\"s\""), "{removed}");
        assert_eq!(apply(".", PAYLOAD), Ok(None), "every digit is as it was");
        assert_eq!(apply("select(.n == 1) | .x = 1", PAYLOAD), Ok(None), "no value, no change");
        assert_eq!(
            apply(".lines |= map(select(.q > 2))", PAYLOAD).unwrap().unwrap().matches("2.50").count(),
            1
        );
        assert_eq!(apply(".", "[1.10]"), Ok(None));
        assert_eq!(apply("{a: .[0]}", "[1.10]"), Ok(Some(r#"{"a":1.10}"#.to_owned())), "also where it moves");
        assert_eq!(apply(".[0] + 1", "[12345678901234567890]"), Ok(Some("12345678901234567891".to_owned())));
    }

    #[test]
    fn what_is_not_one_json_value_is_refused() {
        assert!(apply(".[]", "[1,2]").unwrap_err().contains("more than one value"));
        assert!(apply("nan", "1").unwrap_err().contains("not JSON"));
        assert!(apply(".a.b", "[1]").unwrap_err().contains("failed"));
        assert!(apply(".", &"[".repeat(100_000)).is_err());
    }

    #[test]
    fn a_value_that_is_too_deep_or_too_large_is_refused() {
        let nested = |times: u32| apply(&format!("reduce range({times}) as $i (.; [.])"), "1");
        assert!(nested(100).unwrap().unwrap().starts_with("[[["));
        assert!(nested(200).unwrap_err().contains("nested"), "{:?}", nested(200));
        let long = apply("\"abcdefgh\" * 2000000", "1");
        assert!(long.as_ref().unwrap_err().contains("8 MB"), "{:?}", long.map(|text| text.map(|t| t.len())));
    }

    #[test]
    fn a_program_that_cannot_be_read_says_where() {
        assert_eq!(JqProgram::parse(".a |").unwrap_err(), "column 5: term was expected");
        let absent = JqProgram::parse(r#"test("x")"#).unwrap_err();
        assert!(absent.contains("`test/1`") && absent.contains("regular expressions"), "{absent}");
        assert!(JqProgram::parse("$x").unwrap_err().contains("variable"));
        // Commonly used functions are available.
        for code in [
            "map(.)",
            "to_entries",
            "with_entries(.)",
            "ascii_upcase",
            "ltrimstr(\"a\")",
            "walk(.)",
            "tonumber",
            "join(\",\")",
            "split(\",\")",
        ] {
            assert!(JqProgram::parse(code).is_ok(), "{code}: {:?}", JqProgram::parse(code).err());
        }
    }
}
