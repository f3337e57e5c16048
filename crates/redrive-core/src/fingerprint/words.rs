//! Classifies a single word of an error: a number, an id, a host, or a word that stays.

/// A word and its treatment.
pub(super) enum Word<'a> {
    Plain(&'a str),
    /// Replaced by a placeholder; the second part is the suffix that stays (a unit, or the colon before a port).
    Taken(&'static str, &'a str),
}

/// All placeholders.
const PLACEHOLDERS: [&str; 9] =
    ["<n>", "<id>", "<host>", "<url>", "<hex>", "<uuid>", "<time>", "<value>", "<list>"];

/// Words of letters and digits that are not ids.
const KNOWN: [&str; 34] = [
    "http1", "http2", "http3", "h2", "h2c", "h3", "tls1", "utf8", "utf-8", "utf16", "utf-16", "sha1",
    "sha256", "sha-256", "sha512", "md5", "base64", "ipv4", "ipv6", "x509", "oauth2", "s3", "ec2", "k8s",
    "log4j", "int32", "int64", "u32", "u64", "i32", "i64", "f64", "ed25519", "rs256",
];

/// Endings of host names. A dotted name with another ending may be a class, a module or a file.
const HOST_ENDS: [&str; 24] = [
    "com",
    "net",
    "org",
    "io",
    "dev",
    "app",
    "cloud",
    "local",
    "internal",
    "svc",
    "cluster",
    "example",
    "test",
    "lan",
    "corp",
    "intra",
    "home",
    "invalid",
    "localhost",
    "de",
    "eu",
    "uk",
    "us",
    "ai",
];

/// The length of an HTTP status at the start of a text (exactly three digits).
pub(super) fn status(text: &str) -> usize {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let ends = !text[digits..].starts_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
    if digits == 3 && ends { 3 } else { 0 }
}

/// The length of a placeholder at the start of a text.
pub(super) fn placeholder(text: &str) -> Option<usize> {
    PLACEHOLDERS.iter().find(|name| text.starts_with(**name)).map(|name| name.len())
}

