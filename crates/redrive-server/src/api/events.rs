//! Events of a pipeline as server-sent events. A returning client names the last event it saw and continues from there;
//! one that is too slow gets a final event that says so, and its stream ends after a complete event.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use redrive::internal::events::{Event, EventKind, Events};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::answer_memory::Held;
use crate::connections::registry::Connection;
use crate::problem::{Code, Problem};
use crate::request::{Params, Path};
use crate::state::Shared;

/// The interval of comment lines, which show proxies and clients that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How soon a client that lost its stream reconnects.
const RETRY_MS: u64 = 2_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EventParams {
    /// Separated by commas; all if omitted.
    r#type: Option<String>,
}

pub(crate) async fn stream(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
    Params(params): Params<EventParams>,
    connection: Option<Extension<Arc<Connection>>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let served = shared.service.find(&pipeline)?;
    let kinds = params.r#type.as_deref().filter(|kinds| !kinds.is_empty()).map(kinds).transpose()?;
    let reading = Arc::clone(&shared.event_streams).try_acquire_owned().map_err(|_| {
        let hint = "close a stream, or read one and filter it yourself";
        Problem::new(Code::Busy, "too many event streams are open", hint)
    })?;
    if let Some(Extension(connection)) = connection {
        connection.follows();
    }
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let start = StreamStart::of(last, shared.started.as_millis(), &served.events);
    let reader = EventReader { events: served.events.clone(), kinds, run: shared.started.as_millis(), start };
    let (sender, receiver) = mpsc::channel(1);
    let stopping = shared.readiness.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = reader.run(&sender) => {}
            () = stopping.stopped() => {}
        }
    });
    let mut response = Response::new(Body::new(EventBody { receiver, _reading: reading }));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    // A stream has no known size, and holds only one chunk at a time.
    response.extensions_mut().insert(Held);
    Ok(response)
}

