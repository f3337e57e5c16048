//! Every fault of a policy is named with its key, its value and its fix, all of them at once.

use std::time::Duration;

use redrive_core::policy::{BackoffSettings, BudgetRate, Mode, OnExhausted};
use redrive_core::{
    Class, Jitter, Policy, PolicyBuilder, PolicyFault, PolicyFaults, PolicySettings, PolicyWarning, Ratio,
    Schedule,
};

fn faults(builder: &PolicyBuilder) -> Vec<PolicyFault> {
    builder.build().expect_err("a fault").0
}

/// The only fault, as shown to a user.
fn fault(builder: &PolicyBuilder) -> String {
    let faults = faults(builder);
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults[0].to_string()
}

fn with_backoff(backoff: BackoffSettings) -> PolicyBuilder {
    PolicySettings { backoff: Some(backoff), ..PolicySettings::default() }.into()
}

#[test]
fn all_faults_are_reported_in_one_run() {
    let policy = Policy::tiers(["30s", "5s", "5m"])
        .retries(5)
        .jitter("wild")
        .ttl("1 hour")
        .concurrency(0)
        .crash(0, "0s")
        .timeout("48h");
    let faults = faults(&policy);
    let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(
        keys,
        ["tiers", "retries", "jitter", "ttl", "concurrency", "timeout", "crash.threshold", "crash.window"]
    );
    let text = PolicyFaults(faults).to_string();
    assert_eq!(text.matches("fix: ").count(), 8);
    assert_eq!(text.lines().count(), 16);
}

#[test]
fn tiers_must_grow() {
    assert_eq!(
        fault(&Policy::tiers(["30s", "5s", "5m"])),
        "`tiers` must grow: 5s comes after 30s\n  fix: tiers = [\"5s\", \"30s\", \"5m\"]"
    );
    let twice = &faults(&Policy::tiers(["5s", "5s", "1m"]))[0];
    assert_eq!(
        (twice.value.as_str(), twice.fix.as_str()),
        ("[\"5s\", \"5s\", \"1m\"]", "tiers = [\"5s\", \"10s\", \"1m\"]")
    );
}

#[test]
fn repairing_tiers_loses_no_retry() {
    let fix = |policy: PolicyBuilder| faults(&policy)[0].fix.clone();
    assert_eq!(
        fix(Policy::tiers(["1s", "1s", "1s"])),
        "backoff.fixed = \"1s\" and retries = 3 instead of `tiers`"
    );
    assert_eq!(
        fix(Policy::tiers(["1s", "1s", "1s"]).retries(2)),
        "backoff.fixed = \"1s\" instead of `tiers`"
    );
    assert_eq!(Policy::fixed("1s").retries(3).build().unwrap().retries(), 3);
    for (given, repaired) in [
        (vec!["8760000h"], "tiers = [\"720h\"]"),
        (vec!["5s", "8760000h"], "tiers = [\"5s\", \"720h\"]"),
        (vec!["8760000h", "5s"], "tiers = [\"5s\", \"720h\"]"),
        (vec!["0s", "5s"], "tiers = [\"1ms\", \"5s\"]"),
        (vec!["721h", "722h"], "backoff.fixed = \"720h\" and retries = 2 instead of `tiers`"),
        (vec!["1s", "721h", "722h"], "tiers = [\"1s\", \"720h\"]"),
        (vec!["2s", "1s", "2s", "1s"], "tiers = [\"1s\", \"2s\", \"4s\", \"8s\"]"),
        (vec!["721h", "x"], "\"720h\""),
    ] {
        assert_eq!(fix(Policy::tiers(given.clone())), repaired, "{given:?}");
    }
}

#[test]
fn tiers_are_some_and_not_too_many() {
    assert!(fault(&Policy::tiers(Vec::<Duration>::new())).starts_with("`tiers` is empty\n"));
    let tiers = |count: u64| Policy::tiers((1..=count).map(Duration::from_secs));
    assert!(tiers(32).build().is_ok());
    assert!(fault(&tiers(33)).starts_with("`tiers` has 33 steps, at most 32 are allowed"));
    assert!(fault(&Policy::tiers(["0s", "5s"])).starts_with("`tiers = \"0s\"` must be at least 1ms\n"));
    assert!(fault(&Policy::tiers(["5s", "721h"])).starts_with("`tiers = \"721h\"` must be at most 720h\n"));
    assert_eq!(
        fault(&Policy::tiers(["five", "5s"])),
        "`tiers = \"five\"` is not a duration\n  fix: write it like 100ms, 5s, 5m, 1h30m or 1d"
    );
}

