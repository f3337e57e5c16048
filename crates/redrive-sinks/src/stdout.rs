//! The stdout sink: prints each message as one line of JSON, to look at a topic or a queue.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive::{Call, Delivery, Failure, Message, Sink};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Writes each message as a JSON line. A written line counts as delivered.
#[derive(Clone)]
pub struct StdoutSink {
    out: Arc<Mutex<dyn Write + Send>>,
}

impl StdoutSink {
    /// Writes to the standard output of this process.
    pub fn new() -> Self {
        Self::to(io::stdout())
    }

    /// Writes elsewhere.
    pub fn to(out: impl Write + Send + 'static) -> Self {
        Self { out: Arc::new(Mutex::new(out)) }
    }
}

impl Default for StdoutSink {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink for StdoutSink {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        let out = Arc::clone(&self.out);
        Box::pin(async move {
            let line = line(&call);
            // A slow reader blocks the writer, which therefore must not be a runtime thread.
            let written = tokio::task::spawn_blocking(move || {
                let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
                out.write_all(&line).and_then(|()| out.flush())
            });
            match written.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    Err(Failure::transient(format!("standard output cannot be written: {error}")))
                }
                Err(error) => Err(Failure::transient(format!("writing was interrupted: {error}"))),
            }
        })
    }

    fn name(&self) -> &'static str {
        "stdout"
    }

    fn target(&self) -> Option<String> {
        Some("standard output".to_owned())
    }

    fn is_one_endpoint(&self) -> bool {
        true
    }

    fn runs_in_process(&self) -> bool {
        false
    }
}

impl fmt::Debug for StdoutSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StdoutSink")
    }
}

/// Formats a message with the field names of `POST /v1/pipelines/{p}/messages`.
fn line(call: &Call) -> Vec<u8> {
    let message = &call.message;
    let mut fields = Map::new();
    fields.insert("id".to_owned(), message.id().into());
    if let Some(key) = message.key() {
        fields.insert("key".to_owned(), String::from_utf8_lossy(key).into());
    }
    fields.extend(message.tenant().map(|tenant| ("tenant".to_owned(), tenant.into())));
    let headers =
        message.headers().map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into()));
    let headers: Map<String, Value> = headers.collect();
    if !headers.is_empty() {
        fields.insert("headers".to_owned(), headers.into());
    }
    fields.insert("created_ms".to_owned(), message.created().as_millis().into());
    fields.insert("pipeline".to_owned(), (*call.pipeline).into());
    fields.insert("attempt".to_owned(), call.attempt.into());
    if call.replays > 0 {
        fields.insert("replays".to_owned(), call.replays.into());
    }
    if let Some(origin) = &call.origin {
        let source = json!({"topic": &*origin.topic, "partition": origin.partition, "offset": origin.offset});
        fields.insert("source".to_owned(), source);
    }
    let mut line = Value::Object(fields).to_string().into_bytes();
    line.pop();
    line.extend_from_slice(&payload(message));
    line.extend_from_slice(b"}\n");
    line
}

/// JSON unchanged, so that numbers and the order of keys are the sender's; other text in quotes; anything else in
/// base64.
fn payload(message: &Message) -> Vec<u8> {
    let Some(payload) = message.payload() else { return b",\"payload\":null".to_vec() };
    let one_line = |json: &&RawValue| !json.get().contains(['\n', '\r']);
    if let Ok(json) = serde_json::from_slice::<&RawValue>(payload) {
        let json = Some(json).filter(one_line).map(|json| json.get().to_owned());
        // White space between tokens may contain line ends; a line of the output must not.
        let json =
            json.or_else(|| serde_json::from_slice::<Value>(payload).ok().map(|value| value.to_string()));
        if let Some(json) = json {
            return format!(",\"payload\":{json}").into_bytes();
        }
    }
    match std::str::from_utf8(payload) {
        Ok(text) => format!(",\"payload\":{}", Value::from(text)).into_bytes(),
        Err(_) => format!(",\"payload_base64\":\"{}\"", STANDARD.encode(payload)).into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use redrive::Time;

    use super::*;

    fn call(message: Message) -> Call {
        Call { message, attempt: 2, replays: 0, pipeline: "orders".into(), origin: None }
    }

    fn printed(message: Message) -> Value {
        let line = line(&call(message));
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "one line, ended");
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn a_message_is_one_line_of_json_with_the_names_of_the_api() {
        let message = Message::builder("o-1").key("c-7").header("x-src", "web").created(Time::from_millis(5));
        let line = printed(message.payload("{\"n\": 12345678901234567890,\n \"a\":1}").build().unwrap());
        assert_eq!((&line["id"], &line["key"]), (&json!("o-1"), &json!("c-7")));
        assert_eq!((&line["attempt"], &line["pipeline"]), (&json!(2), &json!("orders")));
        assert_eq!(line["payload"]["n"], json!(12_345_678_901_234_567_890_u64));
        assert_eq!(line["headers"]["x-src"], "web");
    }

    #[test]
    fn payloads_that_are_no_json_are_printed_too() {
        assert_eq!(
            printed(Message::builder("a").payload("hello\nyou").build().unwrap())["payload"],
            "hello\nyou"
        );
        let bytes = printed(Message::builder("a").payload(&b"\xff\x00"[..]).build().unwrap());
        assert_eq!(bytes["payload_base64"], "/wA=");
        assert_eq!(printed(Message::builder("a").build().unwrap())["payload"], Value::Null);
    }

    struct Shut;

    impl Write for Shut {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_message_that_cannot_be_written_is_tried_again() {
        let sink: Arc<dyn Sink> = Arc::new(StdoutSink::to(Shut));
        let failure = sink.deliver(call(Message::builder("a").build().unwrap())).await.unwrap_err();
        assert!(failure.to_string().contains("standard output cannot be written"), "{failure}");
    }
}
