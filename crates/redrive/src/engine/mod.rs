//! Where messages are stored: the seam that every engine implements, shared parts, and the engines themselves.

pub mod condition;
pub mod continued;
pub mod edit;
pub mod erase;
pub mod error;
pub mod groups;
pub mod history;
pub mod import;
pub mod ingest;
pub mod letter;
pub mod letter_options;
pub mod message_state;
pub mod meta_codec;
pub mod pending;
pub mod position;
pub mod seam;
pub mod shared_records;
pub mod store_notice;

pub mod completion;
pub mod delay;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod memory;
pub mod numbers;
pub mod overlay;

#[cfg(feature = "testing")]
pub mod conformance;

pub use condition::{ClusterStanding, Condition, PartitionFlow, Partitions, Problem, ProblemKind};
pub use edit::{EditAnswer, LetterEdit, LetterVersion, Replaced};
pub use erase::{EraseAnswer, EraseOrder, WipeProgress};
pub use error::EngineError;
pub use groups::{GroupFigures, GroupMark, GroupMarks, GroupState, GroupSummary, Grouping, Handling};
pub use history::{Attempt, History};
pub use import::{ForeignLetter, ImportAnswer};
pub use ingest::{Accepted, Ingest, IngestError, NewMessage};

pub use letter::{
    Letter, LetterChange, LetterScan, LetterStanding, LetterState, ReplayAnswer, ReplayJob, ReplayTarget,
};
pub use memory::Memory;
pub use message_state::{KeyLine, MessagePhase, MessageState};
pub use pending::{PendingAt, PendingMessage, PendingScan, PendingState};
pub use position::SourcePosition;
pub use seam::{
    AfterDead, Announced, Claimed, Counts, Deliver, Delivery, DeliveryOrder, Engine, Event, Execution,
    KeepLetters, LastEnd, Oldest, OnBehalf, OwnShare, Query, Receipt, ReminderKind, Settlement, Settling,
    StoreOptions, Suspect, TakeGate, Ticket, Verdict,
};
pub use shared_records::SharedRecords;
pub use store_notice::{StoreNotice, Upkeep};
