//! A sink from its configuration.

use redrive_sinks::webhook::options::HeaderFrom;
use redrive_sinks::{ClassTable, Secret, SinkFault, WebhookOptions, WebhookSink};

use crate::config::{HeaderValue, PipelineConfig, SinkConfig, Target, WebhookConfig};

/// The sink of a pipeline, with the time limit of an attempt as the limit of its exchange.
pub fn build(pipeline: &PipelineConfig) -> Result<WebhookSink, Vec<SinkFault>> {
    let SinkConfig::Webhook(webhook) = &pipeline.sink;
    let mut options = options(webhook)?;
    options.timeout = pipeline.policy.timeout();
    let faults = options.check();
    if !faults.is_empty() {
        return Err(faults);
    }
    WebhookSink::build(options).map_err(|fault| vec![fault])
}

fn options(webhook: &WebhookConfig) -> Result<WebhookOptions, Vec<SinkFault>> {
    let mut options = match &webhook.target {
        Target::Url(url) => WebhookOptions::to_url(Secret::from(url.as_str())),
        Target::Endpoint(pick) => {
            WebhookOptions { per_endpoint: webhook.per_endpoint, ..WebhookOptions::per_message(pick.clone()) }
        }
    };
    options.headers = webhook
        .headers
        .iter()
        .map(|header| {
            let value = match &header.value {
                HeaderValue::Plain(secret) => HeaderFrom::Text(secret.clone()),
                HeaderValue::File(path) => HeaderFrom::File(path.clone()),
            };
            (header.name.clone(), value)
        })
        .collect();
    options.ca_file.clone_from(&webhook.ca_file);
    options.allow_private_addresses = webhook.allow_private_addresses;
    let classes = webhook.classes.iter().map(|(case, class)| (case.as_str(), class.as_str()));
    options.classes = ClassTable::from_settings(classes)?;
    Ok(options)
}
