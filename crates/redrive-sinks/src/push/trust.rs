//! Whether a refused key is our fault or one endpoint's matter.
//!
//! A push service that answers 401 or 403 may mean our key, which concerns every message, or this one subscription. The
//! difference shows only over time: if others were accepted after the first refusal and the same endpoint refuses again,
//! it is the endpoint's own matter. Until then the message waits, which costs it nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Endpoints whose refusals are remembered; beyond it the oldest is forgotten, and waits once more.
const REFUSED_MAX: usize = 10_000;
/// Push services whose acceptances are remembered.
const ORIGINS_MAX: usize = 1_000;

/// Who refused and who accepted, by numbers that stand for endpoints and origins.
#[derive(Debug, Default)]
pub struct KeyTrust {
    seen: Mutex<SeenCertificates>,
}

#[derive(Debug, Default)]
struct SeenCertificates {
    /// Counts what happens, so that no clock is needed to say what came first.
    step: u64,
    accepted: HashMap<u64, u64>,
    refused: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

impl KeyTrust {
    /// An endpoint of this origin took a push.
    pub fn accepted(&self, origin: u64, endpoint: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.step += 1;
        let step = seen.step;
        // An acceptance matters only after a refusal.
        if !seen.refused.is_empty() {
            seen.refused.remove(&endpoint);
            if seen.accepted.len() < ORIGINS_MAX || seen.accepted.contains_key(&origin) {
                seen.accepted.insert(origin, step);
            }
        }
    }

    /// An endpoint refused our key. Whether that is its own matter.
    pub fn is_refused_alone(&self, origin: u64, endpoint: u64) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.step += 1;
        let step = seen.step;
        let accepted = seen.accepted.get(&origin).copied().unwrap_or(0);
        if let Some(first) = seen.refused.get(&endpoint) {
            return accepted > *first;
        }
        seen.refused.insert(endpoint, step);
        seen.order.push_back(endpoint);
        if seen.order.len() > REFUSED_MAX
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.refused.remove(&oldest);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_refusal_is_our_matter_and_so_is_one_of_everybody() {
        let trust = KeyTrust::default();
        trust.accepted(1, 10);
        for endpoint in [10, 11, 12, 10, 11, 12] {
            assert!(!trust.is_refused_alone(1, endpoint), "{endpoint}");
        }
    }

    #[test]
    fn an_endpoint_that_refuses_again_after_others_were_accepted_is_alone() {
        let trust = KeyTrust::default();
        assert!(!trust.is_refused_alone(1, 10));
        trust.accepted(2, 20);
        assert!(!trust.is_refused_alone(1, 10), "another push service says nothing about this one");
        trust.accepted(1, 11);
        assert!(trust.is_refused_alone(1, 10));
        assert!(!trust.is_refused_alone(1, 12), "this one refuses for the first time");
    }

    #[test]
    fn an_endpoint_that_accepts_begins_anew() {
        let trust = KeyTrust::default();
        assert!(!trust.is_refused_alone(1, 10));
        trust.accepted(1, 10);
        trust.accepted(1, 11);
        assert!(!trust.is_refused_alone(1, 10));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let trust = KeyTrust::default();
        for endpoint in 0..2 * REFUSED_MAX as u64 {
            trust.is_refused_alone(1, endpoint);
            trust.accepted(endpoint, u64::MAX);
        }
        let seen = trust.seen.lock().unwrap();
        assert!(seen.refused.len() <= REFUSED_MAX && seen.order.len() <= REFUSED_MAX);
        assert_eq!(seen.accepted.len(), ORIGINS_MAX);
    }
}
