//! Sends one notice.

use redrive_server::alerts::Notice;

use crate::config::AlertConfig;
use crate::exit::Failed;
use crate::service::outlet::{Outlet, Post};

/// The destination of the notices of one `[[alert]]`.
#[derive(Debug)]
pub struct Sender(Outlet);

impl Sender {
    pub fn build(config: &AlertConfig) -> Result<Self, Failed> {
        Outlet::build(&config.to, config.timeout, "alert").map(Self)
    }

    /// Sends a notice within the alert's timeout; fails with a short description.
    pub async fn send(&self, notice: &Notice, attempt: u32) -> Result<(), String> {
        let pipeline = notice.pipeline.clone();
        let env = vec![
            ("REDRIVE_ALERT", notice.kind.name().to_owned()),
            ("REDRIVE_ALERT_STATE", notice.state.name().to_owned()),
            ("REDRIVE_ALERT_PIPELINE", pipeline.clone().unwrap_or_default()),
            ("REDRIVE_ALERT_SUMMARY", notice.summary.clone()),
        ];
        let pipeline = pipeline.unwrap_or_else(|| "redrive".to_owned());
        let post = Post { id: notice.id(), pipeline, body: notice.to_json().to_string(), env };
        self.0.send(&post, attempt).await
    }
}
