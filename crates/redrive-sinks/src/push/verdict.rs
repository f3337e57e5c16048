//! The class table of push services: rows by reason and by status, which a user can override.

use std::collections::BTreeMap;

use redrive_core::Class;
use redrive_core::nearest::nearest;

use crate::fault::SinkFault;
use crate::webhook::{Case, ClassTable, Meaning, Trouble};

/// The meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Delivered,
    Fails(Class),
    /// No retry helps, and the endpoint itself may be the cause.
    Flagged,
    /// The subscription was made with another key of ours: the subscriber must subscribe again.
    Resubscribe,
    /// The token that we signed or fetched is too old: renew it and try once more.
    Renew,
}

impl Verdict {
    pub const OK: Self = Self::Delivered;
    pub const TRANSIENT: Self = Self::Fails(Class::Transient);
    pub const LIMITED: Self = Self::Fails(Class::RateLimited);
    pub const PERMANENT: Self = Self::Fails(Class::Permanent);
    pub const GONE: Self = Self::Fails(Class::Gone);
    pub const CREDENTIAL: Self = Self::Fails(Class::Credential);
    pub const RECONNECT: Self = Self::Fails(Class::Reconnect);

    /// The name in the reference.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "ok",
            Self::Fails(class) => class.name(),
            Self::Flagged => "permanent, for this endpoint",
            Self::Resubscribe => "permanent, must subscribe again",
            Self::Renew => "renew the token once, then credential",
        }
    }

    /// The class of a message that ends this way, when nothing can be renewed any more. `None` means delivered.
    pub const fn class(self) -> Option<Class> {
        match self {
            Self::Delivered => None,
            Self::Fails(class) => Some(class),
            Self::Flagged | Self::Resubscribe => Some(Class::Permanent),
            Self::Renew => Some(Class::Credential),
        }
    }
}

/// The built-in rows of one service.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// By the reason or error code in the body. A trailing asterisk matches any continuation.
    pub reasons: &'static [(&'static str, Verdict)],
    /// By the status, if the reason is unknown.
    pub statuses: &'static [(u16, Verdict)],
    /// Other 4xx and 3xx.
    pub otherwise: Verdict,
    /// A failed TLS handshake. If every message goes to one server it concerns them all, so it must not dead-letter
    /// any.
    pub tls: Class,
}

/// The rows of a service with the user's overrides.
#[derive(Clone, Debug)]
pub struct PushClasses {
    rows: Rows,
    reasons: BTreeMap<String, Meaning>,
    /// The user's overrides by status.
    statuses: Vec<(Case, Meaning)>,
    /// The classes of failed connections.
    troubles: ClassTable,
}

impl PushClasses {
    pub fn new(rows: Rows) -> Self {
        let mut troubles = ClassTable::webhook();
        troubles.set(Case::Trouble(Trouble::Tls), Meaning::Fails(rows.tls));
        Self { rows, reasons: BTreeMap::new(), statuses: Vec::new(), troubles }
    }

    /// Parses `classes = { "BadDeviceToken" = "gone", "503" = "permanent", timeout = "transient" }` as overrides of a
    /// service's rows.
    pub fn from_settings<'a>(
        rows: Rows,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Vec<SinkFault>> {
        let (mut classes, mut faults) = (Self::new(rows), Vec::new());
        for (name, value) in settings {
            let key = format!("classes.{name}");
            let Some(meaning) = Meaning::from_name(value) else {
                let known = Meaning::NAMES.join(", ");
                let problem = format!("`{key}` is {value:?}, which is not a class; there are {known}");
                let near = nearest(value, Meaning::NAMES).unwrap_or("permanent");
                faults.push(SinkFault::of(&key, value, problem, &format!("{key} = \"{near}\"")));
                continue;
            };
            match Case::from_name(name) {
                Some(Case::Trouble(_)) if meaning == Meaning::Ok => {
                    let problem = format!("`{key}` would call a push delivered that got no answer");
                    faults.push(SinkFault::of(&key, value, problem, &format!("{key} = \"transient\"")));
                }
                Some(case @ Case::Trouble(_)) => classes.troubles.set(case, meaning),
                Some(case) => classes.statuses.push((case, meaning)),
                None if rows.knows(name) => {
                    classes.reasons.insert(name.to_owned(), meaning);
                }
                None => {
                    let problem = format!("`{key}` is neither a status nor a reason that this service gives");
                    let known = rows.reasons.iter().map(|(reason, _)| *reason);
                    let fix = nearest(name, known).map_or_else(
                        || format!("remove `{key}`"),
                        |near| format!("rename it to `classes.{near}`"),
                    );
                    faults.push(SinkFault::of(&key, value, problem, &fix));
                }
            }
        }
        // A single status takes precedence over its hundred, whatever the order of the settings.
        classes.statuses.sort_by_key(|(case, _)| matches!(case, Case::Hundred(_)));
        if faults.is_empty() { Ok(classes) } else { Err(faults) }
    }

