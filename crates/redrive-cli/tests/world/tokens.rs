//! An authorization server that issues unsigned tokens for client credentials.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use super::http::header;

pub struct Tokens {
    port: u16,
    given: Arc<AtomicU32>,
}

impl Tokens {
    /// Issues tokens to this client with this secret, and answers 401 to others.
    pub fn start(client: &str, secret: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let credentials = format!("Basic {}", STANDARD.encode(format!("{client}:{secret}")));
        let (given, subject) = (Arc::new(AtomicU32::new(0)), client.to_owned());
        let count = Arc::clone(&given);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &credentials, &subject, &count);
            }
        });
        Self { port, given }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/token", self.port)
    }

    pub fn given(&self) -> u32 {
        self.given.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, credentials: &str, subject: &str, given: &AtomicU32) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
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
    let asks = String::from_utf8_lossy(&body).contains("grant_type=client_credentials");
    let (status, answer) = if asks && header(&head, "authorization") == Some(credentials) {
        given.fetch_add(1, Ordering::Relaxed);
        ("200 OK", json!({"access_token": token(subject), "token_type": "Bearer", "expires_in": 3600}))
    } else {
        ("401 Unauthorized", json!({"error": "invalid_client"}))
    };
    let answer = answer.to_string();
    let head =
        format!("content-type: application/json\r\ncontent-length: {}\r\nconnection: close", answer.len());
    let _ = write!(stream, "HTTP/1.1 {status}\r\n{head}\r\n\r\n{answer}");
}

fn token(subject: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({"sub": subject, "iat": now, "exp": now + 3600});
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.", part(&json!({"alg": "none"})), part(&claims))
}
