//! Runs all measurements and tabulates their figures.

use std::time::{Duration, Instant};

use redrive_lab::bench::{FigureTable, Figures, Repeats, Spread, machine};
use redrive_lab::kafka::load::Loader;
use redrive_lab::kafka::{Error, trace};

use super::flow::Flow;
use super::options::{KafkaBenchFates, KafkaBenchOptions, KafkaBenchSize, Mode, Scenario};
use super::runs::{Measurement, Runs};

struct KafkaBenchmark<'a> {
    options: &'a KafkaBenchOptions,
    runs: Runs<'a>,
    table: FigureTable,
    /// Violations: lost or repeated orders.
    faults: Vec<String>,
}

pub fn run(options: &KafkaBenchOptions) -> Result<(), Error> {
    std::fs::create_dir_all(&options.dir)?;
    for (name, value) in machine::describe(&options.dir) {
        println!("{name}: {value}");
    }
    println!("size: {:?}, repeats: {}", options.size, options.repeats);
    println!(
        "config: {} partitions, concurrency {}, tiers 1s 2s 4s, jitter none, classify off, acks all, idempotent, lz4 on \
         the tiers; broker, producer and processor on the same cores",
        options.partitions, options.concurrency
    );
    for (key, value) in &options.passed_on {
        println!("set: {key} = {value}");
    }
    println!("workload: 512-byte orders, N = {}; fates by fnv1a64 of the id, no other seed", options.n);
    let mut plan = KafkaBenchmark {
        options,
        runs: Runs::new(options),
        table: FigureTable::default(),
        faults: Vec::new(),
    };
    let ran = plan.all();
    plan.runs.clear("bench-")?;
    println!("load at the end: {}\n\n{}", machine::load(), plan.table);
    ran?;
    if plan.faults.is_empty() { Ok(()) } else { Err(plan.faults.join("\n").into()) }
}

fn per_second(count: &'static str, seconds: &'static str) -> impl Fn(&Figures) -> f64 {
    move |figures| figures.get(count) / figures.get(seconds)
}

fn per_message(seconds: &'static str) -> impl Fn(&Figures) -> f64 {
    move |figures| figures.get(seconds) * 1e6 / figures.get("n")
}

