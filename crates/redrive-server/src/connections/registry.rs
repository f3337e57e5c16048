//! All connections. When there are too many, idle ones are closed: an idle connection is worth less than a new one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Additional connections for probes, when all others are busy with a request.
const PROBE_SLOTS: usize = 32;
/// When it is full, this fraction of the slots is freed at once, so that a flood costs little per connection.
const BATCH_SHARE: usize = 64;

/// All connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    slots: usize,
    epoch: Instant,
    open: Mutex<OpenConnections>,
    /// Notified when a connection has ended.
    pub ended: Notify,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    all: HashMap<u64, Arc<Connection>>,
    by_peer: HashMap<IpAddr, usize>,
    evicted: u64,
}

/// The state of one connection. Shared between the registry, its stream and its requests.
#[derive(Debug)]
pub(crate) struct Connection {
    pub peer: IpAddr,
    pub lane: Lane,
    /// Whether a request is being processed: it will end by itself, and must not be interrupted.
    busy: AtomicBool,
    /// When something last happened, in milliseconds of the registry. Bytes of an incomplete request do not count: a
    /// client could send one from time to time.
    still_since_ms: AtomicU64,
    /// Whether a request was answered before its body had been read.
    unread: AtomicBool,
    /// Whether it is a stream of events, which has no time limit.
    follows: AtomicBool,
    /// Notified when it has to close.
    pub evicted: Notify,
    epoch: Instant,
}

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Ordinary,
    /// Only health probes such as `/livez` are answered.
    Probes,
}

/// A slot, freed on drop.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    number: u64,
    pub connection: Arc<Connection>,
    connections: Arc<Connections>,
}

impl Connections {
    pub fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            slots: slots.max(1),
            epoch: Instant::now(),
            open: Mutex::default(),
            ended: Notify::new(),
        })
    }

    /// A slot for a new connection. `None` if all are taken even after idle ones were asked to close; [`Self::ended`]
    /// is notified when one ends.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        let mut open = self.lock();
        if open.all.len() >= self.slots {
            open.make_room(self.slots.div_ceil(BATCH_SHARE));
        }
        let lane = match open.all.len() {
            held if held < self.slots => Lane::Ordinary,
            held if held < self.slots + PROBE_SLOTS => Lane::Probes,
            _ => return None,
        };
        let connection = Arc::new(Connection {
            peer,
            lane,
            busy: AtomicBool::new(false),
            still_since_ms: AtomicU64::new(millis_since(self.epoch)),
            unread: AtomicBool::new(false),
            follows: AtomicBool::new(false),
            evicted: Notify::new(),
            epoch: self.epoch,
        });
        let number = open.next;
        open.next += 1;
        open.all.insert(number, Arc::clone(&connection));
        *open.by_peer.entry(peer).or_default() += 1;
        Some(ConnectionSlot { number, connection, connections: Arc::clone(self) })
    }

    /// Asks some idle connections to close, because another resource such as files is short.
    pub fn make_room(&self) {
        self.lock().make_room(self.slots.div_ceil(BATCH_SHARE));
    }

    /// The number of connections, and how many were evicted so far.
    pub fn counts(&self) -> (u64, u64) {
        let open = self.lock();
        (open.all.len() as u64, open.evicted)
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Evicts connections of the address that has the most, the longest idle first.
    fn make_room(&mut self, count: usize) {
        let mut idle: Vec<(usize, u64, u64)> = self
            .all
            .iter()
            .filter(|(_, connection)| !connection.busy.load(Ordering::Relaxed))
            .map(|(number, connection)| {
                let held = self.by_peer.get(&connection.peer).copied().unwrap_or_default();
                (usize::MAX - held, connection.still_since_ms.load(Ordering::Relaxed), *number)
            })
            .collect();
        idle.sort_unstable();
        for (_, _, number) in idle.into_iter().take(count) {
            if let Some(connection) = self.remove(number) {
                connection.evicted.notify_one();
                self.evicted += 1;
            }
        }
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Connection>> {
        let connection = self.all.remove(&number)?;
        if let Some(held) = self.by_peer.get_mut(&connection.peer) {
            *held -= 1;
            if *held == 0 {
                self.by_peer.remove(&connection.peer);
            }
        }
        Some(connection)
    }
}

impl Connection {
    /// A request has arrived.
    pub fn begin(&self) {
        self.unread.store(false, Ordering::Relaxed);
        self.follows.store(false, Ordering::Relaxed);
        self.busy.store(true, Ordering::Relaxed);
    }

    /// The request has its answer, which is not sent yet.
    pub fn answered(&self) {
        self.moved();
        self.busy.store(false, Ordering::Relaxed);
    }

    /// The client has read something.
    pub fn moved(&self) {
        self.still_since_ms.store(millis_since(self.epoch), Ordering::Relaxed);
    }

    pub fn left_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    pub fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Marks the client as following events until its next request.
    pub fn follows(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    pub fn is_following(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.lock().remove(self.number);
        self.connections.ended.notify_one();
    }
}

fn millis_since(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        !slot.connections.lock().all.contains_key(&slot.number)
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_stood_still_the_longest_makes_room() {
        let all = Connections::new(3);
        let mut slots = Vec::new();
        for _ in 0..3 {
            slots.push(all.admit(HOME).unwrap());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The first one reads its answer; the second one has sent only part of a request.
        slots[0].connection.moved();
        let new = all.admit(HOME).unwrap();
        assert_eq!(new.connection.lane, Lane::Ordinary);
        assert_eq!(slots.iter().map(is_evicted).collect::<Vec<_>>(), [false, true, false]);
        slots[1].connection.evicted.notified().await;
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_the_most_connections_gives_one_up() {
        let all = Connections::new(4);
        let old = all.admit(peer(1)).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let many: Vec<ConnectionSlot> = (0..3).map(|_| all.admit(peer(2)).unwrap()).collect();
        let new = all.admit(peer(3)).unwrap();
        assert!(!is_evicted(&old), "it is older, but alone");
        assert_eq!(many.iter().filter(|slot| is_evicted(slot)).count(), 1);
        assert_eq!(new.connection.lane, Lane::Ordinary);
    }

    #[tokio::test]
    async fn requests_that_run_are_not_lost_and_probes_get_through() {
        let all = Connections::new(2);
        let begun = || {
            let slot = all.admit(HOME).unwrap();
            slot.connection.begin();
            slot
        };
        let busy: Vec<ConnectionSlot> = (0..2).map(|_| begun()).collect();
        let probes: Vec<ConnectionSlot> = (0..PROBE_SLOTS).map(|_| begun()).collect();
        assert!(probes.iter().all(|slot| slot.connection.lane == Lane::Probes));
        assert!(all.admit(HOME).is_none(), "and there is an end to it");
        assert!(!busy.iter().chain(&probes).any(is_evicted));
        drop(probes);
        busy[0].connection.answered();
        assert_eq!(all.admit(HOME).unwrap().connection.lane, Lane::Ordinary);
        assert!(is_evicted(&busy[0]) && !is_evicted(&busy[1]));
    }

    #[tokio::test]
    async fn nothing_is_remembered_of_those_that_left() {
        let all = Connections::new(100);
        for _ in 0..3 {
            drop((0..250).map(|last| all.admit(peer(last)).unwrap()).collect::<Vec<_>>());
        }
        let open = all.lock();
        assert!(open.all.is_empty() && open.by_peer.is_empty());
    }
}
