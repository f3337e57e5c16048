//! `redrive dlq edit`: changes letters by rule or in an editor, shows the difference first, and undoes edits.

use std::collections::BTreeSet;

use redrive::internal::letters::json_text::JsonText;
use redrive::letters::edit::{Condition, Pointer, header_fault};
use redrive_api::{DifferenceView, Edit, Edited, LetterSelection, MessageIdChoice, Payload, SkippedLetters};
use serde_json::json;
use serde_json::value::RawValue;

use super::Selection;
use super::edit_jq::NewPayloads;
use super::editor::{self, Draft};
use super::redact::fail_if_redacted;
use super::selection::say_not_open;
use crate::client::Session;
use crate::client::fault::ClientFault;
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, safe};

/// How much of a value a difference shows.
const VALUE_CHARS: usize = 200;
const CHANGE: &str = "Change (none: $EDITOR opens the one letter)";

#[derive(Debug, clap::Args)]
pub struct EditArgs {
    /// The pipeline
    #[arg(required_unless_present = "undo")]
    pub pipeline: Option<String>,
    #[command(flatten)]
    pub selection: Selection,
    /// Of these, letters whose payload fits, as in '/region == "DE" and /amount > 100'
    #[arg(long = "where", value_name = "COND", value_parser = condition)]
    pub condition: Option<String>,
    /// Put a JSON value in the payload, as in /currency='"EUR"'; may be repeated
    #[arg(long, value_name = "/PATH=JSON", value_parser = assignment, help_heading = CHANGE)]
    pub set: Vec<(String, String)>,
    /// Remove a value from the payload; may be repeated
    #[arg(long, value_name = "/PATH", value_parser = pointer, help_heading = CHANGE)]
    pub unset: Vec<String>,
    /// Make the new payload with a jq program, as in '.currency |= ascii_upcase'
    #[arg(long, value_name = "PROGRAM", allow_hyphen_values = true, conflicts_with_all = ["set", "unset", "set_header", "unset_header"], help_heading = CHANGE)]
    pub jq: Option<String>,
    /// Set a header; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = header, help_heading = CHANGE)]
    pub set_header: Vec<(String, String)>,
    /// Remove a header; may be repeated
    #[arg(long, value_name = "NAME", help_heading = CHANGE)]
    pub unset_header: Vec<String>,
    /// Keep the message id where the end of an attempt is unknown: a receiver that applied it, and remembers ids, ignores
    /// the edited message
    #[arg(long)]
    pub same_id: bool,
    /// Give such letters a new message id: a receiver that applied the first message applies the edited one too
    #[arg(long, conflicts_with = "same_id")]
    pub new_id: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Give all letters of this edit back the messages they had before it, as in e-12
    #[arg(long, value_name = "EDIT", conflicts_with_all = ["filter", "group", "edit", "ids", "since", "all", "condition", "set", "unset", "jq", "set_header", "unset_header", "same_id", "new_id", "dry_run"])]
    pub undo: Option<String>,
}

