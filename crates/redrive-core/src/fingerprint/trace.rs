//! Stack traces: only the exception and the top frame are kept; the rest differs from run to run.

use std::borrow::Cow;

use super::normalise::{TEXT_BYTES_MAX, normalise, start_of};
use super::{TITLE_BYTES_MAX, cut};
use crate::text::printable::is_unsafe;

/// `QueryTimeoutException at com.example.Orders.load` for a stack trace; `None` for any other text.
///
/// Java, Kotlin, Scala, JavaScript and .NET print the exception first and `at FRAME` below it, Python prints frames first
/// and the exception last.
pub fn title(error: &str) -> Option<String> {
    let error = start_of(error, TEXT_BYTES_MAX);
    let (exception, frame) = python(error).or_else(|| frames_below(error))?;
    let title = match frame {
        "" => exception.into_owned(),
        frame => format!("{exception} at {frame}"),
    };
    Some(cut(&title.replace(is_unsafe, " "), TITLE_BYTES_MAX))
}

/// The maximum length of the exception line in a folded trace, so that a short excerpt still includes the frame.
const FOLDED_LINE_BYTES_MAX: usize = 160;

/// A stack trace on one short line that [`title`] reads the same way: the exception line, a literal `\n`, and the top
/// frame. `None` for any other text.
pub fn folded(error: &str) -> Option<String> {
    let error = start_of(error, TEXT_BYTES_MAX);
    let (_, frame) = python(error).or_else(|| frames_below(error))?;
    let line = if is_python(error) { last_line(error)? } else { lines(error).next()? };
    let line = cut(line.trim(), FOLDED_LINE_BYTES_MAX);
    Some(if frame.is_empty() { line } else { format!("{line}\\n at {frame}") })
}

/// Splits into lines, also where a log has written line ends as `\n`.
fn lines(error: &str) -> impl Iterator<Item = &str> {
    error.split('\n').flat_map(|line| line.split("\\n")).map(|line| line.trim_end_matches('\r'))
}

fn frames_below(error: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut lines = lines(error);
    let head = lines.next()?;
    let frame = lines.find_map(|line| {
        let line = line.trim_start_matches([' ', '\t']).trim_start_matches("\\t");
        line.strip_prefix("at ")
    })?;
    let exception = exception_in(head).map_or_else(|| Cow::Owned(normalise(head)), Cow::Borrowed);
    Some((exception, function_in(frame)))
}

fn python(error: &str) -> Option<(Cow<'_, str>, &str)> {
    if !is_python(error) {
        return None;
    }
    let frame = lines(error).filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("File ")?.rsplit_once(", in ").map(|(_, function)| function)
    });
    let last = last_line(error)?;
    let frame = frame.last().unwrap_or_default();
    Some((Cow::Borrowed(exception_in(last).unwrap_or("Traceback")), function_in(frame)))
}

fn is_python(error: &str) -> bool {
    error.contains("Traceback (most recent call last)")
}

fn last_line(error: &str) -> Option<&str> {
    lines(error).filter(|line| !line.trim().is_empty()).last()
}

/// A status line such as `500 Internal Server Error` before the receiver's text is not an exception.
fn is_status(part: &str) -> bool {
    let (status, rest) = part.trim_start().split_once(' ').unwrap_or((part, ""));
    !rest.is_empty() && status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit())
}

/// The name of an exception: the last word before a colon that looks like one, else the first such word.
fn exception_in(line: &str) -> Option<&str> {
    let head = line.split(": ").filter(|part| !is_status(part)).find_map(|part| {
        let word = part.trim().trim_end_matches(':').rsplit(' ').next()?;
        is_exception(word).then_some(word)
    });
    head.filter(|word| word.len() <= TITLE_BYTES_MAX)
}

/// Whether a word is a dotted or plain name whose last part is capitalised: `ValueError`, `java.io.IOException`.
fn is_exception(word: &str) -> bool {
    let last = word.rsplit(['.', '$']).next().unwrap_or_default();
    let is_name = word.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '$'));
    is_name
        && last.chars().next().is_some_and(char::is_uppercase)
        && last.chars().any(char::is_lowercase)
        && !last.chars().any(|c| c.is_ascii_digit())
}

/// The function name of a frame, without file, line and arguments.
fn function_in(frame: &str) -> &str {
    let end = frame.find([' ', '(', ',', '\t']).unwrap_or(frame.len());
    // A module prefix (`app//com.example.Orders.load`) only says where the class was loaded from.
    let function = frame[..end].rsplit('/').next().unwrap_or_default();
    // Generated suffixes differ in each build.
    let function = function.split("$$").next().unwrap_or_default();
    if function.chars().any(char::is_alphabetic) { function } else { "" }
}
