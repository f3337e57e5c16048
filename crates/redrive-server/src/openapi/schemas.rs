//! The shapes of requests and answers.

use redrive_core::endpoints::WaitReason;
use serde_json::{Map, Value, json};

/// All schemas by name.
pub(super) fn schemas() -> Map<String, Value> {
    let count = || json!({ "type": "integer", "minimum": 0 });
    let text = || json!({ "type": "string" });
    let text_or_null = || json!({ "type": ["string", "null"] });
    let flag = || json!({ "type": "boolean" });
    let time = || json!({ "type": "string", "format": "date-time" });
    let time_or_null = || json!({ "type": ["string", "null"], "format": "date-time" });
    let number_or_null = || json!({ "type": ["number", "null"] });
    let one = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let many = |name: &str| json!({ "type": "array", "items": one(name) });
    let texts = || json!({ "type": "array", "items": { "type": "string" } });
    let counts = || json!({ "type": "object", "additionalProperties": { "type": "integer" } });
    let selection = || {
        vec![
            ("filter", text()),
            ("ids", texts()),
            ("since", json!({ "type": "string", "description": "A time, or a span such as 1h." })),
            ("all", flag()),
        ]
    };
    let with = |mut fields: Vec<(&'static str, Value)>, more: Vec<(&'static str, Value)>| {
        fields.extend(more);
        fields
    };

    let mut schemas = Map::new();
    let mut add = |name: &str, required: &[&str], fields: Vec<(&str, Value)>| {
        let fields: Map<String, Value> =
            fields.into_iter().map(|(field, schema)| (field.to_owned(), schema)).collect();
        let mut schema = json!({ "type": "object", "properties": fields });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schemas.insert(name.to_owned(), schema);
    };
    add(
        "Problem",
        &["code", "message", "hint"],
        vec![("code", text()), ("message", text()), ("hint", text())],
    );
    add("Health", &["status"], vec![("status", text()), ("problems", many("PipelineProblem"))]);
    add(
        "NewMessage",
        &[],
        vec![
            (
                "id",
                json!({ "type": "string", "maxLength": 512, "description": "Stable; made if it is left out." }),
            ),
            ("key", text()),
            ("payload", json!({ "description": "Any JSON; kept byte for byte." })),
            ("payload_base64", json!({ "type": "string", "contentEncoding": "base64" })),
            ("headers", json!({ "type": "object", "additionalProperties": { "type": "string" } })),
            ("tenant", text()),
            ("ttl", json!({ "type": "string", "description": "A span such as 1h30m." })),
            (
                "due",
                json!({ "type": ["string", "integer"], "description": "RFC 3339, or milliseconds since 1970." }),
            ),
            ("delay", json!({ "type": "string", "description": "A span such as 5s." })),
        ],
    );
    add(
        "Accepted",
        &[],
        vec![
            ("id", text()),
            ("state", text()),
            ("duplicate", flag()),
            ("accepted", json!({ "type": "integer", "description": "Of many: how many were new." })),
            ("duplicates", json!({ "type": "integer", "description": "Of many: how many were known." })),
            ("ids", texts()),
            (
                "durable",
                json!({ "type": "boolean", "description": "Only there, and false, where a restart loses it: with the memory engine." }),
            ),
        ],
    );
    add("Pipelines", &["pipelines"], vec![("pipelines", many("Pipeline"))]);
    add(
        "Pipeline",
        &["name", "paused", "pending", "letters"],
        vec![
            ("name", text()),
            ("paused", flag()),
            ("mode", text()),
            ("ordering", text()),
            ("engine", text()),
            ("sink", text()),
            (
                "target",
                json!({ "type": "string", "description": "Where the sink delivers to, in words; never a path or a secret." }),
            ),
            ("policy", json!({ "type": "object" })),
            ("pending", counts()),
            ("letters", counts()),
            ("oldest_pending", time_or_null()),
            ("oldest_letter", time_or_null()),
            ("succeeded", count()),
            ("dead", count()),
            ("retried", count()),
            ("attempts", count()),
            (
                "late_p99_ms",
                json!({ "type": ["number", "null"], "description": "Since the process started; `recent` has the last minutes." }),
            ),
            (
                "end_to_end_p99_ms",
                json!({ "type": ["number", "null"], "description": "Since the process started; `recent` has the last minutes." }),
            ),
            ("recent", one("Recent")),
            ("attention", many("Notice")),
            ("breaker", json!({ "enum": ["closed", "open", "half_open"] })),
            ("health", one("SinkHealth")),
            ("condition", one("Condition")),
            ("store", one("StoreHealth")),
        ],
    );
    add(
        "Recent",
        &["window_s"],
        vec![
            ("window_s", json!({ "type": "integer", "description": "How far back it looks, in seconds." })),
            (
                "end_to_end_p99_ms",
                json!({ "type": ["number", "null"], "description": "From creation to success, without the time held." }),
            ),
            (
                "late_p99_ms",
                json!({ "type": ["number", "null"], "description": "From the due time to the start, without the time held." }),
            ),
            (
                "held",
                json!({ "type": "integer", "description": "Messages that succeeded after nothing could be sent for a while (breaker, Retry-After, pause)." }),
            ),
            ("held_p99_ms", number_or_null()),
            (
                "failed",
                json!({
                    "type": "array",
                    "description": "Failed attempts by kind, the most frequent first.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "kind": { "type": "string", "description": "timeout, refused, dns, tls, proxy, reset, other, or a status." },
                            "attempts": { "type": "integer" },
                        },
                    },
                }),
            ),
            ("failed_total", count()),
            (
                "failed_replayed",
                json!({ "type": "integer", "description": "Of these, attempts of replayed letters." }),
            ),
        ],
    );
    add(
        "Notice",
        &["subject", "level", "short", "text"],
        vec![
            (
                "subject",
                json!({ "enum": ["paused", "guard", "breaker", "outage", "retry_after", "partition", "store", "standstill", "suspects", "resets", "budget", "endpoints", "subscriptions", "replay", "ramp"] }),
            ),
            (
                "level",
                json!({ "enum": ["bad", "warning"], "description": "bad: messages do not move, or data is damaged." }),
            ),
            ("short", text()),
            ("text", text()),
            ("command", json!({ "type": "string", "description": "The command that changes it." })),
            (
                "links",
                json!({ "type": "array", "items": { "type": "string" }, "description": "Pages that say more, such as the status page of a push service." }),
            ),
        ],
    );
    add(
        "StoreHealth",
        &["damaged", "scrubbed", "index_rebuilds"],
        vec![
            (
                "damaged",
                json!({ "type": "integer", "description": "Damaged places that the last scrub found." }),
            ),
            ("scrubbed", time_or_null()),
            (
                "index_rebuilds",
                json!({ "type": "integer", "description": "How often the index was rebuilt since the process started." }),
            ),
        ],
    );
    add(
        "Condition",
        &["partitions", "problems"],
        vec![
            (
                "partitions",
                json!({ "type": "object", "additionalProperties": { "type": "integer" }, "description": "Kafka partitions of this process: reading, blocked (a record of theirs cannot be written), stopped (nothing more can be read); and of the whole group: unassigned." }),
            ),
            (
                "spooled",
                json!({ "type": "integer", "description": "Whole records on the local disk whose letters had to be cut." }),
            ),
            (
                "letter_twins",
                json!({ "type": "integer", "description": "Second records of one dead letter." }),
            ),
            (
                "foreign_letters",
                json!({ "type": "integer", "description": "Records among the dead letters that are not ours, or are damaged." }),
            ),
            (
                "passed_over",
                json!({ "type": "integer", "description": "Records that were not delivered because another record of the same message goes on." }),
            ),
            ("letters_loading", flag()),
            ("problems", many("PipelineProblem")),
        ],
    );
    add(
        "PipelineProblem",
        &["kind", "place", "problem"],
        vec![
            ("kind", json!({ "enum": ["write", "decode", "read", "lost_range", "assign", "letters"] })),
            ("place", text()),
            ("problem", text()),
        ],
    );
    add(
        "SinkHealth",
        &["permits", "history"],
        vec![
            ("since", time_or_null()),
            ("reason", json!({ "type": ["string", "null"], "description": "Why the breaker is open." })),
            ("next_probe", time_or_null()),
            (
                "waits_until",
                json!({ "type": ["string", "null"], "description": "Until when nothing is sent because of a Retry-After." }),
            ),
            (
                "waits_because",
                json!({ "type": ["string", "null"], "description": "Which message received that Retry-After, with which status, and whether the wait was cut." }),
            ),
            ("rounds", count()),
            ("probes", count()),
            ("permits", json!({ "type": "integer", "description": "Calls that may run at once now." })),
            ("permits_max", count()),
            (
                "budget_remaining",
                json!({ "type": ["integer", "null"], "description": "Retries left of the budget." }),
            ),
            (
                "paused_because",
                json!({ "type": ["string", "null"], "description": "Why the dead-letter guard has paused the pipeline." }),
            ),
            (
                "suspects",
                json!({ "type": "integer", "description": "Messages that may have ended the process." }),
            ),
            (
                "resets",
                json!({
                    "type": "object",
                    "description": "Connections that receivers closed while they handled a message.",
                    "properties": {
                        "lately": { "type": "integer", "description": "In the last two minutes." },
                        "apart": { "type": "integer", "description": "Their messages that run one at a time at their endpoint." },
                    },
                }),
            ),
            (
                "endpoints",
                json!({ "anyOf": [{ "$ref": "#/components/schemas/Endpoints" }, { "type": "null" }] }),
            ),
            (
                "if_closed_now",
                json!({ "anyOf": [{ "$ref": "#/components/schemas/Recovery" }, { "type": "null" }] }),
            ),
            (
                "incident",
                json!({ "anyOf": [{ "$ref": "#/components/schemas/Incident" }, { "type": "null" }] }),
            ),
            ("history", json!({ "type": "array", "items": { "type": "object" } })),
        ],
    );
    add(
        "Endpoints",
        &["unit", "left_alone", "origins_left_alone", "waiting", "waits"],
        vec![
            (
                "unit",
                json!({ "enum": ["endpoint", "tenant", "key"], "description": "What counts as an endpoint here, by `limit_by`." }),
            ),
            (
                "left_alone",
                json!({ "type": "integer", "description": "Endpoints in cooldown: they fail, or have sent a Retry-After." }),
            ),
            ("origins_left_alone", json!({ "type": "integer", "description": "Origins in cooldown." })),
            (
                "waiting",
                json!({ "type": "integer", "description": "Endpoints and origins whose messages wait, for whatever reason." }),
            ),
            (
                "waits",
                json!({
                    "type": "array",
                    "description": "The most serious of them, at most 32.",
                    "items": { "$ref": "#/components/schemas/EndpointWait" },
                }),
            ),
        ],
    );
    add(
        "EndpointWait",
        &["unit", "hash", "why", "rounds", "queued"],
        vec![
            ("unit", json!({ "enum": ["endpoint", "tenant", "key", "origin"] })),
            (
                "hash",
                json!({ "type": "string", "description": "The sixteen digits of `endpoint_hash` in the log; never a URL. With `limit_by`, the hash of the tenant or key." }),
            ),
            ("why", json!({ "enum": WaitReason::ALL.map(WaitReason::name) })),
            (
                "until",
                json!({ "type": ["string", "null"], "description": "When the next message may go; with `rate`, the last of those that have their turn. Null where that depends on calls that run." }),
            ),
            ("rounds", json!({ "type": "integer", "description": "Failed probes so far." })),
            (
                "queued",
                json!({ "type": "integer", "description": "Messages that wait in memory; others wait in the store." }),
            ),
        ],
    );
    add(
        "Recovery",
        &["permits_from", "permits_to", "ramp_seconds"],
        vec![
            ("permits_from", count()),
            ("permits_to", count()),
            ("ramp_seconds", count()),
            ("rate_per_second", number_or_null()),
            ("live_per_second", json!({ "type": "number" })),
            (
                "backlog_seconds",
                json!({ "type": ["integer", "null"], "description": "Null if more comes than can be sent, or if nothing is known." }),
            ),
        ],
    );
    add(
        "Incident",
        &["from", "failed_attempts", "over"],
        vec![
            ("from", time()),
            ("until", time_or_null()),
            ("failed_attempts", count()),
            ("failed_probes", count()),
            (
                "dead",
                json!({ "type": "integer", "description": "Letters since it opened, for whatever reason." }),
            ),
            ("dead_for_the_outage", count()),
            ("expired", count()),
            (
                "peak_per_second",
                json!({ "type": "integer", "description": "Most calls in a second after it closed." }),
            ),
            (
                "peak_of_limit",
                json!({ "type": "number", "description": "Most calls at once after it closed, as a share of the limit." }),
            ),
            ("over", flag()),
        ],
    );
    add(
        "Attempt",
        &["attempt", "at", "class", "error"],
        vec![
            ("attempt", count()),
            ("at", time()),
            ("took_ms", count()),
            ("class", text()),
            (
                "kind",
                json!({
                    "enum": ["status", "timeout", "refused", "dns", "tls", "proxy", "reset", "other"],
                    "description": "How it failed.",
                }),
            ),
            (
                "status",
                json!({ "type": "integer", "description": "The HTTP status of the answer, if there was one." }),
            ),
            (
                "code",
                json!({ "type": "string", "description": "The receiver's own word for it, such as `BadDeviceToken`." }),
            ),
            ("error", text()),
            ("counted", flag()),
            ("ambiguous", flag()),
            ("decision", json!({ "enum": ["retry_at", "dead_letter"] })),
            ("delay_ms", count()),
        ],
    );
    add(
        "Message",
        &["id", "state", "attempts", "history"],
        vec![
            ("id", text()),
            (
                "continued_as",
                json!({ "type": "string", "description": "The id under which it goes on since an edit, if it was asked for by the one it was accepted under." }),
            ),
            (
                "accepted_as",
                json!({ "type": "string", "description": "The id that it was accepted under, if an edit has given it another one since." }),
            ),
            (
                "state",
                json!({ "enum": ["ready", "delayed", "held", "in_flight", "key_wait", "dead", "replaying", "discarded", "erased", "succeeded"] }),
            ),
            (
                "attempts",
                json!({
                    "type": ["integer", "null"], "minimum": 0,
                    "description": "Failed attempts that count; null for a message that was delivered without ever having been \
                                    a dead letter, of which the number is not stored.",
                }),
            ),
            ("due", time_or_null()),
            ("deadline", time_or_null()),
            ("history", many("Attempt")),
            ("letter", text()),
            ("reason", text()),
        ],
    );
    add(
        "ListedMessage",
        &["id", "number", "state", "attempts", "created"],
        vec![
            ("id", text()),
            ("correlation_id", json!({ "type": "string", "description": "As in the log." })),
            (
                "number",
                json!({ "type": "string", "description": "Its name where ids repeat: orders/17, on Kafka orders/7/1182." }),
            ),
            ("state", json!({ "enum": ["ready", "held", "delayed", "key_wait", "in_flight"] })),
            ("key", text_or_null()),
            ("tenant", text_or_null()),
            ("attempts", count()),
            ("replays", count()),
            ("created", time()),
            ("due", time_or_null()),
            ("deadline", time_or_null()),
            ("held_ms", count()),
            ("class", text_or_null()),
            ("error", text_or_null()),
            ("headers", json!({ "type": "object", "additionalProperties": { "type": "string" } })),
            ("payload", json!({ "oneOf": [one("Payload"), { "type": "null" }] })),
        ],
    );
    add(
        "Messages",
        &["messages", "next", "scanned", "unlisted"],
        vec![
            ("messages", many("ListedMessage")),
            ("next", text_or_null()),
            ("scanned", count()),
            (
                "unlisted",
                json!({ "type": "integer", "minimum": 0, "description": "Pending, and not read by this process yet." }),
            ),
        ],
    );
    add(
        "Steered",
        &["id", "action", "at"],
        vec![
            ("id", text()),
            ("action", json!({ "enum": ["retry_now", "cancel"] })),
            ("letter", text()),
            ("at", time()),
        ],
    );
    add(
        "Key",
        &["key", "blocked_by", "waiting"],
        vec![
            ("key", text()),
            (
                "blocked_by",
                json!({
                    "oneOf": [{ "$ref": "#/components/schemas/Message" }, { "type": "null" }],
                    "description": "The message that runs or waits for its time, or the open letter that blocks the key.",
                }),
            ),
            (
                "waiting",
                json!({ "type": "integer", "minimum": 0, "description": "Messages behind it; 10,000 stands for that many or more." }),
            ),
        ],
    );
    add(
        "Payload",
        &[],
        vec![("utf8", text()), ("base64", json!({ "type": "string", "contentEncoding": "base64" }))],
    );
    let group_fields = || {
        vec![
            (
                "id",
                json!({ "type": "string", "description": "`g` and eight letters or digits, or `other`." }),
            ),
            ("state", json!({ "enum": ["open", "regressed", "acknowledged", "snoozed", "resolved"] })),
            ("open", count()),
            (
                "per_minute",
                json!({ "type": "integer", "description": "Letters that died within the last minute." }),
            ),
            ("oldest", time_or_null()),
            ("class", text_or_null()),
            ("reason", text_or_null()),
            ("status", json!({ "type": ["integer", "null"] })),
            ("sink", text_or_null()),
            ("error", json!({ "type": "string", "description": "Normalised, or what a rule calls it." })),
            (
                "rule",
                json!({ "type": "object", "description": "The `[[pipeline.group]]` that has made the group, if one has; `match` is null if the configuration does not have it any more.",
                    "properties": { "match": text_or_null(), "as": text() } }),
            ),
            ("version", json!({ "type": ["integer", "null"], "description": "Of the fingerprint." })),
            (
                "sample",
                json!({ "type": ["string", "null"], "description": "The letter that has been open for longest." }),
            ),
            ("note", text_or_null()),
            ("by", text_or_null()),
            ("at", time_or_null()),
            ("until", time_or_null()),
            ("more", json!({ "type": ["integer", "null"] })),
        ]
    };
    let group_required = ["id", "state", "open", "per_minute", "error"];
    add("Group", &group_required, group_fields());
    add("GroupDetail", &group_required, with(group_fields(), vec![("letters", many("Letter"))]));
    add("Groups", &["groups", "open"], vec![("groups", many("Group")), ("open", count())]);
    add(
        "GroupDecision",
        &["state"],
        vec![
            ("state", json!({ "enum": ["open", "acknowledged", "resolved", "snoozed"] })),
            (
                "until",
                json!({ "type": "string", "description": "Of a snooze: a time, or a span such as 2d." }),
            ),
            (
                "more",
                json!({ "type": "integer", "description": "Of a snooze: until so many more letters are open." }),
            ),
            ("note", json!({ "type": "string", "description": "Left out, the note stays as it was." })),
        ],
    );
    add(
        "Letter",
        &["id", "message", "state", "reason", "attempts", "dead_at"],
        vec![
            ("id", text()),
            ("queue", json!({ "type": "string", "description": "The pipeline it died in." })),
            (
                "type",
                json!({ "type": ["string", "null"], "description": "What kind of message it is, if a header `ce_type`, `ce-type`, `x-message-type`, `message-type` or `type` says so." }),
            ),
            ("message", text()),
            ("correlation_id", json!({ "type": "string", "description": "As in the log." })),
            ("key", text_or_null()),
            (
                "key_base64",
                json!({ "type": "string", "contentEncoding": "base64", "description": "Only of a key that is not text." }),
            ),
            ("tenant", text_or_null()),
            ("state", json!({ "enum": ["open", "replaying", "succeeded", "discarded", "erased"] })),
            ("reason", text()),
            ("class", text_or_null()),
            ("error_class", json!({ "enum": ["transient", "permanent", null] })),
            ("attempts", count()),
            ("replays", count()),
            ("error", text_or_null()),
            ("group", json!({ "type": "string", "description": "The group it is counted in." })),
            (
                "group_error",
                json!({ "type": "string", "description": "The error without what differs, or what a rule calls it." }),
            ),
            ("dead_at", time()),
            ("created", time()),
            ("first_seen", time_or_null()),
            ("deadline", time_or_null()),
            ("held_ms", count()),
            ("crashes", count()),
            ("first_crash", time_or_null()),
            ("last_crash", time_or_null()),
            (
                "options",
                json!({ "type": ["object", "null"], "description": "The resolved policy at its death: attempts, tiers or backoff, jitter, timeout, ttl, hold_max, classify. Null for letters from before it was stored." }),
            ),
            (
                "redacted",
                json!({ "type": "array", "items": { "type": "string" }, "description": "What the pipeline's `redact` has replaced; left out where that is nothing." }),
            ),
            ("origin", text_or_null()),
            ("headers", json!({ "type": "object", "additionalProperties": { "type": "string" } })),
            ("payload", json!({ "oneOf": [one("Payload"), { "type": "null" }] })),
            (
                "edits",
                json!({ "type": "array", "items": { "type": "string" }, "description": "Edits that were not undone, the latest last." }),
            ),
            (
                "accepted_as",
                json!({ "type": "string", "description": "The id that its message was accepted under, if an edit has given it another one since." }),
            ),
            (
                "original",
                json!({ "description": "Of one letter that was edited: its payload before the first edit.", "oneOf": [one("Payload"), { "type": "null" }] }),
            ),
            (
                "original_headers",
                json!({ "type": "object", "additionalProperties": { "type": "string" }, "description": "Of one letter that was edited: its headers before the first edit." }),
            ),
            ("history", many("Attempt")),
        ],
    );
    add(
        "Letters",
        &["letters", "next", "scanned"],
        vec![("letters", many("Letter")), ("next", text_or_null()), ("scanned", count())],
    );
    add(
        "LetterStats",
        &["open", "replaying", "succeeded", "discarded", "erased"],
        vec![
            ("open", count()),
            ("replaying", count()),
            ("succeeded", count()),
            ("discarded", count()),
            ("erased", count()),
            ("by_reason", counts()),
            ("by_class", counts()),
            (
                "by_tenant",
                json!({ "type": "array", "description": "Open letters by tenant, the most first; beyond the first 100 counted together as `(others)`.",
                    "items": { "type": "object", "properties": { "tenant": text(), "letters": count(), "oldest": time_or_null() } } }),
            ),
            ("oldest", time_or_null()),
            ("scanned", count()),
        ],
    );
    let names = || json!({ "type": "array", "items": { "type": "string" } });
    add(
        "Edit",
        &[],
        with(
            selection(),
            vec![
                (
                    "where",
                    json!({ "type": "string", "description": "Only letters whose payload fits, as in /region == \"DE\" and /amount > 100." }),
                ),
                (
                    "set",
                    json!({ "type": "object", "description": "Values by JSON pointer, taken over as they are written." }),
                ),
                (
                    "unset",
                    json!({ "type": "array", "items": { "type": "string" }, "description": "JSON pointers of values that go." }),
                ),
                ("set_headers", json!({ "type": "object", "additionalProperties": { "type": "string" } })),
                ("unset_headers", names()),
                ("payload", one("Payload")),
                (
                    "was",
                    json!({ "description": "Only letters that still have this payload.", "oneOf": [one("Payload")] }),
                ),
                (
                    "payloads",
                    json!({
                        "type": "array",
                        "description": "A payload for each letter, in place of a selection and one change for all; a letter whose payload is not `was` any more is refused. At most 10,000.",
                        "items": {
                            "type": "object",
                            "required": ["letter", "payload", "was"],
                            "properties": { "letter": text(), "payload": one("Payload"), "was": one("Payload") },
                        },
                    }),
                ),
                (
                    "message_id",
                    json!({ "enum": ["same", "new"], "description": "Needed where an attempt ended without an answer." }),
                ),
                ("dry_run", flag()),
                (
                    "undo",
                    json!({ "type": "string", "description": "An edit to take back, such as e-12; then nothing else." }),
                ),
            ],
        ),
    );
    let not_open = || {
        json!({
            "type": "array",
            "description": "Letters that were named in `ids` and are not open: nothing was done to them.",
            "items": { "type": "object", "properties": { "letter": text(), "state": text() } },
        })
    };
    let skipped = || {
        json!({
            "type": "object",
            "properties": { "count": count(), "letters": names(), "why": text_or_null() },
        })
    };
    add(
        "Edited",
        &[],
        vec![
            ("edit", text_or_null()),
            ("edited", count()),
            ("would_edit", count()),
            ("ambiguous", count()),
            ("unchanged", count()),
            ("not_json", skipped()),
            ("refused", skipped()),
            ("not_open", not_open()),
            (
                "first",
                json!({ "type": ["object", "null"], "description": "The first letter, and what changes in it." }),
            ),
            ("restored", count()),
            ("skipped", count()),
            (
                "skipped_by_reason",
                json!({ "type": "object", "additionalProperties": skipped(), "description": "Of an undo: the letters that stay as they are, by reason: undone_already, edited_again, replayed, discarded, not_applied, gone, damaged." }),
            ),
        ],
    );
    add("Discard", &["reason"], with(selection(), vec![("reason", text()), ("dry_run", flag())]));
    add(
        "Discarded",
        &[],
        vec![
            ("id", text()),
            ("discarded", count()),
            ("undo_until", time()),
            ("would_discard", count()),
            ("not_open", not_open()),
        ],
    );
    add("Erase", &["reason"], with(selection(), vec![("reason", text()), ("dry_run", flag())]));
    let remains = || json!({ "type": "array", "items": { "type": "string" }, "description": "Where copies stay that Redrive cannot overwrite, and for how long; a sentence each." });
    add(
        "Erased",
        &[],
        vec![
            ("erased", count()),
            ("already", json!({ "type": "integer", "description": "Letters that were erased before." })),
            (
                "in_replay",
                json!({ "type": "integer", "description": "Letters that were refused because they are being replayed." }),
            ),
            (
                "parts_left",
                json!({ "type": "integer", "description": "Parts of the storage that are still being overwritten; 0 when it is done." }),
            ),
            ("remains", remains()),
            ("would_erase", count()),
        ],
    );
    add(
        "Compacted",
        &["deleted", "remains"],
        vec![("deleted", count()), ("parts_left", count()), ("remains", remains())],
    );
    add(
        "Undo",
        &["id"],
        vec![("id", json!({ "type": "string", "description": "Of a discard, such as d-9." }))],
    );
    add("Undone", &["restored"], vec![("restored", count())]);
    let bytes = |what: &str| json!({ "description": format!("{what}: a text, {{\"utf8\"}}, {{\"base64\"}}, {{\"json\"}} or null.") });
    add(
        "ForeignLetter",
        &["payload"],
        vec![
            (
                "message",
                json!({ "type": "string", "description": "The message's id. Without one the pipeline's rule decides, then `origin`, then `place`." }),
            ),
            ("key", bytes("The key")),
            ("key_base64", json!({ "type": "string", "contentEncoding": "base64" })),
            ("payload", bytes("The payload")),
            (
                "headers",
                json!({ "description": "An object of names and values, or a list of pairs; values as the payload." }),
            ),
            ("tenant", text()),
            (
                "origin",
                json!({ "type": "string", "description": "The record it came from, such as orders/7/1182." }),
            ),
            ("place", json!({ "type": "string", "description": "The record of the letter itself." })),
            ("dialect", text()),
            ("exception", text()),
            (
                "class",
                json!({ "type": "string", "description": "Of the failure; permanent if it is left out." }),
            ),
            ("error", text()),
            ("attempts", count()),
            ("created", time()),
            ("first_seen", time()),
            ("failed_at", time()),
            ("dead_at", time()),
            ("history", many("Attempt")),
        ],
    );
    add(
        "ImportedLetters",
        &["dry_run", "imported", "already_there", "refused"],
        vec![
            ("dry_run", flag()),
            ("imported", count()),
            ("already_there", count()),
            ("refused", count()),
            (
                "problems",
                json!({ "type": "array", "description": "Lines that were refused, counted from 1; at most 1,000.",
                    "items": { "type": "object", "properties": { "line": count(), "problem": text() } } }),
            ),
            (
                "notes",
                json!({ "type": "array", "description": "Lines whose times were in the future and were set to the time of the import; at most 1,000.",
                    "items": { "type": "object", "properties": { "line": count(), "problem": text() } } }),
            ),
            (
                "groups",
                json!({ "type": "array", "description": "The groups of what was imported, the largest first.",
                    "items": { "type": "object",
                        "properties": { "id": text(), "error": text(), "letters": count() } } }),
            ),
        ],
    );
    add(
        "StartReplay",
        &["pipeline"],
        with(
            selection(),
            vec![
                ("pipeline", text()),
                ("rate", json!({ "type": ["number", "null"], "description": "Letters per second." })),
                (
                    "force",
                    json!({ "type": "boolean", "description": "Also letters that were replayed three times." }),
                ),
                (
                    "to",
                    json!({
                        "type": ["string", "null"],
                        "enum": ["pipeline", "source", null],
                        "description": "`source`: onto the topic they came from, where other consumer groups get them again.",
                    }),
                ),
                (
                    "canary",
                    json!({
                        "type": ["integer", "null"],
                        "minimum": 0,
                        "description": "So many letters go first, the rest once these have ended well; 10 unless given, 0 for none.",
                    }),
                ),
                (
                    "stop_at",
                    json!({
                        "type": ["string", "null"],
                        "description": "Stops when more than this share of the last 50 letters died again; 20% unless given, `off` for never.",
                    }),
                ),
                (
                    "ambiguous",
                    json!({
                        "type": ["string", "null"],
                        "enum": ["ok", "skip", null],
                        "description": "What to do with letters that have an attempt whose end is unknown; 409 if there are some and nothing is said.",
                    }),
                ),
                (
                    "beyond_ledger",
                    json!({ "type": "boolean", "description": "Also letters that were first attempted before the `ledger_horizon` of the pipeline; 409 if there are some and this is not said." }),
                ),
                (
                    "tenant_max",
                    json!({ "type": ["integer", "null"], "minimum": 1, "description": "No more letters of one tenant than this; the others stay open." }),
                ),
                ("dry_run", flag()),
            ],
        ),
    );
    let letters_by = |name: &'static str| {
        json!({
            "type": "array",
            "items": { "type": "object", "properties": { name: text(), "letters": count() } },
        })
    };
    add(
        "ReplayForecast",
        &["would_replay"],
        vec![
            ("would_replay", count()),
            ("skips", skips()),
            ("rate", number_or_null()),
            ("about_seconds", number_or_null()),
            ("to", json!({ "enum": ["pipeline", "source"] })),
            (
                "topic",
                json!({ "type": "string", "description": "The topic they go onto, where there is one." }),
            ),
            ("key_order", flag()),
            ("canary", count()),
            ("stop_at", text_or_null()),
            (
                "ambiguous",
                json!({ "type": "integer", "description": "Letters with an attempt whose end is unknown." }),
            ),
            (
                "ambiguous_new_id",
                json!({ "type": "integer", "description": "Of these: letters whose message has a new id since an edit." }),
            ),
            ("ambiguous_undecided", flag()),
            (
                "beyond_quota",
                json!({ "type": "integer", "description": "Letters that stay open because their tenant has more than `tenant_max`." }),
            ),
            ("ledger_horizon", text_or_null()),
            (
                "beyond_ledger",
                json!({ "type": "integer", "description": "Letters that were first attempted longer ago than the receiver remembers ids." }),
            ),
            (
                "superseded",
                json!({
                    "type": "object",
                    "description": "Letters whose key has had a later success in this process since `since`.",
                    "properties": {
                        "keys": count(),
                        "letters": count(),
                        "since": time_or_null(),
                        "shown": letters_by("key"),
                    },
                }),
            ),
            ("taken", letters_by("replay")),
            ("tenants", letters_by("tenant")),
            ("oldest", time_or_null()),
            ("breaker", json!({ "enum": ["closed", "open", "half_open"] })),
            ("budget_remaining", json!({ "type": ["integer", "null"] })),
            ("paused", flag()),
            (
                "last",
                json!({ "type": ["object", "null"], "description": "The last replay of the same selection: id, state, created, total, succeeded, dead_again, untouched." }),
            ),
            (
                "other_groups",
                json!({
                    "type": ["array", "null"],
                    "items": { "type": "string" },
                    "description": "With `to: source`: who else reads the topic.",
                }),
            ),
        ],
    );
    add(
        "Replay",
        &["id", "pipeline", "state", "total"],
        vec![
            ("id", text()),
            ("pipeline", text()),
            ("state", json!({ "enum": ["running", "paused", "done", "aborted", "stopped", "failed"] })),
            ("selection", text()),
            ("total", count()),
            ("published", count()),
            ("succeeded", count()),
            ("under_way", count()),
            ("dead_again", count()),
            ("forgotten", count()),
            ("untouched", count()),
            ("skipped", count()),
            ("skips", skips()),
            ("rate", number_or_null()),
            ("to", json!({ "enum": ["pipeline", "source"] })),
            (
                "canary",
                json!({ "type": ["object", "null"], "description": "How the letters ended that went first: letters, succeeded, over." }),
            ),
            ("stop_at", text_or_null()),
            (
                "sent_twice_max",
                json!({ "type": "integer", "description": "Deliveries that may have been made twice, because a process ended in the middle of them." }),
            ),
            ("tenants", letters_by("tenant")),
            ("created", time()),
            ("actor", text()),
            ("note", text_or_null()),
            (
                "breaker",
                json!({ "type": "string", "description": "The breaker now, of a job that was stopped." }),
            ),
            (
                "plan",
                json!({ "$ref": "#/components/schemas/ReplayForecast", "description": "When it was started." }),
            ),
        ],
    );
    let hash = || json!({ "type": "string", "description": "hmac-sha256: and sixteen hexadecimal digits." });
    let named = || json!({ "type": "string", "description": "An endpoint hash, or the id of a stored subscription." });
    add(
        "Subscription",
        &["endpoint_hash", "state"],
        vec![
            ("endpoint_hash", hash()),
            (
                "ids",
                json!({ "type": "array", "items": { "type": "string" }, "description": "The stored subscriptions of this endpoint." }),
            ),
            ("state", json!({ "enum": ["active", "flagged", "purged"] })),
            ("cause", json!({ "enum": ["gone", "refused", "operator", null] })),
            ("reason", text_or_null()),
            ("status", json!({ "type": ["integer", "null"] })),
            ("at", time_or_null()),
            ("actor", text_or_null()),
            ("key", text_or_null()),
            ("registered", time_or_null()),
        ],
    );
    add(
        "Subscriptions",
        &["active", "flagged", "purged", "subscriptions"],
        vec![
            ("purge", json!({ "enum": ["off", "verify", "at_once"] })),
            ("active", json!({ "type": "integer", "description": "An estimate, within about 2 %." })),
            ("flagged", count()),
            ("purged", count()),
            ("stored", count()),
            (
                "stopped",
                json!({ "type": ["object", "null"], "description": "Why purging is stopped: at, purged, active, percent." }),
            ),
            ("full", flag()),
            ("unwritten", count()),
            (
                "unannounced",
                json!({ "type": "integer", "minimum": 0, "description": "Purges that `on_purged` has not accepted yet." }),
            ),
            ("unannounced_since", time_or_null()),
            (
                "without_key",
                json!({ "type": "integer", "minimum": 0, "description": "Stored subscriptions whose VAPID key is not configured." }),
            ),
            (
                "damaged",
                json!({ "type": "integer", "minimum": 0, "description": "Damaged lines of subscriptions.log." }),
            ),
            ("subscriptions", many("Subscription")),
            ("next", text_or_null()),
        ],
    );
    add(
        "NewSubscription",
        &["id", "subscription"],
        vec![
            (
                "id",
                json!({ "type": "string", "maxLength": 200, "description": "For example user-5512/phone." }),
            ),
            (
                "subscription",
                json!({ "type": "object", "description": "As the browser gives it, with `vapid_key` if it was made with an earlier one; {\"token\": …} for APNs and FCM." }),
            ),
        ],
    );
    add(
        "NamedSubscription",
        &["id"],
        vec![
            ("id", named()),
            (
                "reason",
                json!({ "type": "string", "maxLength": 120, "description": "Needed to flag and to purge." }),
            ),
        ],
    );
    add("RemovedSubscription", &["removed"], vec![("removed", text())]);
    add(
        "UndoSubscription",
        &[],
        vec![
            ("id", named()),
            (
                "since",
                json!({ "type": "string", "description": "A time, or a span such as 1h: all purges since." }),
            ),
        ],
    );
    add("UndoneSubscriptions", &["undone"], vec![("undone", count())]);
    add("Purging", &["purging"], vec![("purging", flag())]);
    add(
        "SubscriptionKey",
        &["key", "subscriptions"],
        vec![
            ("key", text_or_null()),
            ("subscriptions", count()),
            ("configured", json!({ "type": "boolean", "description": "Whether the sink has this key." })),
        ],
    );
    add("SubscriptionKeys", &["keys"], vec![("keys", many("SubscriptionKey"))]);
    add("Replays", &["replays"], vec![("replays", many("Replay"))]);
    add(
        "Action",
        &["at", "actor", "action"],
        vec![
            ("at", time()),
            ("actor", text()),
            ("action", text()),
            ("id", text_or_null()),
            ("pipeline", text_or_null()),
            ("letters", count()),
            (
                "subscriptions",
                json!({ "type": "integer", "minimum": 0, "description": "In place of `letters`, for actions on subscriptions." }),
            ),
            ("note", text_or_null()),
        ],
    );
    add("Actions", &["actions"], vec![("actions", many("Action"))]);
    schemas
}

fn skips() -> Value {
    json!({
        "type": "object",
        "additionalProperties": { "type": "integer", "minimum": 0 },
        "description": "Letters that are not put back, by reason: not_found, in_replay, succeeded, discarded, erased, too_often, damaged."
    })
}
