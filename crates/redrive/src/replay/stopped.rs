//! Jobs that were stopped because too many letters died again, and wait for an operator. Pure: the texts of notices
//! and alerts.

use super::auto::{OwnJob, STOPS_MAX, stops_in_a_row};
use super::job::{AUTO_ACTOR, ReplayState, ReplayView};

/// The stopped jobs of one pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedReplays {
    /// The number of stopped jobs.
    pub jobs: u64,
    /// The name of the latest one.
    pub last: String,
    /// Why the latest one was stopped.
    pub why: String,
    /// Whether auto-replay starts no more jobs until an operator decides about its last one.
    pub auto_is_off: bool,
}

impl StoppedReplays {
    /// The stopped jobs among `jobs`, which are sorted latest first; `None` if there are none.
    pub fn of(pipeline: &str, jobs: &[ReplayView]) -> Option<Self> {
        let own = || jobs.iter().filter(|job| job.pipeline == pipeline);
        let is_stopped = |job: &&ReplayView| job.state == ReplayState::Stopped;
        let last = own().find(is_stopped)?;
        let by_auto = own().filter(|job| job.actor == AUTO_ACTOR);
        let by_auto =
            by_auto.map(|job| OwnJob { id: job.id.clone(), state: job.state, created: job.created });
        Some(Self {
            jobs: own().filter(is_stopped).count() as u64,
            last: last.id.clone(),
            why: last.note.clone().unwrap_or_else(|| "too many letters died again".to_owned()),
            auto_is_off: stops_in_a_row(&by_auto.collect::<Vec<_>>()) >= STOPS_MAX,
        })
    }

    /// A sentence for people.
    pub fn sentence(&self) -> String {
        let Self { jobs, last, why, auto_is_off } = self;
        let others = match jobs {
            0 | 1 => String::new(),
            jobs => format!(", and {} more before it", jobs - 1),
        };
        let off =
            if *auto_is_off { "; auto-replay is off until its last job is resumed or aborted" } else { "" };
        format!("replay {last} was stopped{others}: {}{off}", why.trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::Time;

    use super::*;
    use crate::engine::ReplayTarget;
    use crate::replay::Skipped;

    fn job(id: &str, pipeline: &str, state: ReplayState, actor: &str) -> ReplayView {
        ReplayView {
            id: id.to_owned(),
            pipeline: pipeline.to_owned(),
            state,
            selection: String::new(),
            total: 60,
            published: 50,
            under_way: 0,
            held: None,
            succeeded: 39,
            dead_again: 11,
            forgotten: 0,
            skipped: 0,
            untouched: 10,
            skips: Skipped::default(),
            rate: None,
            force: false,
            target: ReplayTarget::Pipeline,
            canary: None,
            stop_at: None,
            sent_twice_max: 0,
            created: Time::ZERO,
            actor: actor.to_owned(),
            groups: crate::replay::TouchedGroups::default(),
            note: Some("11 of the last 50 failed (limit 20 %)".to_owned()),
        }
    }

    #[test]
    fn stopped_jobs_of_the_pipeline_are_named_and_others_are_not() {
        use ReplayState::{Aborted, Done, Running, Stopped};
        let jobs = [
            job("r-5", "orders", Running, "ops"),
            job("r-4", "invoices", Stopped, "ops"),
            job("r-3", "orders", Stopped, "ops"),
            job("r-2", "orders", Aborted, "ops"),
            job("r-1", "orders", Stopped, "ops"),
        ];
        let found = StoppedReplays::of("orders", &jobs).unwrap();
        assert_eq!(
            found.sentence(),
            "replay r-3 was stopped, and 1 more before it: 11 of the last 50 failed (limit 20 %)"
        );
        assert_eq!(StoppedReplays::of("orders", &[job("r-1", "orders", Done, "ops")]), None);
        assert_eq!(StoppedReplays::of("push", &jobs), None);
    }

    #[test]
    fn the_kill_switch_of_auto_replay_is_said() {
        let stopped = |id| job(id, "orders", ReplayState::Stopped, AUTO_ACTOR);
        let once = StoppedReplays::of("orders", &[stopped("r-1")]).unwrap();
        assert!(!once.auto_is_off && !once.sentence().contains("auto-replay"));
        let twice = StoppedReplays::of("orders", &[stopped("r-2"), stopped("r-1")]).unwrap();
        assert!(twice.sentence().ends_with("; auto-replay is off until its last job is resumed or aborted"));
    }
}
