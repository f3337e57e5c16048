//! Decides when a job must stop by itself: its canary failed, or too many of the latest letters died again. Pure.

use std::time::Duration;

use redrive_core::{Ratio, duration};

use super::ends::{Canary, Latest, Trial, WINDOW};
use super::job::{JobProgress, ReplaySpec, ReplayState};

/// Default number of letters in the canary.
pub const CANARY_DEFAULT: u64 = 10;
/// Default share of the latest letters that may die again.
pub const STOP_AT_DEFAULT: Ratio = Ratio::percent(20);
/// Letters that may be under way at once if failures can stop the job, since only ended letters can be judged.
const UNDER_WAY_MAX: u64 = 1_024;

/// What happens to a job if too many letters died again, but all were already put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// The job is done: its caller sees the figures.
    Done,
    /// The job is stopped: it was started automatically, and the next one would probably fail as well.
    Stopped,
}

impl JobProgress {
    /// Begins a canary, if the job has one.
    pub(super) fn begin_trial(&mut self, spec: &ReplaySpec) {
        self.latest = Latest::default();
        self.trial = (spec.canary > 0).then_some(Trial {
            published_before: self.published,
            died_before: self.dead_again,
            letters: spec.canary,
        });
    }

    /// How many more letters may be put back now, regardless of the pace.
    pub(super) fn allowance(&self, spec: &ReplaySpec) -> u64 {
        let of_trial = match self.trial {
            None => u64::MAX,
            // Letters from before must end first, or failures could not be attributed.
            Some(trial) if self.published == trial.published_before && self.under_way() > 0 => 0,
            Some(trial) => (trial.published_before + trial.letters).saturating_sub(self.published),
        };
        let of_rule = spec.stop_at.map_or(u64::MAX, |_| UNDER_WAY_MAX.saturating_sub(self.under_way()));
        of_trial.min(of_rule)
    }

    /// Ends the canary once its letters have ended, and stops the job if its rule says so. Returns whether it did
    /// either. Once all of the `total` letters were put back there is nothing left to stop, except with
    /// [`AtEnd::Stopped`].
    pub(super) fn judge(&mut self, spec: &ReplaySpec, total: u64, at_end: AtEnd) -> bool {
        if self.state != ReplayState::Running {
            return false;
        }
        let all_offered = self.offered >= total;
        let tried = self.finish_trial(all_offered);
        if all_offered && at_end == AtEnd::Done {
            return tried.is_some();
        }
        // Without a limit the canary only goes first.
        if let (Some((letters, died)), Some(limit)) = (tried, spec.stop_at)
            && exceeds(died, letters, limit)
        {
            self.stop(format!("{died} of the first {letters} failed (canary, {})", in_words(limit)));
            return true;
        }
        let (died, ended) = (self.latest.died() as u64, self.latest.len() as u64);
        // While more letters are to end, judge against a full window.
        let of = if all_offered && self.under_way() == 0 { ended } else { WINDOW as u64 };
        if let Some(limit) = spec.stop_at
            && exceeds(died, of, limit)
        {
            self.stop(format!("{died} of the last {ended} failed ({})", in_words(limit)));
            return true;
        }
        tried.is_some()
    }

    /// Stops the job if its canary can come to no end: every letter under way has failed and is held, and no call has
    /// succeeded for `lasts`, at least `lasts_max`. They are judged as if they had died, and are taken back. Returns
    /// whether it stopped the job.
    pub(super) fn judge_held(
        &mut self,
        spec: &ReplaySpec,
        total: u64,
        at_end: AtEnd,
        (lasts, lasts_max): (Duration, Duration),
    ) -> bool {
        let (Some(limit), Some(trial)) = (spec.stop_at, self.trial) else { return false };
        // A job of auto-replay waits: a stop would count towards its kill switch.
        let may_stop = self.state == ReplayState::Running && at_end == AtEnd::Done && self.offered < total;
        let letters = self.published.saturating_sub(trial.published_before);
        let under_way = self.under_way();
        let failed = self.dead_again.saturating_sub(trial.died_before) + under_way;
        if !may_stop
            || lasts < lasts_max
            || letters == 0
            || under_way == 0
            || !exceeds(failed, letters, limit)
        {
            return false;
        }
        let lasts = duration::print(Duration::from_secs(lasts.as_secs()));
        self.stop(format!(
            "{failed} of the first {letters} failed (canary, {}); {under_way} of them were held, no call has succeeded for \
             {lasts}",
            in_words(limit)
        ));
        self.gave_up = true;
        true
    }

