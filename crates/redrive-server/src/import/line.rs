//! One letter as sent: parses the JSON object that an export or a reader of a topic writes, into a letter. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redrive::internal::adopt::{Dialect, ForeignRecord, NotUnderstood, Understood};
use redrive::internal::engine::import::content_hash;
use redrive::internal::engine::{Attempt, ForeignLetter, History, SourcePosition};
use redrive::{FailureKind, LetterState, Message, Time, timestamp};
use redrive_core::message::MessageError;
use redrive_core::text::secret_header::is_secret_header;
use redrive_core::{Class, MessageBuilder, Meta};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::extract;
use crate::ingest::Intake;

/// What an export writes for the value of a secret header.
const HIDDEN: &[u8] = b"(hidden)";
/// If the headers together are too large, those beyond this size are dropped: nearly always stack traces.
const LARGE_HEADER_BYTES: usize = 8 * 1024;
/// The maximum length of an exception name that serves as a code.
const CODE_BYTES_MAX: usize = 64;

/// A message that died elsewhere, as an export writes it or a reader of a topic makes it. Other fields, of which an export
/// has many, are not looked at.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ForeignLetter", extend("required" = ["payload"]))]
pub(crate) struct GivenLetter<'a> {
    /// The message's id. Without one the pipeline's rule decides, then `origin`, then `place`.
    message: Option<String>,
    /// The key: a text, {"utf8"}, {"base64"}, {"json"} or null.
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[schemars(extend("contentEncoding" = "base64"))]
    key_base64: Option<String>,
    /// The payload: a text, {"utf8"}, {"base64"}, {"json"} or null.
    #[schemars(with = "serde_json::Value")]
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    /// An object of names and values, or a list of pairs; values as the payload.
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    tenant: Option<String>,
    /// The record it came from, such as orders/7/1182.
    origin: Option<String>,
    /// The record of the letter itself.
    place: Option<String>,
    exception: Option<String>,
    /// Of the failure; permanent if it is left out.
    class: Option<String>,
    error: Option<String>,
    attempts: Option<u32>,
    /// A time in RFC 3339, as all times here.
    created: Option<String>,
    first_seen: Option<String>,
    failed_at: Option<String>,
    dead_at: Option<String>,
    #[serde(default)]
    history: Vec<GivenAttempt>,
    /// Pointers to values that `dlq export --redact` has replaced.
    #[serde(borrow)]
    redacted: Option<&'a RawValue>,
    /// The state it was exported in. An erased letter is refused.
    state: Option<String>,
    /// The framework whose headers were read for this line already; they are not read again.
    dialect: Option<String>,
}

impl GivenLetter<'_> {
    /// Whether its headers may describe the failure more fully.
    fn is_silent(&self) -> bool {
        let says = self.error.is_some() || self.exception.is_some() || !self.history.is_empty();
        !says && self.dialect.is_none()
    }

    /// Fills in from its headers what it does not say itself.
    fn complete(&mut self, headers: Understood) {
        let origin = headers.origin.map(|origin| origin.to_string());
        self.message = self.message.take().filter(|id| !id.is_empty()).or(headers.message_id);
        self.origin = self.origin.take().or(origin);
        self.exception = headers.exception;
        self.error = headers.error;
        self.attempts = self.attempts.or(headers.attempts);
        self.created = self.created.take().or_else(|| headers.created.map(timestamp::print));
    }
}

/// A failed attempt elsewhere.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ForeignAttempt")]
struct GivenAttempt {
    attempt: u32,
    at: Option<String>,
    #[serde(default)]
    took_ms: u32,
    class: Option<String>,
    kind: Option<String>,
    status: Option<u16>,
    code: Option<String>,
    #[serde(default)]
    error: String,
    #[serde(default)]
    counted: bool,
    #[serde(default)]
    ambiguous: bool,
}

/// Bytes: as text, as base64, or as JSON, which is kept verbatim.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineContent<'a> {
    #[serde(borrow)]
    utf8: Option<Cow<'a, str>>,
    #[serde(borrow)]
    base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    json: Option<&'a RawValue>,
}

type Headers = Vec<(String, Option<Bytes>)>;

/// A letter ready to be imported.
#[derive(Debug)]
pub struct ReadLetter {
    pub letter: ForeignLetter,
    /// The record of the letter itself, if it came from one.
    pub place: Option<String>,
    /// What was changed in it, in words.
    pub note: Option<String>,
}

