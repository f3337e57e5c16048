//! `headers`: headers for every request of a webhook, from the configuration or from files.

use std::path::PathBuf;

use redrive_sinks::Secret;
use redrive_sinks::webhook::HeaderFrom;

use super::fault::Fault;
use super::named::Named;
use super::reader::{Section, SettingReader};
use super::secrets::{self, is_secret_header};
use super::tree::{At, Data};

/// A header that is sent with every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderConfig {
    pub name: String,
    pub value: HeaderValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderValue {
    /// A value in the configuration; it may still be a secret, so it is not printed.
    Plain(Secret),
    /// A value in a file.
    File(PathBuf),
}

impl HeaderConfig {
    /// The header for the sink.
    pub(super) fn setting(&self) -> (String, HeaderFrom) {
        let value = match &self.value {
            HeaderValue::Plain(secret) => HeaderFrom::Text(secret.clone()),
            HeaderValue::File(path) => HeaderFrom::File(path.clone()),
        };
        (self.name.clone(), value)
    }
}

/// Reads the table `headers`. `endpoint` says where messages name their own endpoint.
pub(super) fn read(
    reader: &mut SettingReader,
    section: &Section<'_>,
    endpoint: Option<&At>,
) -> Vec<HeaderConfig> {
    let Some(table) = reader.table(section, "headers") else { return Vec::new() };
    let mut headers: Vec<(HeaderConfig, At)> = Vec::new();
    for entry in &table.table.entries {
        let full = table.name(&entry.key);
        let Data::Text(text) = &entry.node.data else {
            let problem = format!("`{full}` must be a text in quotes, not {}", entry.node.kind());
            // The value is left out: it may be a secret.
            let fix = format!("{full} = \"value\"");
            reader.fault(section, Fault::line(full, problem, fix, vec![entry.key_at.clone()]));
            continue;
        };
        let (name, value) = match entry.key.strip_suffix("_file") {
            Some(name) => {
                let (key, path, at) = (full.clone(), PathBuf::from(text), entry.key_at.clone());
                let look = move || secrets::exposed(&key, &path, &at).into_iter().collect();
                reader.named.push(Named::new(section.part_name(), look));
                (name, HeaderValue::File(text.into()))
            }
            None => (entry.key.as_str(), HeaderValue::Plain(Secret::from(text))),
        };
        if !is_header_name(name) {
            let problem =
                format!("`{full}` is not the name of a header: that has letters, digits and hyphens");
            let fix = format!("remove `{full}`");
            reader.fault(section, Fault::line(full, problem, fix, vec![entry.key_at.clone()]));
            continue;
        }
        if let HeaderValue::Plain(_) = value {
            if text.chars().any(|c| c.is_control() && c != '\t') {
                let problem = format!("`{full}` has a line end or another control character in it");
                reader.fault(
                    section,
                    Fault::line(&full, problem, format!("remove `{full}`"), vec![entry.key_at.clone()]),
                );
                continue;
            }
            if is_secret_header(name) {
                let problem = format!(
                    "`{full}` puts a secret into the configuration; `{name}_file` reads it from a file"
                );
                let at = vec![entry.key_at.clone()];
                reader.fault(section, Fault::line(&full, problem, "", at).warning());
            }
        }
        let is_secret = is_secret_header(name) || matches!(value, HeaderValue::File(_));
        if let Some(endpoint) = endpoint.filter(|_| is_secret) {
            let problem = format!(
                "`{full}` goes to every endpoint that a message names; anyone who writes messages can have it sent to \
                 themselves"
            );
            let fix = "leave it out, or deliver to one `url`";
            let at = vec![entry.key_at.clone(), endpoint.clone()];
            reader.fault(section, Fault::line(&full, problem, fix, at).warning());
        }
        let header = HeaderConfig { name: name.to_ascii_lowercase(), value };
        if let Some((_, at)) = headers.iter().find(|(other, _)| other.name == header.name) {
            let problem = format!("header `{}` is set twice", header.name);
            let at = vec![at.clone(), entry.key_at.clone()];
            let fix = format!("remove `{full}`");
            reader.fault(section, Fault::line(full, problem, fix, at));
            continue;
        }
        headers.push((header, entry.key_at.clone()));
    }
    headers.into_iter().map(|(header, _)| header).collect()
}

fn is_header_name(name: &str) -> bool {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.len() <= 256 && name.chars().all(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_printed() {
        let value = HeaderValue::Plain(Secret::from("hunter2"));
        let header = HeaderConfig { name: "authorization".to_owned(), value };
        assert!(!format!("{header:?}").contains("hunter2"));
    }
}
