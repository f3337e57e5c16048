//! The end of a run: waits are interrupted, handlers are drained or abandoned, nothing is lost.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use redrive::internal::engine::{Deliver, Engine, Query, StoreOptions};
use redrive::{HandleError, MemoryStores, Message, Pipeline, Redrive, RunError};
use support::{guarded, message, until};
use tokio::sync::Notify;

fn built(stores: &MemoryStores, drain: Duration, pipeline: Pipeline) -> Redrive {
    Redrive::builder().engine(stores.clone()).drain(drain).pipeline(pipeline).build().unwrap()
}

const LONG: Duration = Duration::from_hours(1);
const SHORT: Duration = Duration::from_millis(20);

#[tokio::test]
async fn a_handler_that_runs_may_finish_within_the_drain_time() {
    let stores = MemoryStores::new();
    let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (starts, finishes) = (Arc::clone(&started), Arc::clone(&finish));
    let handler = move |_: Message| {
        let (starts, finishes) = (Arc::clone(&starts), Arc::clone(&finishes));
        async move {
            starts.notify_one();
            finishes.notified().await;
            Ok(())
        }
    };
    let redrive = built(&stores, LONG, Pipeline::new("p").handler_fn(handler));
    redrive.pipeline("p").unwrap().ingest([message("a")]).await.unwrap();
    let stop = async {
        started.notified().await;
        // The stop request takes effect while the handler still runs.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            finish.notify_one();
        });
    };
    let report = guarded(redrive.run_until(stop)).await.unwrap();
    assert_eq!((report.total().succeeded, report.total().drained, report.total().interrupted), (1, 1, 0));
}

