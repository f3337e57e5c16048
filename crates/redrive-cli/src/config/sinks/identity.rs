//! How a webhook identifies itself: signatures, client certificate, `[pipeline.sink.webhook.auth]`; and the request
//! format.

use std::path::PathBuf;

use redrive_core::Pick;
use redrive_sinks::webhook::{Auth, ClientCertificate, Format, OAuth2, Signing};
use redrive_sinks::{Secret, WebhookOptions};

use super::super::fault::Fault;
use super::super::named::Named;
use super::super::reader::{Section, SettingReader};
use super::super::secrets;
use super::super::words::{quoted, without_secrets};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub signing: Signing,
    pub client_certificate: Option<ClientCertificate>,
    pub auth: Auth,
    pub format: Format,
}

pub(super) const FORMATS: [(&str, Format); 2] =
    [("plain", Format::Plain), ("cloudevents", Format::CloudEvents)];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthKind {
    Basic,
    Bearer,
    OAuth2,
}

/// The kinds of authentication by name.
pub(super) const KINDS: [(&str, AuthKind); 3] =
    [("basic", AuthKind::Basic), ("bearer", AuthKind::Bearer), ("oauth2", AuthKind::OAuth2)];

impl AuthKind {
    const fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Basic => &["user", "password_file"],
            Self::Bearer => &["token_file"],
            Self::OAuth2 => &["token_url", "client_id", "client_secret_file"],
        }
    }

    fn takes(self, key: &str) -> bool {
        key == "kind" || self.needs().contains(&key) || (self == Self::OAuth2 && key == "scopes")
    }
}

impl Identity {
    pub(super) fn read(reader: &mut SettingReader, section: &Section<'_>) -> Self {
        Self {
            signing: signing(reader, section),
            client_certificate: client_certificate(reader, section),
            auth: auth(reader, section).unwrap_or_default(),
            format: reader.one_of(section, "format", &FORMATS).map_or(Format::Plain, |set| set.value),
        }
    }

    pub(super) fn apply(&self, options: &mut WebhookOptions) {
        options.signing = self.signing.clone();
        options.client_certificate.clone_from(&self.client_certificate);
        options.auth = self.auth.clone();
        options.format = self.format;
    }

    /// All effective values, as TOML.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        let path = |path: &PathBuf| quoted(&path.display().to_string());
        let mut values = Vec::new();
        if let Some(ClientCertificate { cert_file, key_file }) = &self.client_certificate {
            values.push(("client_cert_file", path(cert_file)));
            values.push(("client_key_file", path(key_file)));
        }
        let auth = match &self.auth {
            Auth::None => None,
            Auth::Basic { user, password_file } => {
                let user = quoted(user);
                Some(format!("kind = \"basic\", user = {user}, password_file = {}", path(password_file)))
            }
            Auth::Bearer { token_file } => {
                Some(format!("kind = \"bearer\", token_file = {}", path(token_file)))
            }
            Auth::OAuth2(OAuth2 { token_url, client_id, client_secret_file, scopes }) => {
                let scopes: Vec<String> = scopes.iter().map(|scope| quoted(scope)).collect();
                Some(format!(
                    "kind = \"oauth2\", token_url = {}, client_id = {}, client_secret_file = {}, scopes = [{}]",
                    quoted(&without_secrets(token_url.expose())),
                    quoted(client_id),
                    path(client_secret_file),
                    scopes.join(", ")
                ))
            }
        };
        values.extend(auth.map(|auth| ("auth", format!("{{ {auth} }}"))));
        let Signing { secret_file, endpoint_secrets_file, endpoint_secret_command, endpoint_secret_header } =
            &self.signing;
        values.extend(secret_file.as_ref().map(|file| ("signing_secret_file", path(file))));
        values.extend(endpoint_secrets_file.as_ref().map(|file| ("endpoint_secrets_file", path(file))));
        if !endpoint_secret_command.is_empty() {
            let words: Vec<String> = endpoint_secret_command.iter().map(|word| quoted(word)).collect();
            values.push(("endpoint_secret_command", format!("[{}]", words.join(", "))));
        }
        let header = endpoint_secret_header.as_ref();
        values.extend(header.map(|name| ("endpoint_secret", quoted(&format!("header:{name}")))));
        let format = FORMATS.into_iter().find(|(_, format)| *format == self.format);
        values.extend(format.map(|(name, _)| ("format", quoted(name))));
        values
    }
}

fn signing(reader: &mut SettingReader, section: &Section<'_>) -> Signing {
    let mut signing = Signing {
        secret_file: secret_file(reader, section, "signing_secret_file"),
        endpoint_secrets_file: secret_file(reader, section, "endpoint_secrets_file"),
        endpoint_secret_command: command(reader, section),
        endpoint_secret_header: None,
    };
    match reader.pick(section, "endpoint_secret") {
        Some(Pick::Header(name)) => signing.endpoint_secret_header = Some(name),
        Some(Pick::Json(_)) => {
            let name = section.name("endpoint_secret");
            let problem =
                format!("`{name}` must be a header: what stands in the payload is sent to the receiver");
            let fix = format!("{name} = \"header:x-webhook-secret\"");
            let at = section.at("endpoint_secret").into_iter().collect();
            reader.fault(section, Fault::line(name, problem, fix, at));
        }
        None => {}
    }
    signing
}

