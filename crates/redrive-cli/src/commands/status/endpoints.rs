//! The endpoints whose messages wait, and why: a few of the most serious.

use redrive_api::{EndpointWait, Endpoints};

use crate::output::count;
use crate::output::instant::clock;

/// How many endpoints are shown; `--json` has more.
const SHOWN_MAX: usize = 8;

pub fn lines(endpoints: &Endpoints) -> Vec<String> {
    let shown = endpoints.waits.iter().take(SHOWN_MAX);
    let mut lines: Vec<String> = shown.map(line).collect();
    let more = endpoints.waiting.saturating_sub(lines.len() as u64);
    if more > 0 && !lines.is_empty() {
        // Worded for origins too.
        lines.push(format!("… and {} more whose messages wait", count(more)));
    }
    lines
}

fn line(wait: &EndpointWait) -> String {
    let until = |before: &str| wait.until.map(|at| format!("{before} {}", clock(at.0))).unwrap_or_default();
    let why = match wait.why.as_str() {
        "breaker" => {
            let rounds = match wait.rounds {
                0 => String::new(),
                1 => ", 1 failed probe".to_owned(),
                rounds => format!(", {rounds} failed probes"),
            };
            format!("breaker open{}{rounds}", until(", next probe"))
        }
        "retry_after" => format!("Retry-After{}", until(" until")),
        "isolation" => "reserved for one message after closed connections".to_owned(),
        "rate" => format!("rate limit reached{}", until(", messages have turns until")),
        "concurrency" => "as many calls run as `per_endpoint` allows".to_owned(),
        // A later version may have more reasons.
        other => other.to_owned(),
    };
    let queued = match wait.queued {
        0 => String::new(),
        queued => format!(", {} queued in memory", count(queued)),
    };
    format!("{} {} waits: {why}{queued}", wait.unit, wait.hash)
}

#[cfg(test)]
mod tests {
    use redrive::Time;

    use super::*;
    use redrive_api::Instant;

    #[test]
    fn each_reason_has_its_line_and_the_list_ends() {
        let at = Some(Instant(Time::from_millis(1_794_700_800_000)));
        let wait = |why: &str, rounds, queued| EndpointWait {
            unit: "endpoint".into(),
            hash: "5bdcc146bf60754e".into(),
            why: why.into(),
            until: at,
            rounds,
            queued,
        };
        let clock = clock(Time::from_millis(1_794_700_800_000));
        let waits = vec![wait("breaker", 2, 0), wait("retry_after", 0, 0), wait("rate", 0, 0)];
        let all = lines(&Endpoints { waiting: 3, waits, ..Endpoints::default() });
        assert_eq!(
            all,
            [
                format!("endpoint 5bdcc146bf60754e waits: breaker open, next probe {clock}, 2 failed probes"),
                format!("endpoint 5bdcc146bf60754e waits: Retry-After until {clock}"),
                format!(
                    "endpoint 5bdcc146bf60754e waits: rate limit reached, messages have turns until {clock}"
                ),
            ]
        );
        let many =
            Endpoints { waiting: 1_000, waits: vec![wait("concurrency", 0, 12); 32], ..Endpoints::default() };
        let all = lines(&many);
        assert_eq!(all.len(), SHOWN_MAX + 1);
        assert!(all[0].ends_with("as many calls run as `per_endpoint` allows, 12 queued in memory"));
        assert_eq!(all[SHOWN_MAX], "… and 992 more whose messages wait");
        let tenant = EndpointWait { unit: "tenant".into(), ..wait("breaker", 1, 0) };
        let all = lines(&Endpoints { waiting: 1, waits: vec![tenant], ..Endpoints::default() });
        assert!(all[0].starts_with("tenant 5bdcc146bf60754e waits: breaker open"), "{all:?}");
        assert!(lines(&Endpoints::default()).is_empty());
    }
}
