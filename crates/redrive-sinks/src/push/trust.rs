//! Decides whether a refused key is our fault or concerns one endpoint.
//!
//! A push service that answers 401 or 403 may mean our key, which concerns every message, or this one subscription. The
//! difference shows only over time: if others were accepted after the first refusal and the same endpoint refuses
//! again, it concerns only that endpoint. Until then the message waits without using up attempts.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Endpoints whose refusals are remembered; beyond it the oldest is forgotten, and has to wait again.
const REFUSED_MAX: usize = 10_000;
/// Push services whose accepted pushes are remembered.
const ORIGINS_MAX: usize = 1_000;

/// Refusals and acceptances, by the numbers of endpoints and origins.
#[derive(Debug, Default)]
pub struct KeyTrust {
    seen: Mutex<SeenCertificates>,
}

#[derive(Debug, Default)]
struct SeenCertificates {
    /// Counts events, so that their order is known without a clock.
    step: u64,
    accepted: HashMap<u64, u64>,
    refused: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

impl KeyTrust {
    /// An endpoint of this origin accepted a push.
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

    /// Records that an endpoint refused our key. Returns whether that concerns only this endpoint.
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
