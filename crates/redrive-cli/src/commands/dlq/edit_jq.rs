//! `redrive dlq edit --jq`: reads the letters, computes their new payloads here, and sends them as one edit.

use redrive::internal::letters::json_text::JsonText;
use redrive::letters::edit::Condition;
use redrive_api::{Edited, LetterPayload, LetterSelection, LetterView, Payload, SkippedLetters};
use serde::Deserialize as _;
use serde_json::json;

use super::jq_process::JqProcess;
use super::redact::fail_if_redacted;
use crate::client::{ApiAnswer, PageQuery, Session};
use crate::exit::{Exit, Failed};
use crate::output::count;

/// The maximum number of letters of one edit. Together with the limit on payload bytes, before and after, it keeps an
/// edit within one request.
const LETTERS_MAX: usize = 10_000;
const BYTES_MAX: usize = 8 << 20;
/// The maximum number of skipped letters to name.
const NAMED_MAX: usize = 10;
const PAGE: u32 = 200;

/// The new payloads, and the letters left unchanged.
#[derive(Debug, Default)]
pub struct NewPayloads {
    pub payloads: Vec<LetterPayload>,
    pub unchanged: u64,
    pub not_json: SkippedLetters,
    pub refused: SkippedLetters,
    bytes: usize,
}

impl NewPayloads {
    /// Runs the program over the open letters of a selection that match the condition.
    pub async fn make(
        code: &str,
        pipeline: &str,
        selection: LetterSelection,
        condition: Option<&str>,
        session: &Session,
    ) -> Result<Self, Failed> {
        let mut program = JqProcess::start(code).await?;
        let condition = condition.and_then(|text| Condition::parse(text).ok());
        let mut made = Self::default();
        if let Some(ids) = &selection.ids {
            for id in ids {
                let letter = session.api.letter(pipeline, id).await?.view;
                made.add(&mut program, condition.as_ref(), &letter).await?;
            }
            return Ok(made);
        }
        let mut query = PageQuery {
            filter: selection.filter,
            state: Some("open".to_owned()),
            since: selection.since,
            payload: true,
            limit: PAGE,
            cursor: None,
        };
        loop {
            let page = session.api.letters(pipeline, &query).await?.view;
            for letter in &page.letters {
                let letter = LetterView::deserialize(letter).map_err(|error| session.strange(&error))?;
                made.add(&mut program, condition.as_ref(), &letter).await?;
            }
            query.cursor = page.next;
            if query.cursor.is_none() {
                return Ok(made);
            }
        }
    }

    /// The answer to an edit of no letters, which needs no processor.
    pub fn nothing_sent(dry_run: bool) -> ApiAnswer<Edited> {
        let counted = if dry_run { "would_edit" } else { "edited" };
        let json = json!({ "edit": null, counted: 0, "ambiguous": 0, "not_open": [], "first": null });
        let (edited, would_edit) = ((!dry_run).then_some(0), dry_run.then_some(0));
        ApiAnswer { json, view: Edited { edited, would_edit, ..Edited::default() } }
    }

    /// The processor's answer, with the letters that were not sent to it added.
    pub fn beside(&self, answer: ApiAnswer<Edited>) -> ApiAnswer<Edited> {
        let ApiAnswer { mut json, mut view } = answer;
        view.unchanged += self.unchanged;
        view.not_json = together(view.not_json, &self.not_json);
        view.refused = together(view.refused, &self.refused);
        let skipped =
            |one: &SkippedLetters| json!({ "count": one.count, "letters": one.letters, "why": one.why });
        json["unchanged"] = json!(view.unchanged);
        json["not_json"] = skipped(&view.not_json);
        json["refused"] = skipped(&view.refused);
        ApiAnswer { json, view }
    }

    async fn add(
        &mut self,
        program: &mut JqProcess,
        condition: Option<&Condition>,
        letter: &LetterView,
    ) -> Result<(), Failed> {
        fail_if_redacted(letter, "--jq")?;
        let text = match &letter.payload {
            Some(Some(Payload::Utf8(text))) => text.as_str(),
            Some(Some(Payload::Base64(_)) | None) | None => "",
        };
        let parsed = match JsonText::parse(text.as_bytes()) {
            Ok(parsed) => parsed,
            Err(fault) => {
                skip(&mut self.not_json, &letter.id, fault.to_string());
                return Ok(());
            }
        };
        if condition.is_some_and(|condition| !condition.holds(&parsed)) {
            return Ok(());
        }
        let new = match program.apply(&letter.id, text).await? {
            Ok(Some(new)) => new,
            Ok(None) => {
                self.unchanged += 1;
                return Ok(());
            }
            Err(why) => {
                skip(&mut self.refused, &letter.id, why);
                return Ok(());
            }
        };
        self.bytes += text.len() + new.len();
        if self.payloads.len() == LETTERS_MAX || self.bytes > BYTES_MAX {
            let most =
                format!("{} letters, or {} MB of payloads", count(LETTERS_MAX as u64), BYTES_MAX >> 20);
            return Err(Failed::new(
                Exit::Bad,
                format!("too many letters for one --jq edit; the limit is {most}"),
            )
            .hint("nothing was changed; narrow the selection down, for example by --since or --where"));
        }
        let was = Payload::Utf8(text.to_owned());
        self.payloads.push(LetterPayload { letter: letter.id.clone(), payload: Payload::Utf8(new), was });
        Ok(())
    }
}

fn together(one: SkippedLetters, other: &SkippedLetters) -> SkippedLetters {
    SkippedLetters {
        count: one.count + other.count,
        letters: one.letters.into_iter().chain(other.letters.iter().cloned()).take(NAMED_MAX).collect(),
        why: one.why.or_else(|| other.why.clone()),
    }
}

fn skip(skipped: &mut SkippedLetters, letter: &str, why: String) {
    skipped.count += 1;
    skipped.why.get_or_insert(why);
    if skipped.letters.len() < NAMED_MAX {
        skipped.letters.push(letter.to_owned());
    }
}
