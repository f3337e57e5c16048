//! Every value of an `[[alert]]` that holds, and where it came from.

use redrive_core::duration::print;
use redrive_server::alerts::AlertKind;

use super::super::alert::AlertConfig;
use super::super::alert::target::AlertTarget;
use super::super::source::Source;
use super::super::words::{quoted, without_path};
use super::{Origin, Resolved, ResolvedTable, place};

impl AlertConfig {
    pub(super) fn resolved(&self, source: Option<&Source>) -> ResolvedTable {
        let line = |key: &str, value: String| Resolved {
            key: key.to_owned(),
            value,
            origin: self.given.get(key).map_or(Origin::Default, |at| place(at, source)),
        };
        let list = |words: &mut dyn Iterator<Item = &str>| {
            let words: Vec<String> = words.map(quoted).collect();
            format!("[{}]", words.join(", "))
        };
        let target = match &self.to {
            AlertTarget::Webhook { url, .. } => line("webhook", quoted(&without_path(url.expose()))),
            // Its arguments may be anything.
            AlertTarget::Command(words) => {
                let program = words.first().map(String::as_str).into_iter();
                let rest = (words.len() > 1).then_some("…");
                line("command", list(&mut program.chain(rest)))
            }
        };
        let limits = &self.limits;
        let mut lines = vec![
            line("on", list(&mut self.on.iter().copied().map(AlertKind::name))),
            line("pipelines", list(&mut self.pipelines.iter().map(String::as_str))),
            target,
        ];
        if let AlertTarget::Webhook { headers, .. } = &self.to
            && !headers.is_empty()
        {
            let headers: Vec<String> =
                headers.iter().map(|header| format!("{} = \"…\"", header.name)).collect();
            lines.push(line("headers", format!("{{ {} }}", headers.join(", "))));
        }
        lines.extend([
            line("every", quoted(&print(self.every))),
            line("timeout", quoted(&print(self.timeout))),
            line("dead_letters", limits.dead_letters.to_string()),
            line("within", quoted(&print(limits.within))),
            line("oldest_letter", quoted(&print(limits.oldest_letter))),
            line("queue_depth", limits.queue_depth.to_string()),
        ]);
        ResolvedTable { header: "[[alert]]".to_owned(), lines }
    }
}
