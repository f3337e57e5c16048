//! An open-model run: one process produces orders at a fixed rate, another consumes them, and the plan samples the
//! lag of the consumer's group.

use std::io::Write;
use std::time::{Duration, Instant};

use redrive_lab::bench::Figures;
use redrive_lab::kafka::Error;
use redrive_lab::kafka::topics::{Lag, TopicProgress};

use super::options::{KafkaBenchFates, Mode, Scenario};
use super::runs::{Measurement, Runs};

/// Lag is ignored while the reader joins its group and warms up.
const WARM_UP: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub rate: u64,
    pub seconds: u64,
    pub fates: KafkaBenchFates,
    pub scenario: Scenario,
}

impl Flow {
    pub fn measure(self, runs: &mut Runs<'_>) -> Result<Figures, Error> {
        let name = runs.name();
        let reader = Measurement { fates: self.fates, ..Measurement::new(&name) };
        self.run(runs, &reader, runs.options.partitions)
    }

    /// Runs on one partition, with a single poison record and no other failures.
    pub fn measure_poison(self, runs: &mut Runs<'_>, mode: Mode) -> Result<Figures, Error> {
        let name = runs.name();
        let reader =
            Measurement { mode, poison: Some(self.rate * self.seconds / 3), ..Measurement::new(&name) };
        self.run(runs, &reader, 1)
    }

    fn run(self, runs: &Runs<'_>, reader: &Measurement<'_>, partitions: u64) -> Result<Figures, Error> {
        let source = format!("{}-source", reader.name);
        runs.create_with(&source, partitions)?;
        let n = self.rate * self.seconds;
        let shared =
            Measurement { source: &source, n, rate: self.rate, seconds: self.seconds, partitions, ..*reader };
        let mut reading = runs.start(&Measurement { scenario: self.scenario, ..shared })?;
        // Let the reader create its topics and join the group before the first order, as in a running service.
        std::thread::sleep(Duration::from_secs(2));
        let loading = runs.start(&Measurement { scenario: Scenario::Load, ..shared })?;
        let looks = self.look(runs, reader.name, &source)?;
        let loaded = loading.figures()?;
        if let Some(stdin) = reading.stdin() {
            writeln!(stdin, "{}", loaded.get("sent"))?;
        }
        let mut figures = reading.figures()?;
        self.judge(&looks, &loaded, &mut figures);
        runs.clear(reader.name)?;
        Ok(figures)
    }

    /// Samples the progress of the topic and the group until the load ends.
    fn look(self, runs: &Runs<'_>, group: &str, source: &str) -> Result<Vec<(f64, TopicProgress)>, Error> {
        let lag = Lag::of(&runs.options.brokers, group, source)?;
        let (began, mut looks) = (Instant::now(), Vec::new());
        while began.elapsed() < Duration::from_secs(self.seconds) {
            looks.push((began.elapsed().as_secs_f64(), lag.look()?));
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(looks)
    }

    fn judge(self, looks: &[(f64, TopicProgress)], loaded: &Figures, figures: &mut Figures) {
        let warm = WARM_UP.as_secs_f64().min(self.seconds as f64 / 3.0);
        let lags: Vec<f64> =
            looks.iter().filter(|(at, _)| *at > warm).map(|(_, look)| look.lag() as f64).collect();
        let third = (lags.len() / 3).max(1);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
        let first = mean(&lags[..third.min(lags.len())]);
        let last = mean(&lags[lags.len().saturating_sub(third)..]);
        figures.set("lag_first", first);
        figures.set("lag_last", last);
        figures.set("lag_max", lags.iter().copied().fold(0.0, f64::max));
        let rate = self.rate as f64;
        // Up to half a second's worth of orders is no lag: offsets are committed ten times a second, and sampling
        // takes time.
        let flat = last <= (first * 1.5).max(rate * 0.5) && loaded.get("sent_s") < self.seconds as f64 * 1.03;
        figures.set("flat", f64::from(u8::from(flat)));
        figures.set("goodput", figures.get("n") / figures.get("first_s").max(self.seconds as f64));
        figures.set("retries_per_s", figures.get("late_count") / figures.get("t100_s"));
        figures.set("cpu_us", figures.get("span_cpu_s") * 1e6 / figures.get("tried_in_span"));
        figures.set("load_cpu_s", loaded.get("load_cpu_s"));
    }
}
