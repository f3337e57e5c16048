//! A sink from its configuration.

use redrive_sinks::webhook::classes::{Case, Meaning};
use redrive_sinks::webhook::options::HeaderFrom;
use redrive_sinks::{ClassTable, Secret, SinkFault, WebhookOptions, WebhookSink};

use crate::config::{ClassOverride, HeaderValue, Pick, PipelineConfig, SinkConfig, Target, WebhookConfig};

/// The sink of a pipeline, with the time limit of an attempt as the limit of its exchange.
pub fn build(pipeline: &PipelineConfig) -> Result<WebhookSink, Vec<SinkFault>> {
    let SinkConfig::Webhook(webhook) = &pipeline.sink;
    let mut options = options(webhook);
    options.timeout = pipeline.policy.timeout();
    let faults = options.check();
    if !faults.is_empty() {
        return Err(faults);
    }
    WebhookSink::build(options).map_err(|fault| vec![fault])
}

fn options(webhook: &WebhookConfig) -> WebhookOptions {
    let mut options = match &webhook.target {
        Target::Url(url) => WebhookOptions::to_url(Secret::from(url.as_str())),
        Target::Endpoint(pick) => {
            let per_endpoint = Some(webhook.per_endpoint);
            WebhookOptions { per_endpoint, ..WebhookOptions::per_message(written(pick)) }
        }
    };
    options.headers = webhook
        .headers
        .iter()
        .map(|header| {
            let value = match &header.value {
                HeaderValue::Plain(secret) => HeaderFrom::Text(Secret::from(secret.reveal())),
                HeaderValue::File(path) => HeaderFrom::File(path.clone()),
            };
            (header.name.clone(), value)
        })
        .collect();
    options.ca_file.clone_from(&webhook.ca_file);
    options.allow_private_addresses = webhook.allow_private_addresses;
    options.classes = classes(&webhook.classes);
    options
}

/// As the configuration writes it.
pub fn written(pick: &Pick) -> String {
    match pick {
        Pick::Json(pointer) => format!("json:{pointer}"),
        Pick::Header(name) => format!("header:{name}"),
    }
}

/// The usual table with what the configuration says on top. Hundreds go first, so that single statuses stay.
fn classes(overrides: &[ClassOverride]) -> ClassTable {
    let mut table = ClassTable::default();
    let (hundreds, singles): (Vec<&ClassOverride>, Vec<&ClassOverride>) =
        overrides.iter().partition(|over| over.statuses.0 != over.statuses.1);
    for over in hundreds.into_iter().chain(singles) {
        let (first, last) = over.statuses;
        let case = if first == last { Case::Status(first) } else { Case::Hundred((first / 100) as u8) };
        table.set(case, over.class.map_or(Meaning::Ok, Meaning::Fails));
    }
    table
}
