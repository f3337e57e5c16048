//! Measures the rate of webhook deliveries, compared with a bare client.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use redrive::{Embedded, Message, Pipeline, Policy, Redrive};
use redrive_sinks::webhook::Signing;
use redrive_sinks::{WebhookOptions, WebhookSink};
use tokio::net::TcpListener;
use tokio::sync::Notify;

const CONCURRENCY: u32 = 64;
const BYTES: usize = 512;
/// Messages per ingest call.
const BATCH: u64 = 1_000;
const SECRET: &str = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Counts requests and notifies once all have arrived.
#[derive(Default)]
struct Counter {
    seen: AtomicU64,
    awaited: AtomicU64,
    all: Notify,
}

impl Counter {
    fn expect(&self, count: u64) {
        self.seen.store(0, Ordering::SeqCst);
        self.awaited.store(count, Ordering::SeqCst);
    }

    fn one(&self) {
        if self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.awaited.load(Ordering::SeqCst) {
            self.all.notify_one();
        }
    }
}

/// A server that reads each request to its end and answers 200.
async fn serve(counter: Arc<Counter>) -> Result<Uri> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}/", listener.local_addr()?).parse()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let counter = Arc::clone(&counter);
            let service = service_fn(move |request: Request<Incoming>| {
                let counter = Arc::clone(&counter);
                async move {
                    let _ = request.into_body().collect().await;
                    counter.one();
                    Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    Ok(uri)
}

fn order(number: u64) -> String {
    let head = format!(r#"{{"order_id":"o-{number}","amount":{number},"payload":""#);
    format!("{head}{}\"}}", "x".repeat(BYTES - head.len() - 2))
}

/// Only the pool: as many tasks as Redrive has permits, each with a request in flight all the time.
async fn bare(uri: &Uri, count: u64) -> Result<Duration> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let next = Arc::new(AtomicU64::new(0));
    let body = Bytes::from(order(0));
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENCY {
        let (client, next, uri, body) = (client.clone(), Arc::clone(&next), uri.clone(), body.clone());
        tasks.spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let mut request = Request::new(Full::from(body.clone()));
                *request.method_mut() = Method::POST;
                *request.uri_mut() = uri.clone();
                let answer = client.request(request).await?;
                answer.into_body().collect().await?;
            }
            Result::Ok(())
        });
    }
    for task in tasks.join_all().await {
        task?;
    }
    Ok(began.elapsed())
}

/// The same number of messages from the embedded engine, from the start to the last request.
async fn redrive(uri: &Uri, count: u64, counter: &Counter, signed: bool) -> Result<Duration> {
    let dir = tempfile::tempdir()?;
    let mut options = WebhookOptions::to_url(uri.to_string());
    if signed {
        let secret = dir.path().join("secret");
        std::fs::write(&secret, SECRET)?;
        options.signing = Signing { secret_file: Some(secret), ..Signing::default() };
    }
    let sink = WebhookSink::build(options)?;
    let pipeline =
        Pipeline::new("orders").policy(Policy::tiers(["1s", "2s", "4s"])).concurrency(CONCURRENCY).sink(sink);
    let redrive = Redrive::builder().engine(Embedded::open(dir.path())?).pipeline(pipeline).build()?;
    let orders = redrive.pipeline("orders").ok_or("no such pipeline")?;
    counter.expect(count);
    for start in (0..count).step_by(BATCH as usize) {
        let batch = (start..count.min(start + BATCH))
            .map(|number| Message::builder(format!("o-{number}")).payload(order(number)).build());
        orders.ingest(batch.collect::<std::result::Result<Vec<_>, _>>()?).await?;
    }
    let began = Instant::now();
    let mut took = Duration::ZERO;
    let report = redrive
        .run_until(async {
            counter.all.notified().await;
            took = began.elapsed();
        })
        .await?;
    if report.total().succeeded != count {
        return Err(format!("{count} messages, but {report}").into());
    }
    Ok(took)
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rounds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let cores = std::thread::available_parallelism()?;
    println!(
        "webhooks: {count} POSTs of {BYTES} B, {CONCURRENCY} at once, client and server on {cores} cores"
    );
    let counter = Arc::new(Counter::default());
    let uri = serve(Arc::clone(&counter)).await?;
    let (mut ratios, mut signed_ratios) = (Vec::new(), Vec::new());
    let (mut unsigned_rates, mut signed_rates) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        counter.expect(u64::MAX);
        let bare = count as f64 / bare(&uri, count).await?.as_secs_f64();
        let mut rates = [0.0; 2];
        for turn in 0..2 {
            // The order alternates with each round.
            let signed = (round + turn) % 2 == 0;
            let took = redrive(&uri, count, &counter, signed).await?;
            rates[usize::from(signed)] = count as f64 / took.as_secs_f64();
        }
        let [plain, signed] = rates;
        ratios.push(plain / bare);
        signed_ratios.push(signed / plain);
        unsigned_rates.push(plain);
        signed_rates.push(signed);
        println!(
            "round {round}: hyper-util pool alone {bare:.0}/s   redrive, embedded engine {plain:.0}/s   {:.0} %   signed {signed:.0}/s   {:.0} % of unsigned",
            plain / bare * 100.0,
            signed / plain * 100.0
        );
    }
    let ([unsigned, _, _], [signed, _, _]) = (spread(unsigned_rates), spread(signed_rates));
    let [pool, pool_min, pool_max] = spread(ratios).map(|ratio| ratio * 100.0);
    println!("unsigned {unsigned:.0}/s   {pool:.0} % of the pool alone ({pool_min:.0}–{pool_max:.0} %)");
    let [ratio, least, most] = spread(signed_ratios).map(|ratio| ratio * 100.0);
    println!(
        "signed   {signed:.0}/s   {ratio:.0} % of unsigned ({least:.0}–{most:.0} %)   medians of {rounds} rounds"
    );
    Ok(())
}

/// Median, minimum and maximum.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let last = values.len().saturating_sub(1);
    [at(last / 2), at(0), at(last)]
}
