//! A limit on wrong tokens, by address and for all together. A correct token is never counted or refused: it is checked
//! first, so guessing cannot lock out the owner of a token.
//!
//! The length of a secret alone makes guessing hopeless. The limit makes it visible, and costs the attacker a new
//! connection for each guess.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The limit per address: wrong tokens in a burst, and per second after that.
const PEER: Allowance = Allowance { burst: 10.0, per_second: 1.0 };
/// The limit for all addresses together.
const ALL: Allowance = Allowance { burst: 100.0, per_second: 20.0 };
/// The maximum number of remembered addresses. Beyond it only the common limit applies to new ones.
const PEERS_MAX: usize = 1_024;
/// How often wrong tokens are logged.
const LOG_EVERY: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct WrongTokens {
    state: Mutex<Attempts>,
}

#[derive(Debug)]
struct Attempts {
    all: Bucket,
    by_peer: HashMap<IpAddr, Bucket>,
    total: u64,
    unlogged: u64,
    logged: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    burst: f64,
    per_second: f64,
}

/// The remainder of an allowance.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// The consequences of a wrong token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noticed {
    /// The limit was exceeded.
    pub too_many: bool,
    /// The number since they were last logged, if it is time to log them.
    pub tell: Option<u64>,
}

impl WrongTokens {
    pub fn new(now: Instant) -> Self {
        let all = Bucket { left: ALL.burst, at: now };
        let state = Attempts { all, by_peer: HashMap::new(), total: 0, unlogged: 0, logged: None };
        Self { state: Mutex::new(state) }
    }

    /// Records a wrong token.
    pub fn notice(&self, peer: IpAddr, now: Instant) -> Noticed {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.total += 1;
        state.unlogged += 1;
        let is_time = state.logged.is_none_or(|logged| now.duration_since(logged) >= LOG_EVERY);
        let tell = is_time.then(|| std::mem::take(&mut state.unlogged));
        if is_time {
            state.logged = Some(now);
        }
        let of_all = state.all.take(ALL, now);
        let of_peer = state.bucket(network(peer), now).is_none_or(|bucket| bucket.take(PEER, now));
        Noticed { too_many: !(of_all && of_peer), tell }
    }

    /// The total number.
    pub fn total(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).total
    }
}

impl Attempts {
    fn bucket(&mut self, peer: IpAddr, now: Instant) -> Option<&mut Bucket> {
        if self.by_peer.len() >= PEERS_MAX && !self.by_peer.contains_key(&peer) {
            self.by_peer.retain(|_, bucket| !bucket.is_full(PEER, now));
        }
        if self.by_peer.len() >= PEERS_MAX && !self.by_peer.contains_key(&peer) {
            return None;
        }
        Some(self.by_peer.entry(peer).or_insert(Bucket { left: PEER.burst, at: now }))
    }
}

impl Bucket {
    fn take(&mut self, allowance: Allowance, now: Instant) -> bool {
        self.left = self.level(allowance, now);
        self.at = now;
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }

    fn is_full(&self, allowance: Allowance, now: Instant) -> bool {
        self.level(allowance, now) >= allowance.burst
    }

    fn level(&self, allowance: Allowance, now: Instant) -> f64 {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * allowance.per_second;
        (self.left + earned).min(allowance.burst)
    }
}

/// The network of an address. One customer of a provider has 2⁶⁴ IPv6 addresses, which count as one.
fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> IpAddr {
        IpAddr::from((0xc000_0000 | number).to_be_bytes())
    }

    fn wrong(all: &WrongTokens, peer: IpAddr, times: u32, now: Instant) -> u32 {
        (0..times).filter(|_| !all.notice(peer, now).too_many).count() as u32
    }

    #[test]
    fn an_address_may_be_wrong_ten_times_and_then_once_a_second() {
        let now = Instant::now();
        let all = WrongTokens::new(now);
        assert_eq!(wrong(&all, peer(1), 50, now), 10);
        assert_eq!(wrong(&all, peer(2), 5, now), 5, "others are not counted with it");
        assert_eq!(wrong(&all, peer(1), 50, now + Duration::from_secs(3)), 3);
        assert_eq!(all.total(), 105);
    }

    #[test]
    fn many_addresses_have_a_limit_together() {
        let now = Instant::now();
        let all = WrongTokens::new(now);
        let allowed: u32 = (0..10_000).map(|number| wrong(&all, peer(number), 1, now)).sum();
        assert_eq!(allowed, 100);
        assert!(all.state.lock().unwrap().by_peer.len() <= PEERS_MAX);
        let later = now + Duration::from_mins(1);
        assert_eq!(wrong(&all, peer(50_000), 1, later), 1);
        assert_eq!(all.state.lock().unwrap().by_peer.len(), 1, "those that are quiet again are forgotten");
    }

    #[test]
    fn the_addresses_of_one_network_count_as_one() {
        let now = Instant::now();
        let all = WrongTokens::new(now);
        let address = |last: u16| IpAddr::from([0x2001, 0xdb8, 1, 2, 0, 0, 0, last]);
        let allowed: u32 = (0..50).map(|last| wrong(&all, address(last), 1, now)).sum();
        assert_eq!(allowed, 10);
    }

    #[test]
    fn the_log_tells_of_them_once_a_minute() {
        let now = Instant::now();
        let all = WrongTokens::new(now);
        assert_eq!(all.notice(peer(1), now).tell, Some(1));
        assert!((0..9).all(|_| all.notice(peer(1), now).tell.is_none()));
        assert_eq!(all.notice(peer(1), now + LOG_EVERY).tell, Some(10));
    }
}
