//! Memory for answers: bounded for all of them together, like that for request bodies. A client that reads a large
//! answer slowly holds only its own share.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer::Json;
use crate::options::GRAIN_BYTES;
use crate::problem::{Code, Problem};

/// Answers up to this size are not counted: the number of connections bounds them.
const SMALL_BYTES: u64 = 64 * 1024;
/// Reserved while a page of letters is read and serialised: the letters, their text, and the answer.
const BUILD_BYTES: usize = 64 * 1024 * 1024;
/// How long a request waits for that memory.
const ROOM_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct Answers {
    /// In units of [`GRAIN_BYTES`].
    pool: Arc<Semaphore>,
}

/// A share of the memory for answers.
#[derive(Debug)]
pub(crate) struct AnswerMemory(OwnedSemaphorePermit);

/// Marks an answer that has reserved its memory, or needs none because all answers of its kind share the same bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held;

impl Answers {
    pub fn new(bytes_max: usize) -> Self {
        let grains = bytes_max.max(BUILD_BYTES).div_ceil(GRAIN_BYTES).min(Semaphore::MAX_PERMITS);
        Self { pool: Arc::new(Semaphore::new(grains)) }
    }

    /// Reserves memory for a large answer, before anything is read for it. Requests wait in order.
    pub async fn room(&self) -> Result<AnswerMemory, Problem> {
        let room = self.pool.clone().acquire_many_owned(grains(BUILD_BYTES));
        match tokio::time::timeout(ROOM_WAIT, room).await {
            Ok(Ok(room)) => Ok(AnswerMemory(room)),
            _ => Err(busy()),
        }
    }

    /// An answer that holds its memory until the client has read it.
    pub async fn hold(&self, response: Response, room: Option<AnswerMemory>) -> Result<Response, Problem> {
        let (mut head, body) = response.into_parts();
        let bytes = body.collect().await.map_err(|_| busy())?.to_bytes();
        let wanted = grains(bytes.len());
        let mut share = match room {
            Some(AnswerMemory(mut room)) => {
                // Return the part of the reservation that the answer does not need.
                let beyond = (room.num_permits() as u32).saturating_sub(wanted);
                drop(room.split(beyond as usize));
                room
            }
            None => self.more(0)?,
        };
        let more = wanted.saturating_sub(share.num_permits() as u32);
        share.merge(self.more(more)?);
        head.extensions.insert(Held);
        Ok(Response::from_parts(head, Body::from(Bytes::from_owner(OwnedAnswer { bytes, _share: share }))))
    }

    fn more(&self, grains: u32) -> Result<OwnedSemaphorePermit, Problem> {
        self.pool.clone().try_acquire_many_owned(grains).map_err(|_| busy())
    }
}

/// The bytes of an answer; the connection holds them until they are sent.
struct OwnedAnswer {
    bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for OwnedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts answers that their handlers have not counted.
pub(crate) async fn count(State(answers): State<Answers>, response: Response) -> Response {
    let is_small = response.body().size_hint().upper().is_some_and(|bytes| bytes <= SMALL_BYTES);
    if is_small || response.extensions().get::<Held>().is_some() {
        return response;
    }
    answers.hold(response, None).await.unwrap_or_else(IntoResponse::into_response)
}

/// Builds and serialises an answer of possibly many megabytes on a blocking thread, so that the workers stay free for
/// other requests, such as `/livez`. Take [`Answers::room`] first: it limits how many run concurrently.
pub(crate) async fn large<T: Serialize + 'static>(
    build: impl FnOnce() -> T + Send + 'static,
) -> Result<Response, Problem> {
    let built = tokio::task::spawn_blocking(move || Json(build()).into_response()).await;
    built.map_err(|_| Problem::new(Code::Stopping, "the server is stopping", "ask again later"))
}

fn grains(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(GRAIN_BYTES)).unwrap_or(u32::MAX)
}

fn busy() -> Problem {
    let message = "too many large answers are being read";
    Problem::new(Code::Busy, message, "ask again after Retry-After, or for less at once with `limit`")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use axum::http::StatusCode;
    use serde::Serializer;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn answer(bytes: usize) -> Response {
        vec![b'x'; bytes].into_response()
    }

    #[tokio::test]
    async fn an_answer_gives_its_share_back_when_it_was_read() {
        let answers = Answers::new(128 * MIB);
        let all = answers.pool.available_permits();
        let room = answers.room().await.unwrap();
        assert_eq!(all - answers.pool.available_permits(), BUILD_BYTES / GRAIN_BYTES);
        let response = answers.hold(answer(3 * MIB), Some(room)).await.unwrap();
        assert_eq!(all - answers.pool.available_permits(), 3 * MIB / GRAIN_BYTES);
        // The connection takes the bytes out of the body and may hold them for long.
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes.len(), 3 * MIB);
        assert_eq!(all - answers.pool.available_permits(), 3 * MIB / GRAIN_BYTES);
        drop(bytes);
        assert_eq!(answers.pool.available_permits(), all);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_nobody_reads_leave_no_room_for_more() {
        let answers = Answers::new(64 * MIB);
        let unread: Vec<Response> = {
            let mut unread = Vec::new();
            while let Ok(response) = answers.hold(answer(MIB), None).await {
                unread.push(response);
            }
            unread
        };
        assert_eq!(unread.len(), 64);
        assert_eq!(answers.room().await.unwrap_err().code, Code::Busy);
        drop(unread);
        assert!(answers.room().await.is_ok());
    }

    #[tokio::test]
    async fn an_answer_that_is_larger_than_was_thought_takes_more_if_there_is_more() {
        let answers = Answers::new(100 * MIB);
        let room = answers.room().await.unwrap();
        let larger = answers.hold(answer(90 * MIB), Some(room)).await.unwrap();
        drop(larger);
        let room = answers.room().await.unwrap();
        assert!(answers.hold(answer(110 * MIB), Some(room)).await.is_err());
    }

    /// Its serialisation takes until another task has run.
    struct Slow(Mutex<Receiver<()>>);

    impl Serialize for Slow {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let others_ran = self.0.lock().unwrap().recv_timeout(Duration::from_mins(1)).is_ok();
            serializer.serialize_bool(others_ran)
        }
    }

    /// Once, twenty readers of 30 MB each slowed `/livez` to 20 s: their pages were serialised on the workers.
    #[tokio::test(flavor = "current_thread")]
    async fn a_large_answer_leaves_the_workers_free() {
        let (ran, others_ran) = channel();
        let slow = Slow(Mutex::new(others_ran));
        let large = tokio::spawn(large(move || slow));
        let other = tokio::spawn(async move { ran.send(()) });
        let response = large.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(&body[..], b"true\n");
        other.await.unwrap().unwrap();
    }
}
