//! Makes a message due, or cancels it.

use std::time::Duration;

use super::find::{Located, SEARCH_MAX, locate};
use crate::engine::{EngineError, MessagePhase, PendingAt, PendingState};
use crate::handle::{HandleError, PipelineHandle};
use crate::letters::select::LetterIds;
use crate::run::command::{EngineAccess, MachineAccess};
use crate::run::steer::{Reply, Steer, Steered, steer_at_rest};

/// A message may move between being found and being steered. Then it is looked up again, at most this often.
const TRIES_MAX: u32 = 4;
/// How long to retry while the engine is temporarily unavailable, and the interval.
const NOT_NOW_MAX: Duration = Duration::from_secs(10);
const NOT_NOW_STEP: Duration = Duration::from_millis(100);

/// Why a message was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// No message with this id is pending here.
    #[error("pipeline `{pipeline}` has no message `{id}` that is pending here")]
    NotFound {
        /// The pipeline.
        pipeline: String,
        /// The message.
        id: String,
    },
    /// It is being delivered.
    #[error("message `{id}` is being delivered")]
    InFlight {
        /// The message.
        id: String,
    },
    /// It is already due.
    #[error("message `{id}` is ready and waits for a permit, not for its due time")]
    Ready {
        /// The message.
        id: String,
    },
    /// It waits behind an earlier message of its key.
    #[error("message `{id}` waits behind an earlier message of its key")]
    KeyWait {
        /// The message.
        id: String,
    },
    /// It may have crashed the process, and waits to run alone.
    #[error("message `{id}` may have killed the process and waits in the suspect queue")]
    Suspect {
        /// The message.
        id: String,
    },
    /// It is terminal; `letter` names its dead letter, if any.
    #[error("message `{id}` is not pending: it is {state}{}", letter.as_ref().map(|letter| format!(" as letter {letter}")).unwrap_or_default())]
    Ended {
        /// The message.
        id: String,
        /// Its state.
        state: MessagePhase,
        /// The letter that it became.
        letter: Option<String>,
    },
    /// More messages are pending than are scanned for an id.
    #[error("message `{id}` was not found among the first {SEARCH_MAX} that are pending")]
    TooMany {
        /// The message.
        id: String,
    },
    /// It kept changing its place while it was looked up.
    #[error("message `{id}` changed state concurrently; try again")]
    Restless {
        /// The message.
        id: String,
    },
    /// The pipeline did not answer.
    #[error(transparent)]
    Handle(#[from] HandleError),
}

/// A request for one message, checked as far as possible in advance, so that it can be recorded before it is carried
/// out.
#[derive(Clone, Debug)]
pub struct Steering {
    handle: PipelineHandle,
    name: String,
    how: Steer,
    at: PendingAt,
}

impl PipelineHandle {
    /// Makes a delayed message due: its next attempt starts as soon as a permit is free and the sink allows it. `id`
    /// is its id, or the number shown in listings. Durable on return.
    pub async fn retry_now(&self, id: &str) -> Result<(), SteerError> {
        self.steering(id, Steer::RetryNow).await?.carry_out().await
    }

    /// Dead-letters a waiting message with the reason `cancelled`. Durable on return.
    pub async fn cancel(&self, id: &str) -> Result<(), SteerError> {
        self.steering(id, Steer::Cancel).await?.carry_out().await
    }

    /// Finds a message and checks whether it can be steered this way; changes nothing yet.
    #[doc(hidden)]
    pub async fn steering(&self, id: &str, how: Steer) -> Result<Steering, SteerError> {
        let refused = |how| Err(refusal(id, how));
        let at = match locate(self, id).await? {
            Located::Waits(at) => at,
            Located::InFlight => return refused(Steered::InFlight),
            Located::NotFound => {
                return Err(SteerError::NotFound { pipeline: self.name().to_owned(), id: id.to_owned() });
            }
            Located::TooMany => return Err(SteerError::TooMany { id: id.to_owned() }),
            Located::Ended(known) => {
                let letter = known.letter.map(|number| LetterIds::of(self).text(number));
                return Err(SteerError::Ended { id: id.to_owned(), state: known.state, letter });
            }
        };
        match (how, at.state) {
            (Steer::RetryNow, PendingState::Ready) => refused(Steered::Ready),
            (Steer::RetryNow, PendingState::KeyWait) => refused(Steered::KeyWait),
            _ => Ok(Steering { handle: self.clone(), name: id.to_owned(), how, at }),
        }
    }
}

impl Steering {
    /// The number of the message.
    pub fn number(&self) -> u64 {
        self.at.number
    }

    /// Carries out the request; durable on return.
    pub async fn carry_out(mut self) -> Result<(), SteerError> {
        for _ in 0..TRIES_MAX {
            let how = self.how;
            match self.ask().await? {
                Steered::Done => return Ok(()),
                Steered::NotThere => self = self.handle.steering(&self.name, how).await?,
                refused => return Err(refusal(&self.name, refused)),
            }
        }
        Err(refusal(&self.name, Steered::NotThere))
    }
}

impl Steering {
    /// Asks the pipeline, and retries while its partitions are being assigned.
    async fn ask(&self) -> Result<Steered, HandleError> {
        let (at, how) = (self.at, self.how);
        let mut waited = Duration::ZERO;
        loop {
            match self.handle.ask_later(move |asked, reply| steer(at, how, asked, reply)).await {
                Err(HandleError::Engine(EngineError::Unavailable(_))) if waited < NOT_NOW_MAX => {
                    tokio::time::sleep(NOT_NOW_STEP).await;
                    waited += NOT_NOW_STEP;
                }
                answer => return answer,
            }
        }
    }
}

/// Steers a message, through the machine while the pipeline runs. The reply is sent when the change is durable.
pub(super) fn steer(at: PendingAt, how: Steer, asked: &mut EngineAccess<'_>, reply: Reply) {
    match &mut asked.running {
        Some(MachineAccess { machine, answers }) => {
            answers.steer((at, how), reply, machine, asked.engine, asked.now);
        }
        None => drop(reply.send(steer_at_rest(at, how, asked.engine, asked.now))),
    }
}

fn refusal(id: &str, why: Steered) -> SteerError {
    let id = id.to_owned();
    match why {
        Steered::InFlight => SteerError::InFlight { id },
        Steered::Ready => SteerError::Ready { id },
        Steered::KeyWait => SteerError::KeyWait { id },
        Steered::Suspect => SteerError::Suspect { id },
        Steered::Done | Steered::NotThere => SteerError::Restless { id },
    }
}
