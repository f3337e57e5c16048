//! `[[pipeline.group]]`: rules that group errors, regardless of their texts.

use redrive_core::GroupRule;
use redrive_core::fingerprint::rules::{RULES_MAX, RuleFault};

use super::fault::Fault;
use super::reader::{Section, SettingReader};

pub(super) fn read(reader: &mut SettingReader, pipeline: &Section<'_>) -> Vec<GroupRule> {
    let tables = reader.tables(pipeline, "group");
    if tables.len() > RULES_MAX {
        let problem = format!("{} groups are configured; at most {RULES_MAX} are allowed", tables.len());
        let places = pipeline.at("group").into_iter().collect();
        reader.fault(pipeline, Fault::line("group", problem, "join some with `*` in `match`", places));
    }
    let mut rules = Vec::new();
    for (table, at) in &tables {
        reader.unknown_keys(table);
        let (pattern, name) = (reader.text(table, "match"), reader.text(table, "as"));
        let missing = [("match", "match = \"timeout*payments\""), ("as", "as = \"payments are slow\"")];
        for (key, fix) in missing.into_iter().filter(|(key, _)| table.get(key).is_none()) {
            let fault =
                Fault::line(key, format!("a group has no `{key}`"), format!("add {fix}"), vec![at.clone()]);
            reader.fault(table, fault);
        }
        let (Some(pattern), Some(name)) = (pattern, name) else { continue };
        match GroupRule::new(&pattern.value, &name.value) {
            Ok(rule) => rules.push(rule),
            Err(fault) => {
                let (key, fix, at) = match fault {
                    RuleFault::EmptyPattern | RuleFault::LongPattern => {
                        ("match", "match = \"timeout*payments\"", pattern.at)
                    }
                    RuleFault::EmptyName | RuleFault::LongName => {
                        ("as", "as = \"payments are slow\"", name.at)
                    }
                };
                reader.fault(table, Fault::value(key, fault.to_string(), fix, at));
            }
        }
    }
    rules
}