#[tokio::test]
async fn a_handler_that_does_not_end_is_given_up_and_its_message_waits_uncounted() {
    let stores = MemoryStores::new();
    let started = Arc::new(Notify::new());
    let starts = Arc::clone(&started);
    let handler = move |_: Message| {
        starts.notify_one();
        std::future::pending()
    };
    let redrive = built(&stores, SHORT, Pipeline::new("p").handler_fn(handler));
    redrive.pipeline("p").unwrap().ingest([message("a")]).await.unwrap();
    let report = guarded(redrive.run_until(started.notified())).await.unwrap();
    assert_eq!((report.total().drained, report.total().interrupted), (0, 1));

    let mut store = stores.store("p").unwrap();
    let mut out = Vec::new();
    store.take(redrive::Time::MAX, 10, &mut out).unwrap();
    assert_eq!((out[0].message.id(), out[0].meta.attempts, out[0].history.is_empty()), ("a", 0, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_ignores_cancellation_does_not_hold_up_the_end() {
    let stores = MemoryStores::new();
    let release = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&release);
    let started = Arc::new(Notify::new());
    let starts = Arc::clone(&started);
    let handler = move |_: Message| {
        let released = Arc::clone(&released);
        starts.notify_one();
        async move {
            while !released.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
    };
    let redrive = built(&stores, SHORT, Pipeline::new("p").handler_fn(handler));
    redrive.pipeline("p").unwrap().ingest([message("a")]).await.unwrap();
    let report = guarded(redrive.run_until(started.notified())).await.unwrap();
    release.store(true, SeqCst);
    assert_eq!(report.total().interrupted, 1);
    assert_eq!(stores.store("p").unwrap().counts().ready, 1);
}

#[tokio::test]
async fn what_one_run_leaves_behind_the_next_one_delivers() {
    let stores = MemoryStores::new();
    let stuck = built(&stores, SHORT, Pipeline::new("p").handler_fn(|_: Message| std::future::pending()));
    let handle = stuck.pipeline("p").unwrap();
    handle.ingest((0..200).map(|n| message(format!("m-{n}")))).await.unwrap();
    guarded(stuck.run_until(until(&handle, |c| c.in_flight > 0))).await.unwrap();

    let fine = built(&stores, SHORT, Pipeline::new("p").handler_fn(|_: Message| async { Ok(()) }));
    let handle = fine.pipeline("p").unwrap();
    let report = guarded(fine.run_until(support::at_rest(&handle))).await.unwrap();
    assert_eq!(report.total().succeeded, 200);
}

#[tokio::test]
async fn a_dropped_run_puts_everything_back() {
    let stores = MemoryStores::new();
    let redrive = built(&stores, LONG, Pipeline::new("p").handler_fn(|_: Message| std::future::pending()));
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest((0..200).map(|n| message(format!("m-{n}")))).await.unwrap();
    tokio::select! {
        _ = redrive.run_until(std::future::pending::<()>()) => unreachable!("nobody asked it to stop"),
        () = until(&handle, |c| c.in_flight > 0) => {}
    }
    // The thread ends by itself; its store is shared, so that can be observed.
    let store = stores.store("p").unwrap();
    let all_back = async {
        while store.counts().ready != 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    guarded(all_back).await;
}

#[tokio::test]
async fn a_runtime_that_dies_does_not_lose_what_it_ran() {
    let stores = MemoryStores::new();
    let redrive = built(&stores, LONG, Pipeline::new("p").handler_fn(|_: Message| std::future::pending()));
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest([message("a")]).await.unwrap();
    let store = stores.store("p").unwrap();
    let other_store = store.clone();
    let dying = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let run = redrive.clone();
        runtime.spawn(async move { run.run_until(std::future::pending::<()>()).await.map(drop) });
        while other_store.counts().in_flight == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(runtime);
    });
    dying.join().unwrap();
    guarded(async {
        while store.counts().ready != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_stopped_pipeline_says_so() {
    let stores = MemoryStores::new();
    let redrive = built(&stores, SHORT, Pipeline::new("p").handler_fn(|_: Message| async { Ok(()) }));
    let handle = redrive.pipeline("p").unwrap();
    guarded(redrive.run_until(async {})).await.unwrap();
    assert!(matches!(handle.counts().await, Err(HandleError::Stopped(name)) if name == "p"));
    assert!(matches!(redrive.run_until(async {}).await, Err(RunError::RanBefore)));
}

#[test]
fn a_missing_runtime_or_timer_is_an_error_and_not_a_panic() {
    let stores = MemoryStores::new();
    let redrive = built(&stores, SHORT, Pipeline::new("p").handler_fn(|_: Message| async { Ok(()) }));
    let mut run = std::pin::pin!(redrive.run_until(async {}));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(matches!(run.as_mut().poll(&mut context), std::task::Poll::Ready(Err(RunError::NoRuntime))));

    let timeless = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(matches!(timeless.block_on(redrive.run_until(async {})), Err(RunError::NoTimer)));
}

#[tokio::test]
async fn a_store_that_fails_stops_the_run_with_its_name() {
    let stores = Arc::new(Failing { memory: MemoryStores::new() });
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Message| {
        counted.fetch_add(1, SeqCst);
        async { Ok(()) }
    };
    let redrive = Redrive::builder()
        .engine(stores)
        .pipeline(Pipeline::new("good").handler_fn(|_: Message| async { Ok(()) }))
        .pipeline(Pipeline::new("bad").handler_fn(handler))
        .build()
        .unwrap();
    redrive.pipeline("bad").unwrap().ingest([message("a")]).await.unwrap();
    let error = guarded(redrive.run_until(std::future::pending::<()>())).await.unwrap_err();
    assert!(error.to_string().starts_with("pipeline `bad` stopped: storage failed: no space"), "{error}");
    assert_eq!(calls.load(SeqCst), 1);
}

/// Memory stores, of which the one named `bad` cannot settle.
struct Failing {
    memory: MemoryStores,
}

impl redrive::Stores for Failing {
    fn open(
        &self,
        pipeline: &str,
        options: StoreOptions,
    ) -> Result<Box<dyn Engine>, redrive::internal::engine::EngineError> {
        let engine = self.memory.open(pipeline, options)?;
        Ok(if pipeline == "bad" { Box::new(support::Faulty::unsettling(engine)) } else { engine })
    }
}
