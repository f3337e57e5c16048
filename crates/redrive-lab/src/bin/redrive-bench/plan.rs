//! The whole run: all measurements with repeats, in one table.

use std::fs;

use super::options::{BenchOptions, BenchSize};
use super::rig::{BATCH, Error, PRODUCERS};
use super::runs::Runs;
use redrive_lab::bench::machine;
use redrive_lab::bench::{FigureTable, Figures, Repeats};

/// Message counts per measurement.
struct Amounts {
    drain: u64,
    mixed: u64,
    flow: u64,
    paced_seconds: u64,
    late_seconds: u64,
    pending: Vec<u64>,
    ids: u64,
    letters: u64,
    styles: u64,
    reopen: u64,
    crash: u64,
}

impl Amounts {
    fn of(size: BenchSize) -> Self {
        match size {
            BenchSize::Quick => Self {
                drain: 200_000,
                mixed: 100_000,
                flow: 200_000,
                paced_seconds: 2,
                late_seconds: 2,
                pending: vec![10_000],
                ids: 200_000,
                letters: 5_000,
                styles: 50_000,
                reopen: 50_000,
                crash: 50_000,
            },
            BenchSize::Normal | BenchSize::Full => Self {
                drain: 10_000_000,
                mixed: 5_000_000,
                flow: 4_000_000,
                paced_seconds: 12,
                late_seconds: 10,
                pending: if size == BenchSize::Full {
                    vec![10_000, 1_000_000, 10_000_000]
                } else {
                    vec![10_000, 1_000_000]
                },
                ids: 10_000_000,
                letters: 200_000,
                styles: 1_000_000,
                reopen: 1_000_000,
                crash: 500_000,
            },
        }
    }
}

/// An id may cost at most this many times as much CPU as at first, however many ids are known.
const FLAT_MAX: f64 = 1.5;

struct Benchmark<'a> {
    options: &'a BenchOptions,
    runs: Runs<'a>,
    table: FigureTable,
    faults: Vec<String>,
}

pub fn run(options: &BenchOptions) -> Result<(), Error> {
    fs::create_dir_all(&options.dir)?;
    let amounts = Amounts::of(options.size);
    print_head(options, &amounts);
    let mut plan =
        Benchmark { options, runs: Runs { options }, table: FigureTable::default(), faults: Vec::new() };
    let drained = plan.drain(&amounts)?;
    plan.mixed(&amounts, &drained)?;
    let flowed = plan.flow(&amounts)?;
    plan.paced(&amounts, &flowed)?;
    plan.lateness(&amounts, &drained)?;
    plan.styles(&amounts)?;
    plan.pending(&amounts)?;
    plan.ids(&amounts)?;
    plan.letters(&amounts)?;
    plan.reopen(&amounts)?;
    plan.crash(&amounts)?;
    println!("\n{}", plan.table);
    println!("load at end: {}", machine::load());
    let _ = fs::remove_dir_all(&options.dir);
    if plan.faults.is_empty() { Ok(()) } else { Err(plan.faults.join("\n").into()) }
}

fn print_head(options: &BenchOptions, amounts: &Amounts) {
    for (name, value) in machine::describe(&options.dir) {
        println!("{name}: {value}");
    }
    println!("size: {:?}, repeats: {}", options.size, options.repeats);
    println!(
        "config: concurrency {}, 2 runtime threads, {PRODUCERS} producers with {BATCH} messages per call, tiers 1s 2s 4s, jitter none, classify off, a sync before every acknowledgement",
        options.concurrency
    );
    println!(
        "workload: 512-byte orders, N = {} (drain), {} (mixed), {} (flow); fates by fnv1a64 of the id, no other seed",
        amounts.drain, amounts.mixed, amounts.flow
    );
}

fn per_second(count: &'static str, seconds: &'static str) -> impl Fn(&Figures) -> f64 {
    move |figures| figures.get(count) / figures.get(seconds)
}

