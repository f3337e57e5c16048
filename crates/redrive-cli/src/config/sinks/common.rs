//! Settings that several sinks share.

use std::time::Duration;

use redrive::internal::subscriptions::Purge;
use redrive_core::policy::limits;
use redrive_sinks::webhook::options::TIMEOUT_MAX;

use super::super::declared::Form::{Address, Any, Command, File, Span, Whole, Words};
use super::super::declared::Setting;

#[rustfmt::skip]
pub(super) const TIMEOUT: Setting = Setting::example("timeout", Span(Duration::from_millis(1), TIMEOUT_MAX), r#""30s""#, "same as `timeout` of the pipeline; set it in one of the two places");
#[rustfmt::skip]
pub(super) const CONCURRENCY: Setting = Setting::example("concurrency", Whole(1, limits::CONCURRENCY_MAX as u64), "64", "same as `concurrency` of the pipeline; set it in one of the two places");
#[rustfmt::skip]
pub(super) const CA_FILE: Setting = Setting::example("ca_file", File, r#""/etc/redrive/ca.pem""#, "certificates to trust instead of the built-in list, PEM");
#[rustfmt::skip]
pub(super) const HASH_KEY_FILE: Setting = Setting::example("hash_key_file", File, r#""/etc/redrive/hash.key""#, "key for endpoint hashes, at least 16 bytes; never change it. Generated in the engine's directory if unset; required with Kafka");
#[rustfmt::skip]
pub(super) const PURGE: Setting = Setting::default("purge", Words(|| Purge::ALL.map(Purge::name).to_vec()), r#""verify""#, "what to do when an endpoint is reported gone: off = flag only, verify = purge if still gone an hour later, at_once = purge on the first answer");
#[rustfmt::skip]
pub(super) const ON_PURGED: Setting = Setting::example("on_purged", Any(&[Address, Command]), r#""https://app.example.com/purged""#, "gets a POST for each purge, at least once; or a program and its arguments in a list");
