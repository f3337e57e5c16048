//! The class table: the meaning of each answer, as data that a user can override.

use std::collections::BTreeMap;
use std::fmt;

use redrive_core::nearest::nearest;
use redrive_core::{Class, FailureKind};

use crate::fault::SinkFault;

/// What went wrong without a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// No complete answer within the timeout.
    Timeout,
    /// No connection could be made.
    Refused,
    /// The host has no address.
    Dns,
    /// The certificate is not trusted, or the TLS handshake failed.
    Tls,
    /// The connection broke, or the data was not an HTTP answer.
    Reset,
    /// The address guard refused the address.
    Blocked,
    /// The receiver refuses our client certificate.
    Credential,
    /// The proxy cannot be reached, or does not open a connection to the receiver.
    Proxy,
    /// The proxy refuses our credentials.
    ProxyAuth,
}

impl Trouble {
    pub const ALL: [Self; 9] = [
        Self::Timeout,
        Self::Refused,
        Self::Dns,
        Self::Tls,
        Self::Reset,
        Self::Blocked,
        Self::Credential,
        Self::Proxy,
        Self::ProxyAuth,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Dns => "dns",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::Blocked => "blocked",
            Self::Credential => "credential",
            Self::Proxy => "proxy",
            Self::ProxyAuth => "proxy_auth",
        }
    }

    /// The kind of this failure. `sent`: the request had begun to leave.
    pub(crate) const fn kind(self, sent: bool) -> FailureKind {
        match self {
            Self::Timeout => FailureKind::Timeout,
            Self::Reset if sent => FailureKind::Reset,
            Self::Reset | Self::Refused | Self::Blocked => FailureKind::Refused,
            Self::Dns => FailureKind::Dns,
            Self::Tls | Self::Credential => FailureKind::Tls,
            Self::Proxy | Self::ProxyAuth => FailureKind::Proxy,
        }
    }

    /// Whether it happened before the receiver was involved.
    pub const fn is_before_receiver(self) -> bool {
        matches!(self, Self::Proxy | Self::ProxyAuth)
    }
}

/// The left side of a row: one status, a hundred of them, or a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    Status(u16),
    /// `Hundred(4)` is 4xx.
    Hundred(u8),
    Trouble(Trouble),
}

impl Case {
    /// `404`, `5xx` or the name of a trouble.
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(trouble) = Trouble::ALL.into_iter().find(|trouble| trouble.name() == name) {
            return Some(Self::Trouble(trouble));
        }
        let (&first @ b'1'..=b'5', rest) = name.as_bytes().split_first()? else { return None };
        if rest == b"xx" {
            return Some(Self::Hundred(first - b'0'));
        }
        let three_digits = rest.len() == 2 && rest.iter().all(u8::is_ascii_digit);
        three_digits.then(|| name.parse().ok().map(Self::Status))?
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Hundred(first) => write!(f, "{first}xx"),
            Self::Trouble(trouble) => f.write_str(trouble.name()),
        }
    }
}

/// The right side of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Delivered.
    Ok,
    Fails(Class),
}

impl Meaning {
    /// `ok` or a class, except `crash`: an answer cannot say that a process died.
    pub const NAMES: [&str; 7] =
        ["ok", "transient", "rate_limited", "permanent", "gone", "credential", "reconnect"];

    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ok" => Some(Self::Ok),
            _ => Class::from_name(name).filter(|class| *class != Class::Crash).map(Self::Fails),
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Fails(class) => class.name(),
        }
    }
}

const TRANSIENT: Meaning = Meaning::Fails(Class::Transient);
const LIMITED: Meaning = Meaning::Fails(Class::RateLimited);
const PERMANENT: Meaning = Meaning::Fails(Class::Permanent);
const GONE: Meaning = Meaning::Fails(Class::Gone);
const CREDENTIAL: Meaning = Meaning::Fails(Class::Credential);

