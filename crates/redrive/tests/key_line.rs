//! Which message the others of a key wait for: all engines give the same answer.

mod support;

use std::time::Duration;

use redrive::{
    AfterDead, DeliveryOrder, Embedded, Failure, HandleError, KeyLine, MemoryStores, Message, MessagePhase,
    Pipeline, PipelineHandle, Policy, Reason, Redrive, Stores,
};
use support::{guarded, keyed, until};

/// `a1` fails; `a2` and `a3` wait behind it; `b1` has another key.
async fn with_line(
    stores: impl Stores + 'static,
    pipeline: Pipeline,
    look: impl AsyncFnOnce(PipelineHandle),
) {
    let handler = |m: Message| async move {
        match m.id() {
            "a1" if m.payload().is_some() => Err(Failure::permanent("422")),
            "a1" => Err(Failure::transient("503")),
            _ => Ok(()),
        }
    };
    let pipeline = pipeline.policy(Policy::tiers(["1h"])).ordering(DeliveryOrder::Key).handler_fn(handler);
    let pipeline = pipeline.dedup(Duration::from_hours(1));
    let redrive = Redrive::builder().engine(stores).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("p").unwrap();
    guarded(redrive.run_until(async { look(handle).await })).await.unwrap();
}

async fn line(handle: &PipelineHandle, key: &str) -> Option<KeyLine> {
    handle.key_line(key.as_bytes()).await.unwrap()
}

async fn one_that_waits_for_its_time(handle: PipelineHandle) {
    handle.ingest(["a1", "a2", "b1", "a3"].map(|id| keyed(id, &id[..1]))).await.unwrap();
    until(&handle, |counts| counts.delayed == 1 && counts.key_wait == 2).await;
    let KeyLine { head, waiting } = line(&handle, "a").await.unwrap();
    assert_eq!((head.id.as_str(), head.state, head.attempts), ("a1", MessagePhase::Delayed, 1));
    assert!(head.due.is_some() && head.history.len() == 1 && head.letter.is_none(), "{head:?}");
    assert_eq!(waiting, 2);
    assert_eq!(line(&handle, "b").await, None, "its message has come to its end");
    assert_eq!(line(&handle, "c").await, None, "nobody knows this key");
}

async fn a_letter_that_blocks(handle: PipelineHandle) {
    let poison = Message::builder("a1").key("a").payload("{}").build().unwrap();
    handle.ingest([poison, keyed("a2", "a"), keyed("b1", "b"), keyed("a3", "a")]).await.unwrap();
    until(&handle, |counts| counts.letters_open == 3).await;
    let KeyLine { head, waiting } = line(&handle, "a").await.unwrap();
    assert_eq!((head.id.as_str(), head.state), ("a1", MessagePhase::Dead));
    assert_eq!((head.letter, head.reason), (Some(0), Some(Reason::Permanent)));
    assert_eq!(waiting, 2, "its followers are letters too");
    assert_eq!(line(&handle, "b").await, None);
}

#[tokio::test]
async fn the_first_of_a_key_is_named_with_how_many_wait_behind_it() {
    with_line(MemoryStores::new(), Pipeline::new("p"), one_that_waits_for_its_time).await;
    let dir = tempfile::tempdir().unwrap();
    with_line(Embedded::open(dir.path()).unwrap(), Pipeline::new("p"), one_that_waits_for_its_time).await;
}

#[tokio::test]
async fn a_letter_that_blocks_its_key_is_named() {
    let blocks = || Pipeline::new("p").after_dead(AfterDead::BlockKey);
    with_line(MemoryStores::new(), blocks(), a_letter_that_blocks).await;
    let dir = tempfile::tempdir().unwrap();
    with_line(Embedded::open(dir.path()).unwrap(), blocks(), a_letter_that_blocks).await;
}

/// As for a message by id: places are stored only if ids are remembered.
#[tokio::test]
async fn without_remembered_ids_the_answer_is_that() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline =
        || Pipeline::new("p").ordering(DeliveryOrder::Key).handler_fn(|_: Message| async { Ok(()) });
    let memory = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline());
    let embedded = Redrive::builder().engine(Embedded::open(dir.path()).unwrap()).pipeline(pipeline());
    for redrive in [memory.build().unwrap(), embedded.build().unwrap()] {
        let answer = redrive.pipeline("p").unwrap().key_line(b"a").await;
        assert!(matches!(answer, Err(HandleError::NotRemembered(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn without_order_nothing_waits_for_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |_: Message| async { Err::<(), _>(Failure::transient("503")) };
    let pipeline = || Pipeline::new("p").policy(Policy::tiers(["1h"])).handler_fn(fails);
    let memory = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline());
    let embedded = Redrive::builder().engine(Embedded::open(dir.path()).unwrap()).pipeline(pipeline());
    for redrive in [memory.build().unwrap(), embedded.build().unwrap()] {
        let handle = redrive.pipeline("p").unwrap();
        let work = async {
            handle.ingest([keyed("a1", "a"), keyed("a2", "a")]).await.unwrap();
            until(&handle, |counts| counts.delayed == 2).await;
            assert_eq!(line(&handle, "a").await, None);
        };
        guarded(redrive.run_until(work)).await.unwrap();
    }
}
