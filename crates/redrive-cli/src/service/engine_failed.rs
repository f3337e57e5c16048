//! Maps an engine failure to the exit code that scripts rely on.

use redrive::internal::engine::EngineError;

use crate::exit::{Exit, Failed};

/// The failure to open an engine, with the exit code that scripts rely on.
pub fn engine_failed(error: &EngineError) -> Failed {
    let exit = match error {
        EngineError::Owned(_) | EngineError::Unavailable(_) => Exit::TryAgain,
        EngineError::Directory { .. } | EngineError::Version(_) | EngineError::NotRemembered => Exit::Usage,
        _ => Exit::Storage,
    };
    Failed::new(exit, error.to_string())
}