/// The generic webhook. 404 is not `gone`: a temporarily missing route looks the same.
const WEBHOOK: &[(Case, Meaning)] = &[
    (Case::Hundred(1), PERMANENT),
    (Case::Hundred(2), Meaning::Ok),
    (Case::Hundred(3), PERMANENT),
    (Case::Hundred(4), PERMANENT),
    (Case::Status(400), PERMANENT),
    (Case::Status(401), PERMANENT),
    (Case::Status(403), PERMANENT),
    (Case::Status(404), PERMANENT),
    (Case::Status(405), PERMANENT),
    (Case::Status(408), TRANSIENT),
    (Case::Status(410), GONE),
    (Case::Status(413), PERMANENT),
    (Case::Status(415), PERMANENT),
    (Case::Status(422), PERMANENT),
    (Case::Status(425), TRANSIENT),
    (Case::Status(429), LIMITED),
    (Case::Hundred(5), TRANSIENT),
    (Case::Status(500), TRANSIENT),
    (Case::Status(502), TRANSIENT),
    (Case::Status(503), TRANSIENT),
    (Case::Status(504), TRANSIENT),
    (Case::Trouble(Trouble::Timeout), TRANSIENT),
    (Case::Trouble(Trouble::Refused), TRANSIENT),
    (Case::Trouble(Trouble::Dns), TRANSIENT),
    (Case::Trouble(Trouble::Tls), PERMANENT),
    (Case::Trouble(Trouble::Reset), TRANSIENT),
    (Case::Trouble(Trouble::Blocked), PERMANENT),
    (Case::Trouble(Trouble::Credential), CREDENTIAL),
    (Case::Trouble(Trouble::Proxy), TRANSIENT),
    (Case::Trouble(Trouble::ProxyAuth), CREDENTIAL),
];

/// Statuses on the list are retried, every other failure is permanent.
const SEED_STRICT: &[(Case, Meaning)] = &[
    (Case::Hundred(1), PERMANENT),
    (Case::Hundred(2), Meaning::Ok),
    (Case::Hundred(3), PERMANENT),
    (Case::Hundred(4), PERMANENT),
    (Case::Status(400), PERMANENT),
    (Case::Status(401), PERMANENT),
    (Case::Status(404), PERMANENT),
    (Case::Status(410), PERMANENT),
    (Case::Status(429), LIMITED),
    (Case::Hundred(5), PERMANENT),
    (Case::Status(500), TRANSIENT),
    (Case::Status(502), TRANSIENT),
    (Case::Status(503), TRANSIENT),
    (Case::Status(504), TRANSIENT),
    (Case::Trouble(Trouble::Timeout), TRANSIENT),
    (Case::Trouble(Trouble::Refused), TRANSIENT),
    (Case::Trouble(Trouble::Dns), TRANSIENT),
    (Case::Trouble(Trouble::Tls), PERMANENT),
    (Case::Trouble(Trouble::Reset), TRANSIENT),
    (Case::Trouble(Trouble::Blocked), PERMANENT),
    (Case::Trouble(Trouble::Credential), CREDENTIAL),
    (Case::Trouble(Trouble::Proxy), TRANSIENT),
    (Case::Trouble(Trouble::ProxyAuth), CREDENTIAL),
];

/// The class of each status and each trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassTable {
    rows: BTreeMap<Case, Meaning>,
}

impl Default for ClassTable {
    fn default() -> Self {
        Self::webhook()
    }
}

impl ClassTable {
    /// The presets by name, for `classes = { preset = "…" }`.
    pub const PRESETS: [&str; 2] = ["webhook", "seed-strict"];

    pub fn webhook() -> Self {
        Self { rows: WEBHOOK.iter().copied().collect() }
    }

