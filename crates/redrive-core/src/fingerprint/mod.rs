//! Which dead letters belong together: a versioned fingerprint of why a message died.
//!
//! Same failure, same group: numbers, ids, hosts and quoted values are taken out of the error text ([`normalise`]), a
//! stack trace is reduced to its exception and top frame ([`trace`]), and what is left is hashed together with class,
//! reason, status and sink. A user's rule comes before all of that ([`rules`]).
//!
//! The version is a part of the hash and is stored with each letter: another version never moves a letter that has a
//! fingerprint already.

pub mod group_id;
pub mod normalise;
pub mod rules;
pub mod trace;
mod words;

pub use group_id::GroupId;
pub use rules::{GroupRule, GroupRules, RuleFault};

use crate::{Class, Reason};

/// The version of fingerprints that this program creates.
pub const VERSION: u8 = 1;
/// The longest title of a group, in bytes.
pub const TITLE_BYTES_MAX: usize = 200;

/// The part of a message's cause of death that determines its group.
#[derive(Clone, Copy, Debug)]
pub struct DeathCause<'a> {
    /// Why the message was dead-lettered.
    pub reason: Reason,
    /// The class of the last attempt, if there was one.
    pub class: Option<Class>,
    /// The HTTP status of the last attempt.
    pub status: Option<u64>,
    /// The error text of the last attempt.
    pub error: Option<&'a str>,
    /// The kind of sink.
    pub sink: &'a str,
}

/// The group of a letter, as stored with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The version of the rules that produced it.
    pub version: u8,
    /// The group id.
    pub group: GroupId,
    /// The normalised error, or the name that a rule gives.
    pub title: String,
}

impl Fingerprint {
    /// Whether a user's rule put the letter into its group; such a group is identified by the rule's name alone.
    pub fn is_of_rule(&self) -> bool {
        self.group == GroupId::of(self.version, &["rule", &self.title])
    }
}

/// The title for a message that was never attempted.
const UNTRIED: &str = "(no attempt was made)";

/// Fingerprints a cause: by the first rule that matches, otherwise by the normalised error.
pub fn fingerprint(cause: &DeathCause<'_>, rules: &GroupRules) -> Fingerprint {
    if let Some(name) = cause.error.and_then(|error| rules.name_for(error)) {
        let group = GroupId::of(VERSION, &["rule", name]);
        return Fingerprint { version: VERSION, group, title: name.to_owned() };
    }
    let title = title(cause.error);
    let class = cause.class.map_or("", Class::name);
    let mut digits = [0; 20];
    let status = cause.status.map_or("", |status| decimal(status, &mut digits));
    let group = GroupId::of(VERSION, &["error", &title, class, cause.reason.name(), status, cause.sink]);
    Fingerprint { version: VERSION, group, title }
}

fn title(error: Option<&str>) -> String {
    let title = match error {
        None => UNTRIED.to_owned(),
        Some(error) => trace::title(error).unwrap_or_else(|| normalise::normalise(error)),
    };
    if title.is_empty() { "(no error text)".to_owned() } else { title }
}

fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return std::str::from_utf8(&digits[at..]).unwrap_or_default();
        }
    }
}

/// The start of a text, at most `max` bytes; a cut is marked with `…`.
pub(crate) fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // Cut at a word boundary if one is near: half a word can be misread.
    let end = text[..end].rfind(' ').filter(|space| end - space <= max / 4).unwrap_or(end);
    format!("{}…", text[..end].trim_end())
}
