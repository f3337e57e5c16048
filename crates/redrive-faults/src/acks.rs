//! The acknowledgement file beside the store: what the victim is about to do, and what was acknowledged to it. One
//! write per line.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::path::Path;

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A process opened the store.
    Opened,
    /// A pipeline is about to be closed: from here on none of its deliveries is in flight.
    Closing { pipeline: String },
    /// A process closed the store, and the end was reported as clean.
    Closed,
    /// The power was cut. Lines from here on until the next opening may be false (see `scripts/power-cut`).
    Cut,
    /// A message is about to be offered.
    Offer { pipeline: String, id: String, key: Option<String> },
    /// A message was accepted.
    Accepted { pipeline: String, seq: u64, id: String },
    /// A message was handed out. Its acceptance may not have been reported yet, so the line contains the id.
    Taken { pipeline: String, seq: u64, id: String },
    /// A step of a message is about to happen, or was acknowledged.
    Step { pipeline: String, seq: u64, step: Step, acknowledged: bool },
}

/// What can happen to a message that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Released,
    Done,
    Retry,
    Dead,
    Replay { job: u64 },
    Discard,
    Undo,
}

impl Step {
    fn letter(self) -> char {
        match self {
            Self::Released => 'l',
            Self::Done => 'd',
            Self::Retry => 'r',
            Self::Dead => 'x',
            Self::Replay { .. } => 'p',
            Self::Discard => 'c',
            Self::Undo => 'u',
        }
    }

    fn from_letter(letter: char, job: u64) -> Option<Self> {
        let step = match letter {
            'l' => Self::Released,
            'd' => Self::Done,
            'r' => Self::Retry,
            'x' => Self::Dead,
            'p' => Self::Replay { job },
            'c' => Self::Discard,
            'u' => Self::Undo,
            _ => return None,
        };
        Some(step)
    }
}

/// Lower case announces, upper case acknowledges.
impl Line {
    fn text(&self) -> String {
        match self {
            Self::Opened => "OPENED".into(),
            Self::Closing { pipeline } => format!("closing {pipeline}"),
            Self::Closed => "CLOSED".into(),
            Self::Cut => "CUT".into(),
            Self::Offer { pipeline, id, key } => {
                format!("a {pipeline} {id} {}", key.as_deref().unwrap_or("-"))
            }
            Self::Accepted { pipeline, seq, id } => format!("A {pipeline} {seq} {id}"),
            Self::Taken { pipeline, seq, id } => format!("T {pipeline} {seq} {id}"),
            Self::Step { pipeline, seq, step, acknowledged } => {
                let letter = step.letter();
                let letter = if *acknowledged { letter.to_ascii_uppercase() } else { letter };
                let mut text = format!("{letter} {pipeline} {seq}");
                if let Step::Replay { job } = step {
                    let _ = write!(text, " {job}");
                }
                text
            }
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let own = |index: usize| words.get(index).map(|word| (*word).to_owned());
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        match words[0] {
            "OPENED" => Some(Self::Opened),
            "closing" => Some(Self::Closing { pipeline: own(1)? }),
            "CLOSED" => Some(Self::Closed),
            "CUT" => Some(Self::Cut),
            "a" => Some(Self::Offer { pipeline: own(1)?, id: own(2)?, key: own(3).filter(|key| key != "-") }),
            "A" => Some(Self::Accepted { pipeline: own(1)?, seq: number(2)?, id: own(3)? }),
            "T" => Some(Self::Taken { pipeline: own(1)?, seq: number(2)?, id: own(3)? }),
            word => {
                let letter = word.chars().next()?;
                let step = Step::from_letter(letter.to_ascii_lowercase(), number(3).unwrap_or(0))?;
                let acknowledged = letter.is_ascii_uppercase();
                Some(Self::Step { pipeline: own(1)?, seq: number(2)?, step, acknowledged })
            }
        }
    }
}

/// The writing end of the file.
#[derive(Debug)]
pub struct AckFile(File);

impl AckFile {
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// Writes a line with one system call. It is `writev`, which the store never uses, so that a test can make every
    /// other write fail without touching this file.
    pub fn say(&mut self, line: &Line) {
        let text = format!("{}\n", line.text());
        let wrote = self.0.write_vectored(&[IoSlice::new(text.as_bytes())]);
        assert_eq!(wrote.expect("the file of acknowledgements can be written"), text.len());
    }
}

/// Reads all lines.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let text = std::fs::read_to_string(path)?;
    // A kill may have cut the last line short; it does not count then.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(whole.lines().map(|line| Line::parse(line).unwrap_or_else(|| panic!("not a line: {line}"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back() {
        let step = |step, acknowledged| Line::Step { pipeline: "plain".into(), seq: 7, step, acknowledged };
        let lines = [
            Line::Opened,
            Line::Closed,
            Line::Cut,
            Line::Offer { pipeline: "keyed".into(), id: "m-1".into(), key: Some("k".into()) },
            Line::Offer { pipeline: "plain".into(), id: "m-1".into(), key: None },
            Line::Accepted { pipeline: "plain".into(), seq: 3, id: "m-1".into() },
            Line::Taken { pipeline: "plain".into(), seq: 3, id: "m-1".into() },
            step(Step::Replay { job: 9 }, false),
            step(Step::Done, true),
        ];
        for line in lines {
            assert_eq!(Line::parse(&line.text()), Some(line));
        }
    }
}
