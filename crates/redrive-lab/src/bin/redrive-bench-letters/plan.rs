//! The whole run: every engine and size with repeats, in one table, and whether the aims are met.

use std::fs;

use redrive_lab::bench::{FigureTable, Figures, Repeats, Spread, machine};
use redrive_lab::kafka::Error;

use super::options::LettersOptions;
use super::runs::{LettersRun, Measured};
use super::workload;

/// The aims apply up to this many letters.
const AIMS_LETTERS: u64 = 1_000_000;
/// The aims: figure, label and limit in milliseconds, for the list of groups and the first page of an indexed filter.
const AIMS_MS: [(&str, &str, f64); 3] = [
    ("groups_ms", "groups listed", 1_000.0),
    ("group_page_ms", "first page of the largest group", 100.0),
    ("rare_group_page_ms", "first page of the smallest group", 100.0),
];

pub fn run(options: &LettersOptions) -> Result<(), Error> {
    fs::create_dir_all(&options.dir)?;
    for (name, value) in machine::describe(&options.dir) {
        println!("{name}: {value}");
    }
    println!(
        "seed: {}, repeats: {} processes, each question asked {} times in each",
        options.seed, options.repeats, options.asked
    );
    println!(
        "workload: {}-byte payloads, {} errors, every message dies at its first attempt; pages of 100",
        workload::PAYLOAD_BYTES,
        workload::ERRORS
    );
    let (mut table, mut aims) = (FigureTable::default(), Vec::new());
    for engine in &options.engines {
        for n in &options.sizes {
            let what = format!("{} {n}", engine.word());
            let measured = LettersRun::new(options, *engine, *n).measure()?;
            rows(&mut table, &what, *n, &measured);
            if *n <= AIMS_LETTERS && !options.is_quick {
                aims.extend(judged(&what, &measured.asked));
            }
        }
    }
    println!("\n{table}");
    println!("load at end: {}", machine::load());
    let _ = fs::remove_dir_all(&options.dir);
    for (line, _) in &aims {
        println!("{line}");
    }
    let missed = aims.iter().filter(|(_, is_met)| !is_met).count();
    if missed == 0 { Ok(()) } else { Err(format!("{missed} aims were missed").into()) }
}

fn rows(table: &mut FigureTable, what: &str, n: u64, Measured { filled, asked }: &Measured) {
    let once = |value: fn(&Figures, f64) -> f64| Spread::of([value(filled, n as f64)]);
    let letters = |filled: &Figures, n: f64| n / (filled.get("fill_s") - filled.get("load_s"));
    table.row(&format!("{what} letters: filled at"), "letters/s", &once(letters));
    table.row("  memory at the peak of filling", "MB", &once(|filled, _| filled.get("rss_peak_mb")));
    for (name, words, unit) in [
        ("start_ms", "start, until all letters are known", "ms"),
        ("groups", "groups", ""),
        ("groups_ms", "groups listed, with a letter of each", "ms"),
        ("groups_ms_max", "  the slowest", "ms"),
        ("counts_ms", "counts of status", "ms"),
        ("group_page_ms", "first page of the largest group", "ms"),
        ("group_page_ms_max", "  the slowest", "ms"),
        ("rare_group_page_ms", "first page of the smallest group", "ms"),
        ("middle_page_ms", "page by a cursor in the middle", "ms"),
        ("by_id_ms", "one letter by the id of its message", "ms"),
        ("status_page_ms", "first page of a status, which is not indexed", "ms"),
        ("search_ms", "one letter by a text in its error, all are read", "ms"),
        ("rss_mb", "memory", "MB"),
        ("rss_peak_mb", "memory at the peak", "MB"),
        ("disk_mb", "local files", "MB"),
        ("broker_mb", "files of the broker", "MB"),
    ] {
        table.row(&format!("  {words}"), unit, &asked.figure(name));
    }
}

/// Describes each aim and whether every process met it.
fn judged(what: &str, asked: &Repeats) -> Vec<(String, bool)> {
    let judge = |(name, words, most): &(&str, &str, f64)| {
        let took = asked.figure(name).max();
        let is_met = took < *most;
        let word = if is_met { "met" } else { "MISSED" };
        (format!("aim: {what} letters: {words} in less than {most} ms: {took:.1} ms, {word}"), is_met)
    };
    AIMS_MS.iter().map(judge).collect()
}