#[test]
fn tiers_allow_no_more_retries_than_there_are() {
    assert_eq!(
        fault(&Policy::tiers(["5s", "30s", "5m"]).retries(5)),
        "both `retries = 5` and 3 tiers are set; 3 tiers allow at most 3 retries\n  fix: retries = 3"
    );
    assert_eq!(
        fault(&Policy::tiers(["5s"]).attempts(3)),
        "both `attempts = 3` and 1 tier are set; 1 tier allows at most 1 retry\n  fix: attempts = 2"
    );
    assert!(fault(&Policy::tiers(Vec::<Duration>::new()).retries(2)).starts_with("`tiers` is empty"));
    assert_eq!(Policy::tiers(["5s", "30s", "5m"]).retries(3).build().unwrap().retries(), 3);
    assert_eq!(Policy::tiers(["5s", "30s", "5m"]).attempts(2).build().unwrap().retries(), 1);
    assert_eq!(Policy::tiers(["5s", "30s", "5m"]).retries(0).build().unwrap().attempts(), 1);
}

#[test]
fn retries_and_attempts_exclude_each_other() {
    assert_eq!(
        fault(&Policy::fixed("1s").retries(3).attempts(4)),
        "both `retries = 3` and `attempts = 4` are set\n  fix: keep `retries = 3` or `attempts = 4`"
    );
    // Whatever else is wrong with either number, the first thing to repair is that there are two.
    for both in [Policy::tiers(["5s"]).retries(9).attempts(2), Policy::fixed("1s").retries(5_000).attempts(0)]
    {
        let found = faults(&both);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].problem.starts_with("both `retries"), "{found:?}");
    }
}

#[test]
fn numbers_of_attempts_have_their_bounds() {
    assert!(
        fault(&Policy::fixed("1s").attempts(0)).starts_with("`attempts = 0` must lie between 1 and 1000\n")
    );
    assert!(
        fault(&Policy::fixed("1s").retries(1_000))
            .starts_with("`retries = 1000` must lie between 0 and 999\n")
    );
    assert!(fault(&Policy::fixed("1s").retries(u32::MAX)).ends_with("fix: retries = 999"));
    assert_eq!(Policy::fixed("1s").retries(999).build().unwrap().attempts(), 1_000);
    assert_eq!(Policy::fixed("1s").attempts(1_000).build().unwrap().attempts(), 1_000);
    assert_eq!(Policy::fixed("1s").attempts(1).build().unwrap().retries(), 0);
    assert!(fault(&Policy::fixed("1s").replay_attempts(0)).starts_with("`replay_attempts = 0` must lie"));
}

#[test]
fn only_one_schedule_defines_the_delay() {
    let both = PolicySettings {
        tiers: Some(vec!["5s".into()]),
        backoff: Some(BackoffSettings { base: Some("2s".into()), ..BackoffSettings::default() }),
        ..PolicySettings::default()
    };
    let text =
        "both `tiers` and `backoff` are set, and both define the delay\n  fix: keep `tiers` or `backoff`";
    assert_eq!(fault(&both.into()), text);
}