    /// Retries exactly 429, 500, 502, 503, 504 and requests without an answer; 400, 401, 404, 410 and the rest never.
    pub fn seed_strict() -> Self {
        Self { rows: SEED_STRICT.iter().copied().collect() }
    }

    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "webhook" => Some(Self::webhook()),
            "seed-strict" => Some(Self::seed_strict()),
            _ => None,
        }
    }

    /// Parses `classes = { preset = "…", "404" = "gone", "5xx" = "permanent", timeout = "transient" }`, or returns all
    /// its faults.
    ///
    /// A row for a hundred replaces the preset's rows for single statuses of that hundred; the user's own rows for
    /// single statuses stay, whatever their order.
    pub fn from_settings<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Vec<SinkFault>> {
        let (mut table, mut rows, mut faults) = (Self::default(), Vec::new(), Vec::new());
        for (name, value) in settings {
            if name == "preset" {
                match Self::preset(value) {
                    Some(preset) => table = preset,
                    None => faults.push(unknown_preset(value)),
                }
                continue;
            }
            match (Case::from_name(name), Meaning::from_name(value)) {
                (None, _) => faults.push(unknown_case(name)),
                (_, None) => faults.push(unknown_meaning(name, value)),
                (Some(Case::Trouble(_)), Some(Meaning::Ok)) => faults.push(lost(name)),
                (Some(case), Some(meaning)) => rows.push((case, meaning)),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        rows.sort_by_key(|(case, _)| !matches!(case, Case::Hundred(_)));
        rows.into_iter().for_each(|(case, meaning)| table.set(case, meaning));
        Ok(table)
    }

    /// Sets one row. A hundred replaces its single statuses.
    pub fn set(&mut self, case: Case, meaning: Meaning) {
        if let Case::Hundred(first) = case {
            let of_it = |row: &Case| matches!(row, Case::Status(status) if status / 100 == u16::from(first));
            self.rows.retain(|row, _| !of_it(row));
        }
        self.rows.insert(case, meaning);
    }

    pub fn status(&self, status: u16) -> Meaning {
        let exact = self.rows.get(&Case::Status(status));
        let row = exact.or_else(|| self.rows.get(&Case::Hundred((status / 100) as u8)));
        // A status above 599 is invalid HTTP; such a receiver would repeat it.
        row.copied().unwrap_or(PERMANENT)
    }

    /// A trouble is never a success, so it has a class.
    pub fn trouble(&self, trouble: Trouble) -> Class {
        match self.rows.get(&Case::Trouble(trouble)) {
            Some(Meaning::Fails(class)) => *class,
            Some(Meaning::Ok) | None => Class::Transient,
        }
    }

    /// All rows: single statuses, hundreds, troubles.
    pub fn rows(&self) -> impl Iterator<Item = (Case, Meaning)> {
        self.rows.iter().map(|(case, meaning)| (*case, *meaning))
    }
}

fn unknown_preset(value: &str) -> SinkFault {
    let problem = format!("`classes.preset` is {value:?}, which is not a class table");
    let fix = "classes.preset = \"webhook\", or classes.preset = \"seed-strict\"";
    SinkFault::of("classes.preset", value, problem, fix)
}

fn unknown_case(name: &str) -> SinkFault {
    let troubles = Trouble::ALL.map(Trouble::name).join(", ");
    let rows = format!("a status (\"404\"), a hundred (\"5xx\") or one of {troubles}");
    let problem = format!("`classes` has a row for {name:?}, which no answer can be; a row is {rows}");
    let fix = match nearest(name, Trouble::ALL.map(Trouble::name).into_iter().chain(["preset"])) {
        Some(near) => format!("rename it to `classes.{near}`"),
        None => format!("remove `classes.{name}`"),
    };
    SinkFault::of(format!("classes.{name}"), "", problem, &fix)
}

fn unknown_meaning(name: &str, value: &str) -> SinkFault {
    let near = nearest(value, Meaning::NAMES).unwrap_or("transient");
    let problem = format!("`classes.{name}` is {value:?}, which is not one of {}", Meaning::NAMES.join(", "));
    SinkFault::of(format!("classes.{name}"), value, problem, &format!("classes.{name} = \"{near}\""))
}

fn lost(name: &str) -> SinkFault {
    let problem = format!("`classes.{name}` is \"ok\", but nothing was delivered: the message would be lost");
    SinkFault::of(format!("classes.{name}"), "ok", problem, &format!("classes.{name} = \"transient\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_and_every_meaning_has_a_name_that_reads_back() {
        for (case, meaning) in ClassTable::webhook().rows() {
            assert_eq!(Case::from_name(&case.to_string()), Some(case));
            assert_eq!(Meaning::from_name(meaning.name()), Some(meaning));
        }
        for name in Meaning::NAMES {
            assert_eq!(Meaning::from_name(name).map(Meaning::name), Some(name));
        }
        for name in ["", "4", "40", "4x", "4XX", "600", "099", "4044", "40x", "xx", "Timeout"] {
            assert_eq!(Case::from_name(name), None, "{name}");
        }
        assert_eq!(Meaning::from_name("crash"), None);
    }

    #[test]
    fn the_strict_preset_is_its_two_lists_and_nothing_else() {
        let table = ClassTable::seed_strict();
        let retried = |status: &u16| match table.status(*status) {
            Meaning::Ok => false,
            Meaning::Fails(class) => class.family() == redrive_core::Family::Transient,
        };
        let all: Vec<u16> = (100..600).filter(retried).collect();
        assert_eq!(all, [429, 500, 502, 503, 504]);
        for status in [400, 401, 404, 410] {
            assert_eq!(table.status(status), PERMANENT, "{status}");
        }
        assert_eq!(table.trouble(Trouble::Timeout), Class::Transient);
    }

    #[test]
    fn a_row_of_the_user_is_over_the_preset_and_a_status_over_its_hundred() {
        let table =
            ClassTable::from_settings([("404", "gone"), ("4xx", "transient"), ("409", "ok")]).unwrap();
        assert_eq!(table.status(404), GONE);
        assert_eq!(table.status(409), Meaning::Ok);
        assert_eq!(table.status(410), TRANSIENT, "the hundred replaces the preset's single rows");
        assert_eq!(table.status(503), TRANSIENT);
        let strict = ClassTable::from_settings([("501", "transient"), ("preset", "seed-strict")]).unwrap();
        assert_eq!(strict.status(501), TRANSIENT);
        assert_eq!(strict.status(505), PERMANENT);
        let tls = ClassTable::from_settings([("tls", "transient")]).unwrap();
        assert_eq!(tls.trouble(Trouble::Tls), Class::Transient);
    }

    #[test]
    fn every_fault_of_a_table_is_found_with_the_nearest_name() {
        let settings =
            [("4o4", "gone"), ("404", "gon"), ("timeout", "ok"), ("timout", "gone"), ("preset", "x")];
        let faults = ClassTable::from_settings(settings).unwrap_err();
        let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
        assert_eq!(
            keys,
            ["classes.4o4", "classes.404", "classes.timeout", "classes.timout", "classes.preset"]
        );
        let fixes: Vec<_> = faults.iter().map(|fault| fault.fix.as_str()).collect();
        assert_eq!(fixes[0], "remove `classes.4o4`");
        assert_eq!(fixes[1], "classes.404 = \"gone\"");
        assert_eq!(fixes[2], "classes.timeout = \"transient\"");
        assert_eq!(fixes[3], "rename it to `classes.timeout`");
        for trouble in Trouble::ALL {
            assert!(faults[0].problem.contains(trouble.name()), "{}", faults[0].problem);
        }
    }

    #[test]
    fn a_failure_below_http_has_a_kind_that_says_where() {
        assert_eq!(Trouble::Dns.kind(false), FailureKind::Dns);
        assert_eq!(Trouble::Credential.kind(false), FailureKind::Tls);
        assert_eq!(Trouble::ProxyAuth.kind(false), FailureKind::Proxy);
        assert_eq!(Trouble::Reset.kind(false), FailureKind::Refused, "nothing was sent");
        assert_eq!(Trouble::Reset.kind(true), FailureKind::Reset);
    }
}
