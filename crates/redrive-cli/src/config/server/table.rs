//! `[server]`: the address of the API, and access to it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use redrive_core::nearest::nearest;
use redrive_server::{Reads, Scope, Token};
use redrive_sinks::Secret;

use super::super::fault::Fault;
use super::super::named::Named;
use super::super::reader::{Section, SettingReader};
use super::super::secrets;
use super::super::tree::At;
use super::super::words::quoted;
use super::tls;

pub const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7333);

/// A named token; its secret is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenConfig {
    /// The actor in the action log.
    pub name: String,
    pub scopes: Vec<Scope>,
    pub secret_file: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    pub tokens: Vec<TokenConfig>,
    /// Whether reads need a token.
    pub reads: Reads,
    /// Certificate and key, in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { listen: LISTEN_DEFAULT, tokens: Vec::new(), reads: Reads::Auto, tls: None }
    }
}

impl ServerConfig {
    /// Reads the table. `token_in_environment` says whether `REDRIVE_TOKEN` or `--token-file` provides a token, which
    /// counts.
    pub(in super::super) fn read(
        reader: &mut SettingReader,
        section: &Section<'_>,
        token_in_environment: bool,
    ) -> Self {
        reader.unknown_keys(section);
        let listen = listen(reader, section);
        let tokens: Vec<TokenConfig> = reader
            .tables(section, "token")
            .into_iter()
            .enumerate()
            .filter_map(|(i, (token, at))| token_config(reader, &token, i, &at))
            .collect();
        duplicates(reader, section, &tokens);
        let reads = reader.one_of(section, "reads", &READS).map_or(Reads::Auto, |set| set.value);
        let cert = reader.text(section, "tls_cert_file");
        let key = reader.text(section, "tls_key_file");
        let tls = match (cert, key) {
            (Some(cert), Some(key)) => {
                let (cert_file, key_file) = (PathBuf::from(cert.value), PathBuf::from(key.value));
                let (looked_at, at) = ((cert_file.clone(), key_file.clone()), [cert.at, key.at]);
                let look = move || {
                    let found = tls_fault(&looked_at.0, &looked_at.1, &at);
                    found.into_iter().chain(secrets::exposed("tls_key_file", &looked_at.1, &at[1])).collect()
                };
                reader.named.push(Named::new(Some("server"), look));
                Some((cert_file, key_file))
            }
            (None, None) => None,
            (given, other) => {
                let (is, lacks) = if given.is_some() {
                    ("tls_cert_file", "tls_key_file")
                } else {
                    ("tls_key_file", "tls_cert_file")
                };
                let at = given.or(other).map(|set| set.at).into_iter().collect();
                let problem = format!("`{is}` is set without `{lacks}`; TLS needs both");
                let fix = section.example(lacks).unwrap_or_default();
                reader.fault(section, Fault::line(lacks, problem, fix, at));
                None
            }
        };
        let has_tokens = section.get("token").is_some() || token_in_environment;
        if !listen.ip().is_loopback() {
            let at = section.at("listen").into_iter().collect::<Vec<_>>();
            if !has_tokens {
                let local = SocketAddr::new(LISTEN_DEFAULT.ip(), listen.port());
                let problem = format!(
                    "`listen = \"{listen}\"` is reachable from other machines, and there is no [[server.token]]; add \
                     one, give one with --token-file, or listen on {local}"
                );
                let fix = format!("listen = \"{local}\"");
                reader.fault(section, Fault::line("listen", problem, fix, at));
            } else if tls.is_none() {
                let problem = format!(
                    "`listen = \"{listen}\"` takes tokens over plain HTTP; put TLS in front, or set `tls_cert_file` and `tls_key_file`"
                );
                reader.fault(section, Fault::line("listen", problem, "", at).warning());
            }
        }
        if reads == Reads::Open && (has_tokens || !listen.ip().is_loopback()) {
            let at = section.at("reads").into_iter().collect();
            let problem = "`reads = \"open\"` shows payloads, metrics and actions to every client that reaches the port, also through a proxy";
            reader.fault(section, Fault::line("reads", problem, "", at).warning());
        }
        Self { listen, tokens, reads, tls }
    }
}

impl ServerConfig {
    /// All effective values, as TOML.
    pub(in super::super) fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = vec![("listen", quoted(&self.listen.to_string()))];
        if let Some((name, _)) = READS.into_iter().find(|(_, reads)| *reads == self.reads) {
            values.push(("reads", quoted(name)));
        }
        if let Some((cert, key)) = &self.tls {
            values.push(("tls_cert_file", quoted(&cert.display().to_string())));
            values.push(("tls_key_file", quoted(&key.display().to_string())));
        }
        values
    }
}

impl TokenConfig {
    /// All effective values, as TOML; the secret is in a file.
    pub(in super::super) fn values(&self) -> Vec<(&'static str, String)> {
        let scopes: Vec<String> = self.scopes.iter().map(|scope| quoted(scope.name())).collect();
        vec![
            ("name", quoted(&self.name)),
            ("scopes", format!("[{}]", scopes.join(", "))),
            ("secret_file", quoted(&self.secret_file.display().to_string())),
        ]
    }
}

/// The values of `reads`.
pub(in super::super) const READS: [(&str, Reads); 3] =
    [("auto", Reads::Auto), ("token", Reads::Token), ("open", Reads::Open)];