#[test]
fn a_backoff_is_fixed_or_grows() {
    let given = |base: Option<&str>, multiplier, cap: Option<&str>, fixed: Option<&str>| {
        with_backoff(BackoffSettings {
            base: base.map(Into::into),
            multiplier,
            cap: cap.map(Into::into),
            fixed: fixed.map(Into::into),
        })
    };
    assert!(fault(&given(None, None, None, None)).starts_with("`backoff` needs `base` or `fixed`\n"));
    for mixed in [
        given(Some("1s"), None, None, Some("1s")),
        given(None, Some(2.0), None, Some("1s")),
        given(None, None, Some("1s"), Some("1s")),
    ] {
        assert!(fault(&mixed).starts_with("`backoff` has both `fixed` and `base`, `multiplier` or `cap`\n"));
    }
    for multiplier in [0.9, f64::NAN, f64::INFINITY, 1_001.0] {
        let text = fault(&given(Some("1s"), Some(multiplier), None, None));
        assert!(
            text.starts_with(&format!("`backoff.multiplier = {multiplier}` must lie between 1 and 1000"))
        );
    }
    assert!(given(Some("1s"), Some(1.0), Some("1s"), None).build().is_ok());
    assert_eq!(
        fault(&given(Some("10s"), None, Some("5s"), None)),
        "`backoff.cap = \"5s\"` is shorter than `backoff.base = \"10s\"`\n  fix: backoff.cap = \"10s\""
    );
    let doubled = given(Some("1s"), None, None, None).build().unwrap();
    assert_eq!(doubled.schedule().delay_ms(3, Class::Transient), 4_000);
}

#[test]
fn jitter_must_fit_the_schedule() {
    assert!(Policy::exponential("1s", 2.0, "1m").jitter("decorrelated").build().is_ok());
    for policy in [Policy::tiers(["5s"]), Policy::fixed("5s"), Policy::custom(|_, _| Duration::from_secs(1))]
    {
        assert!(
            fault(&policy.jitter("decorrelated"))
                .starts_with("`jitter = \"decorrelated\"` needs an exponential `backoff`")
        );
    }
    assert!(
        fault(&Policy::profile("emails").jitter("decorrelated"))
            .starts_with("`jitter = \"decorrelated\"` needs a `backoff.cap`")
    );
    assert!(Policy::fixed("5s").jitter("around(100%)").build().is_ok());
    assert!(fault(&Policy::fixed("5s").jitter("around(101%)")).contains("cannot go below zero"));
    assert!(Policy::fixed("5s").jitter("plus(101%)").build().is_ok());
    assert!(Policy::fixed("5s").jitter("plus(720h)").build().is_ok());
    for wide in ["plus(721h)", "around(721h)"] {
        assert!(fault(&Policy::fixed("5s").jitter(wide)).contains("spreads wider than"), "{wide}");
    }
}

#[test]
fn a_cap_from_the_ttl_needs_a_ttl_and_a_backoff() {
    let growing = Policy::exponential("1s", 2.0, "1h");
    assert!(fault(&growing.clone().cap_ttl_share(0.5)).contains("needs a `ttl`"));
    for share in [0.0, -1.0, 1.1, f64::NAN] {
        assert!(
            fault(&growing.clone().ttl("1h").cap_ttl_share(share)).contains("must be above 0 and at most 1")
        );
    }
    assert!(growing.ttl("1h").cap_ttl_share(1.0).build().is_ok());
    assert!(fault(&Policy::tiers(["5s"]).ttl("1h").cap_ttl_share(0.5)).contains("does not cap tiers"));
}

#[test]
fn attempts_for_a_class_that_never_uses_them_are_refused() {
    let given = |class| Policy::fixed("1s").attempts_for(class, 5);
    for class in [Class::Transient, Class::RateLimited, Class::Crash] {
        let policy = given(class).build().unwrap();
        assert_eq!(policy.attempts_allowed(class, 0), 5);
        assert_eq!((policy.attempts(), policy.attempts_max()), (4, 5));
    }
    for class in [Class::Permanent, Class::Gone, Class::Credential, Class::Reconnect] {
        assert!(
            fault(&given(class)).starts_with(&format!("`attempts_for.{class} = 5` has no effect: {class} ")),
            "{class}"
        );
    }
    for class in [Class::Permanent, Class::Gone] {
        assert!(given(class).classify(false).build().is_ok());
    }
    assert!(
        fault(&Policy::fixed("1s").attempts_for(Class::Crash, 0)).contains("must lie between 1 and 1000")
    );
    let unknown =
        PolicySettings { attempts_for: vec![("ratelimited".into(), 5)], ..PolicySettings::default() };
    assert_eq!(
        fault(&unknown.into()),
        "`attempts_for` names `ratelimited`, which is not one of transient, rate_limited or crash\n  fix: rename it to `attempts_for.rate_limited`"
    );
}

