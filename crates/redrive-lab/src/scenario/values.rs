//! Durations and shares as people write them in scenario files.

use std::time::Duration;

use redrive_core::Ratio;
use redrive_core::duration::{self, DurationError};
use serde::Deserialize;

use crate::share::{self, ShareError};

/// `5s`, `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl Span {
    /// As it is `speed` times as fast.
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

/// `15%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Share(pub Ratio);

impl TryFrom<String> for Share {
    type Error = ShareError;

    fn try_from(text: String) -> Result<Self, ShareError> {
        share::parse(&text).map(Self)
    }
}
