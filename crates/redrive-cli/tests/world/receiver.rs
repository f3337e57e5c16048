//! A downstream that records every request and answers as the test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::http::header;

#[derive(Debug, Clone)]
pub struct Request {
    pub head: String,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The id of the message it delivers.
    pub fn id(&self) -> &str {
        self.header("webhook-id").unwrap_or_default()
    }
}

/// An answer: a status line without the version, and further header lines.
pub type Reply = (&'static str, &'static str);
pub const OK: Reply = ("200 OK", "");
pub const UNAVAILABLE: Reply = ("503 Service Unavailable", "");
/// No answer: the connection is closed.
pub const HANG_UP: Reply = ("", "");

#[derive(Clone)]
pub struct Receiver {
    pub port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let receiver = Self { port, requests: Arc::clone(&requests) };
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (requests, answer) = (Arc::clone(&requests), Arc::clone(&answer));
                thread::spawn(move || serve(stream, &requests, &*answer));
            }
        });
        receiver
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub fn requests_for(&self, id: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.id() == id).collect()
    }
}

fn serve(stream: TcpStream, requests: &Mutex<Vec<Request>>, answer: &dyn Fn(&Request) -> Reply) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let len = header(&head, "content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
        let mut body = vec![0; len];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let request = Request { head, body: String::from_utf8_lossy(&body).into_owned() };
        let (status, more) = answer(&request);
        requests.lock().unwrap().push(request);
        if status.is_empty() {
            return;
        }
        let reply = format!("HTTP/1.1 {status}\r\n{more}content-length: 0\r\n\r\n");
        if writer.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}
