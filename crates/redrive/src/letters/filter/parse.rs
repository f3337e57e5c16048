//! Parses the filter language. Every error names its column and, if possible, the word that was probably meant.

use std::time::Duration;

use redrive_core::fingerprint::group_id::NoGroupId;
use redrive_core::nearest::nearest;
use redrive_core::{Class, Family, Reason, duration};

use super::{Compared, Comparison, FIELDS, FILTER_BYTES_MAX, Filter, FilterError, PayloadTest, Term, Test};
use crate::engine::LetterState;
use crate::letters::decimal::Decimal;

/// A value as it was spelled.
struct WrittenValue {
    text: String,
    /// Whether it was quoted, so that nothing in it is an operator.
    quoted: bool,
    column: usize,
}

struct TokenReader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    column: usize,
}

type Read<T> = Result<T, FilterError>;

fn wrong<T>(column: usize, problem: impl Into<String>) -> Read<T> {
    Err(FilterError { column, problem: problem.into() })
}

pub(super) fn parse(text: &str) -> Read<Filter> {
    if text.len() > FILTER_BYTES_MAX {
        return wrong(1, format!("a filter has at most {FILTER_BYTES_MAX} bytes, this one {}", text.len()));
    }
    let mut reader = TokenReader { rest: text.chars().peekable(), column: 1 };
    let mut terms = Vec::new();
    loop {
        reader.skip_spaces();
        if reader.peek().is_none() {
            break;
        }
        terms.push(reader.term()?);
    }
    if terms.is_empty() {
        return wrong(
            1,
            "the filter is empty, which would mean all letters; write for example reason:permanent",
        );
    }
    Ok(Filter { terms })
}

impl TokenReader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.column += usize::from(next.is_some());
        next
    }

    fn take_if(&mut self, wanted: impl Fn(char) -> bool) -> Option<char> {
        if self.peek().is_some_and(wanted) { self.next() } else { None }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(next) = self.take_if(&wanted) {
            taken.push(next);
        }
        taken
    }

    fn skip_spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn term(&mut self) -> Read<Term> {
        let negated = self.take_if(|c| c == '-').is_some();
        let column = self.column;
        let field = self.take_while(|c| !c.is_whitespace() && !matches!(c, ':' | '=' | ',' | '"'));
        if self.take_if(|c| c == ':' || c == '=').is_none() {
            return if field.is_empty() {
                wrong(column, "here a field is expected, for example reason:permanent")
            } else if is_field(&field) {
                wrong(self.column, format!("after `{field}` a `:` and a value are expected"))
            } else {
                unknown_field(&field, column)
            };
        }
        let test = Field::of(&field, column)?;
        let mut words = vec![self.word(&field)?];
        while self.take_if(|c| c == ',').is_some() {
            words.push(self.word(&field)?);
        }
        if self.peek().is_some_and(|c| !c.is_whitespace()) {
            return wrong(self.column, "here a space or a comma is expected");
        }
        Ok(Term { negated, test: test.with(&words)? })
    }

    fn word(&mut self, field: &str) -> Read<WrittenValue> {
        let column = self.column;
        if self.take_if(|c| c == '"').is_none() {
            let text = self.take_while(|c| !c.is_whitespace() && c != ',');
            if text.is_empty() {
                return wrong(column, format!("here a value for `{field}` is expected"));
            }
            return Ok(WrittenValue { text, quoted: false, column });
        }
        let mut text = String::new();
        loop {
            match self.next() {
                None => return wrong(column, "this quote is never closed"),
                Some('"') => return Ok(WrittenValue { text, quoted: true, column }),
                Some('\\') => match self.next() {
                    Some(escaped @ ('"' | '\\')) => text.push(escaped),
                    Some(_) => return wrong(self.column - 2, "in quotes, only \\\" and \\\\ are escapes"),
                    None => return wrong(column, "this quote is never closed"),
                },
                Some(other) => text.push(other),
            }
        }
    }
}

/// A valid field, before its values are parsed.
enum Field {
    Reason,
    ErrorClass,
    Class,
    State,
    Group,
    Edit,
    Error,
    Status,
    Attempts,
    Replays,
    Age,
    Key,
    Tenant,
    Id,
    CorrelationId,
    Header(String),
    Payload(String),
}

fn is_field(name: &str) -> bool {
    Field::of(name, 1).is_ok()
}

fn unknown_field<T>(name: &str, column: usize) -> Read<T> {
    match nearest(name, FIELDS) {
        Some(meant) => wrong(column, format!("`{name}` is not a field; did you mean `{meant}`?")),
        None => wrong(column, format!("`{name}` is not a field; there are {}", FIELDS.join(", "))),
    }
}

