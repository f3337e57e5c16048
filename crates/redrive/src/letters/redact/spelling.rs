//! The spellings in which a text may occur: escaped for JSON, a URL or HTML, in base64, in another case, with other
//! spaces and punctuation. Pure.

/// How often a text is unescaped, since nested quotations are escaped repeatedly.
const ROUNDS: usize = 3;
/// Shorter runs are ordinary words, and too short to reveal anything in base64.
const BASE64_CHARS_MIN: usize = 8;

/// The core of a text, which all spellings have in common: its letters and digits, in lower case.
pub(super) fn core(text: &str) -> String {
    text.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// A text as it is, its unescaped forms, and the texts in base64 inside them; all in lower case.
pub(super) fn spellings(text: &str) -> Vec<String> {
    let mut found = vec![text.to_lowercase()];
    found.extend(in_base64(text).iter().map(|inner| inner.to_lowercase()));
    let mut plain = text.to_owned();
    for _ in 0..ROUNDS {
        let next = unescaped(&plain);
        if next == plain {
            break;
        }
        found.push(next.to_lowercase());
        found.extend(in_base64(&next).iter().map(|inner| inner.to_lowercase()));
        plain = next;
    }
    found
}

/// The base64-encoded texts within a text.
fn in_base64(text: &str) -> Vec<String> {
    let is_of = |char: char| char.is_ascii_alphanumeric() || "+/-_".contains(char);
    let runs = text.split(|char| !is_of(char)).filter(|run| run.len() >= BASE64_CHARS_MIN);
    runs.map(|run| String::from_utf8_lossy(&of_base64(run)).into_owned()).collect()
}

/// Decodes a run of base64 in either alphabet; a truncated one as far as possible.
fn of_base64(run: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(run.len()), 0_u32, 0);
    for byte in run.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => break,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

/// Replaces the escapes of JSON, URLs and HTML in a text.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let found = match char {
            '\\' => json(rest),
            '%' => percent(rest),
            '&' => html(rest),
            '+' => Some((b" ".to_vec(), 1)),
            _ => None,
        };
        let (plain, taken) =
            found.unwrap_or_else(|| (rest.as_bytes()[..char.len_utf8()].to_vec(), char.len_utf8()));
        bytes.extend(plain);
        rest = &rest[taken..];
    }
    // Bytes that are no character now were none before unescaping either.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The meaning of an escape at the start of a text, and its length.
type Escape = Option<(Vec<u8>, usize)>;

fn char_of(code: u32, taken: usize) -> Escape {
    char::from_u32(code).map(|char| (char.to_string().into_bytes(), taken))
}

fn hex(text: &str, from: usize, to: usize) -> Option<u32> {
    let digits = text.get(from..to).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

fn json(text: &str) -> Escape {
    match text[1..].chars().next()? {
        'u' => {
            let first = hex(text, 2, 6)?;
            let second = text.get(6..8).filter(|next| *next == "\\u").and_then(|_| hex(text, 8, 12));
            match (first, second) {
                (0xd800..=0xdbff, Some(second @ 0xdc00..=0xdfff)) => {
                    char_of(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), 12)
                }
                _ => char_of(first, 6),
            }
        }
        'x' => char_of(hex(text, 2, 4)?, 4),
        'n' | 't' | 'r' | 'b' | 'f' => Some((b" ".to_vec(), 2)),
        mark @ ('"' | '\\' | '/' | '\'') => Some((mark.to_string().into_bytes(), 2)),
        _ => None,
    }
}

fn percent(text: &str) -> Escape {
    hex(text, 1, 3).map(|byte| (vec![byte as u8], 3))
}

fn html(text: &str) -> Escape {
    let end = text.bytes().take(12).position(|byte| byte == b';')?;
    let name = &text[1..end];
    let code = match name.strip_prefix('#') {
        Some(number) => match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => number.parse().ok()?,
        },
        None => match name {
            "amp" => u32::from('&'),
            "lt" => u32::from('<'),
            "gt" => u32::from('>'),
            "quot" => u32::from('"'),
            "apos" => u32::from('\''),
            "nbsp" => u32::from(' '),
            _ => return None,
        },
    };
    char_of(code, end + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_found_in_all_its_spellings() {
        for text in [
            "Müller, Eve <eve@example.com>",
            r"M\u00fcller, Eve \u003ceve@example.com\u003e",
            r"m\\u00fcller\/EVE \u003ceve@example.com",
            "M%C3%BCller%2C+Eve+%3Ceve%40example.com%3E",
            "M%25C3%25BCller%2C+Eve+eve@example.com",
            "M&#252;ller, Eve &lt;eve&commat;@example.com&gt;",
            "M&#xfc;ller  Eve\neve@EXAMPLE.com",
            "TcO8bGxlciwgRXZlIDxldmVAZXhhbXBsZS5jb20+",
            "token=TcO8bGxlciwgRXZlIDxldmVAZXhhbXBsZS5jb20-.x",
        ] {
            let cores = cores(text);
            let has = |core: &String| core.contains("müllereve") && core.contains("examplecom");
            assert!(cores.iter().any(has), "{text}: {cores:?}");
        }
    }

    #[test]
    fn base64_is_read_as_far_as_it_goes() {
        assert_eq!(of_base64("TcO8bGxlcg=="), "Müller".as_bytes());
        assert_eq!(of_base64("_-8-"), of_base64("/+8+"));
        assert_eq!(of_base64("RXZlRXZ"), b"EveEv");
    }

    fn cores(text: &str) -> Vec<String> {
        spellings(text).iter().map(|text| core(text)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_is_too_odd(text in any::<String>()) {
            cores(&text);
        }

        #[test]
        fn escapes_of_every_kind_are_read(secret in "\\PC{3,12}") {
            let core = core(&secret);
            let percent = secret.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
            let units = secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<Vec<_>>().concat();
            let html = secret.chars().map(|char| format!("&#{};", u32::from(char))).collect::<Vec<_>>().concat();
            for spelled in [percent, units, html] {
                prop_assert!(cores(&spelled).iter().any(|found| found.contains(&core)), "{spelled}");
            }
        }
    }
}
