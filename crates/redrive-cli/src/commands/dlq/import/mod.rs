//! `redrive dlq import`: imports the dead letters of another framework into a pipeline.
//!
//! - `topic`: reads a topic without joining a group, and the messages that pointers refer to; `file`: reads lines
//! - `line`: formats a record as a letter of the API; `batch`: collects lines for one request
//! - `tally`, `offset_ranges`: counts of records read and their results

mod batch;
mod file;
// A file is sent to the server unchanged; only records of a topic are parsed here.
#[cfg_attr(not(feature = "kafka"), allow(dead_code))]
mod line;
#[cfg_attr(not(feature = "kafka"), allow(dead_code))]
mod offset_ranges;
#[cfg_attr(not(feature = "kafka"), allow(dead_code))]
mod tally;
#[cfg(feature = "kafka")]
mod topic;
#[cfg(not(feature = "kafka"))]
#[path = "no_topic.rs"]
mod topic;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::Bytes;
use redrive::internal::adopt;
use serde_json::json;

use batch::ImportBatch;
use tally::{Answered, Tally};

use crate::args::Global;
use crate::client::Session;
use crate::exit::{Exit, Failed};
use crate::output::{Output, count};

/// How many batches are read ahead of the processor.
const AHEAD: usize = 2;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("from").required(true).args(["topic", "file"]))]
pub struct ImportArgs {
    /// The topic with the dead letters. It is only read: no group, no commits
    #[arg(long)]
    pub topic: Option<String>,
    /// A file with a letter per line, as `dlq export` writes them; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The pipeline that gets the letters
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: String,
    /// The framework that wrote the topic, or the headers of the lines
    #[arg(long, value_enum, default_value_t = DialectArg::Auto)]
    pub dialect: DialectArg,
    /// The topic that records without origin headers came from
    #[arg(long, value_name = "TOPIC", conflicts_with = "file")]
    pub source: Option<String>,
    /// The brokers of the topic; default: those of the configuration
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', conflicts_with = "file")]
    pub brokers: Vec<String>,
    /// Say what would be imported, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The names of frameworks on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DialectArg {
    /// By the headers of each record
    Auto,
    /// Spring for Apache Kafka, and the Kafka binder of Spring Cloud Stream
    Spring,
    /// Kafka Connect
    Connect,
    /// Kafka Streams
    Streams,
    /// Share groups of Kafka; their pointers are followed
    Kip1191,
    /// Watermill's poison queue
    Watermill,
    /// Karafka
    Karafka,
    /// No headers: every record is a message
    Plain,
}

impl DialectArg {
    /// The named dialect; `None` means to detect it from the headers of each record.
    fn dialect(self) -> Option<adopt::Dialect> {
        Some(match self {
            Self::Auto => return None,
            Self::Spring => adopt::Dialect::Spring,
            Self::Connect => adopt::Dialect::Connect,
            Self::Streams => adopt::Dialect::Streams,
            Self::Kip1191 => adopt::Dialect::Kip1191,
            Self::Watermill => adopt::Dialect::Watermill,
            Self::Karafka => adopt::Dialect::Karafka,
            Self::Plain => adopt::Dialect::Plain,
        })
    }
}

pub async fn run(
    args: &ImportArgs,
    global: &Global,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let (batches, given) = sync_channel::<ImportBatch>(AHEAD);
    let mut give = move |batch: ImportBatch| batches.send(batch).is_ok();
    let (from, reader) = match (&args.file, &args.topic) {
        (Some(path), _) => {
            let (name, file) = (format!("file {}", path.display()), file::open(path)?);
            (name, std::thread::spawn(move || file::read(file, &mut give)))
        }
        (None, topic) => {
            let topic = topic.clone().unwrap_or_default();
            refuse_own(&args.pipeline, &topic, session).await?;
            let (name, reader) = (format!("topic {topic}"), topic::TopicReader::of(args, &topic, global)?);
            (name, std::thread::spawn(move || reader.read(&mut give)))
        }
    };
    let sent = send(args, &from, &given, session).await;
    // The reader stops when the receiver is dropped.
    drop(given);
    let tally = reader.join().map_err(|_| Failed::new(Exit::Storage, "the reader has panicked"))?;
    let answered = sent?;
    let tally = tally.map_err(|failed| so_far(failed, &answered))?;
    report(args, &tally, &answered, out)?;
    // A dry run ends with the same exit code as the import would, so that a script can check first.
    let is_good = tally.is_whole() && answered.refused == 0;
    Ok(if is_good { Exit::Ok } else { Exit::Bad })
}

/// Refuses topics of the pipeline itself: with `--source` each record would become a letter.
async fn refuse_own(pipeline: &str, topic: &str, session: &Session) -> Result<(), Failed> {
    // A token may be allowed to import but not to read; then the processor refuses each line.
    let Ok(answer) = session.api.pipeline(pipeline).await else { return Ok(()) };
    own_topic(pipeline, answer.view.source.as_deref(), topic).map_or(Ok(()), Err)
}