#[test]
fn budgets_are_checked() {
    let policy = Policy::fixed("1s");
    let rate = |builder: &PolicyBuilder| builder.build().unwrap().budget();
    assert_eq!(rate(&policy), None);
    assert_eq!(rate(&policy.clone().retries_per_minute(1)), Some(BudgetRate::PerMinute(1)));
    let share = policy.clone().share_of_successes("10%");
    assert_eq!(rate(&share), Some(BudgetRate::ShareOfSuccesses(Ratio::percent(10))));
    assert!(rate(&policy.clone().share_of_successes("100%")).is_some());
    assert!(fault(&policy.clone().retries_per_minute(0)).starts_with("`budget.retries_per_minute = 0`"));
    assert!(fault(&policy.clone().share_of_successes("0%")).contains("allows no retry at all"));
    assert!(fault(&policy.clone().share_of_successes("101%")).contains("must be at most 100%"));
    assert!(
        fault(&policy.clone().share_of_successes("10%").retries_per_minute(5)).starts_with("both `budget.")
    );
    assert!(fault(&policy.clone().on_exhausted("defer")).contains("is set, but no budget is"));
    assert!(
        fault(&policy.clone().retries_per_minute(1).on_exhausted("drop"))
            .ends_with("like defer or dead_letter")
    );
    let parks = policy.retries_per_minute(1).on_exhausted(OnExhausted::DeadLetter).build().unwrap();
    assert_eq!(parks.on_exhausted(), OnExhausted::DeadLetter);
}

#[test]
fn spans_and_switches_have_their_bounds() {
    let policy = Policy::fixed("1s");
    assert!(fault(&policy.clone().timeout("0s")).contains("at least 1ms"));
    assert!(fault(&policy.clone().timeout("25h")).contains("at most 24h"));
    assert!(policy.clone().timeout("24h").build().is_ok());
    assert!(fault(&policy.clone().retry_after_max("721h")).contains("at most 720h"));
    let shared = policy.clone().retry_after_max("2m").retry_after_shared_max("3m");
    assert!(fault(&shared).contains("at most 2m"), "{}", fault(&shared));
    let short = policy.clone().retry_after_max("2m").build().unwrap();
    assert_eq!(short.retry_after_shared_max(), Duration::from_mins(2), "never longer than for one message");
    assert!(fault(&policy.clone().retry_after_jitter("101%")).contains("at most 100%"));
    assert!(policy.clone().retry_after_jitter("100%").build().is_ok());
    assert!(fault(&policy.clone().ttl("0s")).contains("at least 1ms"));
    assert!(fault(&policy.clone().hold_max("87601h")).contains("at most 87600h"));
    assert!(policy.clone().hold_max("0s").build().is_ok());
    assert!(fault(&policy.clone().concurrency(100_001)).ends_with("fix: concurrency = 100000"));
    assert!(fault(&policy.clone().crash(101, "5m")).ends_with("fix: crash.threshold = 100"));
    assert!(fault(&policy.mode("sideways")).ends_with("write it like non-blocking or blocking"));
    let classify = PolicySettings { classify: Some("maybe".into()), ..PolicySettings::default() };
    assert_eq!(
        fault(&classify.into()),
        "`classify = \"maybe\"` is not a switch\n  fix: write it like on or off"
    );
}

#[test]
fn an_unknown_profile_is_answered_with_the_nearest() {
    assert_eq!(
        fault(&Policy::profile("webhook")),
        "there is no profile `webhook`\n  fix: profile = \"webhooks\""
    );
    let unlike_any = fault(&Policy::profile("zzzzzzzz"));
    assert!(unlike_any.contains("there are tiered, tiered-short,"), "{unlike_any}");
    assert!(unlike_any.ends_with("fix: profile = \"tiered\""), "{unlike_any}");
    let fault = &faults(&Policy::profile("webhook"))[0];
    assert_eq!((fault.key.as_str(), fault.value.as_str()), ("profile", "webhook"));
}

