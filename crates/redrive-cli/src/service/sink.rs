//! A sink from its configuration.

use redrive_sinks::{SinkFault, WebhookSink};

use crate::config::{PipelineConfig, SinkConfig};

/// The sink of a pipeline, with the time limit of an attempt as the limit of its exchange.
pub fn build(pipeline: &PipelineConfig) -> Result<WebhookSink, Vec<SinkFault>> {
    let SinkConfig::Webhook(webhook) = &pipeline.sink;
    let mut options = webhook.options()?;
    options.timeout = pipeline.policy.timeout();
    let faults = options.check();
    if !faults.is_empty() {
        return Err(faults);
    }
    WebhookSink::build(options).map_err(|fault| vec![fault])
}
