//! A tenant with thousands of letters and one with ten, on each engine.

use serde_json::{Value, json};

use super::lines;
use super::world::process::{Processor, stderr, stdout};
use super::world::receiver::{OK, Receiver};
use super::world::{self, wait_for};

const MANY: usize = 3_000;
/// Four are replayed under the quota, ten in the replay of all.
const FEW: usize = 14;
/// The ten are among this many first deliveries: every second one is theirs, and some are in flight concurrently.
const FIRST: usize = 60;

fn good(processor: &Processor, args: &[&str]) -> String {
    let ran = processor.cli(args);
    assert!(ran.status.success(), "{args:?}: {}{}", stdout(&ran), stderr(&ran));
    stdout(&ran)
}

/// Listed by tenant, limited by a quota, and mixed: the ten do not wait for the thousands.
fn ten_letters_do_not_wait_for_thousands(receiver: &Receiver, processor: &Processor, pipeline: &str) {
    let line = |tenant: &str, n: usize| {
        let id = format!("{tenant}-{n}");
        let payload = json!({ "json": { "order_id": id } });
        json!({ "message": id, "payload": payload, "tenant": tenant, "error": "503 down" }).to_string()
    };
    let few = (0..FEW).map(|n| line("zeta", n));
    let text: Vec<String> = (0..MANY).map(|n| line("acme", n)).chain(few).collect();
    std::fs::write(processor.dir.join("letters.ndjson"), text.join("\n")).unwrap();
    good(processor, &["dlq", "import", "--file", "letters.ndjson", "--pipeline", pipeline]);
    let open = || processor.get(&format!("/v1/pipelines/{pipeline}")).json()["letters"]["open"].clone();
    wait_for("the letters", || open() == json!(MANY + FEW));

    let tenants = good(processor, &["dlq", "groups", pipeline, "--by", "tenant"]);
    let rows: Vec<Vec<&str>> =
        tenants.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(rows[..3], [["TENANT", "LETTERS"], ["acme", "3,000"], ["zeta", "14"]], "{tenants}");
    let quota = ["dlq", "replay", pipeline, "--all", "--tenant-max", "4"];
    let plan = good(processor, &[&quota[..], &["--dry-run"]].concat());
    assert!(plan.starts_with("would replay 8 (frozen)"), "{plan}");
    assert!(plan.contains("tenants take turns: acme 4, zeta 4"), "{plan}");
    assert!(plan.contains("3,006 letters are left open by --tenant-max"), "{plan}");
    let replayed = good(processor, &quota);
    assert!(replayed.contains("8/8   succeeded 8"), "{replayed}");
    assert_eq!(open(), json!(MANY + FEW - 8));
    let delivered = |tenant: &str| {
        let requests = receiver.requests();
        requests.iter().filter(|request| request.id().starts_with(tenant)).count()
    };
    assert_eq!((delivered("acme"), delivered("zeta")), (4, 4));

    let args = ["dlq", "replay", pipeline, "--all", "--rate", "100/s", "--detach", "--json"];
    let job: Value = serde_json::from_str(&good(processor, &args)).unwrap();
    wait_for("the ten to be delivered", || delivered("zeta") == FEW);
    let order: Vec<String> =
        receiver.requests().iter().skip(8).map(|request| request.id().to_owned()).collect();
    let last = order.iter().rposition(|id| id.starts_with("zeta")).unwrap();
    assert!(last < FIRST, "the last of the ten was number {last}: {order:?}");
    assert!(open() != json!(0), "most of the others still wait");
    good(processor, &["dlq", "replays", "abort", job["id"].as_str().unwrap()]);
}

#[test]
fn ten_letters_of_a_tenant_are_delivered_before_thousands_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let text = world::config("kind = \"embedded\"", &lines("orders", "", ""), &receiver.url());
    let processor = Processor::start(dir.path(), &text);
    ten_letters_do_not_wait_for_thousands(&receiver, &processor, "orders");
}

#[cfg(feature = "kafka")]
#[test]
fn ten_letters_of_a_tenant_are_delivered_before_thousands_of_another_on_kafka() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let orders = world::kafka::name("orders");
    world::kafka::create(&orders, 2);
    let processor = super::member(dir.path(), "redrive-0", &orders, &lines(&orders, "", ""), &receiver.url());
    ten_letters_do_not_wait_for_thousands(&receiver, &processor, &orders);
}