/// Webhook senders retry for a day; the literal `webhooks` profile ends after minutes and stays as it is.
#[test]
fn webhooks_can_be_tried_for_a_day() {
    let waits = |profile: &str| Policy::profile(profile).build().unwrap().forecast();
    let day = waits("webhooks-day");
    assert_eq!(day.attempts, 8);
    let hours = |span: Duration| span.as_secs() / 3_600;
    assert_eq!((hours(day.waiting_min), hours(day.waiting_max)), (22, 27));
    let literal = Policy::profile("webhooks").build().unwrap();
    let waits: Vec<u64> = (1..=5).map(|n| literal.schedule().delay_ms(n, Class::Transient) / 1_000).collect();
    assert_eq!(waits, [5, 10, 20, 40, 80]);
}

#[test]
fn every_profile_is_a_policy_without_faults() {
    for profile in redrive_core::profiles::ALL {
        assert!(Policy::profile(profile.name).build().is_ok(), "{}", profile.name);
        assert_eq!(PolicySettings::from(&profile).profile.as_deref(), Some(profile.name));
    }
}

#[test]
fn the_default_is_tiered_with_the_documented_values() {
    let policy = Policy::default();
    assert!(matches!(policy.schedule(), Schedule::Tiers(tiers) if tiers.len() == 3));
    assert_eq!((policy.retries(), policy.attempts(), policy.attempts_max()), (3, 4, 4));
    assert_eq!(policy.jitter(), Jitter::Equal);
    assert_eq!(policy.retry_after_jitter(), Ratio::percent(10));
    assert_eq!(policy.retry_after_max(), Duration::from_hours(24));
    assert_eq!(policy.retry_after_shared_max(), Duration::from_mins(5));
    assert_eq!(policy.hold_max(), Duration::from_hours(24));
    assert_eq!((policy.ttl(), policy.cap_ttl_share(), policy.budget()), (None, None, None));
    assert_eq!((policy.classify(), policy.outage_gate()), (true, true));
    assert_eq!((policy.concurrency(), policy.timeout()), (64, Duration::from_secs(30)));
    assert_eq!((policy.crash_threshold(), policy.crash_window()), (3, Duration::from_mins(5)));
    assert_eq!((policy.mode(), policy.on_exhausted()), (Mode::NonBlocking, OnExhausted::Defer));
    assert_eq!(policy.replay_attempts(), None);
}

#[test]
fn settings_given_win_over_the_profile() {
    let policy = Policy::profile("push")
        .jitter(Jitter::None)
        .retries(2)
        .ttl(Duration::from_secs(9))
        .timeout("1s")
        .concurrency(7)
        .hold_max("1h")
        .retry_after_max("2h")
        .retry_after_shared_max("1h")
        .retry_after_jitter(Ratio::percent(5))
        .classify(false)
        .outage_gate(false)
        .mode(Mode::Blocking)
        .crash(2, "1m")
        .replay_attempts(8)
        .build()
        .unwrap();
    assert_eq!((policy.jitter(), policy.retries()), (Jitter::None, 2));
    assert_eq!((policy.ttl(), policy.timeout()), (Some(Duration::from_secs(9)), Duration::from_secs(1)));
    assert_eq!((policy.concurrency(), policy.hold_max()), (7, Duration::from_hours(1)));
    assert_eq!(policy.retry_after_max(), Duration::from_hours(2));
    assert_eq!(policy.retry_after_shared_max(), Duration::from_hours(1));
    assert_eq!(policy.retry_after_jitter(), Ratio::percent(5));
    assert_eq!((policy.classify(), policy.outage_gate()), (false, false));
    assert_eq!((policy.crash_threshold(), policy.crash_window()), (2, Duration::from_mins(1)));
    assert_eq!((policy.mode(), policy.replay_attempts()), (Mode::Blocking, Some(8)));
    assert_eq!(policy.attempts_allowed(Class::Transient, 0), 3);
    assert_eq!(policy.attempts_allowed(Class::Transient, 1), 8);
    assert_eq!(policy.attempts_max(), 8);
    assert_eq!(policy.schedule().delay_ms(1, Class::Transient), 2_000);
}

