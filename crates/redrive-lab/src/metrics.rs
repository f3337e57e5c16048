//! Names, help texts and kinds of all metrics of the producer and the downstream, and the Prometheus text format.

use std::fmt::{Display, Write};

/// The content type of a scrape.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric; its labels are named in its help or are a closed enum.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
}

macro_rules! families {
    ($($row:ident = $kind:ident $name:literal $help:literal;)+) => {
        $(pub const $row: Family = Family { name: $name, kind: MetricKind::$kind, help: $help };)+

        pub const ALL: &[Family] = &[$($row),+];
    };
}

/// Metrics of the producer.
pub mod producer {
    use super::{Family, MetricKind};

    // One line for each metric.
    families! {
        DUE = Counter "redrive_producer_due_total" "Messages the schedule has asked for so far.";
        SENT = Counter "redrive_producer_sent_total" "Messages offered, each counted once.";
        ACCEPTED = Counter "redrive_producer_accepted_total" "Messages acknowledged by the target.";
        DUPLICATES = Counter "redrive_producer_duplicates_total" "Acknowledged messages that the target knew already.";
        REFUSED = Counter "redrive_producer_refused_total" "Messages the target refused for now (429, 503); each refusal counts, the message is offered again.";
        UNREACHABLE = Counter "redrive_producer_unreachable_total" "Messages whose request got no answer; each time counts, the message is offered again.";
        IN_FLIGHT = Gauge "redrive_producer_in_flight" "Requests without an answer yet.";
        HELD = Counter "redrive_producer_held_total" "Requests that came due while the bound on requests in flight was reached.";
        LATENESS = Histogram "redrive_producer_lateness_seconds" "How much later than its schedule a request was sent.";
    }
}

/// Metrics of the downstream.
pub mod downstream {
    use super::{Family, MetricKind};

    // One line for each metric.
    families! {
        CALLS = Counter "redrive_downstream_calls_total" "Calls to apply a message, whatever their end.";
        APPLIED = Counter "redrive_downstream_applied_total" "Messages applied for the first time.";
        DUPLICATES = Counter "redrive_downstream_duplicates_total" "Calls for a message that was applied before; nothing was done.";
        FAILURES = Counter "redrive_downstream_failures_total" "Calls that failed, by kind.";
        IN_FLIGHT = Gauge "redrive_downstream_in_flight" "Calls without an end yet.";
        OUTAGE = Gauge "redrive_downstream_outage" "1 while the downstream plays an outage.";
    }
}

/// The text of a scrape.
#[derive(Debug, Default)]
pub struct Text {
    text: String,
}

impl Text {
    /// Writes a metric with one value.
    pub fn value(&mut self, family: Family, value: impl Display) {
        self.head(family);
        self.line(family.name, &[], value);
    }

    /// Writes a metric with one value per label value.
    pub fn by_label<'a>(
        &mut self,
        family: Family,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.head(family);
        for (name, value) in values {
            self.line(family.name, &[(label, name)], value);
        }
    }

    /// Writes a histogram: the upper bound of each bucket with its own (not cumulative) count; the rest is above all
    /// bounds.
    pub fn histogram(&mut self, family: Family, buckets: &[(f64, u64)], count: u64, sum: f64) {
        self.head(family);
        let bucket = format!("{}_bucket", family.name);
        let mut below = 0;
        for (bound, within) in buckets {
            below += within;
            self.line(&bucket, &[("le", &bound.to_string())], below);
        }
        self.line(&bucket, &[("le", "+Inf")], count);
        self.line(&format!("{}_sum", family.name), &[], sum);
        self.line(&format!("{}_count", family.name), &[], count);
    }

    pub fn into_string(self) -> String {
        self.text
    }

    fn head(&mut self, family: Family) {
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {} {}\n# TYPE {} {kind}", family.name, family.help, family.name);
    }

    /// Label values come from closed sets in this crate, so none needs escaping.
    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!(r#"{label}="{value}""#)).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_unique() {
        let all: Vec<Family> = producer::ALL.iter().chain(downstream::ALL).copied().collect();
        for family in &all {
            assert!(family.name.starts_with("redrive_"), "{}", family.name);
            assert_eq!(
                family.name.ends_with("_total"),
                family.kind == MetricKind::Counter,
                "{}",
                family.name
            );
            assert!(family.help.ends_with('.') && !family.help.contains('\n'), "{}", family.name);
            assert_eq!(all.iter().filter(|other| other.name == family.name).count(), 1, "{}", family.name);
        }
    }

    #[test]
    fn a_scrape_has_help_type_and_samples() {
        let mut text = Text::default();
        text.value(downstream::CALLS, 3);
        text.by_label(downstream::FAILURES, "kind", [("poison", 1), ("outage", 2)]);
        text.histogram(producer::LATENESS, &[(0.001, 2), (0.5, 1)], 4, 7.5);
        let text = text.into_string();
        for line in [
            "# TYPE redrive_downstream_calls_total counter",
            "redrive_downstream_calls_total 3",
            r#"redrive_downstream_failures_total{kind="outage"} 2"#,
            r#"redrive_producer_lateness_seconds_bucket{le="0.001"} 2"#,
            r#"redrive_producer_lateness_seconds_bucket{le="0.5"} 3"#,
            r#"redrive_producer_lateness_seconds_bucket{le="+Inf"} 4"#,
            "redrive_producer_lateness_seconds_sum 7.5",
            "redrive_producer_lateness_seconds_count 4",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
    }
}
