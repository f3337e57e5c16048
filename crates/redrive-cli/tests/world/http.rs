//! HTTP/1.1 with one connection per request: enough for tests, and nothing is hidden.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// The value of a header in the text of the head.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Sends a request; `None` if there is no answer.
pub fn try_send(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
    try_send_as(None, method, url, headers, body)
}

/// The same with another server name.
pub fn send_as(host: &str, method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    try_send_as(Some(host), method, url, headers, body).unwrap_or_else(|| panic!("no answer from {url}"))
}

fn try_send_as(
    host: Option<&str>,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.unwrap_or(address);
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(super::PATIENCE)).ok()?;
    let mut request = format!("{method} /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    for (name, value) in headers {
        write!(request, "{name}: {value}\r\n").ok()?;
    }
    write!(request, "content-length: {}\r\n\r\n{body}", body.len()).ok()?;
    // A server that refuses a request need not read its body: the connection may be reset after a complete answer.
    let _ = stream.write_all(request.as_bytes());
    let mut raw = Vec::new();
    let ended = stream.read_to_end(&mut raw);
    let text = String::from_utf8_lossy(&raw).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let announced = header(head, "content-length").and_then(|length| length.parse::<usize>().ok());
    if ended.is_err() && announced != Some(body.len()) {
        return None;
    }
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let chunked = header(head, "transfer-encoding").is_some_and(|coding| coding == "chunked");
    let body = if chunked { unchunk(body) } else { body.to_owned() };
    Some(Answer { status, head: head.to_owned(), body })
}

pub fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    try_send(method, url, headers, body).unwrap_or_else(|| panic!("no answer from {url}"))
}

pub fn get(url: &str) -> Answer {
    send("GET", url, &[], "")
}

/// A GET with the token of the tests.
pub fn get_with_token(url: &str) -> Answer {
    let bearer = format!("Bearer {}", super::process::TOKEN);
    send("GET", url, &[("authorization", &bearer)], "")
}

fn unchunk(body: &str) -> String {
    let mut rest = body;
    let mut whole = String::new();
    while let Some((len, after)) = rest.split_once("\r\n") {
        let len = usize::from_str_radix(len.trim(), 16).unwrap_or(0);
        if len == 0 {
            break;
        }
        whole.push_str(&after[..len]);
        rest = after[len..].trim_start_matches("\r\n");
    }
    whole
}
