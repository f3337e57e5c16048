//! Many messages in one body, one per line: all of them, or the number of the faulty line. Pure.

use redrive::{NewMessage, Time};

use super::message::{self, Intake};
use crate::problem::{Code, Problem};

/// The maximum number of lines in a body.
pub const LINES_MAX: usize = 100_000;

/// Parses newline-delimited JSON. Lines are counted from 1, including empty ones, which are skipped.
pub fn read(
    body: &[u8],
    intake: &Intake,
    now: Time,
    mut fresh_id: impl FnMut() -> Result<String, Problem>,
) -> Result<Vec<NewMessage>, Problem> {
    let mut messages = Vec::new();
    for (index, line) in body.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if messages.len() == LINES_MAX {
            let message = format!("there are more than {LINES_MAX} messages");
            let hint = "nothing was accepted; send them in several requests";
            return Err(Problem::new(Code::TooLarge, message, hint).at_line(index + 1));
        }
        let message = message::read(line, intake, now, &mut fresh_id);
        messages.push(message.map_err(|problem| {
            let problem = Problem { message: own_line_only(&problem.message), ..problem }.at_line(index + 1);
            Problem { hint: format!("nothing was accepted; {}", problem.hint), ..problem }
        })?);
    }
    if messages.is_empty() {
        return Err(Problem::bad_message("there is no message in the body", "send one JSON object per line"));
    }
    Ok(messages)
}

/// The parser saw a single line and calls it the first; remove that, since the line has another number in the body.
fn own_line_only(message: &str) -> String {
    match message.rsplit_once(" at line 1 column ") {
        Some((problem, column)) => format!("{problem} at column {column}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<NewMessage>, Problem> {
        read(text.as_bytes(), &Intake::default(), Time::from_millis(1), || Ok("made".to_owned()))
    }

    #[test]
    fn each_line_is_a_message_in_its_order() {
        let messages = read_text("{\"id\":\"a\"}\r\n\n{\"id\":\"b\"}\n").unwrap();
        let ids: Vec<_> = messages.iter().map(|new| new.message.id()).collect();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn the_first_fault_is_named_with_its_line() {
        let problem = read_text("{\"id\":\"a\"}\n\n{\"id\":\"b\",\"tll\":\"1s\"}\n{").unwrap_err();
        assert!(problem.message.starts_with("line 3: "), "{}", problem.message);
        assert!(
            problem.hint.contains("nothing was accepted") && problem.hint.contains("`ttl`"),
            "{}",
            problem.hint
        );
    }

    #[test]
    fn a_line_that_is_no_json_has_one_number() {
        let problem = read_text(&format!("{}{{x", "{}\n".repeat(9))).unwrap_err();
        assert_eq!(problem.message, "line 10: this is not a message: it is not valid JSON at column 2");
    }

    #[test]
    fn an_empty_body_and_too_many_lines_are_refused() {
        assert_eq!(read_text("\n\n").unwrap_err().code, Code::BadMessage);
        let many = "{}\n".repeat(LINES_MAX + 1);
        let problem = read_text(&many).unwrap_err();
        assert_eq!(problem.code, Code::TooLarge);
        assert!(problem.message.contains("100000"), "{}", problem.message);
        assert_eq!(read_text(&"{}\n".repeat(LINES_MAX)).unwrap().len(), LINES_MAX);
    }
}