fn listen(reader: &mut SettingReader, section: &Section<'_>) -> SocketAddr {
    let Some(given) = reader.text(section, "listen") else { return LISTEN_DEFAULT };
    let text = given.value.replace("localhost:", "127.0.0.1:");
    text.parse().unwrap_or_else(|_| {
        let problem = format!("`listen = \"{}\"` is not an IP address with a port", given.value);
        let port = given.value.rsplit(':').next().and_then(|port| port.parse().ok()).filter(|port| *port > 0);
        let fix = SocketAddr::new(LISTEN_DEFAULT.ip(), port.unwrap_or(LISTEN_DEFAULT.port()));
        let fix = format!("listen = \"{fix}\"");
        reader.fault(section, Fault::value("listen", problem, fix, given.at));
        LISTEN_DEFAULT
    })
}

fn token_config(
    reader: &mut SettingReader,
    section: &Section<'_>,
    index: usize,
    at: &At,
) -> Option<TokenConfig> {
    let name = reader.text(section, "name");
    let part = match &name {
        Some(name) => format!("token `{}`", name.value),
        None => format!("token {}", index + 1),
    };
    let section = &section.clone().part(part);
    reader.unknown_keys(section);
    for key in ["name", "scopes", "secret_file"] {
        let secret_instead = key == "secret_file" && section.get("secret").is_some();
        if section.get(key).is_none() && !secret_instead {
            let fix = match key {
                "name" => "name = \"ops\"",
                "scopes" => "scopes = [\"read\"]",
                _ => "secret_file = \"/etc/redrive/token\"",
            };
            let problem = format!("`{key}` is missing");
            reader.fault(section, Fault::line(key, problem, format!("add {fix}"), vec![at.clone()]));
        }
    }
    let scopes = reader.texts(section, "scopes");
    if let Some(scopes) = scopes.as_ref().filter(|scopes| scopes.value.is_empty()) {
        let names = Scope::ALL.map(Scope::name);
        let problem = format!("`scopes = []` allows nothing; name some of {}", names.join(", "));
        reader.fault(section, Fault::value("scopes", problem, "scopes = [\"read\"]", scopes.at.clone()));
    }
    let mut allowed = Vec::new();
    for scope in scopes.map(|scopes| scopes.value).unwrap_or_default() {
        let Some(found) = Scope::from_name(&scope.value) else {
            let names = Scope::ALL.map(Scope::name);
            let near = nearest(&scope.value, names).unwrap_or("read");
            let problem =
                format!("`scopes` names `{}`, which is not one of {}", scope.value, names.join(", "));
            reader.fault(section, Fault::value("scopes", problem, format!("\"{near}\""), scope.at));
            continue;
        };
        if !allowed.contains(&found) {
            allowed.push(found);
        }
    }
    let secret_file = reader.text(section, "secret_file")?;
    let name = name?.value;
    let at = secret_file.at;
    let token = TokenConfig { name, scopes: allowed, secret_file: secret_file.value.into() };
    let looked_at = token.clone();
    let look = move || {
        let fault = token_fault(&looked_at.name, &looked_at.secret_file, &at);
        fault.into_iter().chain(secrets::exposed("secret_file", &looked_at.secret_file, &at)).collect()
    };
    reader.named.push(Named::new(section.part_name(), look));
    Some(token)
}

fn duplicates(reader: &mut SettingReader, section: &Section<'_>, tokens: &[TokenConfig]) {
    for (i, token) in tokens.iter().enumerate() {
        if tokens[..i].iter().any(|other| other.name == token.name) {
            let problem =
                format!("two tokens are named `{}`; the audit could not distinguish them", token.name);
            let at = section.at("token").into_iter().collect();
            reader.fault(section, Fault::line("token", problem, "give one of them another name", at));
        }
    }
}

fn tls_fault(cert_file: &Path, key_file: &Path, at: &[At; 2]) -> Option<Fault> {
    let fault = tls::read(cert_file, key_file).err()?;
    let at = if fault.key == "tls_cert_file" { &at[0] } else { &at[1] };
    let fix = "a PEM file with a certificate that is valid now, and its private key";
    Some(Fault::line(fault.key, fault.problem, fix, vec![at.clone()]))
}

fn token_fault(name: &str, secret_file: &Path, at: &At) -> Option<Fault> {
    let shown = secret_file.display();
    let problem = match Secret::read(secret_file) {
        Err(error) => format!("`secret_file = \"{shown}\"` cannot be used: {}", error.problem),
        // The scope was already checked with the text.
        Ok(secret) => {
            let error = Token::new(name, secret.expose(), Scope::ALL).err()?;
            format!("`secret_file = \"{shown}\"` does not hold a usable secret: {error}")
        }
    };
    let path = shell_word(&shown.to_string());
    let fix = format!("openssl rand -hex 20 > {path} && chmod 600 {path}");
    Some(Fault::value("secret_file", problem, fix, at.clone()))
}

/// Quotes a path for pasting into a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        for (path, word) in
            [("/etc/redrive/ops", "/etc/redrive/ops"), ("a b", "'a b'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(shell_word(path), word);
        }
    }

    /// `openssl rand -hex 20 > short, readable by…` created a file `short,`.
    #[test]
    fn the_fix_of_a_secret_is_a_command() {
        let at = At::File(0..1);
        let fault = token_fault("ops", Path::new("/nowhere/short"), &at).unwrap();
        assert_eq!(fault.fix, "openssl rand -hex 20 > /nowhere/short && chmod 600 /nowhere/short");
    }
}
