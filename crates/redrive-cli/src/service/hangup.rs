//! SIGHUP: reloads the certificate, and never ends the processor.

use std::path::PathBuf;

use redrive_server::ServerTls;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::server::tls;
use crate::exit::{Exit, Failed};

/// The files to reload.
#[derive(Debug)]
pub struct Certificate {
    pub served: ServerTls,
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

impl Certificate {
    /// Reloads the certificate. If the files are unusable, the old one stays in force.
    fn reload(&self) {
        match tls::read(&self.cert_file, &self.key_file) {
            Ok(config) => {
                self.served.replace(config);
                tracing::info!("SIGHUP: the certificate was read again; new connections get it");
            }
            Err(fault) => {
                tracing::error!("SIGHUP: the certificate stays as it was: {}", fault.problem);
            }
        }
    }
}

/// Prevents SIGHUP from ending the process. Must be called inside a runtime.
pub fn survive() -> Result<(), Failed> {
    // Listening once replaces the default action for the lifetime of the process.
    listen().map(drop)
}

/// Reloads the certificate on every SIGHUP. Must be called inside a runtime that stays.
pub fn reload(certificate: Option<Certificate>) -> Result<(), Failed> {
    let mut hangup = listen()?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if let Some(certificate) = &certificate {
                certificate.reload();
            } else {
                tracing::info!(
                    "SIGHUP: nothing to reload: the API has no certificate, files with secrets are read again when they \
                     change, and redrive.toml is read at a restart"
                );
            }
        }
    });
    Ok(())
}

fn listen() -> Result<Signal, Failed> {
    signal(SignalKind::hangup()).map_err(|error| Failed::new(Exit::Storage, format!("no signals: {error}")))
}