fn kinds(text: &str) -> Result<Vec<EventKind>, Problem> {
    let kind = |name: &str| {
        EventKind::from_name(name).ok_or_else(|| {
            let known = EventKind::ALL.map(EventKind::name).join(", ");
            let message = format!("`type` names {name:?}, which is not a type of event");
            Problem::bad_request(message, format!("there are {known}; leave `type` out to get all of them"))
        })
    };
    text.split(',').map(|name| kind(name.trim())).collect()
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamStart {
    After(u64),
    /// The client's last event is from an earlier process: all available events follow, and some may be missing.
    Anew,
}

impl StreamStart {
    /// Without a last event the stream starts now.
    fn of(last: Option<&str>, run: u64, events: &Events) -> Self {
        let Some(last) = last else { return Self::After(events.latest()) };
        let Some((of, number)) = last.split_once('-') else { return Self::Anew };
        match (of.parse() == Ok(run), number.parse()) {
            (true, Ok(number)) => Self::After(number),
            _ => Self::Anew,
        }
    }
}

/// One client and its position.
struct EventReader {
    events: Events,
    kinds: Option<Vec<EventKind>>,
    /// Event numbers restart with each process.
    run: u64,
    start: StreamStart,
}

impl EventReader {
    /// Runs until the client is gone or too slow.
    async fn run(self, sender: &mpsc::Sender<Bytes>) {
        let mut news = self.events.watch();
        let mut at = 0;
        let (run, retry) = (self.run, format!("retry: {RETRY_MS}\n\n"));
        let greeting = match self.start {
            StreamStart::After(number) => {
                at = number;
                retry
            }
            StreamStart::Anew => {
                format!("{retry}id: {run}-0\nevent: restarted\ndata: {{\"type\":\"restarted\"}}\n\n")
            }
        };
        let mut is_first = self.start == StreamStart::Anew;
        if sender.send(greeting.into()).await.is_err() {
            return;
        }
        loop {
            news.borrow_and_update();
            let read = self.events.after(at);
            if read.missed > 0 && !is_first {
                // Its id is that of the last missed event, so that the client continues with the next one.
                let (run, missed) = (self.run, read.missed);
                let data = format!("{{\"type\":\"missed\",\"events\":{missed}}}");
                let text = format!("id: {run}-{}\nevent: missed\ndata: {data}\n\n", at + missed);
                // The client may be gone.
                let _ = sender.send(text.into()).await;
                return;
            }
            is_first = false;
            if let Some(last) = read.events.last() {
                at = last.number;
                let text: String =
                    read.events.iter().filter(|event| self.wants(event)).map(|it| self.text(it)).collect();
                if !text.is_empty() && sender.send(text.into()).await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    if sender.send(Bytes::from_static(b":\n\n")).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn wants(&self, event: &Event) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
    }

    fn text(&self, event: &Event) -> String {
        format!("id: {}-{}\nevent: {}\ndata: {}\n\n", self.run, event.number, event.kind.name(), event.data)
    }
}

struct EventBody {
    receiver: mpsc::Receiver<Bytes>,
    _reading: OwnedSemaphorePermit,
}

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

#[cfg(test)]
mod tests {
    use redrive::Time;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::connections::registry::Connections;
    use crate::connections::stream::Stream;

    async fn read(receiver: &mut mpsc::Receiver<Bytes>) -> String {
        String::from_utf8(receiver.recv().await.unwrap_or_default().to_vec()).unwrap()
    }

    fn reader(
        events: &Events,
        last: Option<&str>,
    ) -> (EventReader, mpsc::Sender<Bytes>, mpsc::Receiver<Bytes>) {
        let (sender, receiver) = mpsc::channel(1);
        let start = StreamStart::of(last, 7, events);
        (EventReader { events: events.clone(), kinds: None, run: 7, start }, sender, receiver)
    }

    fn push(events: &Events, count: usize) {
        (0..count).for_each(|_| events.push(EventKind::Purged, Time::ZERO, json!({})));
    }

    #[tokio::test]
    async fn a_client_goes_on_after_the_last_event_it_saw() {
        let events = Events::default();
        push(&events, 3);
        let (reader, sender, mut receiver) = reader(&events, Some("7-2"));
        tokio::spawn(async move { reader.run(&sender).await });
        assert_eq!(read(&mut receiver).await, "retry: 2000\n\n");
        let text = read(&mut receiver).await;
        assert!(
            text.starts_with("id: 7-3\nevent: purged\ndata: {\"at\":") && text.ends_with("}\n\n"),
            "{text}"
        );
        push(&events, 1);
        assert!(read(&mut receiver).await.starts_with("id: 7-4\n"));
    }

    #[tokio::test]
    async fn a_new_client_gets_what_happens_from_now_on_and_one_of_an_earlier_process_everything() {
        let events = Events::default();
        push(&events, 3);
        assert_eq!(StreamStart::of(None, 7, &events), StreamStart::After(3));
        for last in ["6-2", "nonsense", "7-x"] {
            assert_eq!(StreamStart::of(Some(last), 7, &events), StreamStart::Anew, "{last}");
        }
        let (reader, sender, mut receiver) = reader(&events, Some("6-2"));
        tokio::spawn(async move { reader.run(&sender).await });
        assert!(read(&mut receiver).await.contains("id: 7-0\nevent: restarted\n"));
        assert!(read(&mut receiver).await.starts_with("id: 7-1\n"));
    }

    #[tokio::test]
    async fn a_client_that_is_too_slow_is_told_so_and_its_stream_ends() {
        let events = Events::default();
        push(&events, redrive::internal::events::EVENTS_MAX + 5);
        let (reader, sender, mut receiver) = reader(&events, Some("7-2"));
        tokio::spawn(async move { reader.run(&sender).await });
        assert_eq!(read(&mut receiver).await, "retry: 2000\n\n");
        let told = "id: 7-5\nevent: missed\ndata: {\"type\":\"missed\",\"events\":3}\n\n";
        assert_eq!(read(&mut receiver).await, told);
        assert_eq!(receiver.recv().await, None);
        assert_eq!(events.after(5).missed, 0, "it goes on from there");
    }

    #[test]
    fn a_type_that_there_is_none_of_is_refused_with_the_list_of_all() {
        assert_eq!(kinds("purged, dead_letter").unwrap(), [EventKind::Purged, EventKind::DeadLetter]);
        for wrong in ["purge", "purged,", "purged,Purged"] {
            let said = format!("{:?}", kinds(wrong).unwrap_err());
            assert!(said.contains("dead_letter, breaker") && said.contains("purging_resumed"), "{said}");
        }
    }

    /// Once, a client that took 4 KiB per second was cut off within a line: it was slower than an ordinary answer
    /// allows.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_too_slowly_gets_whole_events_to_the_end_of_its_stream() {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let place = Connections::new(1).admit([192, 0, 2, 1].into()).unwrap();
        place.connection.follows();
        let stream = Stream::new(ours, Arc::clone(&place.connection));
        let events = Events::default();
        push(&events, 5_000);
        let (reader, sender, receiver) = reader(&events, Some("7-0"));
        tokio::spawn(async move { reader.run(&sender).await });
        let permit = Arc::new(tokio::sync::Semaphore::new(1)).acquire_owned().await.unwrap();
        let body = std::sync::Mutex::new(Some(EventBody { receiver, _reading: permit }));
        let answer = hyper::service::service_fn(move |_: hyper::Request<hyper::body::Incoming>| {
            let body = body.lock().unwrap().take().unwrap();
            std::future::ready(Ok::<_, Infallible>(hyper::Response::new(body)))
        });
        let serving = hyper::server::conn::http1::Builder::new();
        let serving = serving.serve_connection(hyper_util::rt::TokioIo::new(stream), answer);
        let serving = tokio::spawn(serving);
        theirs.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        while !text.ends_with(b"\r\n0\r\n\r\n") {
            let read = theirs.read(&mut piece).await.unwrap();
            assert!(read > 0, "cut off behind {:?}", String::from_utf8_lossy(&text[text.len() - 80..]));
            text.extend_from_slice(&piece[..read]);
            // More events arrive than it can take.
            push(&events, 200);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("event: missed"), "its last event says that it is too slow");
        drop(serving);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_shows_that_it_is_alive() {
        let events = Events::default();
        let (reader, sender, mut receiver) = reader(&events, None);
        tokio::spawn(async move { reader.run(&sender).await });
        assert_eq!(read(&mut receiver).await, "retry: 2000\n\n");
        assert_eq!(read(&mut receiver).await, ":\n\n");
    }
}
