//! A handler that one order kills; the others are handled as usual.

use std::time::Duration;

use redrive::{Call, Delivery, Failure, Sink};
pub use redrive_faults::pill::{Death, STUCK};
use redrive_lab::kafka::applier::Applier;
use redrive_lab::kafka::orders;

/// How long an innocent order takes: long enough that all are in flight when the pill starts to run.
const TAKES: Duration = Duration::from_millis(60);
const PILL_AFTER: Duration = Duration::from_millis(30);
/// After this time the watchdog may check whether the handler yields.
pub const TIMEOUT: Duration = Duration::from_millis(300);

/// Which order kills, and how.
#[derive(Clone, Copy, Debug)]
pub struct Pill {
    pub order: u64,
    pub death: Death,
    /// The first attempt that kills; earlier ones fail.
    pub from_attempt: u32,
}

/// The handler of a process that may have a pill among its orders.
#[derive(Debug)]
pub struct CrashingApplier {
    pub applier: Applier,
    pub pill: Option<Pill>,
}

impl Sink for CrashingApplier {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move {
            let Some(pill) = self.pill else { return self.applier.deliver(call).await };
            if call.message.payload().and_then(orders::number) == Some(pill.order) {
                if call.attempt < pill.from_attempt {
                    return Err(Failure::transient("503 service unavailable"));
                }
                tokio::time::sleep(PILL_AFTER).await;
                pill.death.come();
            }
            tokio::time::sleep(TAKES).await;
            self.applier.deliver(call).await
        })
    }
}