/// The times of a line. None may be in the future: such a letter would be the youngest for a long time, and its
/// retention would start late.
struct Times {
    now: Time,
    /// The fields with times in the future.
    ahead: Vec<String>,
}

impl Times {
    /// The time of a field, at most now.
    fn read(&mut self, name: &str, text: Option<&str>) -> Result<Option<Time>, String> {
        let Some(text) = text else { return Ok(None) };
        let Some(time) = timestamp::parse(text) else {
            return Err(format!("`{name}` is {text:?}, which is not a time like 2026-11-15T21:40:05Z"));
        };
        if time > self.now {
            self.ahead.push(format!("`{name}` ({text})"));
        }
        Ok(Some(time.min(self.now)))
    }

    fn note(self) -> Option<String> {
        let are = if self.ahead.len() == 1 { "is" } else { "are" };
        let fields = self.ahead.join(", ");
        (!fields.is_empty()).then(|| format!("{fields} {are} in the future: set to the time of the import"))
    }
}

/// Parses one letter; fails with a description. Headers are parsed for the given framework, or for any.
pub fn read(text: &[u8], dialect: Option<Dialect>, intake: &Intake, now: Time) -> Result<ReadLetter, String> {
    let mut given: GivenLetter<'_> =
        serde_json::from_slice(text).map_err(|error| format!("it is not a letter: {error}"))?;
    if let Some(redacted) = given.redacted.map(RawValue::get).filter(|redacted| *redacted != "[]") {
        return Err(format!(
            "its values at {redacted} were redacted when it was exported, and a replay would deliver it without them; export \
             it without --redact, or put the values back and remove the field `redacted`"
        ));
    }
    if given.state.as_deref() == Some(LetterState::Erased.name()) {
        return Err(
            "it was erased: only its tombstone was exported, and there is nothing to deliver".to_owned()
        );
    }
    let Some(payload) = given.payload else {
        return Err("there is no `payload`; for a letter without one write `\"payload\": null`".to_owned());
    };
    let payload = bytes("payload", payload)?;
    let key = match (given.key, &given.key_base64) {
        (_, Some(text)) => Some(decoded("key_base64", text)?),
        (Some(key), None) => bytes("key", key)?,
        (None, None) => None,
    };
    let headers = given.headers.map(headers).transpose()?.unwrap_or_default();
    if given.is_silent() {
        let has_origin = given.origin.is_some();
        let said = said_by(&headers, dialect, has_origin, key.as_deref(), payload.as_deref())?;
        said.into_iter().for_each(|said| given.complete(said));
    }
    let mut times = Times { now, ahead: Vec::new() };
    let created = times.read("created", given.created.as_deref())?;
    let first_seen = times.read("first_seen", given.first_seen.as_deref())?;
    let died = times.read("dead_at", given.dead_at.as_deref())?;
    let failed_at = times.read("failed_at", given.failed_at.as_deref())?.or(died);
    let failed_at = failed_at.or(first_seen).or(created).unwrap_or(now);
    let origin = given.origin.as_deref().map(place).transpose()?;

    let (history, attempts) = history(&given, failed_at, &mut times)?;
    let id = match given.message.filter(|id| !id.is_empty()) {
        Some(id) => Some(id),
        None => picked(intake.id.as_ref(), payload.as_deref(), &headers),
    };
    let place = given.place;
    let id = id.or(given.origin).or_else(|| place.clone());
    let tenant = given.tenant.or_else(|| picked(intake.tenant.as_ref(), payload.as_deref(), &headers));
    let created = created.unwrap_or(failed_at);
    let parts = Parts { id, key, payload, tenant, created };
    let message = parts.message(&headers)?;
    let first_failed = Some(first_seen.unwrap_or(failed_at));
    let meta = Meta { created, attempts, first_failed, ..Meta::default() };
    Ok(ReadLetter { letter: ForeignLetter { message, origin, meta, history }, place, note: times.note() })
}

