//! `redrive dlq show`: one letter with its whole history.

use std::collections::BTreeMap;

use redrive::GroupId;
use redrive_api::{AttemptView, Instant, LetterView, Payload};
use redrive_core::text::secret_header::is_secret_header;
use serde::Deserialize as _;
use serde_json::Value;

use super::redact;
use crate::args::whole;
use crate::client::{ClientFault, PageQuery, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Output, bytes, count, instant, safe};

/// How much of a payload is shown without `--full`.
const PAYLOAD_CHARS: usize = 2_000;
/// Stands for what an erasure has removed.
const ERASED: &str = "(erased)";
/// How many attempts are shown, from the beginning and the end.
const ATTEMPTS_SHOWN: usize = 20;

#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// The pipeline
    pub pipeline: String,
    /// The letter (orders/17, or 17), the message's id, or a group, whose oldest letters are shown
    pub letter: String,
    /// Of a group: at most this many letters
    #[arg(long, default_value_t = 1, allow_hyphen_values = true, value_parser = whole::<u32>(1, 100))]
    pub limit: u32,
    /// Show the whole payload, however long
    #[arg(long)]
    pub full: bool,
}

pub async fn run(args: &ShowArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let group = args.letter.parse::<GroupId>().ok();
    if let Some(group) = group {
        let letters = of_group(args, group, session).await?;
        // A message id may look like a group.
        if !letters.is_empty() {
            return show_all(letters, args, session, out);
        }
    }
    let mut answer = match session.api.letter(&args.pipeline, &args.letter).await {
        Err(fault) if fault.is_not_found() && group.is_some() => return Err(no_group(args, fault)),
        answer => answer?,
    };
    if out.is_json() {
        redact::hide_secret_headers(&mut answer.json);
        out.json(&answer.json)?;
    } else {
        for line in lines(&answer.view, args.full) {
            out.line(&line)?;
        }
    }
    Ok(Exit::Ok)
}

/// What was typed looks like a group, and is neither one with open letters nor a letter.
fn no_group(args: &ShowArgs, fault: ClientFault) -> Failed {
    let failed = Failed::from(fault);
    let groups =
        format!("so is a group with open letters, as `redrive dlq groups {}` lists them", args.pipeline);
    let hint = failed.hint.iter().cloned().chain([groups]).collect::<Vec<_>>();
    failed.hint(hint.join("\n  "))
}

async fn of_group(args: &ShowArgs, group: GroupId, session: &Session) -> Result<Vec<Value>, Failed> {
    let query = PageQuery {
        filter: Some(format!("group:{group}")),
        state: Some("open".to_owned()),
        payload: true,
        limit: args.limit,
        ..PageQuery::default()
    };
    Ok(session.api.letters(&args.pipeline, &query).await?.view.letters)
}

fn show_all(
    letters: Vec<Value>,
    args: &ShowArgs,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    for (at, mut letter) in letters.into_iter().enumerate() {
        if out.is_json() {
            redact::hide_secret_headers(&mut letter);
            out.json(&letter)?;
            continue;
        }
        if at > 0 {
            out.line("")?;
        }
        let letter = LetterView::deserialize(&letter).map_err(|error| session.strange(&error))?;
        for line in lines(&letter, args.full) {
            out.line(&line)?;
        }
    }
    Ok(Exit::Ok)
}

fn lines(letter: &LetterView, full: bool) -> Vec<String> {
    let is_erased = letter.state == "erased";
    let text = |text: &str| if is_erased && text.is_empty() { ERASED.to_owned() } else { safe::line(text) };
    let mut lines = vec![
        format!(
            "letter   {}   message {}   key {}   attempts {}   dead {}",
            letter.id,
            safe::line(&letter.message),
            safe::line(letter.key.as_deref().unwrap_or("-")),
            count(letter.attempts.into()),
            instant::print(letter.dead_at.0)
        ),
        format!("error    {}", text(letter.error.as_deref().unwrap_or("-"))),
        format!(
            "reason   {}   class {}   state {}   replays {}",
            letter.reason,
            letter.class.as_deref().unwrap_or("-"),
            letter.state,
            count(letter.replays.into())
        ),
    ];
    if !letter.group.is_empty() {
        lines.push(format!("group    {}   {}", letter.group, text(&letter.group_error)));
    }
    if letter.crashes > 0 {
        let last = time(letter.last_crash);
        let first = time(letter.first_crash.or(letter.first_seen));
        let quarantined = letter.reason == "poison_pill";
        let never = if quarantined { "   never replayed automatically" } else { "" };
        lines.push(format!("crashes  {}   first {first}   last {last}{never}", count(letter.crashes.into())));
    }
    if letter.held_ms > 0 {
        let held = std::time::Duration::from_millis(letter.held_ms);
        lines.push(format!("held     {}", redrive_core::duration::rough(held)));
    }
    if let Some(options) = letter.options.as_ref().and_then(Value::as_object) {
        let option = |(name, value): (&String, &Value)| format!("{name} {}", plain(value));
        let set = options.iter().filter(|(_, value)| !value.is_null()).map(option);
        lines.push(format!("options  {}", safe::line(&set.collect::<Vec<_>>().join("   "))));
    }
    if let Some(tenant) = &letter.tenant {
        lines.push(format!("tenant   {}", safe::line(tenant)));
    }
    let deadline = letter.deadline.map(|at| format!("   deadline {}", instant::print(at.0)));
    let created = instant::print(letter.created.0);
    lines.push(format!("times    created {created}{}", deadline.unwrap_or_default()));
    lines.extend(timeline(&letter.history, is_erased));
    let payload_text = match &letter.payload {
        None | Some(None) if is_erased => ERASED.to_owned(),
        shown => payload(shown.as_ref().and_then(Option::as_ref), full),
    };
    lines.push(format!("payload  {payload_text}"));
    if !letter.edits.is_empty() {
        let edits = safe::line(&letter.edits.join(" "));
        // Only the edit of an open letter can be undone.
        let undo = letter.edits.last().filter(|_| letter.state == "open");
        let undo =
            undo.map(|edit| format!("   undo the last one: redrive dlq edit --undo {}", safe::line(edit)));
        lines.push(format!("edited   {edits}{}", undo.unwrap_or_default()));
        if let Some(id) = &letter.accepted_as {
            lines.push(format!("accepted as {}", safe::line(id)));
        }
        if letter.original.is_some() {
            lines.push(format!(
                "original {}",
                payload(letter.original.as_ref().and_then(Option::as_ref), full)
            ));
        }
    }
    let headers = |headers: &BTreeMap<String, String>| {
        let shown: Vec<String> = headers.iter().map(|(name, value)| header(name, value)).collect();
        if shown.is_empty() { "(none)".to_owned() } else { shown.join(" ") }
    };
    if !letter.headers.is_empty() {
        lines.push(format!("headers  {}", headers(&letter.headers)));
    }
    if let Some(original) = letter.original_headers.as_ref().filter(|original| **original != letter.headers) {
        lines.push(format!("original headers {}", headers(original)));
    }
    lines
}

