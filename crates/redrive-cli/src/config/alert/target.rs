//! The destination of a notice: an address that gets a POST, or a program.

use std::time::Duration;

use redrive_sinks::{Secret, WebhookOptions};

use super::super::headers::HeaderConfig;

/// The destination of notices.
#[derive(Clone, Debug)]
pub enum AlertTarget {
    /// A POST with the notice as JSON. The address of a chat service is a secret.
    Webhook { url: Secret, headers: Vec<HeaderConfig> },
    /// A program and its arguments; it gets the notice on standard input.
    Command(Vec<String>),
}

impl AlertTarget {
    pub fn options(&self, timeout: Duration) -> Option<WebhookOptions> {
        let Self::Webhook { url, headers } = self else { return None };
        let headers = headers.iter().map(HeaderConfig::setting).collect();
        Some(WebhookOptions { headers, timeout, ..WebhookOptions::to_url(url.clone()) })
    }
}
