//! A message that kills its process, among others that do not: what the victim runs, and how it can die.
//!
//! Every start adds messages, so that there is other work besides the suspects. A second pipeline dies with the first
//! and must not be affected otherwise.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use redrive::{Embedded, Failure, LastEnd, Message, Pipeline, PipelineHandle, Policy, Redrive};

use crate::plan;

/// The pipeline with the pill, and another one.
pub const PIPELINES: [&str; 2] = ["orders", "mail"];
pub const PILL: &str = "pill";
/// Deliveries that run concurrently when the pill is taken for the first time.
pub const IN_FLIGHT: u64 = 64;
/// Messages that every start adds to each pipeline.
pub const NEW_PER_START: u64 = 40;
/// How long an innocent message takes: long enough that all are in flight when the pill starts to run.
const TAKES: Duration = Duration::from_millis(60);
const PILL_AFTER: Duration = Duration::from_millis(30);
const TIMEOUT: Duration = Duration::from_millis(300);
/// The watchdog's exit code.
pub const STUCK: i32 = 70;

/// How the pill kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    Abort,
    /// Allocates memory until there is none left.
    Memory,
    /// Neither returns nor yields.
    Loop,
    /// Does not kill: the library catches the panic.
    Panic,
    /// A message like any other; the process is killed from outside.
    Never,
}

impl Death {
    pub const ALL: [Self; 5] = [Self::Abort, Self::Memory, Self::Loop, Self::Panic, Self::Never];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Memory => "memory",
            Self::Loop => "loop",
            Self::Panic => "panic",
            Self::Never => "never",
        }
    }

    /// Dies this way, now.
    pub fn come(self) {
        match self {
            Self::Abort => std::process::abort(),
            Self::Memory => {
                let mut taken: Vec<Vec<u8>> = Vec::new();
                loop {
                    taken.push(vec![0; 256 << 20]);
                }
            }
            Self::Loop => loop {
                std::thread::sleep(Duration::from_millis(1));
            },
            Self::Panic => panic!("the pill"),
            Self::Never => {}
        }
    }
}

impl FromStr for Death {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|death| death.name() == text);
        known.ok_or_else(|| format!("`{text}` is no way to die"))
    }
}

type Failed = Box<dyn Error + Send + Sync>;

/// One start of the victim.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    pub death: Death,
    /// Number of the start, from 0.
    pub start: u64,
    /// How the previous process ended, as its supervisor saw it.
    pub last_end: LastEnd,
    /// Whether it goes on when nothing is pending, until it is killed.
    pub stays: bool,
}

/// Delivers the existing messages and those of this start, and returns when nothing is pending.
pub async fn run(dir: &Path, log: &Path, life: Life) -> Result<(), Failed> {
    let Life { death, start, last_end, stays } = life;
    let embedded = Embedded::open_with(dir, plan::tuning())?;
    let log = Arc::new(File::options().create(true).append(true).open(log)?);
    let builder = Redrive::builder().engine(embedded.clone()).last_end(last_end);
    let builder =
        PIPELINES.iter().fold(builder, |builder, name| builder.pipeline(pipeline(name, death, &log)));
    let redrive = builder.build()?;
    let handles: Vec<PipelineHandle> = PIPELINES.iter().filter_map(|name| redrive.pipeline(name)).collect();
    for handle in &handles {
        handle.ingest(brought(handle.name(), start)).await?;
    }
    let all_ended = async {
        if stays {
            std::future::pending::<()>().await;
        }
        for handle in &handles {
            while !matches!(handle.counts().await, Ok(counts) if counts.pending() == 0) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    redrive.run_until(all_ended).await?;
    Ok(())
}

/// Returns the messages of a start; those of the first one use all permits, with the pill among them.
pub fn brought(pipeline: &str, start: u64) -> Vec<Message> {
    let count = if start == 0 { IN_FLIGHT - 1 } else { NEW_PER_START };
    let mut ids: Vec<String> = (0..count).map(|number| format!("{pipeline}-{start}-{number}")).collect();
    if start == 0 && pipeline == PIPELINES[0] {
        ids.insert(41, PILL.to_owned());
    }
    ids.iter().map(|id| plan::message(id, None)).collect()
}

fn pipeline(name: &str, death: Death, log: &Arc<File>) -> Pipeline {
    let log = Arc::clone(log);
    let handler = move |message: Message| {
        let log = Arc::clone(&log);
        async move {
            if message.id() == PILL {
                tokio::time::sleep(PILL_AFTER).await;
                death.come();
            }
            tokio::time::sleep(TAKES).await;
            // One write, so that lines of concurrent calls do not mix.
            (&*log).write_all(format!("{}\n", message.id()).as_bytes()).map_err(Failure::permanent)
        }
    };
    let policy = Policy::fixed("5ms").retries(3).jitter("none");
    Pipeline::new(name)
        .policy(policy)
        .concurrency(IN_FLIGHT as u32)
        .timeout(TIMEOUT)
        .handler_fn(handler)
        .on_health(|changed| eprintln!("{}: {}", changed.pipeline, changed.change))
        .on_stuck(|stuck| {
            eprintln!("{stuck}");
            std::process::exit(STUCK);
        })
}