impl Benchmark<'_> {
    fn wanted(&self, name: &str) -> bool {
        self.options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// A: all succeed, paired with a raw run that writes the same bytes with the same syncs.
    fn drain(&mut self, amounts: &Amounts) -> Result<Repeats, Error> {
        let n = amounts.drain;
        let (mut drains, mut raws) = (Repeats::default(), Repeats::default());
        if !self.wanted("drain") {
            return Ok(drains);
        }
        for _ in 0..self.options.repeats {
            let drained = self.runs.measure("drain", &[("--n", n)], "succeed")?;
            raws.0.push(self.runs.raw(&drained)?);
            drains.0.push(drained);
        }
        let table = &mut self.table;
        table.row("A drain, preloaded, all succeed", "msg/s", &drains.of(per_second("n", "settled_s")));
        table.row("A preload (ingest alone)", "msg/s", &drains.of(per_second("n", "preload_s")));
        table.row(
            "A processor time of the drain",
            "us/msg",
            &drains.of(|f| f.get("cpu_s") * 1e6 / f.get("n")),
        );
        table.row("A messages per sync while draining", "msg", &drains.of(per_second("n", "drain_syncs")));
        table.row("A journal, accepted and done", "B/msg", &drains.of(per_second("bytes", "n")));
        table.row("A memory at its peak", "MB", &drains.figure("rss_peak_mb"));
        let both = |f: &Figures| f.get("n") / (f.get("preload_s") + f.get("settled_s"));
        table.row("A preload and drain together", "msg/s", &drains.of(both));
        table.row("A raw limit: same bytes, same syncs", "msg/s", &raws.of(|f| n as f64 / f.get("raw_s")));
        table.row(
            "A share of the raw limit",
            "",
            &share(&drains, &raws, |f| f.get("preload_s") + f.get("settled_s")),
        );
        Ok(drains)
    }

    /// B: the fates of the workload.
    fn mixed(&mut self, amounts: &Amounts, drains: &Repeats) -> Result<(), Error> {
        if !self.wanted("mixed") {
            return Ok(());
        }
        let mixed = self.runs.repeat("drain", &[("--n", amounts.mixed)], "workload")?;
        let table = &mut self.table;
        table.row("B first attempts, saturated", "msg/s", &mixed.of(per_second("n", "first_s")));
        let drain = drains.of(per_second("n", "settled_s")).median();
        table.row("B/A saturated (A's median)", "", &mixed.of(|f| f.get("n") / f.get("first_s") / drain));
        table.row("B 99 % terminal", "s", &mixed.figure("t99_s"));
        table.row("B 100 % terminal", "s", &mixed.figure("t100_s"));
        table.row("B journal, accepted and settled", "B/msg", &mixed.of(per_second("bytes", "n")));
        table.row("B memory at its peak", "MB", &mixed.figure("rss_peak_mb"));
        table.row("B dead letters", "msg", &mixed.figure("dead"));
        lateness(table, "B lateness, saturated", &mixed);
        self.check("B", &mixed);
        Ok(())
    }

    fn flow(&mut self, amounts: &Amounts) -> Result<Repeats, Error> {
        let (mut flows, mut raws) = (Repeats::default(), Repeats::default());
        if !self.wanted("flow") && !self.wanted("paced") {
            return Ok(flows);
        }
        for _ in 0..self.options.repeats {
            let flowed = self.runs.measure("flow", &[("--n", amounts.flow)], "succeed")?;
            raws.0.push(self.runs.raw(&flowed)?);
            flows.0.push(flowed);
        }
        let n = amounts.flow as f64;
        let table = &mut self.table;
        table.row("ingest and drain at the same time", "msg/s", &flows.of(per_second("n", "settled_s")));
        table.row(
            "  processor time, producers included",
            "us/msg",
            &flows.of(|f| f.get("cpu_s") * 1e6 / f.get("n")),
        );
        table.row("  messages per sync", "msg", &flows.of(per_second("n", "syncs")));
        table.row("  raw limit: same bytes, same syncs", "msg/s", &raws.of(|f| n / f.get("raw_s")));
        table.row("  share of the raw limit", "", &share(&flows, &raws, |f| f.get("settled_s")));
        Ok(flows)
    }

    /// A and B at 70 % of the rate at which the engine can ingest and deliver at the same time.
    fn paced(&mut self, amounts: &Amounts, flows: &Repeats) -> Result<(), Error> {
        if !self.wanted("paced") {
            return Ok(());
        }
        let rate = (flows.of(per_second("n", "settled_s")).median() * 0.7) as u64;
        let settings = [("--rate", rate), ("--seconds", amounts.paced_seconds)];
        let (mut plain, mut mixed) = (Repeats::default(), Repeats::default());
        for _ in 0..self.options.repeats {
            plain.0.push(self.runs.measure("paced", &settings, "succeed")?);
            mixed.0.push(self.runs.measure("paced", &settings, "workload")?);
        }
        let rates = |repeats: &Repeats| repeats.of(per_second("n", "first_s"));
        let table = &mut self.table;
        table.row("A at 70 % of that, first attempts", "msg/s", &rates(&plain));
        table.row("B at 70 % of that, first attempts", "msg/s", &rates(&mixed));
        let plain_rate = rates(&plain).median();
        table.row("B/A at 70 %", "", &mixed.of(|f| f.get("n") / f.get("first_s") / plain_rate));
        lateness(table, "B lateness at 70 %", &mixed);
        self.check("B at 70 %", &mixed);
        Ok(())
    }

    /// Lateness of 10,000 retries per second, alone and during a backlog that drains at full speed.
    fn lateness(&mut self, amounts: &Amounts, drains: &Repeats) -> Result<(), Error> {
        const PER_SECOND: u64 = 10_000;
        if !self.wanted("lateness") {
            return Ok(());
        }
        let settings = [("--rate", PER_SECOND), ("--seconds", amounts.late_seconds)];
        let alone = self.runs.repeat("paced", &settings, "one-in-1")?;
        lateness(&mut self.table, "lateness, 10k retries/s alone", &alone);
        let drain = drains.of(per_second("n", "settled_s")).median();
        let one_in = if drain.is_nan() { 40 } else { (drain as u64 / PER_SECOND).max(1) };
        let fates = format!("one-in-{one_in}");
        let backlog = self.runs.repeat("drain", &[("--n", amounts.mixed)], &fates)?;
        let rate = |f: &Figures| f.get("retries") / f.get("first_s");
        self.table.row("retries out of a draining backlog", "1/s", &backlog.of(rate));
        lateness(&mut self.table, "lateness while a backlog drains", &backlog);
        self.check("lateness alone", &alone);
        self.check("lateness with a backlog", &backlog);
        Ok(())
    }

    /// The cost of key order and of a handler that waits.
    fn styles(&mut self, amounts: &Amounts) -> Result<(), Error> {
        if !self.wanted("styles") {
            return Ok(());
        }
        let styles =
            [("--keyed", "A with key order, 1000 keys"), ("--waiting", "A with a handler that waits once")];
        for (flag, what) in styles {
            let mut all = Repeats::default();
            for _ in 0..self.options.repeats {
                self.runs.empty()?;
                all.0.push(self.runs.child("drain", &[("--n", amounts.styles)], "succeed", &[flag])?);
            }
            self.table.row(what, "msg/s", &all.of(per_second("n", "settled_s")));
            self.check(what, &all);
        }
        self.runs.empty()
    }

    fn pending(&mut self, amounts: &Amounts) -> Result<(), Error> {
        if !self.wanted("pending") {
            return Ok(());
        }
        for &pending in &amounts.pending {
            // The largest takes minutes, and its memory does not vary.
            let repeats = if pending > 1_000_000 { 1 } else { self.options.repeats };
            let mut all = Repeats::default();
            for _ in 0..repeats {
                all.0.push(self.runs.measure("pending", &[("--pending", pending)], "succeed")?);
            }
            let table = &mut self.table;
            table.row(&format!("{pending} pending: memory"), "MB", &all.figure("rss_mb"));
            table.row("  memory at its peak", "MB", &all.figure("rss_peak_mb"));
            table.row("  processor time at 60k msg/s", "us/msg", &all.figure("cpu_us"));
            table.row("  fail once and wait", "msg/s", &all.of(|f| pending as f64 / f.get("fill_s")));
            table.row("  disk, journal and index", "MB", &all.of(|f| f.get("disk_bytes") / 1e6));
            table.row("  of it the index", "MB", &all.of(|f| f.get("index_bytes") / 1e6));
            lateness(table, "  lateness of 10k due/s", &all);
        }
        Ok(())
    }

    /// The cost of deduplication while the number of known ids grows.
    fn ids(&mut self, amounts: &Amounts) -> Result<(), Error> {
        if !self.wanted("dedup") {
            return Ok(());
        }
        // One run: it takes minutes, and its pieces are compared with each other.
        let all = Repeats(vec![self.runs.measure("dedup", &[("--n", amounts.ids)], "succeed")?]);
        let table = &mut self.table;
        table.row(
            &format!("{} ids remembered: the first tenth", amounts.ids),
            "msg/s",
            &all.figure("first_per_s"),
        );
        table.row("  the slowest tenth", "msg/s", &all.figure("slowest_per_s"));
        table.row("  the last tenth", "msg/s", &all.figure("last_per_s"));
        table.row("  first : slowest", "", &all.figure("flat"));
        table.row("  known ids of all ages, refused", "msg/s", &all.figure("again_per_s"));
        table.row("  processor time", "us/msg", &all.figure("cpu_us"));
        table.row("  dearest tenth : first, processor time", "", &all.figure("flat_cpu"));
        table.row("  memory", "MB", &all.figure("rss_mb"));
        table.row("  index on disk", "MB", &all.figure("index_mb"));
        table.row("  opened again in", "ms", &all.figure("open_ms"));
        let flat = all.0[0].get("flat_cpu");
        if flat > FLAT_MAX && self.options.size != BenchSize::Quick {
            self.faults.push(format!("an id costs up to {flat:.2} times what it costs at first"));
        }
        Ok(())
    }

    /// Time to search for one letter.
    fn letters(&mut self, amounts: &Amounts) -> Result<(), Error> {
        if !self.wanted("letters") {
            return Ok(());
        }
        let mut all = Repeats::default();
        for _ in 0..self.options.repeats {
            all.0.push(self.runs.measure("letters", &[("--n", amounts.letters)], "succeed")?);
        }
        let table = &mut self.table;
        table.row(
            &format!("{} letters: found by message id", amounts.letters),
            "ms",
            &all.figure("by_id_ms"),
        );
        table.row("  the slowest of 101 searches", "ms", &all.figure("by_id_most_ms"));
        table.row("  letters looked at", "", &all.figure("by_id_looked_at"));
        table.row("  found by error text, all are read", "ms", &all.figure("by_error_ms"));
        table.row("  memory", "MB", &all.figure("rss_mb"));
        Ok(())
    }

    fn reopen(&mut self, amounts: &Amounts) -> Result<(), Error> {
        if !self.wanted("reopen") {
            return Ok(());
        }
        let pending = [("--pending", amounts.reopen)];
        let (mut clean, mut killed, mut rebuilt) =
            (Repeats::default(), Repeats::default(), Repeats::default());
        for _ in 0..self.options.repeats {
            self.runs.empty()?;
            self.runs.child("fill", &pending, "succeed", &[])?;
            clean.0.push(self.runs.child("open", &pending, "succeed", &[])?);
            fs::remove_dir_all(self.runs.store().join(super::rig::PIPELINE).join("index"))?;
            rebuilt.0.push(self.runs.child("open", &pending, "succeed", &[])?);
            self.runs.empty()?;
            self.runs.killed("fill", &pending, "succeed")?;
            killed.0.push(self.runs.child("open", &pending, "succeed", &[])?);
        }
        for repeats in [&clean, &killed, &rebuilt] {
            for figures in repeats.0.iter().filter(|figures| figures.get("delayed") as u64 != amounts.reopen)
            {
                self.faults.push(format!("after opening {} wait", figures.get("delayed")));
            }
        }
        let pending = amounts.reopen;
        let table = &mut self.table;
        table.row(&format!("open with {pending} pending, clean end"), "s", &clean.figure("open_s"));
        table.row(&format!("open with {pending} pending, after kill -9"), "s", &killed.figure("open_s"));
        table.row("  frames brought forward", "", &killed.figure("brought_forward"));
        table.row(
            "index built anew, per million pending",
            "s",
            &rebuilt.of(|f| f.get("open_s") * 1e6 / pending as f64),
        );
        Ok(())
    }

    /// C: killed after 40 % of the first attempts, then restarted.
    fn crash(&mut self, amounts: &Amounts) -> Result<(), Error> {
        if !self.wanted("crash") {
            return Ok(());
        }
        let n = [("--n", amounts.crash)];
        let mut all = Repeats::default();
        for _ in 0..self.options.repeats {
            self.runs.empty()?;
            self.runs.killed("crash", &n, "workload")?;
            all.0.push(self.runs.child("resume", &n, "workload", &[])?);
        }
        let table = &mut self.table;
        table.row("C lost ids after kill -9", "msg", &all.figure("lost"));
        table.row("C repeated successes", "msg", &all.figure("repeated"));
        table.row("C in flight when killed", "msg", &all.figure("in_flight"));
        table.row("C from restart to the first attempt", "s", &all.figure("moving_s"));
        table.row("C from restart to the end", "s", &all.figure("end_s"));
        for figures in &all.0 {
            if figures.get("lost") + figures.get("both") > 0.0 {
                self.faults.push(format!(
                    "C: {} lost, {} with two ends",
                    figures.get("lost"),
                    figures.get("both")
                ));
            }
        }
        Ok(())
    }

    /// Checks that every id ended exactly once; otherwise the figures are void.
    fn check(&mut self, what: &str, repeats: &Repeats) {
        for figures in &repeats.0 {
            let ended = figures.get("succeeded") + figures.get("dead");
            let [lost, repeated, both] = ["lost", "repeated", "both"].map(|name| figures.get(name));
            if lost + repeated + both > 0.0 || (ended - figures.get("n")).abs() > 0.5 {
                self.faults.push(format!(
                    "{what}: {ended} ended of {}, {lost} lost, {repeated} repeated, {both} twice",
                    figures.get("n")
                ));
            }
        }
    }
}

fn lateness(table: &mut FigureTable, what: &str, repeats: &Repeats) {
    for (name, figure) in [("p50", "late_p50_ms"), ("p99", "late_p99_ms"), ("max", "late_max_ms")] {
        table.row(&format!("{what}, {name}"), "ms", &repeats.figure(figure));
    }
}

/// The share of the raw limit that each run reached. Each raw run follows its run at once, so that both see the same
/// disk.
fn share(runs: &Repeats, raws: &Repeats, seconds: impl Fn(&Figures) -> f64) -> redrive_lab::bench::Spread {
    let pairs = runs.0.iter().zip(&raws.0);
    let shares = pairs.map(|(run, raw)| {
        let mut figures = Figures::default();
        figures.set("share", raw.get("raw_s") / seconds(run));
        figures
    });
    Repeats(shares.collect()).figure("share")
}
