//! Ends a process with a handler that neither returns nor yields.

use redrive::Stuck;

use crate::exit::Exit;

/// Ends the process at once; the next start determines which message it was.
pub fn leave(stuck: &Stuck) {
    report(stuck);
    std::process::exit(i32::from(Exit::Watchdog.code()));
}

fn report(stuck: &Stuck) {
    // `message` is the field of an event's text, so the id has another name.
    tracing::error!(pipeline = &*stuck.pipeline, message_id = stuck.message_id, "{stuck}; the process ends");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

    use super::*;

    /// Records the field names of each event.
    struct StuckNames(Arc<Mutex<Vec<Vec<&'static str>>>>);

    impl<S: tracing::Subscriber> Layer<S> for StuckNames {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let names = event.metadata().fields().iter().map(|field| field.name()).collect();
            self.0.lock().unwrap().push(names);
        }
    }

    #[test]
    fn each_field_of_the_event_has_a_name_of_its_own() {
        let events = Arc::new(Mutex::new(Vec::new()));
        let stuck =
            Stuck { pipeline: "orders".into(), message_id: "o-1".to_owned(), after: Duration::from_mins(1) };
        let listening = tracing_subscriber::registry().with(StuckNames(Arc::clone(&events)));
        tracing::subscriber::with_default(listening, || report(&stuck));
        let names = events.lock().unwrap().remove(0);
        assert!(names.contains(&"message_id") && names.contains(&"pipeline"), "{names:?}");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}
