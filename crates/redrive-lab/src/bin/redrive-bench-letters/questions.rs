//! Starts on a store with many letters and asks an operator's questions.

use std::future::Future;
use std::time::{Duration, Instant};

use redrive::actions::Actions;
use redrive::internal::engine::{GroupSummary, LetterState};
use redrive::letters::{Filter, Page, Selection};
use redrive::{GroupId, PipelineHandle};
use redrive_lab::bench::{Figures, machine};
use redrive_lab::kafka::Error;

use super::options::LettersOptions;
use super::store::{LetterStore, disk_mb};
use super::workload;

/// The page size of `redrive dlq list` and the dashboard.
const PAGE: usize = 100;
/// Far longer than reading the remaining letters takes.
const READ_MAX: Duration = Duration::from_mins(3);

pub async fn run(options: &LettersOptions) -> Result<Figures, Error> {
    let n = *options.sizes.first().ok_or("no size")?;
    let mut figures = Figures::default();
    let began = Instant::now();
    let store = LetterStore::open(options)?;
    figures.set("open_ms", ms(began.elapsed()));
    store.wait_for(n).await?;
    let actions = Actions::open(None)?;
    let groups = known_groups(&actions, &store.handle).await?;
    figures.set("start_ms", ms(began.elapsed()));
    figures.set("groups", groups.len() as f64);
    let (most, fewest) = groups.first().zip(groups.last()).ok_or("no groups")?;
    let (most, fewest) = (most.group(), fewest.group());
    figures.set("rss_start_mb", machine::rss_mb());

    let handle = &store.handle;
    let mut ask = Asking { figures: &mut figures, times: options.asked };
    ask.times("groups_ms", || async { Ok(actions.groups(handle).await?.len() as u64) }, |found| found > 0)
        .await?;
    ask.times("counts_ms", || async { Ok(handle.counts().await?.letters_open) }, |open| open == n).await?;
    let common = in_group(most)?;
    ask.times("group_page_ms", || first(handle, &common, None), |found| found > 0).await?;
    let rare = in_group(fewest)?;
    ask.times("rare_group_page_ms", || first(handle, &rare, None), |found| found > 0).await?;
    let all = Selection::all(LetterState::Open);
    let middle = store.middle(n);
    ask.times("middle_page_ms", || first(handle, &all, middle), |found| found > 0).await?;
    // By message id, which both engines index.
    let page = all.page_without_payloads(handle, middle, 1).await?;
    let id = page.letters.first().ok_or("no letter in the middle")?.message.id().to_owned();
    let by_id = Selection { filter: Some(Filter::parse(&format!("id:\"{id}\""))?), ..all.clone() };
    let began = Instant::now();
    if find(handle, &by_id).await? != 1 {
        return Err(format!("no letter of message {id}, or several").into());
    }
    ask.figures.set("by_id_ms", ms(began.elapsed()));
    // Not indexed: the engine scans letters until the page is full.
    let status = Selection { filter: Some(Filter::parse("status:404")?), ..all.clone() };
    ask.times("status_page_ms", || first(handle, &status, None), |found| found > 0).await?;
    let text = format!("error:\"{}\"", workload::id(n / 2));
    let one = Selection { filter: Some(Filter::parse(&text)?), ..all };
    let began = Instant::now();
    let found = find(handle, &one).await?;
    if found != 1 {
        return Err(format!("{found} letters with the error of {}", workload::id(n / 2)).into());
    }
    figures.set("search_ms", ms(began.elapsed()));
    figures.set("rss_mb", machine::rss_mb());
    figures.set("rss_peak_mb", machine::rss_peak_mb());
    figures.set("disk_mb", disk_mb(options));
    if let Some(dir) = &options.broker_dir {
        figures.set("broker_mb", machine::disk_bytes(dir) as f64 / 1e6);
    }
    store.stop().await?;
    Ok(figures)
}

/// Asks for the groups until the engine has read all letters and can list them.
async fn known_groups(actions: &Actions, handle: &PipelineHandle) -> Result<Vec<GroupSummary>, Error> {
    let began = Instant::now();
    loop {
        match actions.groups(handle).await {
            Ok(groups) => return Ok(groups),
            Err(error) if began.elapsed() > READ_MAX => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

/// Asks a question several times. Reports the median, and the maximum as well.
struct Asking<'a> {
    figures: &'a mut Figures,
    times: u32,
}

impl Asking<'_> {
    async fn times<F: Future<Output = Result<u64, Error>>>(
        &mut self,
        name: &str,
        question: impl Fn() -> F,
        is_right: impl Fn(u64) -> bool,
    ) -> Result<(), Error> {
        let mut took = Vec::new();
        for _ in 0..self.times {
            let began = Instant::now();
            let answer = question().await?;
            took.push(began.elapsed());
            if !is_right(answer) {
                return Err(format!("{name}: {answer} is a wrong answer").into());
            }
        }
        took.sort_unstable();
        self.figures.set(name, ms(took[took.len() / 2]));
        self.figures.set(&format!("{name}_max"), ms(took[took.len() - 1]));
        Ok(())
    }
}

fn in_group(group: GroupId) -> Result<Selection, Error> {
    let filter = Some(Filter::parse(&format!("group:{group}"))?);
    Ok(Selection { filter, state: Some(LetterState::Open), ..Selection::default() })
}

/// Counts the letters of the first page after `after`; continues if a page is cut short before the end.
async fn first(handle: &PipelineHandle, selection: &Selection, after: Option<u64>) -> Result<u64, Error> {
    let mut at = after;
    let mut found = 0;
    loop {
        let page: Page = selection.page_without_payloads(handle, at, PAGE).await?;
        found += page.letters.len() as u64;
        at = page.next;
        if found >= PAGE as u64 || at.is_none() {
            return Ok(found);
        }
    }
}

/// Follows all pages and counts the letters.
async fn find(handle: &PipelineHandle, selection: &Selection) -> Result<usize, Error> {
    let (mut after, mut found) = (None, 0);
    loop {
        let page = selection.page_without_payloads(handle, after, PAGE).await?;
        found += page.letters.len();
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
