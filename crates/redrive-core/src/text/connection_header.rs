//! Headers of the connection, which are never part of a message.

/// Headers that describe one connection or the framing of one request. They are never copied from a message.
const CONNECTION_HEADERS: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a header describes the connection and not the message.
pub fn is_connection_header(name: &str) -> bool {
    CONNECTION_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_of_a_name_does_not_matter() {
        assert!(is_connection_header("Content-Length") && is_connection_header("host"));
        assert!(!is_connection_header("x-host") && !is_connection_header("authorization"));
    }
}