/// The length of the word at the start of a text; 0 if the first character belongs to no word.
pub(super) fn length(text: &str) -> usize {
    let within = |c: char| {
        c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '+' | '%' | '@' | '#' | '~' | '$')
    };
    if !text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '+' | '#' | '@')) {
        return 0;
    }
    let mut end = text.find(|c: char| !within(c)).unwrap_or(text.len());
    if text[end..].starts_with("//") && text[..end].ends_with(':') {
        // A URL ends at the next space, quote or bracket.
        let stops =
            |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`' | ')' | ']' | '}' | ',');
        return text.find(stops).unwrap_or(text.len());
    }
    if !is_whole(&text[..end]) {
        // `orders:17`, `Foo::bar`: the parts are separate words.
        end = text[..end].find(':').unwrap_or(end);
    }
    // Trailing punctuation belongs to the sentence, not to the word.
    while end > 0 && !text[..end].ends_with(|c: char| c.is_alphanumeric() || c == '%') {
        end -= text[..end].chars().next_back().map_or(1, char::len_utf8);
    }
    end
}

/// Whether colons belong to the word: a time, or a host with its port.
fn is_whole(word: &str) -> bool {
    let word = word.trim_end_matches([':', '.', '-', '_']);
    is_time(word) || is_address(word) || is_host(word)
}

pub(super) fn word(word: &str) -> Word<'_> {
    if word.contains("://") {
        return Word::Taken("<url>", "");
    }
    if is_time(word) {
        return Word::Taken("<time>", "");
    }
    if is_uuid(word) {
        return Word::Taken("<uuid>", "");
    }
    if is_address(word) || is_host(word) {
        return Word::Taken("<host>", "");
    }
    if word.contains('@') && word.contains('.') {
        return Word::Taken("<value>", "");
    }
    if !word.bytes().any(|byte| byte.is_ascii_digit()) {
        return Word::Plain(word);
    }
    if let Some(tail) = number(word) {
        return Word::Taken("<n>", tail);
    }
    if is_known(word) {
        return Word::Plain(word);
    }
    if is_hex(word) { Word::Taken("<hex>", "") } else { Word::Taken("<id>", "") }
}

/// The rest of a word that starts with a number: nothing, `%`, or a unit of up to three letters.
fn number(word: &str) -> Option<&str> {
    let unsigned = word.trim_start_matches(['-', '+', '#']);
    let end =
        unsigned.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_')).unwrap_or(unsigned.len());
    let (digits, unit) = unsigned.split_at(end);
    let is_number =
        digits.starts_with(|c: char| c.is_ascii_digit()) && digits.ends_with(|c: char| c.is_ascii_digit());
    let is_unit =
        unit.is_empty() || unit == "%" || (unit.len() <= 3 && unit.bytes().all(|b| b.is_ascii_alphabetic()));
    // `1e5` is a number too, `0x1f` is not.
    (is_number && is_unit && !unit.eq_ignore_ascii_case("x")).then_some(unit)
}

fn is_known(word: &str) -> bool {
    let is_version =
        |rest: &str| !rest.is_empty() && rest.len() <= 2 && rest.bytes().all(|b| b.is_ascii_digit());
    word.strip_prefix(['v', 'V']).is_some_and(is_version)
        || KNOWN.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// `0x…`, or eight or more hexadecimal digits with at least one digit and one letter.
fn is_hex(word: &str) -> bool {
    let (digits, least) = match word.strip_prefix("0x") {
        Some(digits) => (digits, 1),
        None => (word, 8),
    };
    digits.len() >= least && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_uuid(word: &str) -> bool {
    word.len() == 36
        && word.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// `2026-11-15`, `2026-11-15T08:01:12Z`, `10:41:07.123`.
fn is_time(word: &str) -> bool {
    let digits = |text: &str, count: usize| {
        text.len() >= count && text.bytes().take(count).all(|b| b.is_ascii_digit())
    };
    let is_date = word.is_ascii()
        && digits(word, 4)
        && word.len() >= 10
        && word.as_bytes()[4] == b'-'
        && digits(&word[5..], 2)
        && word.as_bytes()[7] == b'-'
        && digits(&word[8..], 2);
    let is_clock = word.is_ascii()
        && (word.len() == 5 || word.len() >= 8)
        && word.len() <= 16
        && digits(word, 2)
        && word.as_bytes()[2] == b':'
        && word.bytes().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'Z' | b'+'));
    is_date || is_clock
}

/// IPv4 with or without a port, or IPv6.
fn is_address(word: &str) -> bool {
    let host = word.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(word, |(host, _)| host);
    let is_v4 = host.split('.').count() == 4
        && host
            .split('.')
            .all(|part| matches!(part.len(), 1..=3) && part.bytes().all(|b| b.is_ascii_digit()));
    let is_v6 = word.bytes().filter(|b| *b == b':').count() >= 2
        && word.bytes().any(|b| b.is_ascii_digit())
        && word.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
    is_v4 || is_v6
}

fn is_port(text: &str) -> bool {
    matches!(text.len(), 2..=5) && text.bytes().all(|b| b.is_ascii_digit())
}

/// A lower-case name with a port, or with a known host ending.
fn is_host(word: &str) -> bool {
    let (host, has_port) = match word.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, true),
        _ => (word, false),
    };
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if host == "localhost" {
        return true;
    }
    if !host.split('.').all(is_label) || !host.bytes().any(|b| b.is_ascii_lowercase()) {
        return false;
    }
    let end = host.rsplit('.').next().unwrap_or_default();
    let is_file =
        matches!(end, "rs" | "go" | "py" | "js" | "ts" | "java" | "kt" | "rb" | "c" | "cpp" | "php");
    (has_port && !is_file && (host.contains('.') || host.contains('-')))
        || (host.contains('.') && HOST_ENDS.contains(&end))
}
