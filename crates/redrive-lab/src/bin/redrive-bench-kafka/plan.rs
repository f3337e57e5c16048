//! All measurements in one run, and the table of their figures.

use redrive_lab::bench::{Figures, Repeats, Table, machine};
use redrive_lab::kafka::Error;
use redrive_lab::kafka::load::Loader;

use super::options::{Fates, Options, Scenario};
use super::runs::{Runs, Setting};

struct Plan<'a> {
    options: &'a Options,
    runs: Runs<'a>,
    table: Table,
}

pub fn run(options: &Options) -> Result<(), Error> {
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
    println!("workload: 512-byte orders, N = {}; fates by fnv1a64 of the id, no other seed", options.n);
    let mut plan = Plan { options, runs: Runs::new(options), table: Table::new() };
    let ran = plan.all();
    plan.runs.clear("bench-")?;
    println!("load at the end: {}\n\n{}", machine::load(), plan.table);
    ran
}

fn per_second(count: &'static str, seconds: &'static str) -> impl Fn(&Figures) -> f64 {
    move |figures| figures.get(count) / figures.get(seconds)
}

impl Plan<'_> {
    fn wanted(&self, name: &str) -> bool {
        self.options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    fn all(&mut self) -> Result<(), Error> {
        self.runs.clear("bench-")?;
        if self.wanted("drain") || self.wanted("mixed") {
            self.preload()?;
        }
        if self.wanted("drain") {
            self.drain()?;
        }
        if self.wanted("mixed") {
            self.mixed()?;
        }
        Ok(())
    }

    /// Orders that every drain reads: each does so as a group of its own.
    fn preload(&self) -> Result<(), Error> {
        let Options { source, n, brokers, partitions, .. } = self.options;
        self.runs.create(source)?;
        Loader::new(brokers, source, *partitions, &[])?.write(0..*n)
    }

    fn drain(&mut self) -> Result<(), Error> {
        let mut raws = Repeats::default();
        for _ in 0..self.options.repeats {
            raws.0.push(self.drained(Scenario::Raw, Fates::Succeed)?);
        }
        self.table.row("A raw ceiling: consume, commit", "msg/s", &raws.of(per_second("n", "settled_s")));
        self.table.row("A raw, processor time", "us/msg", &raws.of(|f| f.get("cpu_s") * 1e6 / f.get("n")));
        Ok(())
    }

    fn mixed(&mut self) -> Result<(), Error> {
        let mut raws = Repeats::default();
        for _ in 0..self.options.repeats {
            raws.0.push(self.drained(Scenario::Raw, Fates::Workload)?);
        }
        self.table.row("B raw ceiling: consume, copy, commit", "msg/s", &raws.of(per_second("n", "first_s")));
        self.table.row("B raw, processor time", "us/msg", &raws.of(|f| f.get("cpu_s") * 1e6 / f.get("n")));
        Ok(())
    }

    /// One drain of what was preloaded.
    fn drained(&mut self, scenario: Scenario, fates: Fates) -> Result<Figures, Error> {
        let name = self.runs.name();
        if scenario == Scenario::Raw {
            self.runs.create(&format!("{name}.retry"))?;
            self.runs.create(&format!("{name}.DLQ"))?;
        }
        let Options { source, n, .. } = self.options;
        let setting =
            Setting { scenario, name: &name, source, fates, n: *n, rate: 0, seconds: 0, trace: None };
        let figures = self.runs.measure(&setting);
        self.runs.clear(&name)?;
        figures
    }
}
