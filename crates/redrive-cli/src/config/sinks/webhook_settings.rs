//! The declarations of `[pipeline.sink.webhook]` and `auth` below it.

use redrive_core::pace::RATE_MIN;

use super::super::declared::Form::{
    Address, Command, File, Open, Pick, Rate, Switch, Text, Texts, Whole, Words,
};
use super::super::declared::{Header, Setting, SettingTable, words};
use super::common::{CA_FILE, CONCURRENCY, TIMEOUT};
use super::identity::{FORMATS, KINDS};
use super::webhook::LIMIT_BY;

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "pipeline.sink.webhook",
        header: Header::Active,
        about: "",
        settings: &[
            Setting::default("url", Address, r#""http://127.0.0.1:8000/orders""#, "the webhook, which gets a POST with the payload; or `endpoint`").flag("--sink-url", "URL"),
            Setting::example("endpoint", Pick, r#""json:/url""#, "message field or header that holds the URL: json:POINTER | header:NAME"),
            Setting::example("headers", Open(&Text), r#"{ authorization_file = "/etc/redrive/orders-auth" }"#, "sent with every request; NAME_file reads the value from a file"),
            CA_FILE,
            Setting::example("client_cert_file", File, r#""/etc/redrive/client.pem""#, "client certificate for mutual TLS (PEM); needs `client_key_file`"),
            Setting::example("client_key_file", File, r#""/etc/redrive/client.key""#, "its private key, PEM"),
            Setting::example("signing_secret_file", File, r#""/etc/redrive/orders-whsec""#, "signs each request: a whsec_ or whsk_ secret per line, older ones `until` a time"),
            Setting::example("endpoint_secrets_file", File, r#""/etc/redrive/secrets""#, "secrets of single endpoints: one line with URL and secret for each"),
            Setting::example("endpoint_secret_command", Command, r#"["/usr/local/bin/endpoint-secret"]"#, "program that is given an endpoint as its last argument and prints that endpoint's secrets, one per line"),
            Setting::example("endpoint_secret", Pick, r#""header:x-webhook-secret""#, "message header that carries the endpoint's signing secret; not forwarded"),
            Setting::default("format", Words(|| words(&FORMATS)), r#""plain""#, "plain, or cloudevents: adds the headers of CloudEvents in binary mode"),
            TIMEOUT,
            CONCURRENCY,
            Setting::default("limit_by", Words(|| words(&LIMIT_BY)), r#""endpoint""#, "what `per_endpoint`, `per_endpoint_rate` and breakers count together"),
            Setting::example("per_endpoint", Whole(1, 10_000), "5", "maximum concurrent attempts per endpoint; only with `endpoint` or `limit_by`"),
            Setting::example("per_endpoint_rate", Rate(RATE_MIN, f64::MAX), r#""20/s""#, "maximum attempt rate per endpoint (20/s, 600/m), only with `endpoint` or `limit_by`; excess messages wait without using attempts"),
            Setting::default("allow_private_addresses", Switch, "false", "whether messages may name private and loopback addresses, with `endpoint`").flag("--allow-private-addresses", ""),
            Setting::example("hash_key_file", File, r#""/etc/redrive/hash.key""#, "key for endpoint hashes in logs and `status`; generated in the engine's directory if unset"),
            Setting::example("proxy", Address, r#""http://proxy.example.com:3128""#, "requests go through this proxy: by CONNECT for https, in absolute form for http"),
            Setting::example("proxy_auth_file", File, r#""/etc/redrive/proxy-auth""#, "holds `user:password` for the proxy"),
            Setting::example("classes", Open(&Text), r#"{ "404" = "gone" }"#, "overrides rows of the class table: \"404\", \"5xx\", \"timeout\" … = ok or a class"),
        ],
    },
    SettingTable {
        path: "pipeline.sink.webhook.auth",
        header: Header::Example,
        about: "authentication to the receiver; every secret comes from a file",
        settings: &[
            Setting::example("kind", Words(|| words(&KINDS)), r#""bearer""#, "how requests authenticate"),
            Setting::example("user", Text, r#""redrive""#, "basic: the name"),
            Setting::example("password_file", File, r#""/etc/redrive/password""#, "basic: the file that holds the password"),
            Setting::example("token_file", File, r#""/etc/redrive/token""#, "bearer: the file that holds the token"),
            Setting::example("token_url", Address, r#""https://login.example.com/oauth2/token""#, "oauth2: where tokens are granted for client credentials"),
            Setting::example("client_id", Text, r#""redrive""#, "oauth2: the client"),
            Setting::example("client_secret_file", File, r#""/etc/redrive/client-secret""#, "oauth2: the file that holds its secret"),
            Setting::example("scopes", Texts, r#"["hooks.write"]"#, "oauth2: what to ask for; default: nothing"),
        ],
    },
];
