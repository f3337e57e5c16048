//! Durations and shares in scenario files.

use std::time::Duration;

use redrive_core::Ratio;
use redrive_core::duration::{self, DurationError};
use serde::Deserialize;

use crate::share::{self, ShareError};

/// A duration, such as `5s` or `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl Span {
    /// The span divided by `speed`.
    #[must_use]
    pub fn faster(self, speed: f64) -> Self {
        Self(self.0.div_f64(speed))
    }
}

impl TryFrom<String> for Span {
    type Error = DurationError;

    fn try_from(text: String) -> Result<Self, DurationError> {
        duration::parse(&text).map(Self)
    }
}

/// A share, such as `15%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Share(pub Ratio);

impl TryFrom<String> for Share {
    type Error = ShareError;

    fn try_from(text: String) -> Result<Self, ShareError> {
        share::parse(&text).map(Self)
    }
}