impl Field {
    fn of(name: &str, column: usize) -> Read<Self> {
        let rest = |prefix| name.strip_prefix(prefix).filter(|rest: &&str| !rest.is_empty());
        if let Some(name) = rest("header.") {
            return Ok(Self::Header(name.to_ascii_lowercase()));
        }
        if let Some(path) = rest("payload.") {
            return Ok(Self::Payload(path.to_owned()));
        }
        Ok(match name {
            "reason" => Self::Reason,
            "error-class" => Self::ErrorClass,
            "class" => Self::Class,
            "state" => Self::State,
            "group" => Self::Group,
            "edit" => Self::Edit,
            "error" => Self::Error,
            "status" => Self::Status,
            "attempts" => Self::Attempts,
            "replays" => Self::Replays,
            "age" => Self::Age,
            "key" => Self::Key,
            "tenant" => Self::Tenant,
            "id" => Self::Id,
            "correlation_id" => Self::CorrelationId,
            "header" | "header." => {
                return wrong(column, "`header` needs a name, for example header.x-src:web");
            }
            "payload" | "payload." => {
                return wrong(column, "`payload` needs a path, for example payload.customer.id:42");
            }
            _ => return unknown_field(name, column),
        })
    }

    fn with(self, words: &[WrittenValue]) -> Read<Test> {
        Ok(match self {
            Self::Reason => Test::Reason(named(words, "reason", Reason::ALL, Reason::name)?),
            Self::ErrorClass => {
                let families = [Family::Transient, Family::Permanent];
                Test::ErrorClass(named(words, "error-class", families, Family::name)?)
            }
            Self::Class => Test::Class(named(words, "class", Class::ALL, Class::name)?),
            Self::State => Test::State(named(words, "state", LetterState::ALL, LetterState::name)?),
            Self::Group => Test::Group(each(words, |word| {
                word.text
                    .parse()
                    .or_else(|error: NoGroupId| wrong(word.column, format!("`{}`: {error}", word.text)))
            })?),
            Self::Edit => Test::Edit(texts(words)),
            Self::Error => Test::Error(each(words, |word| {
                if word.text.is_empty() {
                    let problem =
                        "the text is empty, which is in every error; write for example error:timeout";
                    return wrong(word.column, problem);
                }
                Ok(word.text.clone())
            })?),
            Self::Status => Test::Status(each(words, |word| number(word, "status", "status:503"))?),
            Self::Attempts => Test::Attempts(each(words, |word| number(word, "attempts", "attempts:>=3"))?),
            Self::Replays => Test::Replays(each(words, |word| number(word, "replays", "replays:>=1"))?),
            Self::Age => Test::Age(each(words, age)?),
            Self::Key => Test::Key(texts(words)),
            Self::Tenant => Test::Tenant(texts(words)),
            Self::Id => Test::Id(texts(words)),
            Self::CorrelationId => Test::CorrelationId(texts(words)),
            Self::Header(name) => Test::Header { name, values: texts(words) },
            Self::Payload(path) => Test::Payload { path, values: each(words, payload)? },
        })
    }
}

fn each<T>(words: &[WrittenValue], read: impl Fn(&WrittenValue) -> Read<T>) -> Read<Vec<T>> {
    words.iter().map(read).collect()
}

fn texts(words: &[WrittenValue]) -> Vec<String> {
    words.iter().map(|word| word.text.clone()).collect()
}

fn named<T: Copy, const N: usize>(
    words: &[WrittenValue],
    field: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Read<Vec<T>> {
    each(words, |word| {
        if let Some(value) = all.into_iter().find(|value| name(*value) == word.text) {
            return Ok(value);
        }
        let names = all.map(name);
        let hint = match nearest(&word.text, names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there are {}", names.join(", ")),
        };
        wrong(word.column, format!("`{}` is not a {field}; {hint}", word.text))
    })
}

/// The comparison operator of a value, and the rest of the value.
fn sign(word: &WrittenValue) -> (Comparison, &str) {
    if word.quoted {
        return (Comparison::Equal, &word.text);
    }
    let signs = Comparison::SIGNS.iter();
    let found = signs.filter_map(|(sign, how)| Some((*how, word.text.strip_prefix(sign)?)));
    found.into_iter().next().unwrap_or((Comparison::Equal, &word.text))
}

fn number(word: &WrittenValue, field: &str, example: &str) -> Read<Compared<u64>> {
    let (how, rest) = sign(word);
    // `parse` alone would accept `+3`.
    match rest.parse().ok().filter(|_| rest.bytes().all(|b| b.is_ascii_digit())) {
        Some(with) => Ok(Compared { how, with }),
        None => wrong(word.column, format!("`{}` is not a number for `{field}`; write {example}", word.text)),
    }
}

fn age(word: &WrittenValue) -> Read<Compared<Duration>> {
    let (how, rest) = sign(word);
    let with = duration::parse(rest).or_else(|error| wrong(word.column, error.to_string()))?;
    if how == Comparison::Equal {
        let problem = format!("no letter is exactly {rest} old; write age:>{rest} or age:<{rest}");
        return wrong(word.column, problem);
    }
    Ok(Compared { how, with })
}

fn payload(word: &WrittenValue) -> Read<PayloadTest> {
    let (how, rest) = sign(word);
    if how == Comparison::Equal {
        return Ok(PayloadTest::Text(word.text.clone()));
    }
    if let Some(with) = Decimal::parse(rest) {
        return Ok(PayloadTest::Number(Compared { how, with }));
    }
    wrong(
        word.column,
        format!("`{rest}` is not a number to compare with; put the value in quotes if it is text"),
    )
}
