//! What threads do with the hand-overs, and what must hold in every order of their steps. The checker runs each of
//! these; a thread that waits forever is a deadlock, which it reports with the schedule that leads there.

use std::time::Duration;

use redrive_core::suspects::Run;
use shuttle::thread;

use crate::consume::handover::Handover;
use crate::dispatch::{CallId, Ended, Start};
use crate::run::exchange::Exchange;
use crate::run::exclusive::ExclusiveRuns;
use crate::run::wake::Wake;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering};
use crate::write::mailbox::{Mailbox, Refused};

/// No thread ever sleeps that long here: see `sync::park_timeout`.
const FOR_EVER: Duration = Duration::MAX;

/// A sleeper that checks before it sleeps misses no call.
pub fn no_call_is_missed(callers: usize) {
    let (wake, done) = (Arc::new(Wake::default()), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let (wake, done) = (Arc::clone(&wake), Arc::clone(&done));
            thread::spawn(move || {
                done.fetch_add(1, Ordering::SeqCst);
                wake.call();
            })
        })
        .collect();
    while done.load(Ordering::SeqCst) < callers.len() {
        wake.sleep(FOR_EVER);
    }
    join(callers);
}

/// Everything that is posted is taken once, and a waiting thread learns of the end.
pub fn everything_posted_is_taken_once(posters: usize, each: usize) {
    let mailbox = Arc::new(Mailbox::default());
    let posting: Vec<_> = (0..posters)
        .map(|poster| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || (0..each).for_each(|n| mailbox.post((poster, n), 1)))
        })
        .collect();
    let mut taken = Vec::new();
    while taken.len() < posters * each {
        taken.extend(mailbox.wait(None).unwrap_or_default());
    }
    join(posting);
    let closing = Arc::clone(&mailbox);
    let closing = thread::spawn(move || closing.close());
    assert!(mailbox.wait(None).is_none(), "nothing was left");
    join(vec![closing]);
    for poster in 0..posters {
        let own: Vec<usize> = taken.iter().filter(|(of, _)| *of == poster).map(|(_, n)| *n).collect();
        assert!(own.iter().copied().eq(0..each), "each in its order: {own:?}");
    }
    assert_eq!(mailbox.offer((0, 0), 1, 1), Err(((0, 0), Refused::Closed)));
}

/// During an exclusive run no other pipeline runs anything.
pub fn exclusive_means_exclusive(pipelines: usize) {
    let mut turns = ExclusiveRuns::of(pipelines);
    let suspect = turns.remove(0);
    let is_exclusive = Arc::new(AtomicBool::new(false));
    let running = Arc::new(AtomicUsize::new(0));
    let mut threads = Vec::new();
    for turn in turns {
        let (is_exclusive, running) = (Arc::clone(&is_exclusive), Arc::clone(&running));
        threads.push(thread::spawn(move || {
            if turn.enter() {
                running.fetch_add(1, Ordering::SeqCst);
                assert!(!is_exclusive.load(Ordering::SeqCst), "something starts during an exclusive run");
                running.fetch_sub(1, Ordering::SeqCst);
            }
            turn.busy(false);
        }));
    }
    threads.push(thread::spawn(move || {
        // A turn that is not granted is requested again; twice is enough to cover every order.
        for _ in 0..2 {
            if suspect.ask(Run::Exclusive) {
                is_exclusive.store(true, Ordering::SeqCst);
                assert_eq!(running.load(Ordering::SeqCst), 0, "a suspect runs beside others");
                is_exclusive.store(false, Ordering::SeqCst);
                break;
            }
        }
        suspect.leave();
    }));
    join(threads);
}

/// Two pipelines with suspects: one suspect runs at a time.
pub fn one_suspect_at_a_time() {
    let running = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = ExclusiveRuns::of(2)
        .into_iter()
        .map(|turn| {
            let running = Arc::clone(&running);
            thread::spawn(move || {
                if turn.ask(Run::Alone) {
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two suspects run at once");
                    running.fetch_sub(1, Ordering::SeqCst);
                    turn.leave();
                }
            })
        })
        .collect();
    join(threads);
}

/// Every call that is started ends once, whichever thread sleeps when.
pub fn every_start_is_run_and_every_end_is_heard(calls: u32) {
    let wake = Arc::new(Wake::default());
    let exchange = Arc::new(Exchange::new(calls as usize, Arc::clone(&wake)));
    let runner = {
        let exchange = Arc::clone(&exchange);
        thread::spawn(move || {
            let mut left = calls;
            while left > 0 {
                match exchange.next_start() {
                    Some(start) => {
                        exchange.end(start.call, Ended::Done);
                        left -= 1;
                    }
                    None => shuttle::future::block_on(exchange.wait_for_starts()),
                }
            }
        })
    };
    for call in 0..calls {
        exchange.start(&mut vec![Start { call: CallId(call) }]);
    }
    hear(&exchange, &wake, calls);
    join(vec![runner]);
}

/// Ends that tasks report at once are all received.
pub fn ends_that_are_told_together_are_all_heard(tasks: u32) {
    let wake = Arc::new(Wake::default());
    let exchange = Arc::new(Exchange::new(tasks as usize, Arc::clone(&wake)));
    let telling = Arc::clone(&exchange);
    let telling = shuttle::future::spawn(async move { telling.tell_ends().await });
    let ending: Vec<_> = (0..tasks)
        .map(|call| {
            let exchange = Arc::clone(&exchange);
            thread::spawn(move || exchange.end_soon(CallId(call), Ended::Done))
        })
        .collect();
    hear(&exchange, &wake, tasks);
    join(ending);
    telling.abort();
}

/// The polling thread takes every order once and in sequence, including one given before the thread has registered
/// itself; the engine receives every note. Neither sleeps while something is there.
pub fn every_order_is_taken_and_every_note_is_heard(each: u32) {
    let handover = Arc::new(Handover::<u32, u32>::default());
    let wake = Arc::new(Wake::default());
    let waking = Arc::clone(&wake);
    handover.on_wake(std::sync::Arc::new(move || waking.call()));
    let reader = {
        let handover = Arc::clone(&handover);
        thread::spawn(move || {
            handover.be_reader();
            let mut taken = 0;
            while taken < each {
                match handover.next_order() {
                    Some(order) => {
                        assert_eq!(order, taken, "an order was lost, or came too soon");
                        taken += 1;
                        handover.tell(order);
                    }
                    None => thread::park(),
                }
            }
        })
    };
    (0..each).for_each(|order| handover.order(order));
    let (mut heard, mut notes) = (Vec::new(), Vec::new());
    while heard.len() < each as usize {
        handover.drain(&mut notes);
        if notes.is_empty() {
            wake.sleep(FOR_EVER);
        }
        heard.append(&mut notes);
    }
    assert!(heard.iter().copied().eq(0..each), "{heard:?}");
    join(vec![reader]);
}

fn hear(exchange: &Exchange, wake: &Wake, calls: u32) {
    let mut heard = Vec::new();
    while heard.len() < calls as usize {
        match exchange.next_end() {
            Some((call, ended)) => {
                assert!(ended == Ended::Done && !heard.contains(&call), "{call:?} {ended:?}");
                heard.push(call);
            }
            None => {
                wake.sleep(FOR_EVER);
            }
        }
    }
    assert!(exchange.next_end().is_none(), "an end too many");
}

fn join<T>(threads: Vec<thread::JoinHandle<T>>) {
    for thread in threads {
        assert!(thread.join().is_ok(), "a thread of the model panicked");
    }
}