/// The information in another framework's headers, or why they cannot be parsed. If no framework was named for a line,
/// unknown headers are ignored.
fn said_by(
    headers: &Headers,
    dialect: Option<Dialect>,
    has_origin: bool,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Result<Option<Understood>, String> {
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
    // A line has no position of its own.
    let record = ForeignRecord { topic: "", partition: 0, offset: 0, written: None, key, value, headers };
    let is_named = dialect.is_some();
    let Some(dialect) = dialect.or_else(|| Dialect::detect(&record)) else { return Ok(None) };
    // As with a topic, only a named framework requires an origin; but an incomplete origin is always refused.
    let is_damaged = dialect.lacks_one_of_origin(&record);
    let has_source = has_origin || !(is_named || is_damaged);
    match dialect.understand(&record, has_source) {
        Ok(Understood { is_pointer: true, origin: Some(origin), .. }) => Err(format!(
            "it has no payload and only points at {origin}; import the topic, which fetches the message from there"
        )),
        Ok(said) => Ok(Some(said)),
        Err(why) => Err(not_understood(dialect, why, is_damaged)),
    }
}

fn not_understood(dialect: Dialect, why: NotUnderstood, is_damaged: bool) -> String {
    let name = dialect.name();
    let fix = if why.needs_source() && is_damaged {
        "name the record the message came from in `origin`, or set `\"dialect\": \"plain\"` in the line to leave its headers \
         unread"
    } else if why.needs_source() {
        "name the record the message came from in `origin`, or import the line without naming a dialect"
    } else {
        "correct the header, or set `\"dialect\": \"plain\"` in the line to leave its headers unread"
    };
    format!("not understood as {name}: {why}; {fix}")
}

struct Parts {
    id: Option<String>,
    key: Option<Bytes>,
    payload: Option<Bytes>,
    tenant: Option<String>,
    created: Time,
}

impl Parts {
    fn message(&self, headers: &Headers) -> Result<Message, String> {
        let built = match self.builder(headers.iter()).build() {
            Err(MessageError::TooLarge { part: "headers", .. }) => {
                let small = |(_, value): &&(String, Option<Bytes>)| {
                    value.as_ref().is_none_or(|value| value.len() <= LARGE_HEADER_BYTES)
                };
                self.builder(headers.iter().filter(small)).build()
            }
            built => built,
        };
        built.map_err(|error| error.to_string())
    }

    fn builder<'h>(&self, headers: impl Iterator<Item = &'h (String, Option<Bytes>)>) -> MessageBuilder {
        let with_id = |id: &str| {
            let mut builder = Message::builder(id).created(self.created);
            if let Some(key) = &self.key {
                builder = builder.key(key.clone());
            }
            if let Some(payload) = &self.payload {
                builder = builder.payload(payload.clone());
            }
            builder
        };
        let mut builder = if let Some(id) = &self.id {
            with_id(id)
        } else {
            // Without any name its content serves as its name, so that a repeat is recognised.
            let unnamed = with_id("unnamed").build();
            let hash = unnamed.map_or(0, |message| content_hash(&message, 0));
            with_id(&format!("imported-{hash:016x}"))
        };
        if let Some(tenant) = &self.tenant {
            builder = builder.tenant(tenant.clone());
        }
        for (name, value) in headers {
            builder = match value {
                Some(value) => builder.header(name.clone(), value.clone()),
                None => builder.null_header(name.clone()),
            };
        }
        builder
    }
}

/// The listed attempts, at least one since there was a failure; and how many of them counted.
fn history(given: &GivenLetter<'_>, failed_at: Time, times: &mut Times) -> Result<(History, u32), String> {
    let class = |name: &Option<String>| match name {
        Some(name) => {
            Class::from_name(name).ok_or_else(|| format!("`class` is {name:?}, which is not a class"))
        }
        None => Ok(Class::Permanent),
    };
    if given.history.is_empty() {
        let attempts = given.attempts.unwrap_or(1).max(1);
        let exception = given.exception.as_deref();
        let code = exception.and_then(|name| name.rsplit(['.', '$']).next()).filter(|name| is_code(name));
        let last = Attempt {
            number: attempts,
            at: failed_at,
            took_ms: 0,
            class: class(&given.class)?,
            kind: FailureKind::Other,
            code: code.map(str::to_owned),
            counted: true,
            ambiguous: false,
            error: error_text(exception, given.error.as_deref()),
        };
        return Ok((History::default().with(&last), attempts));
    }
    let mut history = History::default();
    for attempt in &given.history {
        let at = times.read("history.at", attempt.at.as_deref())?.unwrap_or(failed_at);
        let named = attempt.kind.as_deref().unwrap_or("status");
        let kind = FailureKind::from_name(named, attempt.status).unwrap_or_default();
        history = history.with(&Attempt {
            number: attempt.attempt,
            at,
            took_ms: attempt.took_ms,
            class: class(&attempt.class)?,
            kind,
            code: attempt.code.clone(),
            counted: attempt.counted,
            ambiguous: attempt.ambiguous,
            error: attempt.error.clone(),
        });
    }
    let counted = given.history.iter().filter(|attempt| attempt.counted).count();
    Ok((history, given.attempts.unwrap_or(u32::try_from(counted).unwrap_or(u32::MAX))))
}

