//! Dead letters, replays and actions over real HTTP.

mod support;

use std::sync::atomic::Ordering;

use redrive::GuardSettings;
use serde_json::{Value, json};
use support::{Running, Setup, start, start_with};

const LETTERS: &str = "/v1/pipelines/orders/letters";

/// A server with `poison` letters of one kind and `flaky` ones of another.
async fn with_letters(poison: usize, flaky: usize) -> Running {
    let server = start().await;
    let poisonous = |n| {
        let payload = json!({ "poison": n });
        json!({ "id": format!("p-{n}"), "key": format!("c-{n}"), "tenant": "acme", "headers": { "x-src": "web", "ce_type": "order.placed" }, "payload": payload })
    };
    let flaking = |n| json!({ "id": format!("f-{n}"), "payload": "flaky" });
    let lines = (0..poison).map(poisonous).chain((0..flaky).map(flaking));
    let body = lines.map(|line| line.to_string()).collect::<Vec<_>>().join("\n");
    server.post_lines("/v1/pipelines/orders/messages", &body).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == poison + flaky).await;
    server
}

fn messages(page: &Value) -> Vec<&str> {
    page["letters"].as_array().unwrap().iter().map(|letter| letter["message"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_tell_their_whole_story() {
    let server = with_letters(1, 1).await;
    let page = server.get(&format!("{LETTERS}?filter=reason:permanent")).await.expect(200);
    let letter = &page["letters"][0];
    assert_eq!(letter.get("payload"), None, "a list leaves payloads out");
    for id in
        [letter["id"].as_str().unwrap(), "p-0", letter["id"].as_str().unwrap().trim_start_matches("orders/")]
    {
        let whole = server.get(&format!("{LETTERS}/{id}")).await.expect(200);
        assert_eq!(whole["payload"], json!({ "utf8": "{\"poison\":0}" }));
        assert_eq!(whole["headers"], json!({ "x-src": "web", "ce_type": "order.placed" }));
        // Queue, id, name and data; the policy it died under; when it was created and when it died.
        assert_eq!(
            (&whole["queue"], &whole["message"], &whole["type"]),
            (&json!("orders"), &json!("p-0"), &json!("order.placed"))
        );
        assert!(whole["id"].as_str().unwrap().starts_with("orders/"), "{whole}");
        let options = &whole["options"];
        assert_eq!((&options["jitter"], &options["tiers"][0]), (&json!("none"), &json!("20ms")), "{whole}");
        for option in ["attempts", "timeout", "hold_max", "classify"] {
            assert!(!options[option].is_null(), "{option}: {options}");
        }
        let time = |name: &str| redrive::timestamp::parse(whole[name].as_str().unwrap()).unwrap();
        assert!(time("created") <= time("dead_at"), "{whole}");
        assert_eq!((&whole["attempts"], &whole["replays"]), (&json!(1), &json!(0)));
        // Each attempt with its time, its class and its error.
        let attempt = &whole["history"][0];
        assert_eq!(
            (&attempt["class"], &attempt["error"]),
            (&json!("permanent"), &json!("422 no lines")),
            "{attempt}"
        );
        assert!(attempt["at"].is_string(), "{attempt}");
        assert_eq!((&whole["key"], &whole["tenant"]), (&json!("c-0"), &json!("acme")));
        assert_eq!(
            (&whole["reason"], &whole["class"], &whole["error_class"]),
            (&json!("permanent"), &json!("permanent"), &json!("permanent"))
        );
        assert_eq!((&whole["state"], &whole["error"]), (&json!("open"), &json!("422 no lines")));
    }
    let flaky = server.get(&format!("{LETTERS}/f-0")).await.expect(200);
    assert_eq!((&flaky["reason"], &flaky["attempts"]), (&json!("max_retries"), &json!(3)));
    let attempts: Vec<u64> = flaky["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["attempt"].as_u64().unwrap())
        .collect();
    assert_eq!(attempts, [1, 2, 3]);

    let missing = server.get(&format!("{LETTERS}/nobody")).await.expect(404);
    assert_eq!(missing["code"], "not_found");
    let message = server.get("/v1/pipelines/orders/messages/f-0").await.expect(200);
    assert_eq!(
        (&message["state"], &message["history"][2]["decision"]),
        (&json!("dead"), &json!("dead_letter"))
    );
    let stats = server.get(&format!("{LETTERS}/stats")).await.expect(200);
    assert_eq!(stats["by_reason"], json!({ "permanent": 1, "max_retries": 1 }));
    assert_eq!(stats["by_class"], json!({ "permanent": 1, "transient": 1 }));
    assert_eq!((&stats["open"], &stats["discarded"]), (&json!(2), &json!(0)));
    server.stop().await;
}

/// A number may be both a letter's and a message's id. A word may be both a route and a message's id.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_could_mean_something_else_is_not_mistaken() {
    let server = start().await;
    let lines = ["x", "0", "stats", "undo"].map(|id| json!({ "id": id, "payload": "poison" }).to_string());
    server.post_lines("/v1/pipelines/orders/messages", &lines.join("\n")).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 4).await;
    let refused = server.get(&format!("{LETTERS}/0")).await.expect(409);
    assert_eq!(refused["code"], "conflict");
    assert!(refused["message"].as_str().unwrap().contains("`orders/0`"), "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("the letter of message `0`"), "{refused}");
    let wish = json!({ "ids": ["0"], "reason": "test" }).to_string();
    server.post(&format!("{LETTERS}/discard"), &wish).await.expect(409);
    let stats = server.get(&format!("{LETTERS}/stats")).await.expect(200);
    assert_eq!((&stats["open"], &stats["discarded"]), (&json!(4), &json!(0)), "nothing was done");
    for path in ["/v1/pipelines/%ff", "/v1/pipelines/orders/letters/%ff"] {
        let problem = server.get(path).await.expect(400);
        assert_eq!(problem["code"], "bad_request", "{path}: {problem}");
    }
    let whole = server.get(&format!("{LETTERS}/orders%2F0")).await.expect(200);
    assert_eq!(whole["message"], "x");
    for (path, id) in [("%73tats", "stats"), ("%75ndo", "undo")] {
        let letter = server.get(&format!("{LETTERS}/{path}")).await.expect(200);
        assert_eq!(letter["message"], id, "an escaped word is never a route");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_filters_find_each_letter_once() {
    let server = with_letters(25, 5).await;
    let mut seen = Vec::new();
    let mut path = format!("{LETTERS}?limit=7&payload=true&state=open");
    loop {
        let page = server.get(&path).await.expect(200);
        assert!(page["letters"].as_array().unwrap().len() <= 7);
        assert!(
            page["letters"].as_array().unwrap().iter().all(|letter| letter["payload"]["utf8"].is_string())
        );
        seen.extend(messages(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("{LETTERS}?limit=7&payload=true&state=open&cursor={next}");
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 30);

    let count = async |query: &str| {
        let page = server.get(&format!("{LETTERS}?limit=100&{query}")).await.expect(200);
        messages(&page).len()
    };
    assert_eq!(count("filter=reason:max_retries").await, 5);
    assert_eq!(count("filter=-reason%3Amax_retries+tenant=acme").await, 25);
    assert_eq!(count("filter=payload.poison:%3E%3D20").await, 5);
    assert_eq!(count("state=discarded").await, 0);
    assert_eq!(count("since=1h").await, 30);
    assert_eq!(count("since=2999-01-01").await, 0);

    for (query, code, text) in [
        ("filter=reasn:gone", "bad_filter", "column 1"),
        ("filter=", "bad_filter", "empty"),
        ("state=lost", "bad_request", "discarded"),
        ("since=soon", "bad_request", "`since`"),
        ("cursor=x", "bad_request", "`cursor`"),
        ("fitler=x", "bad_request", "fitler"),
    ] {
        let problem = server.get(&format!("{LETTERS}?{query}")).await.expect(400);
        assert_eq!(problem["code"], code, "{problem}");
        assert!(problem.to_string().contains(text), "{problem}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_delivers_its_frozen_selection_once() {
    let server = with_letters(3, 2).await;
    let dry = server
        .post("/v1/replays", r#"{"pipeline":"orders","filter":"reason:permanent","rate":2,"dry_run":true}"#)
        .await;
    let dry = dry.expect(200);
    let expected =
        json!({ "would_replay": 3, "skips": {}, "rate": 2.0, "about_seconds": 1.5, "to": "pipeline" });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(dry[field], *value, "{field} of {dry}");
    }
    assert_eq!(
        (&dry["canary"], &dry["stop_at"], &dry["breaker"]),
        (&json!(3), &json!("20%"), &json!("closed"))
    );
    assert_eq!(
        (&dry["ambiguous"], &dry["superseded"]["keys"], &dry["last"]),
        (&json!(0), &json!(0), &json!(null))
    );
    assert_eq!(server.get("/v1/replays").await.expect(200), json!({ "replays": [] }));

    server.downstream.healed.store(true, Ordering::SeqCst);
    let replay =
        server.post("/v1/replays", r#"{"pipeline":"orders","filter":"reason:permanent"}"#).await.expect(202);
    assert_eq!(
        (&replay["id"], &replay["total"], &replay["actor"]),
        (&json!("r-1"), &json!(3), &json!("ops"))
    );
    assert_eq!(replay["selection"], "reason:permanent");
    let done = server.wait_for("/v1/replays/r-1", |replay| replay["state"] == "done").await;
    assert_eq!(
        (&done["published"], &done["succeeded"], &done["dead_again"]),
        (&json!(3), &json!(3), &json!(0))
    );
    assert_eq!(server.delivered(), 3);
    let log = server.get("/v1/actions").await.expect(200);
    let started = &log["actions"][0];
    assert_eq!(
        (&started["action"], &started["letters"], &started["succeeded"], &started["dead_again"]),
        (&json!("replay"), &json!(3), &json!(3), &json!(0)),
        "{log}"
    );
    let open =
        server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["succeeded"] == 3).await;
    assert_eq!(open["letters"]["open"], 2);

    let again = server.post("/v1/replays/r-1/abort", "").await.expect(409);
    assert_eq!(again["code"], "conflict");
    assert_eq!(server.get("/v1/replays/r-9").await.status, 404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_does_not_count_what_a_replay_would_skip() {
    let server = with_letters(2, 0).await;
    let one = server.get(LETTERS).await.expect(200)["letters"][0]["id"].as_str().unwrap().to_owned();
    for job in 1..=3 {
        server
            .post("/v1/replays", &json!({ "pipeline": "orders", "ids": [one] }).to_string())
            .await
            .expect(202);
        server.wait_for(&format!("/v1/replays/r-{job}"), |replay| replay["state"] == "done").await;
    }
    let dry = |force: bool| {
        json!({ "pipeline": "orders", "all": true, "dry_run": true, "force": force }).to_string()
    };
    let forecast = server.post("/v1/replays", &dry(false)).await.expect(200);
    assert_eq!((&forecast["would_replay"], &forecast["skips"]), (&json!(1), &json!({ "too_often": 1 })));
    let forced = server.post("/v1/replays", &dry(true)).await.expect(200);
    assert_eq!((&forced["would_replay"], &forced["skips"]), (&json!(2), &json!({})));
    server.post("/v1/replays", r#"{"pipeline":"orders","all":true}"#).await.expect(202);
    let done = server.wait_for("/v1/replays/r-4", |replay| replay["state"] == "done").await;
    assert_eq!((&done["skipped"], &done["skips"]), (&json!(1), &json!({ "too_often": 1 })));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_that_may_have_been_delivered_need_a_decision() {
    let server = with_letters(2, 0).await;
    let vague = r#"{"id":"v-1","payload":"vague"}"#;
    server.post("/v1/pipelines/orders/messages", vague).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 3).await;
    let wish = |more: &str| format!(r#"{{"pipeline":"orders","all":true{more}}}"#);
    let dry = server.post("/v1/replays", &wish(r#","dry_run":true"#)).await.expect(200);
    assert_eq!((&dry["ambiguous"], &dry["ambiguous_undecided"]), (&json!(1), &json!(true)));
    let refused = server.post("/v1/replays", &wish("")).await.expect(409);
    assert!(
        refused["message"].as_str().unwrap().starts_with("1 of these letters have an attempt"),
        "{refused}"
    );
    assert!(refused["hint"].as_str().unwrap().contains("--ambiguous ok"), "{refused}");
    assert_eq!(server.get("/v1/replays").await.expect(200), json!({ "replays": [] }));
    server.post("/v1/replays", &wish(r#","ambiguous":"maybe""#)).await.expect(400);

    server.downstream.healed.store(true, Ordering::SeqCst);
    let skipping = server.post("/v1/replays", &wish(r#","ambiguous":"skip""#)).await.expect(202);
    assert_eq!((&skipping["total"], &skipping["plan"]["would_replay"]), (&json!(2), &json!(2)));
    server.wait_for("/v1/replays/r-1", |replay| replay["state"] == "done").await;
    let dry = server.post("/v1/replays", &wish(r#","ambiguous":"skip","dry_run":true"#)).await.expect(200);
    assert_eq!((&dry["would_replay"], &dry["ambiguous_skipped"]), (&json!(0), &json!(1)));
    let nothing = server.post("/v1/replays", &wish(r#","ambiguous":"skip""#)).await.expect(404);
    let said = nothing["message"].as_str().unwrap();
    assert!(said.contains("(--ambiguous skip) leaves out 1 letter with"), "{nothing}");
    server.post("/v1/replays", &wish(r#","ambiguous":"ok""#)).await.expect(202);
    let done = server.wait_for("/v1/replays/r-2", |replay| replay["state"] == "done").await;
    assert_eq!((&done["succeeded"], &done["sent_twice_max"]), (&json!(1), &json!(0)));
    server.stop().await;
}

/// How often an action of this kind is in the log.
async fn recorded(server: &Running, kind: &str) -> usize {
    let log = server.get("/v1/actions").await.expect(200);
    log["actions"].as_array().unwrap().iter().filter(|action| action["action"] == kind).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_stops_for_failures_and_the_next_plan_says_so() {
    let server = with_letters(30, 0).await;
    let wish = r#"{"pipeline":"orders","filter":"reason:permanent","canary":5,"stop_at":"10%"}"#;
    server.post("/v1/replays", wish).await.expect(202);
    let stopped = server.wait_for("/v1/replays/r-1", |replay| replay["state"] == "stopped").await;
    assert_eq!(stopped["note"], "5 of the first 5 failed (canary, limit 10 %)");
    assert_eq!((&stopped["untouched"], &stopped["breaker"]), (&json!(25), &json!("closed")));
    assert_eq!(stopped["canary"], json!({ "letters": 5, "succeeded": 0, "over": true }));
    let dry = wish.replace('}', r#","dry_run":true}"#);
    let dry = server.post("/v1/replays", &dry).await.expect(200);
    let last = &dry["last"];
    assert_eq!(
        (&last["id"], &last["state"], &last["dead_again"]),
        (&json!("r-1"), &json!("stopped"), &json!(5))
    );

    let refused = server.post("/v1/replays/r-1/pause", "").await.expect(409);
    assert_eq!(refused["message"], "replay `r-1` is stopped, not running");
    assert_eq!(recorded(&server, "replay_pause").await, 0);

    server.downstream.healed.store(true, Ordering::SeqCst);
    assert_eq!(server.post("/v1/replays/r-1/resume", "").await.expect(200)["state"], "running");
    let done = server.wait_for("/v1/replays/r-1", |replay| replay["state"] == "done").await;
    assert_eq!((&done["succeeded"], &done["dead_again"]), (&json!(25), &json!(5)));
    for wrong in [r#""stop_at":"120%""#, r#""stop_at":"much""#, r#""canary":-1"#] {
        server
            .post("/v1/replays", &format!(r#"{{"pipeline":"orders","all":true,{wrong}}}"#))
            .await
            .expect(400);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_and_its_end_are_in_their_own_answers() {
    let server = with_letters(1, 0).await;
    for (door, paused, held) in [("pause", true, 1), ("resume", false, 0)] {
        let message = r#"{"payload":{"ok":true}}"#;
        if paused {
            server.post("/v1/pipelines/orders/pause", "").await.expect(200);
            server.post("/v1/pipelines/orders/messages", message).await.expect(202);
            server.wait_for("/v1/pipelines/orders", |shown| shown["pending"]["held"] == 1).await;
        }
        let shown = server.post(&format!("/v1/pipelines/orders/{door}"), "").await.expect(200);
        assert_eq!((&shown["paused"], &shown["pending"]["held"]), (&json!(paused), &json!(held)), "{shown}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paced_replay_can_be_paused_and_ended() {
    let server = with_letters(20, 0).await;
    server.downstream.healed.store(true, Ordering::SeqCst);
    server.post("/v1/replays", r#"{"pipeline":"orders","all":true,"rate":0.5}"#).await.expect(202);
    for (door, state) in
        [("resume", "running"), ("pause", "paused"), ("pause", "paused"), ("resume", "running")]
    {
        let changed = server.post(&format!("/v1/replays/r-1/{door}"), "").await.expect(200);
        assert_eq!(changed["state"], state);
    }
    let dry = r#"{"all":true,"dry_run":true}"#;
    server.post("/v1/replays/r-1/pause", "").await.expect(200);
    let dry = server.post("/v1/pipelines/orders/letters/discard", dry).await.expect(200);
    let waiting = &dry["taken"][0];
    assert!(waiting["replay"] == "r-1" && waiting["letters"].as_u64().unwrap() >= 15, "{dry}");
    server.post("/v1/replays/r-1/resume", "").await.expect(200);
    let both = (recorded(&server, "replay_pause").await, recorded(&server, "replay_resume").await);
    assert_eq!(both, (2, 2), "only what changed something is recorded");
    assert_eq!(server.post("/v1/replays/r-1/abort", "").await.expect(200)["state"], "aborted");
    let left = server.get("/v1/pipelines/orders").await.expect(200)["letters"]["open"].as_u64().unwrap();
    assert!(left >= 15, "{left} letters are left");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discard_is_kept_with_its_reason_and_can_be_taken_back() {
    let server = with_letters(4, 1).await;
    let path = format!("{LETTERS}/discard");
    let dry = server.post(&path, r#"{"filter":"reason:permanent","dry_run":true}"#).await.expect(200);
    assert_eq!(dry, json!({ "would_discard": 4, "not_open": [], "taken": [] }));
    let unexplained = server.post(&path, r#"{"filter":"reason:permanent"}"#).await.expect(400);
    assert!(unexplained["message"].as_str().unwrap().contains("`reason`"), "{unexplained}");

    let done = server.post(&path, r#"{"filter":"reason:permanent","reason":"ticket 881"}"#).await.expect(200);
    assert_eq!((&done["id"], &done["discarded"]), (&json!("d-1"), &json!(4)));
    assert!(done["undo_until"].as_str().unwrap().ends_with('Z'));
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["discarded"] == 4).await;
    let undone = server.post(&format!("{LETTERS}/undo"), r#"{"id":"d-1"}"#).await.expect(200);
    assert_eq!(undone, json!({ "restored": 4 }));
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 5).await;
    assert_eq!(server.post(&format!("{LETTERS}/undo"), r#"{"id":"d-7"}"#).await.status, 404);
    let elsewhere = server.post("/v1/pipelines/invoices/letters/undo", r#"{"id":"d-1"}"#).await.expect(404);
    assert!(elsewhere["message"].as_str().unwrap().contains("`orders`"), "{elsewhere}");

    let actions = server.get("/v1/actions?since=1h").await.expect(200);
    let told: Vec<(&str, &str, u64)> = actions["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|action| {
            (
                action["actor"].as_str().unwrap(),
                action["action"].as_str().unwrap(),
                action["letters"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [("ops", "discard", 4), ("ops", "undo", 4)]);
    assert_eq!(actions["actions"][0]["note"], "ticket 881");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_selected_is_never_everything() {
    let server = with_letters(1, 0).await;
    for (path, body, code) in [
        ("/v1/replays", r#"{"pipeline":"orders"}"#, "empty_selection"),
        ("/v1/replays", r#"{"pipeline":"orders","ids":[]}"#, "empty_selection"),
        ("/v1/replays", r#"{"pipeline":"orders","filter":""}"#, "bad_filter"),
        ("/v1/replays", r#"{"pipeline":"orders","all":true,"rate":-1}"#, "bad_request"),
        ("/v1/replays", r#"{"pipeline":"orders","al":true}"#, "bad_request"),
        ("/v1/replays", "", "bad_request"),
        ("/v1/pipelines/orders/letters/discard", r#"{"reason":"x"}"#, "empty_selection"),
        ("/v1/pipelines/orders/letters/discard", r#"{"reason":"x","filter":"nope:1"}"#, "bad_filter"),
    ] {
        let problem = server.post(path, body).await.expect(400);
        assert_eq!(problem["code"], code, "{body}: {problem}");
    }
    let unknown =
        server.post("/v1/replays", r#"{"pipeline":"orders","ids":["orders/999"]}"#).await.expect(404);
    assert!(unknown["message"].as_str().unwrap().contains("orders/999"), "{unknown}");
    let nothing =
        server.post("/v1/replays", r#"{"pipeline":"orders","filter":"reason:gone"}"#).await.expect(404);
    assert_eq!(nothing["code"], "not_found");
    assert_eq!(server.get("/v1/actions").await.expect(200), json!({ "actions": [] }));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_shown_before_made_and_undone_and_stands_in_the_log() {
    let server = start().await;
    let order = |id: &str, region: &str| {
        let payload = json!({ "note": "poison", "region": region, "n": 1 });
        json!({ "id": id, "payload": payload, "headers": { "authorization": "Bearer s3cret" } }).to_string()
    };
    let lines = [order("a", "DE"), order("b", "FR"), order("c", "DE")];
    server.post_lines("/v1/pipelines/orders/messages", &lines.join("\n")).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 3).await;
    let path = format!("{LETTERS}/edit");
    let wish = r#"{"all":true,"where":"/region == \"DE\"","set":{"/n":12345678901234567890123},"set_headers":{"authorization":"Bearer other"}"#;

    let dry = server.post(&path, &format!("{wish},\"dry_run\":true}}")).await.expect(200);
    assert_eq!((&dry["would_edit"], &dry["edit"], &dry["ambiguous"]), (&json!(2), &json!("e-1"), &json!(0)));
    let differences = dry["first"]["differences"].as_array().unwrap();
    assert_eq!(
        differences[0],
        json!({ "at": "/n", "field": "n", "before": "1", "after": "12345678901234567890123" })
    );
    assert_eq!(differences[1]["after"], "(hidden)", "a secret is not shown");

    let done = server.post(&path, &format!("{wish}}}")).await.expect(200);
    assert_eq!((&done["edited"], &done["edit"]), (&json!(2), &json!("e-1")));
    let letter = server.get(&format!("{LETTERS}/a")).await.expect(200);
    assert!(letter["payload"]["utf8"].as_str().unwrap().contains("12345678901234567890123"), "{letter}");
    assert!(letter["original"]["utf8"].as_str().unwrap().contains("\"n\":1"), "{letter}");
    assert_eq!(letter["original_headers"], json!({ "authorization": "(hidden)" }));
    assert_eq!((&letter["edits"], &letter["queue"]), (&json!(["e-1"]), &json!("orders")));
    let edited = server.get(&format!("{LETTERS}?filter=edit:e-1")).await.expect(200);
    assert_eq!(messages(&edited), ["a", "c"]);

    // An undo allows no other field: ignoring one would undo more than requested.
    for (body, field) in [
        (r#"{"undo":"e-1","dry_run":true}"#, "`dry_run`"),
        (r#"{"undo":"e-1","dry_run":false}"#, "`dry_run`"),
        (r#"{"undo":"e-1","ids":["a"]}"#, "`ids`"),
        (r#"{"set":{"/n":2},"undo":"e-1"}"#, "`set`"),
    ] {
        let problem = server.post(&path, body).await.expect(400);
        assert!(problem["message"].as_str().unwrap().contains(field), "{body}: {problem}");
    }
    let undone = server.post(&path, r#"{"undo":"e-1"}"#).await.expect(200);
    assert_eq!(undone, json!({ "restored": 2, "skipped": 0, "skipped_by_reason": {} }));
    let repeated = server.post(&path, r#"{"undo":"e-1"}"#).await.expect(200);
    assert_eq!((&repeated["restored"], &repeated["skipped"]), (&json!(0), &json!(2)));
    assert_eq!(repeated["skipped_by_reason"]["undone_already"]["count"], 2, "{repeated}");
    for (body, status, text) in [
        (r#"{"all":true}"#, 400, "no change given"),
        (r#"{"set":{"/a":1}}"#, 400, "no letters are selected"),
        (r#"{"all":true,"set":{"a":1}}"#, 400, "JSON pointer"),
        (r#"{"all":true,"set":{"/a":1},"where":"/a = 1"}"#, 400, "`where`"),
        (r#"{"all":true,"set":{"/a":1},"message_id":"other"}"#, 400, "message_id"),
        (r#"{"all":true,"set":{"/a":1},"unset":["/a"]}"#, 400, "/a is changed twice"),
        (r#"{"all":true,"set_headers":{"bad name":"1"}}"#, 400, "bad name"),
        (r#"{"all":true,"set_headers":{"x-a":"1\n2"}}"#, 400, "line break"),
        (r#"{"all":true,"set_headers":{"Host":"a"}}"#, 400, "never sent"),
        (r#"{"all":true,"payloads":[]}"#, 400, "cannot be combined with a selection"),
        (r#"{"payloads":[{"letter":"a","payload":{"utf8":"1"},"was":{"utf8":"2"}}]}"#, 400, "full id"),
        (r#"{"payloads":[]}"#, 400, "empty list"),
        (r#"{"undo":"e-9"}"#, 404, "pipeline `orders` has no edit `e-9`"),
        (r#"{"undo":"bad id\""}"#, 404, "bad id"),
    ] {
        let problem = server.post(&path, body).await.expect(status);
        assert!(problem["message"].as_str().unwrap().contains(text), "{body}: {problem}");
    }
    let log = server.get("/v1/actions").await.expect(200);
    let actions = log["actions"].as_array().unwrap();
    let told: Vec<_> =
        actions.iter().map(|line| (&line["action"], &line["letters"], &line["fields"])).collect();
    assert_eq!(
        told,
        [
            (&json!("edit"), &json!(2), &json!(["/n", "header authorization"])),
            (&json!("edit_undo"), &json!(2), &Value::Null),
        ]
    );
    server.stop().await;
}

/// Orders that are refused for good, in a pipeline that redacts their e-mail address.
async fn with_redacted_letters() -> Running {
    let server = start_with(Setup { redact: &["/email"], ..Setup::default() }).await;
    let order = |n: u32, email: &str| {
        let payload = json!({ "note": "poison", "email": email, "copy": 1_000 + n });
        json!({ "id": format!("o-{n}"), "payload": payload }).to_string()
    };
    let lines = [order(0, "erika@example.com"), order(1, "max@example.com")];
    server.post_lines("/v1/pipelines/orders/messages", &lines.join("\n")).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 2).await;
    server
}

/// Every answer that counts letters reveals whether one matches.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_hidden_is_guessed_by_no_dry_run() {
    let server = with_redacted_letters().await;
    let ask = async |path: &str, filter: &str| {
        let mut wish = json!({ "filter": filter, "dry_run": true, "reason": "test" });
        match path {
            "/v1/replays" => wish = json!({ "pipeline": "orders", "filter": filter, "dry_run": true }),
            path if path.ends_with("edit") => {
                wish = json!({ "filter": filter, "dry_run": true, "set": { "/n": 1 } });
            }
            _ => {}
        }
        server.post(path, &wish.to_string()).await
    };
    let acts = ["discard", "erase", "edit"].map(|act| format!("{LETTERS}/{act}"));
    for path in acts.iter().map(String::as_str).chain(["/v1/replays"]) {
        for guess in ["error:lines", "payload.email:>5", "payload.copy:>=1001"] {
            let refused = ask(path, guess).await.expect(400);
            assert!(refused["message"].as_str().unwrap().contains("redacts"), "{path} {guess}: {refused}");
        }
        // A user who knows a value may search for it.
        ask(path, "payload.email:erika@example.com").await.expect(200);
    }
    let edit = format!("{LETTERS}/edit");
    for (condition, status) in
        [("/email >= \"e\"", 400), ("/copy < 1001", 400), ("/email == \"max@example.com\"", 200)]
    {
        let wish = json!({ "all": true, "where": condition, "set": { "/n": 1 }, "dry_run": true });
        server.post(&edit, &wish.to_string()).await.expect(status);
    }
    server.stop().await;
}

/// Writing back a payload as shown would replace the value with the mask.
#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_was_shown_with_redacted_values_is_not_written_back() {
    let server = with_redacted_letters().await;
    let path = format!("{LETTERS}/o-0");
    let read = server.get(&path).await.expect(200);
    let shown = &read["payload"];
    let changed = json!({ "utf8": shown["utf8"].as_str().unwrap().replace("poison", "cure") });
    for wish in [
        json!({ "ids": ["o-0"], "payload": changed }),
        json!({ "ids": ["o-0"], "payload": { "utf8": "{}" }, "was": shown }),
        json!({ "payloads": [{ "letter": read["id"], "payload": changed, "was": shown }] }),
    ] {
        let refused = server.post(&format!("{LETTERS}/edit"), &wish.to_string()).await.expect(400);
        assert!(refused["message"].as_str().unwrap().contains("redacted values"), "{wish}: {refused}");
    }
    let set = json!({ "ids": ["o-0"], "set": { "/note": "cure" } });
    assert_eq!(server.post(&format!("{LETTERS}/edit"), &set.to_string()).await.expect(200)["edited"], 1);
    assert_eq!(server.get(&path).await.expect(200)["edits"], json!(["e-1"]));
    let known = server.get(&format!("{LETTERS}?filter=payload.email:erika@example.com")).await.expect(200);
    assert_eq!(messages(&known), ["o-0"], "the value is still there");
    server.stop().await;
}

/// Content that an edit removed from a message is kept with its letter, so an erasure must find that letter too.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_finds_what_an_edit_has_removed() {
    let server = with_redacted_letters().await;
    let edit = json!({ "ids": ["o-0"], "unset": ["/email"] });
    assert_eq!(server.post(&format!("{LETTERS}/edit"), &edit.to_string()).await.expect(200)["edited"], 1);
    let path = format!("{LETTERS}/erase");
    let wish = |filter: &str, dry_run: bool| {
        json!({ "filter": filter, "reason": "ticket 881", "dry_run": dry_run }).to_string()
    };
    let known = "payload.email:erika@example.com";
    assert_eq!(server.post(&path, &wish(known, true)).await.expect(200)["would_erase"], 1);
    assert_eq!(server.post(&path, &wish("payload.email:nobody", true)).await.expect(200)["would_erase"], 0);
    assert_eq!(server.post(&path, &wish(known, false)).await.expect(200)["erased"], 1);
    let letter = server.get(&format!("{LETTERS}/o-0")).await.expect(200);
    assert_eq!(letter["state"], "erased", "{letter}");
    let again = json!({ "ids": ["o-0"], "reason": "ticket 881" }).to_string();
    let again = server.post(&path, &again).await.expect(200);
    assert_eq!((&again["erased"], &again["already"]), (&json!(0), &json!(1)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_an_edit_gave_is_that_of_a_dead_letter() {
    let server = start().await;
    let body = json!({ "id": "o-1", "payload": { "note": "vague" } }).to_string();
    server.post("/v1/pipelines/orders/messages", &body).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 1).await;
    let edit = json!({ "ids": ["o-1"], "set": { "/n": 1 }, "message_id": "new" }).to_string();
    server.post(&format!("{LETTERS}/edit"), &edit).await.expect(200);
    for id in ["o-1~e-1", "o-1"] {
        let body = json!({ "id": id, "payload": "x" }).to_string();
        let answer = server.post("/v1/pipelines/orders/messages", &body).await.expect(200);
        assert_eq!(
            (&answer["state"], &answer["duplicate"]),
            (&json!("dead"), &json!(true)),
            "{id}: {answer}"
        );
    }
    server.stop().await;
}

/// Its first failure is not its first crash.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_tells_the_first_and_the_last_of_its_crashes_and_how_many() {
    let server = start().await;
    let body = json!({ "id": "c-0", "payload": "crash" }).to_string();
    server.post_lines("/v1/pipelines/orders/messages", &body).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 1).await;
    let letter = server.get(&format!("{LETTERS}/c-0")).await.expect(200);
    let time = |field: &str| letter[field].as_str().unwrap_or_else(|| panic!("{field}: {letter}")).to_owned();
    assert_eq!((&letter["crashes"], &letter["attempts"]), (&json!(2), &json!(3)), "{letter}");
    let classes: Vec<&Value> =
        letter["history"].as_array().unwrap().iter().map(|attempt| &attempt["class"]).collect();
    assert_eq!(classes, ["transient", "crash", "crash"]);
    // The history contains the start of each attempt.
    let began = |attempt: usize| letter["history"][attempt]["at"].as_str().unwrap().to_owned();
    assert!(began(1) <= time("first_crash") && time("first_crash") < began(2), "{letter}");
    assert!(began(2) <= time("last_crash"), "{letter}");
    assert!(time("first_seen") < time("first_crash") && time("first_crash") < time("last_crash"), "{letter}");
    server.stop().await;
}

/// The letters of a small tenant died after 100,000 of another tenant.
#[tokio::test(flavor = "multi_thread")]
async fn every_tenant_is_counted_however_many_letters_another_one_has() {
    let server = start_with(Setup { guard: GuardSettings::off(), ..Setup::default() }).await;
    let line =
        |tenant: &str, n: u32| format!(r#"{{"id":"{tenant}-{n}","tenant":"{tenant}","payload":"poison"}}"#);
    let dead = |open: u32| move |pipeline: &Value| pipeline["letters"]["open"] == open;
    for part in 0..10 {
        let lines: Vec<String> = (0..10_000).map(|n| line("large", part * 10_000 + n)).collect();
        server.post_lines("/v1/pipelines/orders/messages", &lines.join("\n")).await.expect(202);
    }
    server.wait_for("/v1/pipelines/orders", dead(100_000)).await;
    let lines: Vec<String> = (0..10).map(|n| line("small", n)).collect();
    server.post_lines("/v1/pipelines/orders/messages", &lines.join("\n")).await.expect(202);
    server.wait_for("/v1/pipelines/orders", dead(100_010)).await;
    let stats = server.get(&format!("{LETTERS}/stats")).await.expect(200);
    let tenants: Vec<(&Value, &Value)> = stats["by_tenant"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tenant| (&tenant["tenant"], &tenant["letters"]))
        .collect();
    assert_eq!(tenants, [(&json!("large"), &json!(100_000)), (&json!("small"), &json!(10))]);
    assert_eq!((&stats["scanned"], &stats["by_reason"]["permanent"]), (&json!(100_010), &json!(100_010)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_names_the_last_replay_that_had_letters_of_its_groups() {
    let server = with_letters(2, 0).await;
    let vague = [0, 1].map(|n| json!({ "id": format!("v-{n}"), "payload": "vague" }).to_string()).join("\n");
    server.post_lines("/v1/pipelines/orders/messages", &vague).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 4).await;
    let start = |selection: Value, dry_run: bool| {
        let mut wish = json!({
            "pipeline": "orders", "canary": 0, "stop_at": "off", "ambiguous": "ok", "dry_run": dry_run
        });
        wish.as_object_mut().unwrap().extend(selection.as_object().unwrap().clone());
        wish.to_string()
    };
    let unanswered = || json!({ "filter": "error:\"no answer\"" });
    server.post("/v1/replays", &start(json!({ "filter": "error:\"no lines\"" }), false)).await.expect(202);
    server.wait_for("/v1/replays/r-1", |replay| replay["state"] == "done").await;
    let dry = server.post("/v1/replays", &start(unanswered(), true)).await.expect(200);
    assert_eq!(dry["last"], Value::Null, "it had letters of another group");
    // All letters, including those of this group.
    server.post("/v1/replays", &start(json!({ "all": true }), false)).await.expect(202);
    server.wait_for("/v1/replays/r-2", |replay| replay["state"] == "done").await;
    let dry = server.post("/v1/replays", &start(unanswered(), true)).await.expect(200);
    let last = &dry["last"];
    assert_eq!((&last["id"], &last["by"], &last["dead_again"]), (&json!("r-2"), &json!("group"), &json!(4)));
    server.post("/v1/replays", &start(unanswered(), false)).await.expect(202);
    server.wait_for("/v1/replays/r-3", |replay| replay["state"] == "done").await;
    let dry = server.post("/v1/replays", &start(unanswered(), true)).await.expect(200);
    assert_eq!((&dry["last"]["id"], &dry["last"]["by"]), (&json!("r-3"), &json!("selection")));
    server.stop().await;
}

/// Once, any two letters were described as `2 letters by id`, whichever they were.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_for_letters_by_id_names_no_replay_of_others_and_those_that_are_not_open() {
    let server = with_letters(2, 0).await;
    let vague = [0, 1].map(|n| json!({ "id": format!("v-{n}"), "payload": "vague" }).to_string()).join("\n");
    server.post_lines("/v1/pipelines/orders/messages", &vague).await.expect(202);
    let listed = server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 4);
    listed.await;
    let of = async |error: &str| -> Vec<Value> {
        let page = server.get(&format!("{LETTERS}?filter=error:%22no%20{error}%22")).await.expect(200);
        page["letters"].as_array().unwrap().iter().map(|letter| letter["id"].clone()).collect()
    };
    let (unlined, unanswered) = (of("lines").await, of("answer").await);
    assert_eq!((unlined.len(), unanswered.len()), (2, 2));
    let wish = |ids: &[Value], dry_run: bool| {
        json!({
            "pipeline": "orders", "ids": ids, "canary": 0, "stop_at": "off", "ambiguous": "ok", "dry_run": dry_run
        })
        .to_string()
    };
    server.post("/v1/replays", &wish(&unlined, false)).await.expect(202);
    server.wait_for("/v1/replays/r-1", |replay| replay["state"] == "done").await;
    let dry = server.post("/v1/replays", &wish(&unanswered, true)).await.expect(200);
    assert_eq!((&dry["last"], &dry["not_open"]), (&Value::Null, &json!([])));
    let dry = server.post("/v1/replays", &wish(&unlined, true)).await.expect(200);
    assert_eq!((&dry["last"]["id"], &dry["last"]["by"]), (&json!("r-1"), &json!("group")));

    let gone = json!({ "ids": [unlined[0]], "reason": "x" }).to_string();
    server.post(&format!("{LETTERS}/discard"), &gone).await.expect(200);
    let not_open = json!([{ "letter": unlined[0], "state": "discarded" }]);
    let dry = server.post("/v1/replays", &wish(&unlined, true)).await.expect(200);
    assert_eq!((&dry["would_replay"], &dry["not_open"]), (&json!(1), &not_open));
    let refused = server.post("/v1/replays", &wish(&unlined[..1], false)).await.expect(409);
    let said = format!("{} is discarded: not open, so nothing was replayed", unlined[0].as_str().unwrap());
    assert_eq!(refused["message"], json!(said));
    let started = server.post("/v1/replays", &wish(&unlined, false)).await.expect(202);
    assert_eq!((&started["total"], &started["plan"]["not_open"]), (&json!(1), &not_open));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_is_in_the_log_with_who_asked_for_it_and_what_went() {
    let server = with_letters(1, 0).await;
    for number in 1..3 {
        let done = server.post(&format!("{LETTERS}/compact"), "").await.expect(200);
        let log = server.get("/v1/actions").await.expect(200);
        assert_eq!(log["actions"].as_array().unwrap().len(), number, "{log}");
        let last = &log["actions"][number - 1];
        assert_eq!(
            (&last["action"], &last["id"], &last["actor"], &last["letters"]),
            (&json!("compact"), &json!(format!("c-{number}")), &json!("ops"), &done["deleted"]),
            "{log}"
        );
        assert_eq!(last.get("unfinished"), None, "{log}");
    }
    server.stop().await;
}

/// A later message of `c-0` was delivered: the letter of that key is left out if that is requested, and only then.
#[tokio::test(flavor = "multi_thread")]
async fn letters_with_a_later_success_stay_open_if_that_is_asked_for() {
    let server = with_letters(2, 0).await;
    let later = json!({ "id": "later", "key": "c-0", "payload": "good" }).to_string();
    server.post("/v1/pipelines/orders/messages", &later).await.expect(202);
    let plan = async |wish: Value| server.post("/v1/replays", &wish.to_string()).await;
    let begun = std::time::Instant::now();
    loop {
        let plan = plan(json!({ "pipeline": "orders", "all": true, "dry_run": true })).await.expect(200);
        if plan["superseded"]["letters"] == 1 {
            assert_eq!((&plan["would_replay"], plan.get("superseded_skipped")), (&json!(2), None));
            break;
        }
        assert!(begun.elapsed() < support::PATIENCE, "{plan}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let wish = json!({ "pipeline": "orders", "all": true, "skip_superseded": true, "dry_run": true });
    let without = plan(wish).await.expect(200);
    assert_eq!((&without["would_replay"], &without["superseded_skipped"]), (&json!(1), &json!(1)));
    let wish = json!({ "pipeline": "orders", "filter": "key:c-0", "skip_superseded": true });
    let nothing = plan(wish).await.expect(404);
    assert!(nothing["message"].as_str().unwrap().contains("--skip-superseded"), "{nothing}");
    server.downstream.healed.store(true, Ordering::SeqCst);
    plan(json!({ "pipeline": "orders", "all": true, "skip_superseded": true })).await.expect(202);
    server.wait_for("/v1/replays/r-1", |replay| replay["state"] == "done" && replay["total"] == 1).await;
    server.stop().await;
}
