//! Percent-encoding of ids in headers (RFC 3986).

use std::borrow::Cow;

/// Decodes a text. Invalid escapes stay as they are; so does the whole text if its bytes would not be UTF-8.
pub fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (byte, digit(0), digit(1)) {
            bytes.push((high * 16 + low) as u8);
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn what_was_encoded_comes_back_and_everything_else_stays() {
        for (sent, id) in [
            ("o-1", "o-1"),
            ("order%207", "order 7"),
            ("50%25", "50%"),
            ("order%25207", "order%207"),
            ("M%C3%BCller", "Müller"),
            ("50%", "50%"),
            ("%zz%4", "%zz%4"),
            ("%FF", "%FF"),
        ] {
            assert_eq!(decode(sent), id);
        }
    }
}
