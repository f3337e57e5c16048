//! How the answer of a push service changes the state of an endpoint. Pure.

use std::time::Duration;

use redrive_core::Time;

use super::record::{Cause, Record, SubscriptionState};

/// A second `gone` confirms the first only after this time, which is long enough to notice a bad deployment.
pub const VERIFY_AFTER: Duration = Duration::from_hours(1);

/// What to do with endpoints that a push service calls gone; the setting `purge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Purge {
    /// Flag them; only a person purges.
    Off,
    /// Flag them, and purge them if they are still gone at a delivery an hour later.
    #[default]
    Verify,
    /// Purge them at the first such answer.
    AtOnce,
}

impl Purge {
    pub const ALL: [Self; 3] = [Self::Off, Self::Verify, Self::AtOnce];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Verify => "verify",
            Self::AtOnce => "at_once",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purge| purge.name() == name)
    }
}

/// The answer of a push service about an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    Delivered,
    /// 404 or 410, or an equivalent answer.
    Gone {
        status: Option<u16>,
        reason: &'a str,
    },
    /// A permanent refusal that concerns this endpoint, without proof that it is dead.
    Refused {
        status: Option<u16>,
        reason: &'a str,
    },
}

/// Whether an endpoint is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Call,
    /// It registered after it was flagged or purged, so the record no longer holds.
    Returned,
    Purged(Record),
}

/// The change of an endpoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Keep,
    /// Remove the record: the endpoint is active again.
    Clear,
    Flag(Record),
    Purge(Record),
}

/// Whether an endpoint with this record is called. `registered`: when the subscriber registered, if the message says
/// so.
pub fn admit(known: Option<&Record>, registered: Option<Time>) -> Admission {
    match known {
        Some(record) if registered.is_some_and(|registered| registered > record.at) => Admission::Returned,
        Some(record) if record.standing == SubscriptionState::Purged => Admission::Purged(record.clone()),
        _ => Admission::Call,
    }
}

/// How an answer changes the record. Two `gone` at least an hour apart, without a success in between, confirm each
/// other.
pub fn decide(known: Option<&Record>, answer: Answer<'_>, purge: Purge, now: Time) -> Next {
    // A call that was in flight when the endpoint was purged adds nothing.
    if known.is_some_and(|record| record.standing == SubscriptionState::Purged) {
        return Next::Keep;
    }
    match answer {
        Answer::Delivered if known.is_some() => Next::Clear,
        Answer::Delivered => Next::Keep,
        Answer::Refused { status, reason } => match known {
            Some(_) => Next::Keep,
            None => Next::Flag(
                Record::new(SubscriptionState::Flagged, Cause::Refused, reason, now).status(status),
            ),
        },
        Answer::Gone { status, reason } => {
            let record = |standing| Record::new(standing, Cause::Gone, reason, now).status(status);
            let gone_since = known.filter(|known| known.cause == Cause::Gone).map(|known| known.at);
            match (purge, gone_since) {
                (Purge::AtOnce, _) => Next::Purge(record(SubscriptionState::Purged)),
                (Purge::Verify, Some(since)) if now.since(since) >= VERIFY_AFTER => {
                    Next::Purge(record(SubscriptionState::Purged))
                }
                (_, Some(_)) => Next::Keep,
                (_, None) => Next::Flag(record(SubscriptionState::Flagged)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: Answer<'_> = Answer::Gone { status: Some(410), reason: "Gone" };
    const REFUSED: Answer<'_> = Answer::Refused { status: Some(400), reason: "BadDeviceToken" };
    const HOUR: u64 = 3_600_000;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn flagged(cause: Cause, since: u64) -> Record {
        Record::new(SubscriptionState::Flagged, cause, "Gone", at(since)).status(Some(410))
    }

    fn purged(since: u64) -> Record {
        Record::new(SubscriptionState::Purged, Cause::Gone, "Gone", at(since)).status(Some(410))
    }

    #[test]
    fn a_second_gone_an_hour_later_confirms_the_first_and_an_earlier_one_does_not() {
        let first = decide(None, GONE, Purge::Verify, at(5));
        assert_eq!(first, Next::Flag(flagged(Cause::Gone, 5)));
        let known = flagged(Cause::Gone, 5);
        assert_eq!(decide(Some(&known), GONE, Purge::Verify, at(5 + HOUR - 1)), Next::Keep);
        assert_eq!(decide(Some(&known), GONE, Purge::Verify, at(5 + HOUR)), Next::Purge(purged(5 + HOUR)));
    }

    #[test]
    fn a_clock_that_goes_backwards_confirms_nothing() {
        let known = flagged(Cause::Gone, 10 * HOUR);
        assert_eq!(decide(Some(&known), GONE, Purge::Verify, at(0)), Next::Keep);
    }

    #[test]
    fn at_once_purges_at_the_first_answer_and_off_never_does() {
        assert_eq!(decide(None, GONE, Purge::AtOnce, at(5)), Next::Purge(purged(5)));
        assert_eq!(decide(None, GONE, Purge::Off, at(5)), Next::Flag(flagged(Cause::Gone, 5)));
        let known = flagged(Cause::Gone, 5);
        assert_eq!(decide(Some(&known), GONE, Purge::Off, at(100 * HOUR)), Next::Keep);
        assert_eq!(decide(Some(&known), GONE, Purge::AtOnce, at(6)), Next::Purge(purged(6)));
    }

    #[test]
    fn a_refusal_flags_and_never_purges_whatever_the_setting() {
        for purge in [Purge::Off, Purge::Verify, Purge::AtOnce] {
            let Next::Flag(record) = decide(None, REFUSED, purge, at(5)) else { panic!("{purge:?}") };
            assert_eq!((record.cause, record.status), (Cause::Refused, Some(400)));
            assert_eq!(decide(Some(&record), REFUSED, purge, at(5 + 100 * HOUR)), Next::Keep);
        }
    }

    #[test]
    fn gone_after_a_refusal_or_an_operators_flag_still_needs_its_second_answer() {
        for cause in [Cause::Refused, Cause::Operator] {
            let known = flagged(cause, 5);
            let now = at(5 + 2 * HOUR);
            let next = decide(Some(&known), GONE, Purge::Verify, now);
            assert_eq!(next, Next::Flag(flagged(Cause::Gone, 5 + 2 * HOUR)), "{cause:?}");
        }
    }

    #[test]
    fn a_delivery_clears_a_flag_and_leaves_a_purge() {
        assert_eq!(
            decide(Some(&flagged(Cause::Gone, 5)), Answer::Delivered, Purge::Verify, at(6)),
            Next::Clear
        );
        assert_eq!(decide(None, Answer::Delivered, Purge::Verify, at(6)), Next::Keep);
        for answer in [Answer::Delivered, GONE, REFUSED] {
            assert_eq!(decide(Some(&purged(5)), answer, Purge::AtOnce, at(6)), Next::Keep);
        }
    }

    #[test]
    fn a_purged_endpoint_is_not_called_unless_it_registered_since() {
        assert_eq!(admit(None, None), Admission::Call);
        assert_eq!(admit(Some(&flagged(Cause::Gone, 5)), None), Admission::Call);
        assert_eq!(admit(Some(&purged(5)), None), Admission::Purged(purged(5)));
        assert_eq!(admit(Some(&purged(5)), Some(at(5))), Admission::Purged(purged(5)));
        assert_eq!(admit(Some(&purged(5)), Some(at(6))), Admission::Returned);
        assert_eq!(admit(Some(&flagged(Cause::Gone, 5)), Some(at(6))), Admission::Returned);
    }
}