impl KafkaBenchmark<'_> {
    fn wanted(&self, name: &str) -> bool {
        self.options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    fn all(&mut self) -> Result<(), Error> {
        self.runs.clear("bench-")?;
        let mut saturated = [0.0; 2];
        if self.wanted("drain") || self.wanted("mixed") {
            self.preload()?;
            saturated[0] = self.drain()?;
            saturated[1] = self.mixed(saturated[0])?;
            self.runs.clear(&self.options.source)?;
        }
        if self.wanted("paced") {
            self.paced()?;
        }
        if self.wanted("highest") {
            self.highest(saturated)?;
        }
        if self.wanted("outage") && self.options.size == KafkaBenchSize::Normal {
            self.outage()?;
        }
        if self.wanted("moving") {
            self.moving()?;
        }
        if self.wanted("poison") {
            self.poison()?;
        }
        Ok(())
    }

    /// Produces the orders that all drains read, each in its own group.
    fn preload(&self) -> Result<(), Error> {
        let KafkaBenchOptions { source, n, brokers, partitions, .. } = self.options;
        self.runs.create(source)?;
        Loader::new(brokers, source, *partitions, &[])?.write(0..*n)
    }

    /// A: all orders succeed. The bare loop and the engine take turns, so that both see the same machine.
    fn drain(&mut self) -> Result<f64, Error> {
        let (mut raws, mut drains) = (Repeats::default(), Repeats::default());
        for _ in 0..self.options.repeats {
            raws.0.push(self.drained(Scenario::Raw, KafkaBenchFates::Succeed)?);
            drains.0.push(self.drained(Scenario::Drain, KafkaBenchFates::Succeed)?);
        }
        let table = &mut self.table;
        table.row("A raw ceiling: consume, commit", "msg/s", &raws.of(per_second("n", "settled_s")));
        table.row("A raw, processor time", "us/msg", &raws.of(per_message("cpu_s")));
        let rate = drains.of(per_second("n", "t100_s"));
        table.row("A drain, preloaded, all succeed", "msg/s", &rate);
        table.row("A share of the raw ceiling", "", &shares(&drains, &raws, "t100_s", "settled_s"));
        table.row("A processor time", "us/msg", &drains.of(per_message("cpu_s")));
        table.row("A memory at its peak", "MB", &drains.figure("rss_peak_mb"));
        table.row("A from the start to the first attempt", "s", &drains.figure("start_s"));
        self.check("A", &drains);
        Ok(rate.median())
    }

    /// B: the fates of the workload.
    fn mixed(&mut self, drain_rate: f64) -> Result<f64, Error> {
        let (mut raws, mut mixed) = (Repeats::default(), Repeats::default());
        for _ in 0..self.options.repeats {
            raws.0.push(self.drained(Scenario::Raw, KafkaBenchFates::Workload)?);
            mixed.0.push(self.drained(Scenario::Drain, KafkaBenchFates::Workload)?);
        }
        let table = &mut self.table;
        table.row("B raw ceiling: consume, copy, commit", "msg/s", &raws.of(per_second("n", "first_s")));
        table.row("B raw, processor time", "us/msg", &raws.of(per_message("cpu_s")));
        let rate = mixed.of(per_second("n", "first_s"));
        table.row("B first attempts, saturated", "msg/s", &rate);
        table.row("B share of the raw ceiling", "", &shares(&mixed, &raws, "first_s", "first_s"));
        table.row(
            "B/A saturated (A's median)",
            "",
            &mixed.of(|f| f.get("n") / f.get("first_s") / drain_rate),
        );
        table.row("B 99 % terminal", "s", &mixed.figure("t99_s"));
        table.row("B 100 % terminal", "s", &mixed.figure("t100_s"));
        table.row("B processor time", "us/msg", &mixed.of(per_message("cpu_s")));
        table.row("B memory at its peak", "MB", &mixed.figure("rss_peak_mb"));
        table.row("B dead letters", "msg", &mixed.figure("dead"));
        spread(table, "B lateness, saturated", "late", &mixed);
        self.check("B", &mixed);
        Ok(rate.median())
    }

    /// Fixed rates below saturation: do failures slow down the happy path?
    fn paced(&mut self) -> Result<(), Error> {
        let (rates, seconds) = match self.options.size {
            KafkaBenchSize::Quick => ([2_000, 5_000], 8),
            KafkaBenchSize::Normal | KafkaBenchSize::Soak => ([50_000, 100_000], 25),
        };
        for rate in rates {
            let (mut plain, mut mixed) = (Repeats::default(), Repeats::default());
            for _ in 0..self.options.repeats {
                plain.0.push(self.flow(rate, seconds, KafkaBenchFates::Succeed)?);
                mixed.0.push(self.flow(rate, seconds, KafkaBenchFates::Workload)?);
            }
            let (table, k) = (&mut self.table, rate / 1000);
            for (letter, runs) in [("A", &plain), ("B", &mixed)] {
                let what = |rest: &str| format!("{letter} at {k}k/s: {rest}");
                table.row(&what("first attempts"), "msg/s", &runs.figure("goodput"));
                table.row(&what("lag, first third"), "msg", &runs.figure("lag_first"));
                table.row(&what("lag, last third"), "msg", &runs.figure("lag_last"));
                table.row(&what("processor time"), "us/msg", &runs.figure("cpu_us"));
                table.row(&what("memory at its peak"), "MB", &runs.figure("rss_peak_mb"));
                spread(table, &what("from written to tried"), "waited", runs);
            }
            let ratio = mixed.figure("goodput").median() / plain.figure("goodput").median();
            table.row(&format!("B/A at {k}k/s"), "", &Spread::of([ratio]));
            table.row(&format!("B at {k}k/s: retries"), "1/s", &mixed.figure("retries_per_s"));
            spread(table, &format!("B at {k}k/s: lateness"), "late", &mixed);
            self.check(&format!("A at {k}k/s"), &plain);
            self.check(&format!("B at {k}k/s"), &mixed);
        }
        Ok(())
    }

    /// Finds the highest rate with flat lag: from saturation downwards in steps of 8 %.
    fn highest(&mut self, saturated: [f64; 2]) -> Result<(), Error> {
        let seconds = if self.options.size == KafkaBenchSize::Quick { 6 } else { 15 };
        let mut highest = [0.0; 2];
        for ((fates, from), found) in
            [KafkaBenchFates::Succeed, KafkaBenchFates::Workload].into_iter().zip(saturated).zip(&mut highest)
        {
            let mut rate = if from > 0.0 { from * 0.9 } else { 400_000.0 };
            while rate > 1_000.0 {
                let figures = self.flow(rate as u64, seconds, fates)?;
                if figures.get("flat") > 0.0 {
                    *found = figures.get("goodput");
                    let word = if fates == KafkaBenchFates::Succeed { "A" } else { "B" };
                    let runs = Repeats(vec![figures]);
                    let what = |rest: &str| format!("{word} highest rate with flat lag: {rest}");
                    self.table.row(&what("first attempts"), "msg/s", &runs.figure("goodput"));
                    self.table.row(&what("lag, last third"), "msg", &runs.figure("lag_last"));
                    spread(&mut self.table, &what("lateness"), "late", &runs);
                    break;
                }
                rate *= 0.92;
            }
        }
        self.table.row("B/A at the highest rate", "", &Spread::of([highest[1] / highest[0]]));
        if highest[0] > 0.0 {
            let pushed = self.flow(highest[0] as u64, seconds, KafkaBenchFates::Workload)?;
            let ratio = pushed.get("goodput") / highest[0];
            self.table.row("B at A's highest rate, share of it", "", &Spread::of([ratio]));
        }
        Ok(())
    }

    /// Memory while the pipeline is paused for a minute and orders keep arriving.
    fn outage(&mut self) -> Result<(), Error> {
        let (rate, seconds) = (50_000, 75);
        let flow = Flow { rate, seconds, fates: KafkaBenchFates::Workload, scenario: Scenario::Outage };
        let runs = Repeats(vec![flow.measure(&mut self.runs)?]);
        let table = &mut self.table;
        table.row("60 s gate closed at 50k/s: memory before", "MB", &runs.figure("rss_before_mb"));
        table.row("  memory, at most", "MB", &runs.figure("rss_outage_mb"));
        table.row("  attempts while it was closed", "msg", &runs.figure("tried_while_closed"));
        table.row("  moving again after it opened", "s", &runs.figure("moving_s"));
        table.row("  memory at its peak, backlog drained", "MB", &runs.figure("rss_peak_mb"));
        self.check("outage", &runs);
        Ok(())
    }

    /// `kill -9`, and the time from the restart to the next attempt.
    fn moving(&mut self) -> Result<(), Error> {
        let (name, n) = (self.runs.name(), 400_000);
        let source = format!("{name}-source");
        self.runs.create(&source)?;
        let KafkaBenchOptions { brokers, partitions, dir, .. } = self.options;
        std::fs::create_dir_all(dir)?;
        let path = dir.join("trace");
        let loader = Loader::new(brokers, &source, *partitions, &[])?;
        let setting = Measurement {
            scenario: Scenario::Serve,
            source: &source,
            fates: KafkaBenchFates::Workload,
            n,
            trace: Some(&path),
            ..Measurement::new(&name)
        };
        let mut seconds = Vec::new();
        for round in 0..=u64::from(self.options.repeats) {
            let (before, began) = (trace::len(&path), Instant::now());
            let started = self.runs.start(&setting)?;
            loader.write(round * 50_000..(round + 1) * 50_000)?;
            while trace::len(&path) == before {
                if began.elapsed() > Duration::from_mins(1) {
                    return Err("it does not move again".into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            // The first start is no restart: it finds no group and no topics.
            if round > 0 {
                seconds.push(began.elapsed().as_secs_f64());
            }
            std::thread::sleep(Duration::from_millis(300));
            started.kill()?;
        }
        self.table.row("moving again after kill -9 and restart", "s", &Spread::of(seconds));
        self.runs.clear(&name)
    }

    /// One poison record on a single partition: how long the others wait in each mode.
    fn poison(&mut self) -> Result<(), Error> {
        for (mode, word) in [(Mode::NonBlocking, "non-blocking"), (Mode::Blocking, "blocking")] {
            let figures =
                Flow { rate: 200, seconds: 12, fates: KafkaBenchFates::Succeed, scenario: Scenario::Paced }
                    .measure_poison(&mut self.runs, mode)?;
            let runs = Repeats(vec![figures]);
            spread(&mut self.table, &format!("one poison record, {word}: others wait"), "waited", &runs);
            self.check(word, &runs);
        }
        Ok(())
    }

    fn flow(&mut self, rate: u64, seconds: u64, fates: KafkaBenchFates) -> Result<Figures, Error> {
        Flow { rate, seconds, fates, scenario: Scenario::Paced }.measure(&mut self.runs)
    }

    /// Runs one drain of the preloaded orders.
    fn drained(&mut self, scenario: Scenario, fates: KafkaBenchFates) -> Result<Figures, Error> {
        let name = self.runs.name();
        if scenario == Scenario::Raw {
            self.runs.create(&format!("{name}.retry"))?;
            self.runs.create(&format!("{name}.DLQ"))?;
        }
        let KafkaBenchOptions { source, n, .. } = self.options;
        let figures =
            self.runs.measure(&Measurement { scenario, source, fates, n: *n, ..Measurement::new(&name) });
        self.runs.clear(&name)?;
        figures
    }

    fn check(&mut self, what: &str, runs: &Repeats) {
        for figures in &runs.0 {
            for fault in ["lost", "repeated", "both"] {
                let count = figures.get(fault);
                if count > 0.0 {
                    self.faults.push(format!("{what}: {count} {fault}"));
                }
            }
        }
    }
}

/// The engine's rate as a share of the paired bare loop's rate.
fn shares(runs: &Repeats, raws: &Repeats, seconds: &str, raw_seconds: &str) -> Spread {
    Spread::of(runs.0.iter().zip(&raws.0).map(|(run, raw)| raw.get(raw_seconds) / run.get(seconds)))
}

fn spread(table: &mut FigureTable, what: &str, name: &str, runs: &Repeats) {
    for quantile in ["p50", "p99", "max"] {
        table.row(&format!("{what}, {quantile}"), "ms", &runs.figure(&format!("{name}_{quantile}_ms")));
    }
}