/// Reads a program and its arguments.
fn command(reader: &mut SettingReader, section: &Section<'_>) -> Vec<String> {
    let words = reader.texts(section, "endpoint_secret_command").map(|set| set.value).unwrap_or_default();
    words.into_iter().map(|set| set.value).collect()
}

fn client_certificate(reader: &mut SettingReader, section: &Section<'_>) -> Option<ClientCertificate> {
    let cert = reader.text(section, "client_cert_file");
    let key = secret_file(reader, section, "client_key_file");
    if let (Some(cert), Some(key_file)) = (&cert, &key) {
        return Some(ClientCertificate { cert_file: cert.value.clone().into(), key_file: key_file.clone() });
    }
    let (is, lacks) = match (section.get("client_cert_file"), section.get("client_key_file")) {
        (Some(_), None) => ("client_cert_file", "client_key_file"),
        (None, Some(_)) => ("client_key_file", "client_cert_file"),
        _ => return None,
    };
    let problem = format!(
        "`{}` is set without `{}`; a client certificate needs both",
        section.name(is),
        section.name(lacks)
    );
    let fix = section.example(lacks).unwrap_or_default();
    let at = section.at(is).into_iter().collect();
    reader.fault(section, Fault::line(section.name(lacks), problem, fix, at));
    None
}

fn auth(reader: &mut SettingReader, section: &Section<'_>) -> Option<Auth> {
    let table = reader.table(section, "auth")?;
    reader.unknown_keys(&table);
    let Some(kind) = reader.one_of(&table, "kind", &KINDS) else {
        if table.get("kind").is_none() {
            let name = table.name("kind");
            let problem = format!("`{name}` is missing: basic, bearer or oauth2");
            let at = section.at("auth").into_iter().collect();
            reader.fault(section, Fault::line(&name, problem, format!("{name} = \"bearer\""), at));
        }
        return None;
    };
    let kind = kind.value;
    let word = KINDS.into_iter().find(|(_, one)| *one == kind).map_or("", |(word, _)| word);
    for key in kind.needs().iter().filter(|key| table.get(key).is_none()) {
        let name = table.name(key);
        let problem = format!("`{name}` is missing, which `kind = \"{word}\"` needs");
        let fix = table.example(key).unwrap_or_default();
        reader.fault(section, Fault::line(&name, problem, fix, section.at("auth").into_iter().collect()));
    }
    let strange = table.table.entries.iter().filter(|entry| !kind.takes(&entry.key));
    let strange: Vec<_> = strange.map(|entry| (entry.key.clone(), entry.key_at.clone())).collect();
    for (key, at) in strange {
        let known = KINDS.iter().any(|(_, other)| other.takes(&key));
        if known {
            let name = table.name(&key);
            let problem = format!("`{name}` means nothing with `kind = \"{word}\"`");
            reader.fault(section, Fault::line(&name, problem, format!("remove `{name}`"), vec![at]));
        }
    }
    if let Some(endpoint) = section.at("endpoint") {
        let name = section.name("auth");
        let problem = format!(
            "`{name}` goes to every endpoint that a message names; anyone who writes messages can have it sent to \
             themselves"
        );
        let at = section.at("auth").into_iter().chain([endpoint]).collect();
        let fix = "leave it out, or deliver to one `url`";
        reader.fault(section, Fault::line(name, problem, fix, at).warning());
    }
    match kind {
        AuthKind::Basic => {
            let user = reader.text(&table, "user").map(|set| set.value);
            let password_file = secret_file(reader, &table, "password_file");
            Some(Auth::Basic { user: user?, password_file: password_file? })
        }
        AuthKind::Bearer => Some(Auth::Bearer { token_file: secret_file(reader, &table, "token_file")? }),
        AuthKind::OAuth2 => {
            let token_url = reader.text(&table, "token_url").map(|set| Secret::from(set.value));
            let client_id = reader.text(&table, "client_id").map(|set| set.value);
            let client_secret_file = secret_file(reader, &table, "client_secret_file");
            let scopes = reader.texts(&table, "scopes").map(|set| set.value).unwrap_or_default();
            let scopes = scopes.into_iter().map(|scope| scope.value).collect();
            let (token_url, client_id) = (token_url?, client_id?);
            Some(Auth::OAuth2(OAuth2 {
                token_url,
                client_id,
                client_secret_file: client_secret_file?,
                scopes,
            }))
        }
    }
}

/// Reads the path of a secret file; a world-readable one gets a warning.
fn secret_file(reader: &mut SettingReader, section: &Section<'_>, key: &str) -> Option<PathBuf> {
    let set = reader.text(section, key)?;
    let (name, path) = (section.name(key), PathBuf::from(&set.value));
    let looked_at = path.clone();
    let look = move || secrets::exposed(&name, &looked_at, &set.at).into_iter().collect();
    reader.named.push(Named::new(section.part_name(), look));
    Some(path)
}