    fn stop(&mut self, why: String) {
        self.state = ReplayState::Stopped;
        self.note = Some(why);
    }

    /// The number of the canary's letters and how many of them died, once all have ended. With `all_offered` there
    /// may be fewer letters than intended.
    fn finish_trial(&mut self, all_offered: bool) -> Option<(u64, u64)> {
        let trial = self.trial.as_mut()?;
        let letters = self.published.saturating_sub(trial.published_before);
        if letters == 0 {
            // Letters from before say nothing about the canary.
            trial.died_before = self.dead_again;
            self.latest = Latest::default();
        }
        let trial = *trial;
        let (died, under_way) = (self.dead_again.saturating_sub(trial.died_before), self.under_way());
        let is_over = under_way == 0 && (letters >= trial.letters || all_offered);
        let succeeded = letters.saturating_sub(died + under_way);
        self.canary = Some(Canary { letters: trial.letters, succeeded, is_over });
        if !is_over {
            return None;
        }
        self.trial = None;
        Some((letters, died))
    }
}

fn exceeds(died: u64, of: u64, limit: Ratio) -> bool {
    died * 10_000 > of * limit.basis_points()
}

/// As in `limit 20 %`.
fn in_words(limit: Ratio) -> String {
    format!("limit {} %", limit.to_string().trim_end_matches('%'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(canary: u64, stop_at: Option<u16>) -> ReplaySpec {
        ReplaySpec { canary, stop_at: stop_at.map(Ratio::percent), ..ReplaySpec::default() }
    }

    /// A job in virtual time: each step puts back as many letters as allowed, and they end in the next step as `dies`
    /// says.
    fn run(spec: &ReplaySpec, progress: &mut JobProgress, total: u64, dies: impl Fn(u64) -> bool) {
        run_to(AtEnd::Done, spec, progress, total, dies);
    }

    fn run_to(
        at_end: AtEnd,
        spec: &ReplaySpec,
        progress: &mut JobProgress,
        total: u64,
        dies: impl Fn(u64) -> bool,
    ) {
        while progress.state == ReplayState::Running {
            for letter in progress.published - progress.under_way()..progress.published {
                let died = dies(letter);
                progress.latest.push(died);
                if died {
                    progress.dead_again += 1;
                } else {
                    progress.succeeded += 1;
                }
                progress.judge(spec, total, at_end);
                if progress.state != ReplayState::Running {
                    break;
                }
            }
            progress.judge(spec, total, at_end);
            if progress.state == ReplayState::Running
                && progress.offered == total
                && progress.under_way() == 0
            {
                progress.state = ReplayState::Done;
            }
            let go = progress.allowance(spec).min(total - progress.offered).min(20);
            if progress.state == ReplayState::Running {
                progress.offered += go;
                progress.published += go;
            }
        }
    }

    fn begun(spec: &ReplaySpec) -> JobProgress {
        let mut progress = JobProgress::new();
        progress.begin_trial(spec);
        progress
    }

    #[test]
    fn the_rest_goes_only_once_the_canary_has_ended_well() {
        let spec = spec(10, Some(20));
        let mut progress = begun(&spec);
        assert_eq!(progress.allowance(&spec), 10);
        (progress.offered, progress.published) = (10, 10);
        progress.judge(&spec, 300, AtEnd::Done);
        assert_eq!(progress.allowance(&spec), 0, "none has ended");
        progress.succeeded = 9;
        progress.judge(&spec, 300, AtEnd::Done);
        assert_eq!(progress.allowance(&spec), 0, "one is under way");
        assert_eq!(progress.canary, Some(Canary { letters: 10, succeeded: 9, is_over: false }));
        progress.succeeded = 10;
        progress.judge(&spec, 300, AtEnd::Done);
        assert!(progress.allowance(&spec) > 100);
        assert_eq!(progress.canary, Some(Canary { letters: 10, succeeded: 10, is_over: true }));
        run(&spec, &mut progress, 300, |_| false);
        assert_eq!((progress.state, progress.succeeded), (ReplayState::Done, 300));
    }

    #[test]
    fn a_canary_that_dies_stops_the_job_before_anything_else_goes() {
        let spec = spec(10, Some(20));
        let mut progress = begun(&spec);
        run(&spec, &mut progress, 300, |letter| letter < 3);
        assert_eq!((progress.state, progress.published), (ReplayState::Stopped, 10));
        assert_eq!(progress.note.as_deref(), Some("3 of the first 10 failed (canary, limit 20 %)"));
        let mut progress = begun(&spec);
        run(&spec, &mut progress, 300, |letter| letter < 2);
        assert_eq!(progress.state, ReplayState::Done, "two of ten are within the limit");
    }

    #[test]
    fn a_canary_that_is_only_held_stops_the_job_when_its_time_is_over() {
        let (spec, (second, five)) = (spec(10, Some(20)), (Duration::from_secs(1), Duration::from_mins(5)));
        let mut progress = begun(&spec);
        (progress.offered, progress.published, progress.succeeded, progress.dead_again) = (10, 10, 1, 2);
        let held =
            |progress: &mut JobProgress, lasts| progress.judge_held(&spec, 300, AtEnd::Done, (lasts, five));
        assert!(!held(&mut progress, five.saturating_sub(second)));
        let mut by_auto = progress.clone();
        assert!(!by_auto.judge_held(&spec, 300, AtEnd::Stopped, (five, five)), "auto-replay waits");
        assert!(
            !progress.clone().judge_held(&spec, 10, AtEnd::Done, (five, five)),
            "nothing is left to stop"
        );
        let never = ReplaySpec { stop_at: None, ..spec.clone() };
        assert!(!progress.clone().judge_held(&never, 300, AtEnd::Done, (five, five)));
        assert!(!progress.clone().takes_back());
        assert!(held(&mut progress, five));
        assert_eq!((progress.state, progress.takes_back()), (ReplayState::Stopped, true));
        assert_eq!(
            progress.note.as_deref(),
            Some(
                "9 of the first 10 failed (canary, limit 20 %); 7 of them were held, no call has succeeded for 5m"
            )
        );

        // One of ten is within the limit: it may be held as long as it likes.
        let mut progress = begun(&spec);
        (progress.offered, progress.published, progress.succeeded) = (10, 10, 9);
        assert!(!held(&mut progress, five * 100));
        // Letters from before a resume say nothing about the next canary.
        progress.succeeded = 0;
        progress.begin_trial(&spec);
        assert!(!held(&mut progress, five));
    }

    #[test]
    fn eleven_of_the_last_fifty_are_too_many() {
        let spec = spec(10, Some(20));
        let mut progress = begun(&spec);
        run(&spec, &mut progress, 1_042, |letter| letter >= 300);
        assert_eq!(progress.state, ReplayState::Stopped);
        assert_eq!(progress.note.as_deref(), Some("11 of the last 50 failed (limit 20 %)"));
        assert_eq!(progress.dead_again, 11);
        assert!(progress.published < 340, "{progress:?}");

        // It is resumed: another canary begins, and earlier failures are not counted again.
        progress.state = ReplayState::Running;
        progress.begin_trial(&spec);
        let before = progress.published;
        assert_eq!(progress.allowance(&spec), 0, "what is under way from before has to end first");
        run(&spec, &mut progress, 1_042, |_| false);
        assert_eq!((progress.state, progress.published > before), (ReplayState::Done, true));
    }

    #[test]
    fn a_second_canary_is_judged_by_its_own_letters() {
        let spec = spec(10, Some(20));
        // Stopped with eight letters under way.
        let mut progress =
            JobProgress { offered: 100, published: 100, succeeded: 81, dead_again: 11, ..JobProgress::new() };
        progress.begin_trial(&spec);
        progress.judge(&spec, 300, AtEnd::Done);
        // They die too, one after the other.
        for died in 12..=19 {
            assert_eq!(progress.allowance(&spec), 0);
            progress.dead_again = died;
            assert!(!progress.judge(&spec, 300, AtEnd::Done));
        }
        assert_eq!(progress.allowance(&spec), 10);
        (progress.offered, progress.published, progress.succeeded) = (110, 110, 91);
        assert!(progress.judge(&spec, 300, AtEnd::Done));
        assert_eq!((progress.state, progress.trial), (ReplayState::Running, None));
        assert_eq!(progress.canary, Some(Canary { letters: 10, succeeded: 10, is_over: true }));
    }

    #[test]
    fn one_in_ten_that_dies_stops_nothing() {
        let spec = spec(10, Some(20));
        let mut progress = begun(&spec);
        run(&spec, &mut progress, 1_000, |letter| letter % 10 == 3);
        assert_eq!((progress.state, progress.dead_again), (ReplayState::Done, 100));
    }

    #[test]
    fn a_job_smaller_than_its_canary_is_done_whatever_died() {
        let spec = spec(10, Some(20));
        let mut progress = begun(&spec);
        run(&spec, &mut progress, 5, |_| true);
        assert_eq!((progress.state, progress.dead_again), (ReplayState::Done, 5));
    }

    /// The limit of auto-replay counts stopped jobs, and most of its jobs are small.
    #[test]
    fn a_job_that_nobody_asked_for_is_stopped_at_its_end_by_the_same_share() {
        let spec = spec(10, Some(20));
        let ended = |total, dies: fn(u64) -> bool| {
            let mut progress = begun(&spec);
            run_to(AtEnd::Stopped, &spec, &mut progress, total, dies);
            (progress.state, progress.published, progress.note)
        };
        let stopped = |published, why: &str| (ReplayState::Stopped, published, Some(format!("{why} %)")));
        let done = |published| (ReplayState::Done, published, None);
        assert_eq!(ended(1, |_| true), stopped(1, "1 of the first 1 failed (canary, limit 20"));
        assert_eq!(ended(5, |letter| letter < 2), stopped(5, "2 of the first 5 failed (canary, limit 20"));
        assert_eq!(ended(10, |letter| letter < 3), stopped(10, "3 of the first 10 failed (canary, limit 20"));
        assert_eq!(ended(10, |letter| letter < 2), done(10), "two of ten are within the limit");
        assert_eq!(ended(30, |letter| letter >= 23), stopped(30, "7 of the last 30 failed (limit 20"));
        assert_eq!(ended(30, |letter| letter >= 24), done(30), "six of thirty are within the limit");
        assert_eq!(ended(70, |letter| letter >= 59), stopped(70, "11 of the last 50 failed (limit 20"));
        assert_eq!(ended(5, |_| false), done(5));

        // It is resumed: nothing is left to do, and earlier failures are not counted again.
        let mut progress = begun(&spec);
        run_to(AtEnd::Stopped, &spec, &mut progress, 5, |_| true);
        progress.state = ReplayState::Running;
        progress.begin_trial(&spec);
        run_to(AtEnd::Stopped, &spec, &mut progress, 5, |_| true);
        assert_eq!((progress.state, progress.dead_again), (ReplayState::Done, 5));
    }

    #[test]
    fn without_a_limit_a_canary_goes_first_and_stops_nothing() {
        let spec = spec(10, None);
        let mut progress = begun(&spec);
        assert_eq!(progress.allowance(&spec), 10);
        run(&spec, &mut progress, 500, |_| true);
        assert_eq!((progress.state, progress.dead_again), (ReplayState::Done, 500));
        assert_eq!(progress.canary, Some(Canary { letters: 10, succeeded: 0, is_over: true }));
    }

    #[test]
    fn without_a_rule_nothing_stops_and_nothing_waits() {
        let spec = spec(0, None);
        let mut progress = begun(&spec);
        assert_eq!(progress.allowance(&spec), u64::MAX);
        run(&spec, &mut progress, 500, |_| true);
        assert_eq!((progress.state, progress.dead_again), (ReplayState::Done, 500));
    }
}