fn condition(text: &str) -> Result<String, String> {
    Condition::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn pointer(text: &str) -> Result<String, String> {
    let is_pointer = Pointer::parse(text).is_some_and(|pointer| !pointer.is_root());
    is_pointer
        .then(|| text.to_owned())
        .ok_or_else(|| "not a JSON pointer; write it like /currency".to_owned())
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (at, value) = text.split_once('=').ok_or("write it like /currency='\"EUR\"'")?;
    let at = pointer(at)?;
    if JsonText::parse(value.as_bytes()).is_err() {
        return Err(format!("`{value}` is not JSON; a text needs quotes: {at}='\"{value}\"'"));
    }
    Ok((at, value.to_owned()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it like x-src=web")?;
    match header_fault(name, value) {
        Some(why) => Err(why.to_owned()),
        None => Ok((name.to_owned(), value.to_owned())),
    }
}

impl EditArgs {
    /// Fails if two changes affect the same place: they contradict each other in either order.
    fn fail_if_twice(&self) -> Result<(), Failed> {
        let values = self.set.iter().map(|(at, _)| at).chain(&self.unset).cloned();
        let headers = self.set_header.iter().map(|(name, _)| name).chain(&self.unset_header);
        let headers = headers.map(|name| format!("header {}", name.to_ascii_lowercase()));
        let mut seen = BTreeSet::new();
        match values.chain(headers).find(|place| !seen.insert(place.clone())) {
            Some(place) => Err(Failed::usage(format!("{place} is changed twice"))
                .hint("give one --set or --unset for each path, and one --set-header or --unset-header for each header")),
            None => Ok(()),
        }
    }

    fn says_what(&self) -> bool {
        let headers = self.set_header.len() + self.unset_header.len();
        self.set.len() + self.unset.len() + headers > 0 || self.jq.is_some()
    }

    /// Why a selected letter stays unchanged.
    fn why_unchanged(&self, letters: u64) -> &'static str {
        let sets = !(self.set.is_empty() && self.set_header.is_empty());
        let removes = !(self.unset.is_empty() && self.unset_header.is_empty());
        match (&self.jq, sets, removes) {
            (Some(_), _, _) => "left unchanged by the jq program",
            (None, true, false) => "had these values already",
            (None, false, true) if letters == 1 => "has nothing to remove",
            (None, false, true) => "have nothing to remove",
            (None, _, _) => "needed no change",
        }
    }

    fn request(&self, letters: LetterSelection) -> Result<Edit, Failed> {
        // Values are sent to the processor exactly as typed, digit for digit.
        let raw = |value: &String| {
            RawValue::from_string(value.clone())
                .map_err(|_| Failed::usage(format!("`{value}` is not JSON; a text needs quotes")))
        };
        let set = self.set.iter().map(|(at, value)| Ok((at.clone(), raw(value)?)));
        Ok(Edit {
            condition: self.condition.clone(),
            set: set.collect::<Result<_, Failed>>()?,
            unset: self.unset.clone(),
            set_headers: self.set_header.iter().cloned().collect(),
            unset_headers: self.unset_header.clone(),
            message_id: match (self.same_id, self.new_id) {
                (_, true) => Some(MessageIdChoice::New),
                (true, false) => Some(MessageIdChoice::Same),
                (false, false) => None,
            },
            dry_run: self.dry_run,
            ..Edit::about(letters)
        })
    }
}

pub async fn run(args: &EditArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    if let Some(edit) = &args.undo {
        return undo(args.pipeline.as_deref(), edit, session, out).await;
    }
    let Some(pipeline) = args.pipeline.as_deref() else { return Err(Failed::usage("which pipeline?")) };
    args.fail_if_twice()?;
    let letters = args.selection.letters("edit", session.now())?;
    let mut draft = None;
    let mut made = None;
    let mut edit = match &args.jq {
        None => args.request(letters)?,
        // The letters are selected and read here, not by the processor.
        Some(code) => {
            let condition = args.condition.as_deref();
            let mut new = NewPayloads::make(code, pipeline, letters, condition, session).await?;
            let payloads = Some(std::mem::take(&mut new.payloads));
            made = Some(new);
            Edit { payloads, condition: None, ..args.request(LetterSelection::default())? }
        }
    };
    if !args.says_what() {
        let [letter] = &args.selection.ids[..] else {
            return Err(Failed::usage("no change given")
                .hint("give --set /path=json, --unset, --jq, --set-header or --unset-header; one letter of --ids opens in $EDITOR"));
        };
        let shown = session.api.letter(pipeline, letter).await?.view;
        fail_if_redacted(&shown, "the editor")?;
        let ambiguous = shown.history.iter().any(|attempt| attempt.ambiguous);
        if ambiguous && !args.same_id && !args.new_id {
            return Err(undecided(letter));
        }
        let Some(Payload::Utf8(text)) = shown.payload.flatten() else {
            return Err(not_text(pipeline, letter, &shown.message));
        };
        let Some(edited) = editor::edit(&text).await? else {
            out.line("nothing was changed")?;
            return Ok(Exit::Ok);
        };
        edit.payload = Some(Payload::Utf8(edited.text.clone()));
        edit.was = Some(Payload::Utf8(text));
        draft = Some(edited);
    }
    let sent = match &made {
        Some(_) if edit.payloads.as_ref().is_none_or(Vec::is_empty) => {
            Ok(NewPayloads::nothing_sent(args.dry_run))
        }
        _ => session.api.edit(pipeline, &edit).await,
    };
    let answer = match sent {
        Ok(answer) => made.iter().fold(answer, |answer, made| made.beside(answer)),
        Err(fault) => {
            let failed = if args.dry_run { fault.into() } else { fault.of_change(|| how_to_look(pipeline)) };
            return Err(with_draft(failed, draft.as_ref()));
        }
    };
    let saved = args.dry_run || answer.view.edited.unwrap_or(0) > 0;
    let unsaved = draft.as_ref().filter(|_| !saved).map(Draft::whereabouts);
    if let Some(draft) = draft.filter(|_| saved) {
        draft.remove();
    }
    let view = &answer.view;
    let left = view.not_json.count + view.refused.count + view.unchanged + view.not_open.len() as u64;
    let none = left + view.edited.or(view.would_edit).unwrap_or(0) == 0;
    if out.is_json() {
        out.json(&answer.json)?;
    } else if none {
        // An empty selection is reported below.
    } else if args.dry_run {
        planned(args, pipeline, &answer.view, out)?;
    } else {
        done(args, pipeline, &answer.view, out)?;
    }
    if let Some(unsaved) = unsaved {
        return Err(Failed::new(Exit::Bad, format!("nothing was changed; {unsaved}")));
    }
    let view = answer.view;
    let not_open =
        if out.is_json() { !view.not_open.is_empty() } else { say_not_open(&view.not_open, "edited", out)? };
    if none {
        let condition = args.condition.as_deref();
        return Err(args.selection.nothing_selected(condition, "open letter", pipeline, session).await);
    }
    let nothing = view.edited.or(view.would_edit).unwrap_or(0) == 0;
    let failed = not_open || nothing && (view.not_json.count > 0 || view.refused.count > 0);
    Ok(if failed { Exit::Bad } else { Exit::Ok })
}

fn how_to_look(pipeline: &str) -> String {
    format!(
        "the edit may be applied, whole or in part: `redrive audit {pipeline} --actions` names it, `redrive dlq inspect \
         {pipeline} --filter edit:ID` lists its letters, `redrive dlq edit --undo ID` takes it back"
    )
}

/// Adds the location of the edited text to a refusal.
fn with_draft(failed: Failed, draft: Option<&Draft>) -> Failed {
    let Some(draft) = draft else { return failed };
    let hint = failed.hint.iter().cloned().chain([draft.whereabouts()]).collect::<Vec<_>>();
    failed.hint(hint.join("\n  "))
}

/// The processor would refuse it too, but only after the user has written the text.
fn undecided(letter: &str) -> Failed {
    let message = format!(
        "letter {letter} has an attempt whose end is unknown: the receiver may have applied the message, and one that \
         remembers ids will then ignore the edited one"
    );
    Failed::new(Exit::Bad, message).hint(
        "give --same-id if that is right, or --new-id if the receiver should apply the edited message regardless",
    )
}

fn not_text(pipeline: &str, letter: &str, message: &str) -> Failed {
    Failed::new(Exit::Bad, format!("the payload of letter {letter} is not text")).hint(elsewhere(
        pipeline,
        &safe::line(message),
        1,
    ))
}

/// How to handle payloads that are not JSON.
fn elsewhere(pipeline: &str, message: &str, letters: u64) -> String {
    let them = if letters == 1 { "it" } else { "them" };
    format!(
        "export {them}, edit the file, import it: redrive dlq export {pipeline} --filter id:{message} > letters.ndjson; \
         redrive dlq import --file letters.ndjson --pipeline {pipeline}"
    )
}

fn planned(args: &EditArgs, pipeline: &str, view: &Edited, out: &mut Output) -> Result<(), Failed> {
    let letters = view.would_edit.unwrap_or(0);
    let mut line =
        format!("{} {}.", count(letters), if letters == 1 { "letter matches" } else { "letters match" });
    let differences = view.first.iter().flat_map(|first| &first.differences);
    let mut shown = differences.map(difference);
    if let Some(first) = shown.next() {
        line = format!("{line} First of {}:   {first}", count(letters));
    }
    out.line(&line)?;
    for more in shown {
        out.line(&format!("   {more}"))?;
    }
    skipped(args, pipeline, view, out)?;
    if letters == 0 {
        return Ok(());
    }
    let undo = view
        .edit
        .as_ref()
        .map(|edit| format!("   (originals are kept; undo: redrive dlq edit --undo {edit})"));
    let undo = undo.unwrap_or_default();
    if view.ambiguous == 0 {
        let line = format!("0 have an attempt whose end is unknown, so the same message id is safe.{undo}");
        out.line(&line)?;
        return Ok(());
    }
    out.line(&format!(
        "{} have an attempt whose end is unknown: the receiver may have applied them.{undo}",
        count(view.ambiguous)
    ))?;
    out.line("  --same-id   a receiver that applied one, and remembers ids, will ignore the edited message")?;
    out.line("  --new-id    the edited message gets a new id, and is applied regardless")?;
    Ok(())
}

fn done(args: &EditArgs, pipeline: &str, view: &Edited, out: &mut Output) -> Result<(), Failed> {
    let edited = view.edited.unwrap_or(0);
    let name = view.edit.as_ref().filter(|_| edited > 0).map(|edit| format!("   edit {edit}"));
    let letters = if edited == 1 { "letter" } else { "letters" };
    out.line(&format!("edited {} {letters}{}", count(edited), name.unwrap_or_default()))?;
    skipped(args, pipeline, view, out)
}

fn skipped(args: &EditArgs, pipeline: &str, view: &Edited, out: &mut Output) -> Result<(), Failed> {
    if view.unchanged > 0 {
        out.line(&format!("{} {}", count(view.unchanged), args.why_unchanged(view.unchanged)))?;
    }
    let why = |skipped: &SkippedLetters| safe::line(skipped.why.as_deref().unwrap_or("-"));
    if view.not_json.count > 0 {
        let is = if view.not_json.count == 1 { "is" } else { "are" };
        let (letters, named) = (count(view.not_json.count), named(&view.not_json));
        out.line(&format!("{letters} {is} not JSON, left unchanged: {named}"))?;
        out.line(&format!("  {}", elsewhere(pipeline, "MESSAGE", view.not_json.count)))?;
    }
    if view.refused.count > 0 {
        let (refused, named, why) = (count(view.refused.count), named(&view.refused), why(&view.refused));
        out.line(&format!("{refused} not edited: {named} ({why})"))?;
    }
    Ok(())
}

/// Names the first skipped letters.
fn named(skipped: &SkippedLetters) -> String {
    let more = if skipped.count > skipped.letters.len() as u64 { ", …" } else { "" };
    format!("{}{more}", safe::line(&skipped.letters.join(", ")))
}

fn difference(difference: &DifferenceView) -> String {
    let side = |sign: &str, value: &str| {
        let value = safe::short(value, VALUE_CHARS);
        match &difference.field {
            Some(field) => format!("{sign} {}:{value}", safe::line(&json!(field).to_string())),
            None => format!("{sign} {} {value}", safe::line(&difference.at)),
        }
    };
    let before = difference.before.as_deref().map(|value| side("-", value));
    let after = difference.after.as_deref().map(|value| side("+", value));
    let sides: Vec<String> = before.into_iter().chain(after).collect();
    sides.join("   ")
}

/// Undoes an edit, which determines its letters; without a pipeline, all pipelines are asked.
async fn undo(
    pipeline: Option<&str>,
    edit: &str,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let pipelines = match pipeline {
        Some(pipeline) => vec![pipeline.to_owned()],
        None => session.api.pipelines().await?.view.pipelines.into_iter().map(|one| one.name).collect(),
    };
    let mut refused = None;
    for pipeline in &pipelines {
        match session.api.undo_edit(pipeline, edit).await {
            Ok(answer) => {
                let (restored, skipped) = (answer.view.restored, answer.view.skipped);
                // As for a discard, an undo may be repeated.
                let repeated = answer.view.skipped_by_reason.keys().all(|reason| reason == "undone_already");
                let exit = if restored == 0 && !repeated { Exit::Bad } else { Exit::Ok };
                if out.is_json() {
                    out.json(&answer.json)?;
                    return Ok(exit);
                }
                let as_before = match (restored, skipped) {
                    (0, 0) => "   (the edit changed no letter)",
                    (0, _) => "",
                    _ => "   (their messages are as before)",
                };
                out.line(&format!("undone {}{as_before}", count(restored)))?;
                for letters in answer.view.skipped_by_reason.values() {
                    let why = safe::line(letters.why.as_deref().unwrap_or("-"));
                    let (skipped, named) = (count(letters.count), named(letters));
                    out.line(&format!("{skipped} {why}, not changed: {named}"))?;
                }
                return Ok(exit);
            }
            Err(ClientFault::Refused(no)) if no.status == 404 => refused = Some(ClientFault::Refused(no)),
            Err(fault) => return Err(fault.into()),
        }
    }
    match refused {
        Some(_) if pipelines.len() > 1 => {
            Err(Failed::usage(format!("no pipeline has an edit `{}`", safe::line(edit)))
                .hint("`redrive audit PIPELINE --actions` lists the edits of a pipeline with their ids"))
        }
        Some(fault) => Err(fault.into()),
        None => Err(Failed::new(Exit::Bad, "the processor has no pipelines")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: EditArgs,
    }

    fn typed(args: &[&str]) -> EditArgs {
        let Line { args } = clap::Parser::parse_from([&["edit", "orders", "--all"], args].concat());
        args
    }

    #[test]
    fn a_letter_that_needs_no_change_is_told_in_the_words_of_the_change() {
        for (args, why) in [
            (&["--set", "/a=1", "--set-header", "b=c"][..], "had these values already"),
            (&["--unset", "/a"], "has nothing to remove"),
            (&["--set", "/a=1", "--unset-header", "b"], "needed no change"),
            (&["--jq", "select(.a)"], "left unchanged by the jq program"),
        ] {
            assert_eq!(typed(args).why_unchanged(1), why, "{args:?}");
        }
    }

    #[test]
    fn a_value_is_sent_digit_for_digit() {
        let args = typed(&["--set", "/amount=19.990", "--set", "/id=18446744073709551617"]);
        let letters = LetterSelection { all: true, ..LetterSelection::default() };
        assert_eq!(
            serde_json::to_string(&args.request(letters).unwrap()).unwrap(),
            r#"{"all":true,"set":{"/amount":19.990,"/id":18446744073709551617},"dry_run":false}"#
        );
    }

    #[test]
    fn a_slip_in_an_assignment_says_what_was_meant() {
        assert_eq!(
            assignment("/currency=EUR").unwrap_err(),
            "`EUR` is not JSON; a text needs quotes: /currency='\"EUR\"'"
        );
        assert!(assignment("currency=1").unwrap_err().contains("not a JSON pointer"));
        assert!(assignment("/currency").is_err() && header("x").is_err() && header("=1").is_err());
    }

    #[test]
    fn only_a_processor_that_has_heard_of_an_edit_may_have_applied_it() {
        let address = || "http://127.0.0.1:1".to_owned();
        let broken = ClientFault::Broken { address: address(), error: "reset".to_owned() };
        assert!(broken.of_change(|| how_to_look("orders")).hint.is_some());
        let nobody = ClientFault::NoProcessor { address: address() };
        assert_eq!(nobody.of_change(|| how_to_look("orders")).hint, None);
        assert!(how_to_look("orders").contains("dlq inspect orders --filter edit:ID"));
    }

    #[test]
    fn a_difference_shows_both_sides() {
        let one = |field: Option<&str>, before: Option<&str>, after: Option<&str>| {
            difference(&DifferenceView {
                at: "/a/b".into(),
                field: field.map(str::to_owned),
                before: before.map(str::to_owned),
                after: after.map(str::to_owned),
            })
        };
        assert_eq!(
            one(Some("currency"), Some("\"eur\""), Some("\"EUR\"")),
            r#"- "currency":"eur"   + "currency":"EUR""#
        );
        assert_eq!(one(None, Some("1"), None), "- /a/b 1");
    }
}
