//! The text format of Prometheus (version 0.0.4): a writer, and a linter for tests.
//!
//! We do not use a metrics library because the figures are plain numbers already. A library would own the counters, or
//! need a collector around each of them; writing the lines is less code than either, and one dependency less.

use std::collections::HashSet;
use std::fmt::Write as _;

use redrive::figures::Histogram;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The description of a metric, without its values.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// Collects the lines of one answer.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// Writes the samples of one metric.
#[derive(Debug)]
pub struct Samples<'a> {
    metric: &'static Metric,
    text: &'a mut String,
}

impl Exposition {
    /// Starts a metric; each may be started once.
    pub fn metric(&mut self, metric: &'static Metric) -> Samples<'_> {
        let Metric { name, kind, help, .. } = metric;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.name());
        Samples { metric, text: &mut self.text }
    }

    pub fn finish(self) -> String {
        self.text
    }
}

impl Samples<'_> {
    /// Writes one value; `labels` are in the order of the metric's label names.
    pub fn value(&mut self, labels: &[&str], value: f64) {
        self.line("", labels, None, value);
    }

    pub fn count(&mut self, labels: &[&str], count: u64) {
        self.value(labels, count as f64);
    }

    pub fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        for (bound, count) in histogram.buckets() {
            self.line("_bucket", labels, Some(bound), count as f64);
        }
        self.line("_sum", labels, None, histogram.sum());
        self.line("_count", labels, None, histogram.count() as f64);
    }

    fn line(&mut self, suffix: &str, labels: &[&str], bound: Option<f64>, value: f64) {
        debug_assert_eq!(labels.len(), self.metric.labels.len(), "{}", self.metric.name);
        // NaN carries no information, and breaks sums over it.
        if value.is_nan() {
            return;
        }
        self.text.push_str(self.metric.name);
        self.text.push_str(suffix);
        let bound = bound.map(|bound| number(without_noise(bound)));
        let pairs = self.metric.labels.iter().copied().zip(labels.iter().copied());
        for (index, (name, value)) in pairs.chain(bound.as_deref().map(|bound| ("le", bound))).enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{name}=\"{value}\"");
        }
        if !self.metric.labels.is_empty() || bound.is_some() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {}", number(value));
    }
}

fn number(value: f64) -> String {
    if value.is_infinite() { if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned() } else { value.to_string() }
}

/// The faults of an exposition, by the rules of scrapers and reviewers.
pub fn lint(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut declared = HashSet::new();
    let mut series = HashSet::new();
    let mut current = (String::new(), String::new());
    let mut helped = String::new();
    let mut bucket: Option<(String, f64, f64)> = None;
    if !text.ends_with('\n') {
        faults.push("the last line does not end".to_owned());
    }
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap_or((help, ""));
            if text.is_empty() {
                faults.push(format!("{name} has no help"));
            }
            name.clone_into(&mut helped);
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap_or((kind, ""));
            if helped != name {
                faults.push(format!("{name} has a type and no help before it"));
            }
            if !declared.insert(name.to_owned()) {
                faults.push(format!("{name} is declared twice"));
            }
            if (kind == "counter") != name.ends_with("_total") {
                faults.push(format!("{name} is a {kind}; counters and only they end in _total"));
            }
            current = (name.to_owned(), kind.to_owned());
            continue;
        }
        let Some((name_and_labels, value)) = line.rsplit_once(' ') else {
            faults.push(format!("not a sample: {line}"));
            continue;
        };
        let (name, labels) = name_and_labels.split_once('{').unwrap_or((name_and_labels, ""));
        let base = match current.1.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)),
            _ => Some(name),
        };
        if base != Some(current.0.as_str()) {
            faults.push(format!("{name} stands under {}", current.0));
        }
        if !series.insert(name_and_labels.to_owned()) {
            faults.push(format!("{name_and_labels} is there twice"));
        }
        let Ok(value) = value.parse::<f64>() else {
            faults.push(format!("not a number: {line}"));
            continue;
        };
        if value.is_nan() || (current.1 == "counter" && value < 0.0) {
            faults.push(format!("not a value for a {}: {line}", current.1));
        }
        let bound = name.ends_with("_bucket").then(|| labels.rsplit_once("le=\"")).flatten();
        match (bound, &bucket) {
            (Some((of, bound)), before) => {
                let bound = bound.trim_end_matches("\"}").parse::<f64>().unwrap_or(f64::NAN);
                let follows = match before.as_ref().filter(|(before, ..)| before == of) {
                    Some((_, low, below)) => bound > *low && value >= *below,
                    None => !bound.is_nan(),
                };
                if !follows {
                    faults.push(format!("a bucket out of order: {line}"));
                }
                bucket = Some((of.to_owned(), bound, value));
            }
            (None, Some((_, bound, below))) => {
                let (bound, below) = (*bound, *below);
                if bound != f64::INFINITY {
                    faults.push(format!("no +Inf bucket before {line}"));
                }
                if name.ends_with("_count") {
                    if (value - below).abs() > f64::EPSILON {
                        faults.push(format!("the count is not that of the +Inf bucket: {line}"));
                    }
                    bucket = None;
                }
            }
            (None, None) => {}
        }
    }
    faults
}