    /// The meaning of an answer: the user's override for its reason or status, else the rows.
    pub fn verdict(&self, status: u16, reason: &str) -> Verdict {
        if let Some(meaning) = self.reasons.get(reason) {
            return of(*meaning);
        }
        let matches = |case: &Case| match case {
            Case::Status(own) => *own == status,
            Case::Hundred(first) => status / 100 == u16::from(*first),
            Case::Trouble(_) => false,
        };
        if let Some((_, meaning)) = self.statuses.iter().find(|(case, _)| matches(case)) {
            return of(*meaning);
        }
        self.rows.verdict(status, reason)
    }

    pub fn troubles(&self) -> &ClassTable {
        &self.troubles
    }
}

const fn of(meaning: Meaning) -> Verdict {
    match meaning {
        Meaning::Ok => Verdict::Delivered,
        Meaning::Fails(class) => Verdict::Fails(class),
    }
}

impl Rows {
    fn reason(&self, given: &str) -> Option<Verdict> {
        let fits = |row: &str| match row.strip_suffix('*') {
            Some(start) => given.starts_with(start),
            None => row == given,
        };
        self.reasons.iter().find(|(row, _)| fits(row)).map(|(_, verdict)| *verdict)
    }

    fn knows(&self, name: &str) -> bool {
        self.reason(name).is_some()
    }

    fn verdict(&self, status: u16, reason: &str) -> Verdict {
        if let Some(verdict) = self.reason(reason).filter(|_| status >= 300) {
            return verdict;
        }
        if let Some((_, verdict)) = self.statuses.iter().find(|(own, _)| *own == status) {
            return *verdict;
        }
        match status {
            200..=299 => Verdict::OK,
            500..=599 => Verdict::TRANSIENT,
            _ => self.otherwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Rows = Rows {
        reasons: &[("BadToken", Verdict::Flagged), ("BadCertificate*", Verdict::CREDENTIAL)],
        statuses: &[(410, Verdict::GONE)],
        otherwise: Verdict::PERMANENT,
        tls: Class::Permanent,
    };

    #[test]
    fn a_reason_goes_before_its_status_and_a_status_before_the_rest() {
        let classes = PushClasses::new(ROWS);
        for (status, reason, verdict) in [
            (200, "", Verdict::OK),
            (400, "BadToken", Verdict::Flagged),
            (403, "BadCertificateEnvironment", Verdict::CREDENTIAL),
            (410, "", Verdict::GONE),
            (418, "Teapot", Verdict::PERMANENT),
            (302, "", Verdict::PERMANENT),
            (599, "", Verdict::TRANSIENT),
        ] {
            assert_eq!(classes.verdict(status, reason), verdict, "{status} {reason}");
        }
    }

    #[test]
    fn what_a_user_sets_goes_before_the_rows() {
        let settings =
            [("4xx", "transient"), ("410", "permanent"), ("BadToken", "gone"), ("timeout", "gone")];
        let classes = PushClasses::from_settings(ROWS, settings).unwrap();
        assert_eq!(classes.verdict(400, "BadToken"), Verdict::GONE);
        assert_eq!(classes.verdict(410, ""), Verdict::PERMANENT);
        assert_eq!(classes.verdict(404, ""), Verdict::TRANSIENT);
        assert_eq!(classes.troubles().trouble(Trouble::Timeout), Class::Gone);
    }

    #[test]
    fn what_is_no_row_or_no_class_is_a_fault_with_its_fix() {
        let settings = [("BadTokn", "gone"), ("BadToken", "gon"), ("timeout", "ok")];
        let faults = PushClasses::from_settings(ROWS, settings).unwrap_err();
        let fixes: Vec<_> = faults.iter().map(|fault| fault.fix.as_str()).collect();
        assert_eq!(
            fixes,
            [
                "rename it to `classes.BadToken`",
                "classes.BadToken = \"gone\"",
                "classes.timeout = \"transient\""
            ]
        );
    }
}
