//! Settings that several sinks share.

use redrive_core::policy::limits;

use super::super::declared::Form::{Address, Any, Command, Duration, File, Whole, Words};
use super::super::declared::Setting;

#[rustfmt::skip]
pub(super) const TIMEOUT: Setting = Setting::example("timeout", Duration, r#""30s""#, "the same as the pipeline's `timeout`, here or there");
#[rustfmt::skip]
pub(super) const CONCURRENCY: Setting = Setting::example("concurrency", Whole(1, limits::CONCURRENCY_MAX as u64), "64", "the same as the pipeline's `concurrency`, here or there");
#[rustfmt::skip]
pub(super) const CA_FILE: Setting = Setting::example("ca_file", File, r#""/etc/redrive/ca.pem""#, "certificates to trust instead of the built-in list, PEM");
#[rustfmt::skip]
pub(super) const HASH_KEY_FILE: Setting = Setting::example("hash_key_file", File, r#""/etc/redrive/hash.key""#, "the key of endpoint hashes, at least 16 bytes, the same for ever; without it one is made in the engine's directory, and with kafka it has to be set");
#[rustfmt::skip]
pub(super) const PURGE: Setting = Setting::example("purge", Words(&["off", "verify", "at_once"]), r#""verify""#, "endpoints that are gone: off flags them, verify purges if they still are an hour later, at_once at the first answer");
#[rustfmt::skip]
pub(super) const ON_PURGED: Setting = Setting::example("on_purged", Any(&[Address, Command]), r#""https://app.example.com/purged""#, "gets a POST for each purge, at least once; or a program and its arguments in a list");
