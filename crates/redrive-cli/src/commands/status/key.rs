//! `redrive status PIPELINE --key KEY`: what the messages of a key wait for, and how many wait.

use redrive::Time;
use redrive_api::{AttemptView, KeyView, MessageView};

use crate::client::Session;
use crate::exit::{Exit, Failed};
use crate::output::{Output, age, count, safe};

/// The processor counts no further.
const WAITING_MAX: u64 = 10_000;

pub async fn run(pipeline: &str, key: &str, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.key(pipeline, key).await?;
    if out.is_json() {
        out.json(&answer.json)?;
        return Ok(Exit::Ok);
    }
    out.line(&line(&answer.view, session.now()))?;
    if answer.view.blocked_by.is_some_and(|head| head.letter.is_some()) {
        out.note(&format!(
            "  unblock it with: redrive dlq replay {pipeline} --filter key:{}",
            safe::line(key)
        ));
    }
    Ok(Exit::Ok)
}

fn line(view: &KeyView, now: Time) -> String {
    let key = safe::line(&view.key);
    let Some(head) = &view.blocked_by else { return format!("{key}  nothing of this key waits") };
    let waiting = match view.waiting {
        WAITING_MAX.. => format!("{} or more", count(WAITING_MAX)),
        waiting => count(waiting),
    };
    format!("{key}  {}   waiting behind it: {waiting}", what(head, now))
}

fn what(head: &MessageView, now: Time) -> String {
    let id = safe::line(&head.id);
    let since = |at: Option<Time>| at.map(|at| format!(" {}", age::since(now, at))).unwrap_or_default();
    let at = |attempt: Option<&AttemptView>| attempt.map(|attempt| attempt.at.0);
    if let Some(letter) = &head.letter {
        let reason = head.reason.as_deref().unwrap_or("dead");
        return format!("blocked{} by letter {letter} ({id}, {reason})", since(at(head.history.last())));
    }
    let attempt = head.attempts.unwrap_or(0) + 1;
    match head.due {
        Some(due) => {
            let blocked = since(at(head.history.first()));
            format!("blocked{blocked} by {id} (attempt {attempt}, due in {})", age::age(due.0.since(now)))
        }
        None if head.state == "in_flight" => format!("{id} is being delivered (attempt {attempt})"),
        None => format!("{id} is next (attempt {attempt})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_api::Instant;

    const NOW: Time = Time::from_millis(1_794_778_805_120);

    fn seconds(offset: i64) -> Instant {
        Instant(Time::from_millis(NOW.as_millis().saturating_add_signed(offset * 1_000)))
    }

    fn waits(head: MessageView) -> String {
        line(&KeyView { key: "c-204".into(), blocked_by: Some(head), waiting: 6 }, NOW)
    }

    #[test]
    fn a_key_says_whom_it_waits_for() {
        let history = vec![AttemptView { at: seconds(-14), ..AttemptView::default() }];
        let head =
            MessageView { id: "o-771204".into(), attempts: Some(1), history, ..MessageView::default() };
        assert_eq!(
            waits(MessageView { due: Some(seconds(3)), state: "delayed".into(), ..head.clone() }),
            "c-204  blocked 14s by o-771204 (attempt 2, due in 3s)   waiting behind it: 6"
        );
        assert_eq!(
            waits(MessageView { state: "in_flight".into(), ..head.clone() }),
            "c-204  o-771204 is being delivered (attempt 2)   waiting behind it: 6"
        );
        let letter = Some("orders/17".to_owned());
        assert_eq!(
            waits(MessageView { letter, reason: Some("permanent".into()), ..head }),
            "c-204  blocked 14s by letter orders/17 (o-771204, permanent)   waiting behind it: 6"
        );
        let nobody = KeyView { key: "c-1".into(), ..KeyView::default() };
        assert_eq!(line(&nobody, NOW), "c-1  nothing of this key waits");
    }
}
