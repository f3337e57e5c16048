//! The single-value settings, each declared in one row: how it is given, its type in the policy, and its check.
//!
//! Each row generates the field of `PolicySettings` and its merging with a profile (`settings.rs`), the value and the
//! getter of `Policy` (`rules.rs`), the method of `PolicyBuilder` (`builder.rs`), the check (`validate.rs`), and the
//! entry of `SCALARS` which reads and shows configurations (`by_name.rs`).

/// Calls the macro `$rows` with all rows. `name: words(T)` is text in the configuration and text or a `T` in code;
/// `name: value(T)` is a number or a switch. A check may use the values of the rows above it. Types other than
/// `Duration` and `Ratio` are written with their full path, so that no file needs a new import.
macro_rules! scalar_settings {
    ($rows:ident) => { $rows! {
        (check, all, schedule)
        /// How delays are spread.
        jitter: words(crate::Jitter) => crate::Jitter = jitter(check, all, schedule);
        /// How delays that a receiver asked for are spread.
        retry_after_jitter: words(Ratio) => Ratio =
            check.share_up_to_whole("retry_after_jitter", all.retry_after_jitter.as_ref(), Ratio::percent(10));
        /// The longest `Retry-After` that is honoured for the message that received it.
        retry_after_max: words(Duration) => Duration =
            check.span("retry_after_max", all.retry_after_max.as_ref(), (TICK, DELAY_MAX), limits::RETRY_AFTER_MAX);
        /// A shorter `Retry-After` is raised to this: a receiver that always asks for one second must not use up the
        /// attempts.
        retry_after_min: words(Duration) => Duration = check.span(
            "retry_after_min",
            all.retry_after_min.as_ref(),
            (Duration::ZERO, retry_after_max),
            Duration::ZERO,
        );
        /// The longest time that other messages of the same endpoint wait because of one message's `Retry-After`: one
        /// answer must not stop a pipeline for a day.
        retry_after_shared_max: words(Duration) => Duration = check.span(
            "retry_after_shared_max",
            all.retry_after_shared_max.as_ref(),
            (TICK, retry_after_max),
            limits::RETRY_AFTER_SHARED_MAX.min(retry_after_max),
        );
        /// The age at which a message expires.
        ttl: words(Duration) => Option<Duration> =
            all.ttl.as_ref().map(|ttl| check.span("ttl", Some(ttl), (TICK, limits::SPAN_MAX), TICK));
        /// Caps delays at this share of the TTL.
        cap_ttl_share: value(f64) => Option<Ratio> = cap_ttl_share(check, all);
        /// How long a message is held while the sink is unreachable.
        hold_max: words(Duration) => Duration =
            check.span("hold_max", all.hold_max.as_ref(), (Duration::ZERO, limits::SPAN_MAX), limits::HOLD_MAX);
        /// Whether permanent failures are dead-lettered at once; otherwise they are retried like the rest.
        classify: words(bool) => bool = check.word("classify", all.classify.as_ref(), true);
        /// Whether a failed message blocks those behind it.
        mode: words(crate::policy::Mode) => crate::policy::Mode =
            check.word("mode", all.mode.as_ref(), crate::policy::Mode::NonBlocking);
        /// How many calls may run at once.
        concurrency: value(u32) => u32 =
            check.number("concurrency", all.concurrency, limits::CONCURRENCY_MAX, limits::CONCURRENCY);
        /// How long one call may take.
        timeout: words(Duration) => Duration =
            check.span("timeout", all.timeout.as_ref(), (TICK, limits::TIMEOUT_MAX), limits::TIMEOUT);
        /// Whether messages are held, and not dead-lettered, while the sink is down.
        outage_gate: value(bool) => bool = all.outage_gate.unwrap_or(true);
        /// How many attempts a replayed letter has, if different.
        replay_attempts: value(u32) => Option<u32> = all
            .replay_attempts
            .map(|attempts| check.number("replay_attempts", Some(attempts), limits::ATTEMPTS_MAX, 1));
    } };
}

/// The type that a setting is given as.
macro_rules! given_as {
    (words $of:ty) => { Given<$of> };
    (value $of:ty) => { $of };
}

pub(super) use {given_as, scalar_settings};
