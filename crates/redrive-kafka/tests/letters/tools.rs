//! What other tools show of letters.

use crate::broker::run_tool;
use crate::fixture::{Fixture, NOW, job};

#[test]
fn the_story_of_a_letter_is_plain_text_in_any_tool() {
    let fixture = Fixture::new("tools", 1);
    let mut copy = fixture.copy(0, 1182);
    copy.marks.options = Some(r#"{"tiers":["100ms","1s"],"jitter":"none"}"#.into());
    fixture.park(&copy);
    let shown = console(&fixture, &fixture.topics.dlq, 1);
    let headers = [
        "x-src:web".to_owned(),
        format!("x-orig-topic:{}", fixture.pipeline.source),
        "x-orig-partition:0".to_owned(),
        "x-orig-offset:1182".to_owned(),
        "x-message-id:o-0-1182".to_owned(),
        "x-attempts:1".to_owned(),
        "x-replays:0".to_owned(),
        "x-reason:permanent".to_owned(),
        "x-error-class:permanent".to_owned(),
        "x-last-error:422: field `currency` must be one of EUR, USD".to_owned(),
        format!("x-dead-at:{}", copy.dead_at.unwrap().as_millis()),
        r#"x-options:{"tiers":["100ms","1s"],"jitter":"none"}"#.to_owned(),
    ];
    for header in headers {
        assert!(shown.contains(&header), "{header} is not in {shown}");
    }
    assert!(shown.contains(r#"{"order":1182}"#), "{shown}");
    let mut letters = fixture.letters();
    letters.replay(&job(7), &[copy.origin.number()], NOW).unwrap();
    // The first record is the marker of the process that begins to change letters.
    let state = console(&fixture, &fixture.topics.dlq_state, 2);
    for part in ["1182\t", r#""state":"replaying""#, r#""generation":0"#, r#""job":7"#] {
        assert!(state.contains(part), "{part} is not in {state}");
    }
}

fn console(fixture: &Fixture, topic: &str, records: u32) -> String {
    run_tool(&format!(
        "kafka-console-consumer.sh --bootstrap-server {} --topic {topic} --from-beginning --max-messages {records} \
         --isolation-level read_committed --formatter-property print.headers=true --formatter-property print.key=true \
         --timeout-ms 30000",
        fixture.cluster.brokers[0]
    ))
}