/// The error, prefixed with its exception unless it already names it: letters are grouped by this text.
fn error_text(exception: Option<&str>, error: Option<&str>) -> String {
    let (Some(exception), Some(error)) = (exception, error) else {
        return error.or(exception).unwrap_or_default().to_owned();
    };
    let short = exception.rsplit(['.', '$']).next().unwrap_or(exception);
    let is_named = error.contains(exception) || error.starts_with(short);
    if is_named { error.to_owned() } else { format!("{exception}: {error}") }
}

fn is_code(name: &str) -> bool {
    (1..=CODE_BYTES_MAX).contains(&name.len())
}

fn picked(pick: Option<&redrive_core::Pick>, payload: Option<&[u8]>, headers: &Headers) -> Option<String> {
    let text = |(name, value): &(String, Option<Bytes>)| {
        let value = String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned();
        (name.clone(), value)
    };
    let headers: Vec<(String, String)> = headers.iter().map(text).collect();
    extract::find(pick?, payload, &headers).filter(|found| !found.is_empty())
}

/// Parses `orders/7/1182`.
fn place(text: &str) -> Result<SourcePosition, String> {
    let wrong = || format!("`origin` is {text:?}, which is not a record like orders/7/1182");
    let mut parts = text.rsplitn(3, '/');
    let (offset, partition, topic) = (parts.next(), parts.next(), parts.next());
    let topic = topic.filter(|topic| !topic.is_empty()).ok_or_else(wrong)?;
    let partition: u16 = partition.and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    let offset: i64 = offset.and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    let offset = u64::try_from(offset).map_err(|_| wrong())?;
    Ok(SourcePosition { topic: topic.into(), partition: partition.into(), offset })
}

/// Parses an object of names and values, or a list of pairs, in which a name may repeat. Values hidden by an export are
/// left out.
fn headers(raw: &RawValue) -> Result<Headers, String> {
    let wrong = |error: serde_json::Error| format!("`headers`: {error}");
    let text = raw.get();
    let pairs: Vec<(String, &RawValue)> = match text.as_bytes().first() {
        Some(b'[') => serde_json::from_str(text).map_err(wrong)?,
        Some(b'n') => Vec::new(),
        _ => {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(wrong)?;
            fields.into_iter().collect()
        }
    };
    let mut headers = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        let value = bytes("headers", value)?;
        let is_hidden = is_secret_header(&name) && value.as_deref() == Some(HIDDEN);
        if !is_hidden {
            headers.push((name, value));
        }
    }
    Ok(headers)
}

/// Parses a text, `{"utf8": …}`, `{"base64": …}`, `{"json": …}`, or null for nothing.
fn bytes(field: &str, raw: &RawValue) -> Result<Option<Bytes>, String> {
    let text = raw.get();
    let wrong = |_: serde_json::Error| {
        format!("`{field}` is neither a text nor {{\"utf8\": …}}, {{\"base64\": …}}, {{\"json\": …}} or null")
    };
    if text.starts_with('"') {
        let text: String = serde_json::from_str(text).map_err(wrong)?;
        return Ok(Some(text.into()));
    }
    let Some(content) = serde_json::from_str::<Option<LineContent<'_>>>(text).map_err(wrong)? else {
        return Ok(None);
    };
    match content {
        LineContent { utf8: Some(text), base64: None, json: None } => Ok(Some(text.into_owned().into())),
        LineContent { utf8: None, base64: Some(text), json: None } => decoded(field, &text).map(Some),
        LineContent { utf8: None, base64: None, json: Some(json) } => {
            Ok(Some(Bytes::copy_from_slice(json.get().as_bytes())))
        }
        _ => Err(format!("`{field}` needs exactly one of `utf8`, `base64` and `json`")),
    }
}

fn decoded(field: &str, text: &str) -> Result<Bytes, String> {
    let decoded = STANDARD.decode(text).map_err(|error| format!("`{field}` is not base64: {error}"))?;
    Ok(decoded.into())
}

/// A payload of `null` counts as present.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
