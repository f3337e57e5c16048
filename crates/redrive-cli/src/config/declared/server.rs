//! The declarations of `[server]` and its tokens.

use redrive_server::Scope;

use super::super::server::READS;
use super::form::Form::{File, Text, WordListOf, Words};
use super::form::words;
use super::table::{Header, Setting, SettingTable};

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "server",
        header: Header::Active,
        about: "",
        settings: &[
            Setting::default("listen", Text, r#""127.0.0.1:7333""#, "address and port of the API; beyond loopback only with tokens, and with TLS in front").flag("--listen", "ADDRESS"),
            Setting::default("reads", Words(|| words(&READS)), r#""auto""#, "who may read: auto (needs a token as soon as one is configured) | token | open (everybody)"),
            Setting::example("tls_cert_file", File, r#""/etc/redrive/cert.pem""#, "certificate of the API, PEM; needs `tls_key_file`"),
            Setting::example("tls_key_file", File, r#""/etc/redrive/key.pem""#, "its private key, PEM"),
        ],
    },
    SettingTable {
        path: "server.token",
        header: Header::ExampleList,
        about: "",
        settings: &[
            Setting::example("name", Text, r#""ops""#, "the actor in the audit"),
            Setting::example("scopes", WordListOf(scopes), r#"["read", "metrics", "ingest", "replay", "edit", "discard", "admin"]"#, "what it allows"),
            Setting::example("secret_file", File, r#""/etc/redrive/ops-token""#, "at least 16 bytes, not world-readable; never put the secret in this file"),
        ],
    },
];

fn scopes() -> Vec<&'static str> {
    Scope::ALL.map(Scope::name).to_vec()
}