/// One line per attempt. The middle of a long history is left out.
pub fn timeline(history: &[AttemptView], is_erased: bool) -> Vec<String> {
    let attempt = |one: &AttemptView| attempt(one, is_erased);
    let half = ATTEMPTS_SHOWN / 2;
    let (first, left_out, last) = if history.len() > ATTEMPTS_SHOWN {
        (&history[..half], history.len() - ATTEMPTS_SHOWN, &history[history.len() - half..])
    } else {
        (history, 0, &[][..])
    };
    let mut rows: Vec<String> = first.iter().map(&attempt).collect();
    if left_out > 0 {
        rows.push(format!("… {left_out} more (--json has them all) …"));
    }
    rows.extend(last.iter().map(attempt));
    let label = |i| if i == 0 { "attempts " } else { "         " };
    rows.into_iter().enumerate().map(|(i, row)| format!("{}{row}", label(i))).collect()
}

fn attempt(attempt: &AttemptView, is_erased: bool) -> String {
    let error =
        if is_erased && attempt.error.is_empty() { ERASED.to_owned() } else { safe::line(&attempt.error) };
    let mut text = format!(
        "{}  {}  {} ms  {}  {}",
        attempt.attempt,
        instant::print(attempt.at.0),
        attempt.took_ms,
        attempt.class,
        error
    );
    if !attempt.counted {
        text.push_str("  (not counted)");
    }
    if attempt.ambiguous {
        text.push_str("  (may have taken effect)");
    }
    text
}

fn payload(payload: Option<&Payload>, full: bool) -> String {
    match payload {
        None => "(left out)".to_owned(),
        Some(Payload::Utf8(text)) if text.is_empty() => "(empty)".to_owned(),
        Some(Payload::Utf8(text)) if full => safe::line(text),
        Some(Payload::Utf8(text)) => {
            let shown = safe::short(text, PAYLOAD_CHARS);
            let cut = shown.ends_with('…') && !text.ends_with('…');
            if cut { format!("{shown} ({}, all of it: --full)", bytes(text.len() as u64)) } else { shown }
        }
        Some(Payload::Base64(text)) if full => format!("base64 {text}"),
        Some(Payload::Base64(text)) => format!("base64 {}", safe::short(text, 200)),
    }
}

fn header(name: &str, value: &str) -> String {
    let value = if is_secret_header(name) { "(hidden)".to_owned() } else { safe::short(value, 200) };
    format!("{}={value}", safe::line(name))
}

fn time(at: Option<Instant>) -> String {
    at.map_or_else(|| "-".to_owned(), |at| instant::print(at.0))
}

/// Formats an option's value: texts without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_attempts_the_first_and_the_last_are_shown() {
        let history: Vec<_> =
            (1..=50).map(|attempt| AttemptView { attempt, ..AttemptView::default() }).collect();
        let rows = timeline(&history, false);
        assert_eq!(rows.len(), ATTEMPTS_SHOWN + 1);
        assert!(rows[0].starts_with("attempts 1  "));
        assert!(rows[10].contains("… 30 more"));
        assert!(rows[20].trim_start().starts_with("50  "));
    }

    #[test]
    fn an_erased_letter_says_that_its_contents_are_erased() {
        let erased = LetterView {
            state: "erased".into(),
            error: Some(String::new()),
            group: "gr3k2m9x4q".into(),
            edits: vec!["e-5".into()],
            ..LetterView::default()
        };
        let shown = lines(&erased, false);
        for line in
            ["error    (erased)", "group    gr3k2m9x4q   (erased)", "payload  (erased)", "edited   e-5"]
        {
            assert!(shown.iter().any(|shown| shown == line), "{line}: {shown:?}");
        }
        let open = lines(&LetterView { state: "open".into(), ..erased }, false);
        assert!(open.iter().any(|line| line.ends_with("redrive dlq edit --undo e-5")), "{open:?}");
    }

    #[test]
    fn a_long_payload_is_cut_and_says_how_to_see_it_all() {
        let text = "x".repeat(5_000);
        let shown = payload(Some(&Payload::Utf8(text.clone())), false);
        assert!(shown.ends_with("… (5.0 kB, all of it: --full)"), "{shown}");
        assert_eq!(payload(Some(&Payload::Utf8(text.clone())), true), text);
    }

    #[test]
    fn a_secret_header_is_named_and_not_shown() {
        assert_eq!(header("Authorization", "Bearer s3cret"), "Authorization=(hidden)");
    }
}
