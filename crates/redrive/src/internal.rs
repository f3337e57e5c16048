//! The internals of the library, for the other crates of this project: engines, server, command line and sinks.
//!
//! **This is not part of the API.** It changes without notice in any release, and a crate that uses it needs exactly
//! the same version of this one. Users of the library find what they need at the root of the crate and in its
//! documented modules.

/// Dead letters of other frameworks.
pub mod adopt {
    pub use crate::adopt::*;
}

/// Decides what to take, start and settle; no I/O.
pub mod dispatch {
    pub use crate::dispatch::*;
}

/// The seam that every engine implements, what the engines share, and the engines of this crate.
pub mod engine {
    pub use crate::engine::*;
}

/// Events of a pipeline, for subscribers.
pub mod events {
    pub use crate::events::*;
}

/// The error of a handler.
pub mod failure {
    pub use crate::failure::*;
}

/// The figures of the last minutes.
pub mod figures {
    pub mod recent {
        pub use crate::figures::recent::*;
    }
}

/// Selections of letters, their names, and payloads as JSON that keeps its text.
pub mod letters {
    pub use crate::letters::correlation::correlation_id;
    pub use crate::letters::filter::matches::status_of;

    pub mod decimal {
        pub use crate::letters::decimal::*;
    }
    pub mod json_text {
        pub use crate::letters::edit::json_text::*;
    }
    pub mod select {
        pub use crate::letters::select::*;
    }
}

/// Limits of listings.
pub mod messages {
    pub mod page {
        pub use crate::messages::page::*;
    }
}

/// Names of pipelines.
pub mod name {
    pub use crate::name::*;
}

/// Names of jobs and actions.
pub mod naming {
    pub use crate::naming::*;
}

/// Auto-replay, and the limits of a replay's pace.
pub mod replay {
    pub mod auto {
        pub use crate::replay::auto::*;
    }
    pub mod pace {
        pub use crate::replay::pace::*;
    }
    pub mod stop {
        pub use crate::replay::stop::*;
    }
}

/// The dispatch machine on a virtual clock, with a checker per invariant.
#[cfg(feature = "testing")]
pub mod sim {
    pub use crate::sim::*;
}

/// The state of the endpoints of a push pipeline.
pub mod subscriptions {
    pub use crate::subscriptions::*;
}
