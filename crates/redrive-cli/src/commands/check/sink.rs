//! Checks whether the receiver is reachable: one HEAD request, without a message.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::config::PipelineConfig;
use crate::config::sinks::ReachableAt;
use crate::config::words::without_secrets;

const PATIENCE: Duration = Duration::from_secs(5);

pub enum Answered {
    /// There is nothing to check, and why.
    Nobody(&'static str),
    Yes(String),
    No(String),
}

/// The first bytes of a TLS record with an alert.
const TLS_ALERT: [u8; 2] = [21, 3];

pub fn ask(pipeline: &PipelineConfig) -> Answered {
    let url = match pipeline.sink.settings.reachable_at() {
        ReachableAt::Url(url) => url,
        ReachableAt::Nobody(why) => return Answered::Nobody(why),
    };
    let shown = without_secrets(url);
    let said = |text: String| format!("POST {shown} ({text})");
    match head(url) {
        Ok(text) => Answered::Yes(said(text)),
        Err(problem) => Answered::No(said(problem)),
    }
}

fn head(url: &str) -> Result<String, String> {
    let (scheme, rest) = url.split_once("://").ok_or("no address")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = if scheme == "https" { 443 } else { 80 };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { host.to_owned() } else { format!("{host}:{port}") };
    let error = |error: std::io::Error| error.to_string();
    let address = address.to_socket_addrs().map_err(error)?.next().ok_or("the name has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(error)?;
    if scheme == "https" {
        return Ok("it accepts connections; TLS was not tried".to_owned());
    }
    stream.set_read_timeout(Some(PATIENCE)).map_err(error)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(error)?;
    let path = if path.starts_with('/') { path } else { "/" };
    let request = format!(
        "HEAD {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: redrive-check\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(error)?;
    let mut answer = [0; 64];
    let read = stream.read(&mut answer).map_err(error)?;
    if answer[..read].starts_with(&TLS_ALERT) {
        return Err("it speaks TLS; use https://".to_owned());
    }
    let line = String::from_utf8_lossy(&answer[..read]);
    let status = line.split(' ').nth(1).filter(|_| line.starts_with("HTTP/")).ok_or("it speaks no HTTP")?;
    // Any answer to HEAD proves that the receiver is there; most services answer 405 or 404.
    Ok(format!("dry: HEAD → {} is fine", status.trim()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_with_tls_is_said_to_have_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(&[21, 3, 3, 0, 2, 2, 80]).unwrap();
        });
        assert_eq!(head(&url), Err("it speaks TLS; use https://".to_owned()));
        server.join().unwrap();
    }
}
