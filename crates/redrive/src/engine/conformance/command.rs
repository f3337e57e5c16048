//! The commands of a test run. They refer to messages by random picks that are resolved when they run, so that any part
//! of a failing run can run on its own and be shrunk.

use redrive_core::SplitMix64 as Rng;
use redrive_core::{Class, Reason};

use crate::engine::letter::LetterState;

/// Resolved against whatever exists when the command runs.
pub(super) type Pick = u16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Offers a batch; with `crash` the process dies before it has the answer.
    Ingest {
        batch: Vec<Offer>,
        crash: bool,
    },
    Take {
        room: u8,
    },
    Settle {
        which: Vec<(Pick, How)>,
    },
    /// Settles again with a receipt that was already used, or that is from before a restart.
    SettleAgain {
        which: Pick,
        how: How,
    },
    Gate {
        closed: bool,
    },
    Poll,
    /// Waits until all verdicts given are durable.
    Wait,
    Crash,
    CloseAndReopen,
    Letters {
        state: Option<LetterState>,
        page: u8,
    },
    Letter {
        which: Pick,
    },
    /// Looks up a message by its id.
    Message {
        which: Pick,
    },
    /// Lists all waiting messages, by state.
    Pending {
        page: u8,
    },
    /// Claims one waiting message and settles it without starting it.
    Steer {
        which: Pick,
        how: Steer,
    },
    Replay {
        job: u8,
        which: Vec<Pick>,
        delay_ms: u32,
        force: bool,
    },
    /// Replays a letter and lets it die again, several times, each in its own job.
    Relapse {
        which: Pick,
        job: u8,
        times: u8,
    },
    Discard {
        which: Vec<Pick>,
    },
    Undo {
        which: Vec<Pick>,
    },
    Edit {
        which: Pick,
    },
    UndoEdit {
        which: Pick,
    },
    Erase {
        which: Pick,
    },
    /// Imports letters of messages that died elsewhere.
    Import {
        which: Vec<Pick>,
        dry_run: bool,
    },
    ClockForward {
        ms: u32,
    },
    ClockBack {
        ms: u32,
    },
}

/// One message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// `Some` repeats an id that was offered before.
    pub again: Option<Pick>,
    /// 0 means no key.
    pub key: u8,
    pub delay_ms: Option<u32>,
    pub ttl_ms: Option<u32>,
    pub bytes: u16,
}

/// How a delivery ends. A doomed one is settled with its doom, or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Done,
    Retry {
        delay_ms: u32,
        class: Class,
    },
    /// An uncounted retry.
    Defer {
        delay_ms: u32,
        class: Class,
    },
    Dead {
        reason: Reason,
        class: Class,
    },
    Release,
}

/// What an operator does to a waiting message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steer {
    RetryNow,
    Cancel,
    /// It is released, because it must not be steered.
    LetGo,
}

impl Command {
    pub fn draw(rng: &mut Rng) -> Self {
        match rng.below(121) {
            0..18 => Self::Ingest { batch: offers(rng), crash: rng.chance(3) },
            18..38 => Self::Take { room: rng.pick(&[0, 1, 1, 1, 2, 3, 4, 7, 30]) },
            38..58 => {
                Self::Settle { which: (0..rng.between(1, 5)).map(|_| (pick(rng), How::draw(rng))).collect() }
            }
            58..62 => Self::SettleAgain { which: pick(rng), how: How::draw(rng) },
            62..64 => Self::Gate { closed: rng.chance(40) },
            64..67 => Self::Poll,
            67..70 => Self::Message { which: pick(rng) },
            70..73 => Self::Wait,
            73..76 => Self::Crash,
            76..78 => Self::CloseAndReopen,
            78..81 => {
                let states = [
                    LetterState::Open,
                    LetterState::Replaying,
                    LetterState::Succeeded,
                    LetterState::Discarded,
                    LetterState::Erased,
                ];
                let state = rng.chance(70).then(|| rng.pick(&states));
                Self::Letters { state, page: rng.pick(&[1, 2, 3, 50]) }
            }
            81..83 => Self::Letter { which: pick(rng) },
            83..85 => Self::Relapse {
                which: pick(rng),
                job: rng.between(1, 4) as u8,
                times: rng.between(1, 4) as u8,
            },
            85..90 => Self::Replay {
                job: rng.between(1, 6) as u8,
                which: picks(rng),
                delay_ms: delay(rng),
                force: rng.chance(30),
            },
            90..92 => Self::Discard { which: picks(rng) },
            92..94 => Self::Undo { which: picks(rng) },
            94..99 => Self::ClockForward { ms: rng.pick(&[1, 5, 50, 900, 4_000, 20_000]) },
            99 => Self::ClockBack { ms: rng.pick(&[1, 40, 3_000, 30_000]) },
            109..112 => Self::Edit { which: pick(rng) },
            112..115 => Self::UndoEdit { which: pick(rng) },
            115..118 => Self::Import { which: picks(rng), dry_run: rng.chance(20) },
            118..121 => Self::Erase { which: pick(rng) },
            100..103 => Self::Pending { page: rng.pick(&[1, 2, 3, 50]) },
            _ => {
                let how =
                    rng.pick(&[Steer::RetryNow, Steer::RetryNow, Steer::Cancel, Steer::Cancel, Steer::LetGo]);
                Self::Steer { which: pick(rng), how }
            }
        }
    }
}

/// The reasons used here; an imported letter has its own.
const DIES_OF: [Reason; 10] = [
    Reason::Permanent,
    Reason::Gone,
    Reason::MaxRetries,
    Reason::TtlExceeded,
    Reason::HoldExpired,
    Reason::BudgetExhausted,
    Reason::PoisonPill,
    Reason::KeyBlocked,
    Reason::Corrupt,
    Reason::Cancelled,
];

impl How {
    fn draw(rng: &mut Rng) -> Self {
        let class = rng.pick(&Class::ALL);
        match rng.below(100) {
            0..35 => Self::Done,
            35..58 => Self::Retry { delay_ms: delay(rng), class },
            58..66 => Self::Defer { delay_ms: delay(rng), class },
            66..86 => Self::Dead { reason: rng.pick(&DIES_OF), class },
            _ => Self::Release,
        }
    }
}

fn pick(rng: &mut Rng) -> Pick {
    rng.draw() as Pick
}

fn picks(rng: &mut Rng) -> Vec<Pick> {
    (0..rng.between(1, 4)).map(|_| pick(rng)).collect()
}

fn delay(rng: &mut Rng) -> u32 {
    rng.pick(&[0, 0, 1, 10, 100, 1_000, 5_000])
}

fn offers(rng: &mut Rng) -> Vec<Offer> {
    let count = if rng.chance(60) { 1 } else { rng.between(2, 6) };
    (0..count)
        .map(|_| Offer {
            again: rng.chance(15).then(|| pick(rng)),
            key: rng.below(4) as u8,
            delay_ms: rng.chance(25).then(|| delay(rng)),
            ttl_ms: rng.chance(25).then(|| 1 + delay(rng)),
            bytes: rng.pick(&[0, 1, 10, 300]),
        })
        .collect()
}
