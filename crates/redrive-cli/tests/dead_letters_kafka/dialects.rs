//! The dead letters of each framework, from a real topic and from a file, with the framework named and detected from
//! headers.

use serde_json::{Value, json};

use super::world::kafka::{self, Raw};
use super::world::members::{good, letters};
use super::world::process::{Processor, stderr, stdout};
use super::world::receiver::{OK, Receiver};
use super::world::wait_for;
use super::{lines, member};

const GOLDEN: [(&str, &str); 4] = [
    ("streams", include_str!("../../../redrive/src/adopt/golden/streams.json")),
    ("watermill", include_str!("../../../redrive/src/adopt/golden/watermill.json")),
    ("karafka", include_str!("../../../redrive/src/adopt/golden/karafka.json")),
    ("plain", include_str!("../../../redrive/src/adopt/golden/plain.json")),
];

/// Text, or `{"hex": …}` for other bytes.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    if let Some(hex) = value["hex"].as_str() {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        return Some((0..hex.len()).step_by(2).map(byte).collect());
    }
    value.as_str().map(|text| text.as_bytes().to_vec())
}

/// The records of a framework that can be parsed.
fn understood(text: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(text).unwrap();
    all.into_iter().filter(|golden| golden["understood"].is_object()).collect()
}

fn raw(golden: &Value) -> Raw {
    let headers = golden["headers"].as_array().unwrap().iter();
    let headers = headers.map(|pair| (pair[0].as_str().unwrap().to_owned(), bytes(&pair[1]).unwrap()));
    Raw {
        partition: 0,
        key: bytes(&golden["key"]),
        value: bytes(&golden["value"]),
        headers: headers.collect(),
    }
}

/// The output of an import, whatever its exit code.
fn import(processor: &Processor, args: &[&str]) -> String {
    let ran = processor.cli(&[&["dlq", "import"], args].concat());
    format!("{:?} {}{}", ran.status.code(), stdout(&ran), stderr(&ran))
}

fn listed(processor: &Processor, pipeline: &str) -> Vec<Value> {
    let page = processor.get(&format!("/v1/pipelines/{pipeline}/letters?limit=100&payload=true")).json();
    page["letters"].as_array().unwrap().clone()
}

#[test]
fn the_letters_of_each_framework_are_imported_from_its_topic_by_name_and_by_headers() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let orders = kafka::name("orders");
    kafka::create(&orders, 1);
    let processor = member(dir.path(), "redrive-0", &orders, &lines(&orders, "", ""), &receiver.url());
    let mut total = 0;
    for (dialect, text) in GOLDEN {
        let (records, topic) = (understood(text), kafka::name(dialect));
        let count = records.len();
        total += count;
        kafka::create(&topic, 1);
        kafka::produce_raw(&topic, records.iter().map(raw));
        let from = ["--topic", &topic, "--pipeline", &orders, "--source", &orders];
        let said = import(&processor, &[&from[..], &["--dialect", "auto"]].concat());
        assert!(said.contains(&format!("{count} understood")), "{dialect}: {said}");
        assert!(said.contains(&format!("imported {count}   already there 0")), "{dialect}: {said}");
        let said = import(&processor, &[&from[..], &["--dialect", dialect]].concat());
        assert!(said.contains(&format!("imported 0   already there {count}")), "{dialect}: {said}");
        wait_for("the letters", || letters(&processor, &orders)["open"] == total);
        let found = listed(&processor, &orders);
        for golden in &records {
            let expected = &golden["understood"];
            let is_it = |letter: &&Value| {
                let same = |name: &str| expected[name].is_null() || letter[name] == expected[name];
                let origin = expected["origin"].as_str();
                same("error")
                    && same("attempts")
                    && origin.is_none_or(|origin| letter["message"] == origin || letter["origin"] == origin)
            };
            assert!(found.iter().any(|letter| is_it(&letter)), "{dialect}: {expected} is not in {found:?}");
        }
        // The foreign topic is only read.
        let mut left = 0;
        kafka::read(&topic, |_| left += 1);
        assert_eq!(left, count, "{dialect}");
    }
    let replayed = good(&processor, &["dlq", "replay", &orders, "--all"]);
    assert!(replayed.contains(&format!("succeeded {total}")), "{replayed}");

    // Records of a file, with the headers as the frameworks write them.
    for (dialect, text) in GOLDEN.iter().filter(|(dialect, _)| *dialect != "plain") {
        let golden = &understood(text)[0];
        let line = |key: &str| {
            json!({ "key": key, "payload": { "utf8": golden["value"] }, "headers": golden["headers"], "place": format!("{dialect}/0/{key}") })
                .to_string()
        };
        std::fs::write(dir.path().join("lines.ndjson"), format!("{}\n", line("f-1"))).unwrap();
        let from = ["--file", "lines.ndjson", "--pipeline", &orders];
        let said = import(&processor, &[&from[..], &["--dialect", dialect]].concat());
        assert!(said.contains("imported 1   already there 0"), "{dialect}: {said}");
        let said = import(&processor, &[&from[..], &["--dialect", "auto"]].concat());
        assert!(said.contains("imported 0   already there 1"), "{dialect}: {said}");
        let expected = &golden["understood"];
        let same = |letter: &Value, name: &str| expected[name].is_null() || letter[name] == expected[name];
        let found = listed(&processor, &orders);
        let is_there = found
            .iter()
            .any(|letter| letter["key"] == "f-1" && same(letter, "error") && same(letter, "attempts"));
        assert!(is_there, "{dialect}: {expected} is not in {found:?}");
    }
}
