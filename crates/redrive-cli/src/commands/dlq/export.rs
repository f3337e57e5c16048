//! `redrive dlq export`: letters with their payloads as NDJSON, with requested values redacted.

use std::collections::BTreeSet;

use redrive::letters::Redaction;

use super::{inspect::LetterStateArg, redact, selection};
use crate::client::{PageQuery, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Output, count};

/// Letters per request. They include their payloads, and a page has to fit in memory.
const PAGE: u32 = 50;

#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// The pipeline
    pub pipeline: String,
    /// Letters in this state; default: open, or those that the filter names
    #[arg(long, value_enum)]
    pub state: Option<LetterStateArg>,
    /// Letters that match, as in `reason:permanent age:>1h -tenant:acme`
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, value_parser = selection::expression)]
    pub filter: Option<String>,
    /// Letters of this group, as `dlq groups` prints it
    #[arg(long, value_name = "GROUP", value_parser = super::groups::group)]
    pub group: Option<redrive::GroupId>,
    /// Letters that died since: 1h ago, or an RFC 3339 time
    #[arg(long, allow_hyphen_values = true, value_name = "AGE|TIME")]
    pub since: Option<String>,
    /// JSON pointers into the payload whose values are redacted, as in /card,/customer/email
    #[arg(long, value_name = "POINTERS", value_delimiter = ',')]
    pub redact: Vec<String>,
}

pub async fn run(args: &ExportArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let pointers = redact::pointers(&args.redact)?;
    let redaction = Redaction::at(pointers.clone());
    let since = args.since.as_deref().map(|since| selection::moment(since, session.now())).transpose()?;
    let mut query = PageQuery {
        filter: super::groups::with_filter(args.filter.as_deref(), args.group),
        state: LetterStateArg::meant(args.state, args.filter.as_deref()).query(),
        since,
        payload: true,
        limit: PAGE,
        cursor: None,
    };
    let mut exported = 0_u64;
    let mut found = BTreeSet::new();
    loop {
        let page = session.api.letters(&args.pipeline, &query).await?.view;
        for mut letter in page.letters {
            redact::hide_secret_headers(&mut letter);
            found.extend(redaction.redact(&mut letter));
            out.json(&letter)?;
            exported += 1;
        }
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    out.note(&format!("exported {} letters", count(exported)));
    // A typo in a pointer would leave a secret in every line, so report pointers that match nothing.
    let asked = pointers.iter().map(ToString::to_string);
    for pointer in asked.filter(|pointer| exported > 0 && !found.contains(pointer)) {
        out.complain(&format!("warning: {pointer} was found in no payload; is the pointer right?"));
    }
    Ok(Exit::Ok)
}