/// A bucket bound without rounding noise: seconds computed from whole nanoseconds may be off in the last of 17 digits.
fn without_noise(bound: f64) -> f64 {
    format!("{bound:.9e}").parse().unwrap_or(bound)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    static GAUGE: Metric = Metric { name: "x", kind: Kind::Gauge, labels: &["p"], help: "One\nx." };
    static SPANS: Metric = Metric { name: "y_seconds", kind: Kind::Histogram, labels: &[], help: "Y." };

    #[test]
    fn names_labels_and_numbers_are_escaped_and_linted() {
        let mut exposition = Exposition::default();
        let mut samples = exposition.metric(&GAUGE);
        samples.value(&["a\"b\\c\nd"], 1.5);
        samples.value(&["none"], f64::NAN);
        let mut spans = Histogram::of_spans();
        spans.observe(Duration::from_millis(3));
        exposition.metric(&SPANS).histogram(&[], &spans);
        let text = exposition.finish();
        assert!(text.starts_with(
            "# HELP x One\\nx.\n# TYPE x gauge\nx{p=\"a\\\"b\\\\c\\nd\"} 1.5\n# HELP y_seconds"
        ));
        assert!(
            text.contains("\ny_seconds_bucket{le=\"+Inf\"} 1\ny_seconds_sum 0.003\ny_seconds_count 1\n"),
            "{text}"
        );
        assert_eq!(lint(&text), Vec::<String>::new());
    }

    #[test]
    fn the_linter_notices_each_fault() {
        let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{p=\"x\"} 1\n";
        assert_eq!(lint(good), Vec::<String>::new());
        for (bad, fault) in [
            (good.replace("} 1\n", "} 1"), "does not end"),
            (good.replace(" A.", ""), "no help"),
            (format!("{good}{good}"), "declared twice"),
            (format!("{good}a_total{{p=\"x\"}} 1\n"), "there twice"),
            (good.replace("counter", "gauge"), "only they end in _total"),
            (good.replace("} 1", "} NaN"), "not a value"),
            (good.replace("} 1", "} -1"), "not a value"),
            (good.replace("} 1", "} many"), "not a number"),
            (good.replace("a_total{", "b_total{"), "stands under"),
            (good.replace("# HELP a_total A.\n", ""), "no help before"),
        ] {
            assert!(lint(&bad).iter().any(|found| found.contains(fault)), "{fault}: {:?}", lint(&bad));
        }
        let histogram = "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";
        assert_eq!(lint(histogram), Vec::<String>::new());
        for (bad, fault) in [
            (histogram.replace("} 1", "} 9"), "out of order"),
            (histogram.replace("\"1\"", "\"bound\""), "out of order"),
            (histogram.replace("+Inf", "2"), "no +Inf"),
            (histogram.replace("h_count 2", "h_count 3"), "not that of the +Inf"),
        ] {
            assert!(lint(&bad).iter().any(|found| found.contains(fault)), "{fault}: {:?}", lint(&bad));
        }
    }

    #[test]
    fn a_bound_is_printed_as_it_was_meant() {
        let printed = |bound: f64| number(without_noise(bound));
        assert_eq!(printed(0.024_999_999_999_999_998), "0.025");
        assert_eq!(printed(0.1 + 0.2), "0.3");
        assert_eq!(printed(86_400.0), "86400");
        assert_eq!(printed(f64::INFINITY), "+Inf");
    }
}
