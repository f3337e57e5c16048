//! What a processor reports at its start about the contents of its directory.

mod world;

use std::fmt::Write as _;

use world::process::Processor;
use world::{free_port, wait_for};

fn config(pipelines: &[&str]) -> String {
    let mut text = "[engine]\ndir = \"@DIR@\"\n[server]\nlisten = \"@LISTEN@\"\n".to_owned();
    for name in pipelines {
        // Nothing listens there, so that messages wait.
        let _ = write!(
            text,
            "[[pipeline]]\nname = \"{name}\"\ntiers = [\"1h\"]\n[pipeline.sink.webhook]\n\
             url = \"http://127.0.0.1:{}/\"\n",
            free_port()
        );
    }
    text
}

fn stop(processor: &mut Processor) {
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

#[test]
fn a_store_without_a_pipeline_is_named_with_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Processor::start(dir.path(), &config(&["a", "b", "served"]));
    for order in 0..5 {
        let sent = first.post("/v1/pipelines/a/messages", &format!("{{\"id\":\"o-{order}\"}}"));
        assert_eq!(sent.status, 202, "{}", sent.body);
    }
    assert_eq!(first.post("/v1/pipelines/served/messages", "{\"id\":\"o-1\"}").status, 202);
    stop(&mut first);
    assert!(!first.log().contains("no pipeline"), "{}", first.log());

    let mut second = Processor::start(dir.path(), &config(&["served"]));
    let said = "store `a` has 5 pending messages and no pipeline; add a pipeline of that name, or see `redrive journal`";
    assert!(second.log().contains(said), "{}", second.log());
    assert!(!second.log().contains("store `b`"), "an empty store is no news: {}", second.log());
    assert!(!second.log().contains("store `served`"), "{}", second.log());
    stop(&mut second);
}

#[test]
fn an_index_that_is_gone_is_built_anew_and_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut processor = Processor::start(dir.path(), &config(&["a"]));
    assert_eq!(processor.post("/v1/pipelines/a/messages", "{\"id\":\"o-1\"}").status, 202);
    stop(&mut processor);
    processor.restart();
    stop(&mut processor);
    let said = "pipeline a: the index was rebuilt: there was none";
    assert!(!processor.log().contains(said), "it was there: {}", processor.log());

    std::fs::remove_dir_all(dir.path().join("data/a/index")).unwrap();
    processor.restart();
    wait_for("the line about the index", || processor.log().contains(said));
    stop(&mut processor);
}
