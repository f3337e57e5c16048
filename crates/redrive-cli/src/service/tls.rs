//! Reads the certificate of the API again on SIGHUP.

use std::path::PathBuf;

use redrive_server::ServerTls;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::server_tls;

/// Reads the files again whenever SIGHUP comes. Files that cannot be used leave the old certificate in force. Must be
/// called inside a runtime that stays.
pub fn reload_on_hangup(served: ServerTls, cert_file: PathBuf, key_file: PathBuf) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match server_tls::read(&cert_file, &key_file) {
                Ok(config) => {
                    served.replace(config);
                    tracing::info!("the certificate was read again; new connections get it");
                }
                Err(fault) => {
                    tracing::error!("the certificate stays as it was: {}", fault.problem);
                }
            }
        }
    });
    Ok(())
}