fn own_topic(pipeline: &str, source: Option<&str>, topic: &str) -> Option<Failed> {
    let source = source.filter(|source| adopt::is_own_topic(pipeline, source, topic))?;
    let (what, fix) = if topic == source {
        ("the source of", "name the topic into which the other framework writes its dead letters".to_owned())
    } else {
        let fix = format!(
            "`redrive dlq inspect {pipeline}` lists its letters; `redrive dlq export` and `redrive dlq import --file` move \
             letters to another pipeline"
        );
        ("a topic of", fix)
    };
    let message = format!(
        "`{topic}` is {what} the pipeline `{pipeline}` itself, not the dead letter topic of another framework"
    );
    Some(Failed::usage(message).hint(fix))
}

async fn send(
    args: &ImportArgs,
    from: &str,
    given: &Receiver<ImportBatch>,
    session: &Session,
) -> Result<Answered, Failed> {
    let mut answered = Answered::default();
    while let Ok(ImportBatch { body, places }) = given.recv() {
        // Records of a topic were already parsed here.
        let dialect = args.dialect.dialect().filter(|_| args.file.is_some()).map(adopt::Dialect::name);
        let body = Bytes::from(body);
        let sent = session.api.import(&args.pipeline, body, args.dry_run, from, dialect).await;
        answered.add(sent.map_err(|fault| so_far(fault.into(), &answered))?.view, &places);
    }
    Ok(answered)
}

/// The import ended early: imported letters stay, and are not imported twice.
fn so_far(failed: Failed, answered: &Answered) -> Failed {
    if answered.imported + answered.already_there == 0 {
        return failed;
    }
    let so_far = format!(
        "imported {} before that, {} were already there; run it again, nothing is imported twice",
        count(answered.imported),
        count(answered.already_there)
    );
    let hint = failed.hint.clone().map_or_else(|| so_far.clone(), |hint| format!("{hint}\n  {so_far}"));
    failed.hint(hint)
}

fn report(args: &ImportArgs, tally: &Tally, answered: &Answered, out: &mut Output) -> Result<(), Failed> {
    if out.is_json() {
        let mut json = tally.json();
        if let (Some(all), Some(more)) = (json.as_object_mut(), answered.json().as_object()) {
            all.insert("dry_run".to_owned(), json!(args.dry_run));
            all.extend(more.clone());
        }
        return out.json(&json);
    }
    match args.file {
        Some(_) => out.line(&format!("{} letters read", count(tally.read)))?,
        None => tally.write(&args.pipeline, out)?,
    }
    answered.write(args.dry_run, out)?;
    if let Some(source) = tally.missing_source(&args.pipeline) {
        out.note(&format!("  if they came from {source}: {}", with_source(args, &source)));
    }
    Ok(())
}

/// The same command with a source for records that lack one, ready to paste into a shell.
fn with_source(args: &ImportArgs, source: &str) -> String {
    let mut words = vec!["redrive", "dlq", "import", "--topic", args.topic.as_deref().unwrap_or_default()];
    let dialect = args.dialect.dialect().map(adopt::Dialect::name);
    words.extend(dialect.into_iter().flat_map(|dialect| ["--dialect", dialect]));
    let brokers = args.brokers.join(",");
    if !brokers.is_empty() {
        words.extend(["--brokers", &brokers]);
    }
    words.extend(["--pipeline", &args.pipeline, "--source", source]);
    if args.dry_run {
        words.push("--dry-run");
    }
    words.into_iter().map(shell_word).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_of_the_pipeline_itself_is_not_imported() {
        let refused = |source, topic| own_topic("orders", source, topic);
        for topic in ["orders-in", "orders.DLQ", "orders.DLQ.state", "orders.retry.5s", "orders.replay"] {
            let failed = refused(Some("orders-in"), topic).unwrap();
            assert_eq!(failed.exit, Exit::Usage);
            assert!(refused(None, topic).is_none(), "a pipeline that is not in Kafka has no topics");
        }
        assert!(refused(Some("orders-in"), "orders-dlt").is_none());
        assert!(refused(Some("orders-in"), "payments.DLQ").is_none());
    }

    #[test]
    fn the_command_that_is_offered_can_be_pasted() {
        let args = ImportArgs {
            topic: Some("orders dlt".into()),
            file: None,
            pipeline: "orders".into(),
            dialect: DialectArg::Spring,
            source: None,
            brokers: vec!["a:9092".into(), "b:9092".into()],
            dry_run: true,
        };
        assert_eq!(
            with_source(&args, "orders"),
            "redrive dlq import --topic 'orders dlt' --dialect spring --brokers a:9092,b:9092 --pipeline orders --source \
             orders --dry-run"
        );
        assert_eq!(shell_word("it's"), "'it'\\''s'");
    }
}
