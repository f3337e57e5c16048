//! A sink that also logs deliveries. Failures are logged by the pipeline, which knows the decision about them.

use std::sync::Arc;
use std::time::Instant;

use redrive::letters::Redaction;
use redrive::{Call, Delivery, Endpoint, LimitBy, Message, Notes, Sink, StatusPage};
use redrive_core::{Ratio, SplitMix64};
use redrive_server::log;

const TARGET: &str = "redrive::attempt";

/// Logs a share of a sink's successes at `info`, and the others at `debug`.
pub struct DeliveredLog {
    sink: Arc<dyn Sink>,
    share: Ratio,
    /// Values to hide of messages, also where their ids repeat them.
    redaction: Redaction,
}

impl DeliveredLog {
    pub fn new(sink: Arc<dyn Sink>, share: Ratio, redaction: Redaction) -> Self {
        Self { sink, share, redaction }
    }
}

/// Whether the success of a message is in the share. The answer is always the same for a message.
fn is_sampled(id: &str, share: Ratio) -> bool {
    let seed = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    SplitMix64::new(seed).draw() % Ratio::WHOLE.basis_points() < share.basis_points()
}

impl Sink for DeliveredLog {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        let is_info = is_sampled(call.message.id(), self.share);
        if !is_info && !tracing::enabled!(target: "redrive::attempt", tracing::Level::DEBUG) {
            return self.sink.deliver(call);
        }
        Box::pin(async move {
            let (message, pipeline, attempt) =
                (call.message.clone(), Arc::clone(&call.pipeline), call.attempt);
            let (mut notes, started) = (Notes::default(), Instant::now());
            let outcome = self.sink.deliver_noted(call, &mut notes).await;
            if outcome.is_ok() {
                let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                let status_code = notes.get("status_code").and_then(|code| code.parse::<u64>().ok());
                let granted_ttl = notes.get("granted_ttl").and_then(|ttl| ttl.parse::<u64>().ok());
                let [message_id, correlation_id] = log::ids(&message, &self.redaction);
                macro_rules! write_event {
                    ($level:ident) => {
                        tracing::$level!(
                            target: TARGET,
                            pipeline = &*pipeline,
                            message_id,
                            correlation_id,
                            attempt,
                            status_code,
                            took_ms,
                            decision = "complete",
                            granted_ttl,
                            endpoint_hash = notes.get("endpoint_hash"),
                            "delivered"
                        )
                    };
                }
                if is_info { write_event!(info) } else { write_event!(debug) }
            }
            outcome
        })
    }

    fn name(&self) -> &'static str {
        self.sink.name()
    }

    fn target(&self) -> Option<String> {
        self.sink.target()
    }

    fn status_pages(&self) -> &'static [StatusPage] {
        self.sink.status_pages()
    }

    fn per_endpoint(&self) -> Option<u32> {
        self.sink.per_endpoint()
    }

    fn per_endpoint_rate(&self) -> Option<f64> {
        self.sink.per_endpoint_rate()
    }

    fn origin_is_one_service(&self) -> bool {
        self.sink.origin_is_one_service()
    }

    fn set_share(&self, owned: u32, all: u32) {
        self.sink.set_share(owned, all);
    }

    fn is_one_endpoint(&self) -> bool {
        self.sink.is_one_endpoint()
    }

    fn runs_in_process(&self) -> bool {
        self.sink.runs_in_process()
    }

    fn endpoint(&self, message: &Message) -> Option<Endpoint> {
        self.sink.endpoint(message)
    }

    fn limit_by(&self) -> LimitBy {
        self.sink.limit_by()
    }

    fn numbering(&self) -> Option<u64> {
        self.sink.numbering()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_the_share_is_sampled_and_a_message_always_the_same() {
        let sampled = |share| (0..10_000).filter(|n| is_sampled(&format!("m-{n}"), share)).count();
        assert_eq!((sampled(Ratio::ZERO), sampled(Ratio::WHOLE)), (0, 10_000));
        let tenth = sampled(Ratio::percent(10));
        assert!((900..1_100).contains(&tenth), "{tenth}");
        assert_eq!(tenth, sampled(Ratio::percent(10)));
    }
}
