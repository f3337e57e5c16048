//! The breaker, the guard and the auto-replay of a pipeline, every value with its origin.

use redrive_core::breaker::SlowAction;
use redrive_core::duration::print;

use super::super::pipeline::PipelineConfig;
use super::super::words::quoted;
use super::{Origin, Resolved, ResolvedTable};

/// `origin` knows where a dotted key of the pipeline was given, if it was.
pub(super) fn tables(
    pipeline: &PipelineConfig,
    origin: &dyn Fn(&str) -> Option<Origin>,
) -> Vec<ResolvedTable> {
    let (breaker, guard, auto) = (&pipeline.breaker, &pipeline.guard, &pipeline.auto_replay);
    let counts: Vec<String> = breaker.slow.counts.iter().map(|count| quoted(&count.to_string())).collect();
    let action = match breaker.slow.action {
        SlowAction::Open => "open",
        SlowAction::Alert => "alert",
    };
    let table = |path: &str, values: Vec<(&str, String)>| {
        let lines = values.into_iter().map(|(key, value)| {
            let otherwise = || match key {
                "counts" => Origin::Profile(pipeline.profile().name),
                _ => Origin::Default,
            };
            let origin = origin(&format!("{path}.{key}")).unwrap_or_else(otherwise);
            Resolved { key: key.to_owned(), value, origin }
        });
        ResolvedTable { header: format!("[pipeline.{path}]"), lines: lines.collect() }
    };
    vec![
        table(
            "breaker",
            vec![
                ("enabled", breaker.enabled.to_string()),
                ("cooldown", quoted(&print(breaker.cooldown))),
                ("cooldown_max", quoted(&print(breaker.cooldown_max))),
                ("probes", breaker.probes.to_string()),
            ],
        ),
        table(
            "breaker.fast",
            vec![
                ("window", quoted(&print(breaker.fast.window))),
                ("failures", quoted(&breaker.fast.failures.to_string())),
                ("min", breaker.fast.min.to_string()),
            ],
        ),
        table(
            "breaker.slow",
            vec![
                ("window", quoted(&print(breaker.slow.window))),
                ("failures", quoted(&breaker.slow.failures.to_string())),
                ("counts", format!("[{}]", counts.join(", "))),
                ("action", quoted(action)),
            ],
        ),
        table(
            "guard",
            vec![
                ("share", quoted(&guard.share.to_string())),
                ("over", quoted(&print(guard.over))),
                ("times_baseline", guard.times_baseline.to_string()),
            ],
        ),
        table(
            "auto_replay",
            vec![
                ("enabled", auto.enabled.to_string()),
                ("rate", quoted(&format!("{}/s", auto.settings.rate))),
                ("healthy_for", quoted(&print(auto.settings.healthy_for))),
                ("age_max", quoted(&print(auto.settings.age_max))),
            ],
        ),
    ]
}