#[test]
fn a_schedule_of_ones_own_brings_its_own_number_of_retries() {
    let over = |profile: &str, settings: PolicySettings| {
        PolicySettings { profile: Some(profile.to_owned()), ..settings }.resolve().unwrap()
    };
    let tiers =
        || PolicySettings { tiers: Some(vec!["1s".into(), "2s".into()]), ..PolicySettings::default() };
    let policy = over("push-critical", tiers());
    assert_eq!((policy.retries(), policy.cap_ttl_share()), (2, None));
    let base = BackoffSettings { base: Some("3s".into()), ..BackoffSettings::default() };
    let backoff = |backoff: &BackoffSettings| PolicySettings {
        backoff: Some(backoff.clone()),
        ..PolicySettings::default()
    };
    let policy = over("push", backoff(&base));
    assert_eq!((policy.retries(), policy.schedule().cap_ms()), (5, 120_000));
    assert_eq!(policy.schedule().delay_ms(2, Class::Transient), 6_000);
    let policy = over("tiered", backoff(&base));
    assert_eq!((policy.retries(), policy.schedule().tier(1)), (3, None));
    let fixed = BackoffSettings { fixed: Some("3s".into()), ..BackoffSettings::default() };
    assert_eq!(over("push", backoff(&fixed)).schedule().delay_ms(5, Class::Transient), 3_000);
    assert_eq!(over("payments", backoff(&base)).schedule().delay_ms(2, Class::Transient), 6_000);
    let attempts = PolicySettings { attempts: Some(2), ..PolicySettings::default() };
    assert_eq!(over("push", attempts).retries(), 1);
    let custom = Policy::custom(|n, _| Duration::from_secs(u64::from(n))).build().unwrap();
    assert_eq!((custom.retries(), custom.schedule().delay_ms(3, Class::Transient)), (3, 3_000));
}

#[test]
fn a_budget_of_ones_own_keeps_the_profiles_answer() {
    let policy = Policy::profile("payments").share_of_successes("10%").build().unwrap();
    assert_eq!(policy.budget(), Some(BudgetRate::ShareOfSuccesses(Ratio::percent(10))));
    assert_eq!(policy.on_exhausted(), OnExhausted::DeadLetter);
    let defers = Policy::profile("payments").on_exhausted("defer").build().unwrap();
    assert_eq!(
        (defers.budget(), defers.on_exhausted()),
        (Some(BudgetRate::PerMinute(100)), OnExhausted::Defer)
    );
}

#[test]
fn a_delay_as_long_as_the_crash_window_is_warned_about() {
    // C-13
    let push = Policy::profile("push").crash(3, "20s").build().unwrap();
    let warnings: Vec<_> = push.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["longest delay 32s, but the crash window is 20s: a crash loop would never be seen"]
    );
    assert_eq!(Policy::fixed("5m").jitter("none").build().unwrap().warnings().len(), 1);
    assert!(Policy::fixed("299s").jitter("none").build().unwrap().warnings().is_empty());
}

#[test]
fn a_delay_as_long_as_the_ttl_is_warned_about() {
    let policy = Policy::fixed("1m").jitter("none").ttl("1m").build().unwrap();
    let minute = Duration::from_mins(1);
    assert_eq!(policy.warnings(), [PolicyWarning::DelayPassesTtl { longest: minute, ttl: minute }]);
    assert_eq!(
        policy.warnings()[0].to_string(),
        "longest delay 1m, but the ttl is 1m: a retry after such a delay is never made"
    );
    assert!(Policy::fixed("1m").jitter("none").ttl("61s").build().unwrap().warnings().is_empty());
}

#[test]
fn a_pipeline_can_take_a_builder_or_a_finished_policy() {
    fn take<P: TryInto<Policy>>(policy: P) -> Result<u32, PolicyFaults>
    where
        PolicyFaults: From<P::Error>,
    {
        Ok(policy.try_into()?.attempts())
    }
    assert_eq!(take(Policy::tiers(["5s"])).unwrap(), 2);
    assert_eq!(take(Policy::default()).unwrap(), 4);
    assert!(take(Policy::tiers(["soon"])).is_err());
    let builder = Policy::profile("push").retries(2);
    assert_eq!(builder.settings().retries, Some(2));
    assert!(format!("{:?}", builder.settings()).contains("push"));
}
