//! A fault-injecting broker proxy. It knows only as much of the protocol as it needs: it passes a request on, waits
//! until the broker has answered it, and closes the connection instead of passing the answer back.
//!
//! So the work is done, and the client cannot know. Requests and answers are frames with a length prefix; a request
//! begins with its kind, its version and a number, an answer with the number of its request.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Larger than anything a client or a broker sends; a larger length means that we lost the frame boundaries.
const FRAME_BYTES_MAX: usize = 256 << 20;

/// Kinds of requests whose answers are worth losing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Produce,
    OffsetCommit,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Produce, Self::OffsetCommit];

    fn of(api_key: i16) -> Option<Self> {
        match api_key {
            0 => Some(Self::Produce),
            8 => Some(Self::OffsetCommit),
            _ => None,
        }
    }
}

/// Which answers are lost: one in this many of a kind; 0: none.
#[derive(Debug, Default)]
struct Rules {
    one_in: [AtomicU64; 2],
    seen: [AtomicU64; 2],
    cut: [AtomicU64; 2],
    /// The broker's port.
    upstream: AtomicU16,
    stopped: AtomicBool,
}

/// A proxy that listens until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    rules: Arc<Rules>,
    port: u16,
}

impl Proxy {
    /// Listens on a port of its own. Connections are closed until it knows its broker.
    pub fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let rules = Arc::new(Rules::default());
        let shared = Arc::clone(&rules);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let upstream = shared.upstream.load(Ordering::Relaxed);
                let broker = || TcpStream::connect(("127.0.0.1", upstream));
                if let (Ok(client), Ok(broker)) = (client, broker()) {
                    connect(client, broker, &shared);
                }
            }
        });
        Ok(Self { rules, port })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Sets the broker's port.
    pub fn forward_to(&self, port: u16) {
        self.rules.upstream.store(port, Ordering::Relaxed);
    }

    /// From now on loses one in `n` answers of this kind, with its connection; 0: none.
    pub fn lose_one_in(&self, kind: Kind, n: u64) {
        self.rules.one_in[kind as usize].store(n, Ordering::Relaxed);
    }

    /// Returns how many answers were lost so far.
    pub fn lost(&self, kind: Kind) -> u64 {
        self.rules.cut[kind as usize].load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.rules.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for connections, so that it sees the stop flag.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Rules {
    /// Whether the answer to this request is to be lost. Counted, not random: one in two is every second one.
    fn loses(&self, kind: Kind) -> bool {
        let one_in = self.one_in[kind as usize].load(Ordering::Relaxed);
        one_in > 0 && self.seen[kind as usize].fetch_add(1, Ordering::Relaxed) % one_in == one_in - 1
    }
}

/// The two sockets of a connection, and the requests on it whose answers are to be lost.
struct Connection {
    client: TcpStream,
    broker: TcpStream,
    doomed: Mutex<HashSet<(i32, u8)>>,
    rules: Arc<Rules>,
}

impl Connection {
    fn doomed(&self) -> MutexGuard<'_, HashSet<(i32, u8)>> {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.broker.shutdown(Shutdown::Both);
    }
}

fn connect(client: TcpStream, broker: TcpStream, rules: &Arc<Rules>) {
    let _ = (client.set_nodelay(true), broker.set_nodelay(true));
    let doomed = Mutex::default();
    let connection = Arc::new(Connection { client, broker, doomed, rules: Arc::clone(rules) });
    let back = Arc::clone(&connection);
    for (name, way) in
        [("proxy-requests", requests as fn(&Connection) -> io::Result<()>), ("proxy-answers", answers)]
    {
        let connection = if name == "proxy-requests" { Arc::clone(&connection) } else { Arc::clone(&back) };
        let thread = std::thread::Builder::new().name(name.into());
        // Both directions end with their connection; an error is such an end.
        let _ = thread.spawn(move || {
            let _ = way(&connection);
            connection.close();
        });
    }
}

fn requests(connection: &Connection) -> io::Result<()> {
    let mut frame = Vec::new();
    loop {
        read_frame(&connection.client, &mut frame)?;
        // Length, kind, version, number.
        if let [_, _, _, _, k0, k1, _, _, n0, n1, n2, n3, ..] = frame[..]
            && let Some(kind) = Kind::of(i16::from_be_bytes([k0, k1]))
            && connection.rules.loses(kind)
        {
            // Before it is sent, because the answer may arrive at once.
            connection.doomed().insert((i32::from_be_bytes([n0, n1, n2, n3]), kind as u8));
        }
        (&connection.broker).write_all(&frame)?;
    }
}

fn answers(connection: &Connection) -> io::Result<()> {
    let mut frame = Vec::new();
    loop {
        read_frame(&connection.broker, &mut frame)?;
        if let [_, _, _, _, n0, n1, n2, n3, ..] = frame[..] {
            let number = i32::from_be_bytes([n0, n1, n2, n3]);
            let doomed = connection.doomed();
            if let Some(kind) = Kind::ALL.into_iter().find(|kind| doomed.contains(&(number, *kind as u8))) {
                connection.rules.cut[kind as usize].fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
        }
        (&connection.client).write_all(&frame)?;
    }
}

/// Reads a frame including its length prefix.
fn read_frame(mut from: &TcpStream, frame: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let bytes = u32::from_be_bytes(length) as usize;
    if bytes > FRAME_BYTES_MAX {
        return Err(io::Error::other("this is no frame of the protocol"));
    }
    frame.clear();
    frame.extend_from_slice(&length);
    frame.resize(4 + bytes, 0);
    from.read_exact(&mut frame[4..])
}
