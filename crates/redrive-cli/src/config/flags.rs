//! Flags: they define a pipeline by themselves or override the file, through the same declarations and validator.

use std::sync::LazyLock;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::declared::Form;
use super::sinks::KEYS;
use super::tree::{At, Data, Node, TreeTable};

/// A flag of `redrive processor` and its setting.
#[derive(Debug)]
struct SettingFlag {
    /// The flag as typed.
    name: &'static str,
    /// The name of its value in the help.
    value: &'static str,
    help: String,
    form: Form,
    /// The top-level table, and the key below it: `pipeline` and `backoff.base`.
    table: &'static str,
    key: String,
}

/// All flags, in the order of the settings.
static FLAGS: LazyLock<Vec<SettingFlag>> = LazyLock::new(|| {
    let of_table = KEYS.declared().iter().flat_map(|table| {
        table.settings.iter().filter_map(|setting| {
            let (name, value) = setting.flag?;
            let (top, below) = table.path.split_once('.').unwrap_or((table.path, ""));
            let key =
                if below.is_empty() { setting.key.to_owned() } else { format!("{below}.{}", setting.key) };
            Some(SettingFlag { name, value, help: setting.help(), form: setting.form, table: top, key })
        })
    });
    of_table.collect()
});

const PIPELINE: &str = "pipeline";

impl SettingFlag {
    fn id(&self) -> &'static str {
        self.name.trim_start_matches('-')
    }

    fn arg(&self) -> Arg {
        let heading = if self.table == PIPELINE {
            "A pipeline from flags"
        } else {
            "Engine and API, over the configuration"
        };
        let arg = Arg::new(self.id()).long(self.id()).help(capitalized(&self.help)).help_heading(heading);
        match self.form {
            Form::Switch => arg.action(ArgAction::SetTrue),
            Form::Whole(..) => arg.value_name(self.value).value_parser(clap::value_parser!(u32)),
            Form::Texts | Form::Spans(..) => {
                arg.value_name(self.value).action(ArgAction::Append).value_delimiter(',')
            }
            _ => arg.value_name(self.value),
        }
    }

    fn given(&self, matches: &ArgMatches) -> Option<Data> {
        match self.form {
            Form::Switch => matches.get_flag(self.id()).then_some(Data::Switch(true)),
            Form::Whole(..) => matches.get_one::<u32>(self.id()).map(|number| Data::Whole((*number).into())),
            Form::Texts | Form::Spans(..) => {
                let items = matches.get_many::<String>(self.id())?;
                let item = |text: &String| Node { data: Data::Text(text.clone()), at: At::Flag(self.name) };
                Some(Data::List(items.map(item).collect()))
            }
            _ => matches.get_one::<String>(self.id()).map(|text| Data::Text(text.clone())),
        }
    }
}

fn capitalized(about: &str) -> String {
    let mut letters = about.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The flags of `redrive processor`. Flags of engine and server override the file. Flags of a pipeline define one if
/// there is no file; otherwise they override the file's only pipeline, or the one given by `--name`.
#[derive(Clone, Debug, Default)]
pub struct ProcessorFlags {
    given: Vec<(&'static SettingFlag, Data)>,
}

impl Args for ProcessorFlags {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, flag| command.arg(flag.arg()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ProcessorFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = FLAGS.iter().filter_map(|flag| Some((flag, flag.given(matches)?)));
        Ok(Self { given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl ProcessorFlags {
    /// Parses flags and values as on a command line.
    pub fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, clap::Error> {
        let command = Self::augment_args(Command::new("flags").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    /// Whether any pipeline flag was given.
    pub(super) fn any_of_pipeline(&self) -> bool {
        self.given.iter().any(|(flag, _)| flag.table == PIPELINE)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(flag, _)| flag.name == name)
    }

    /// The name given by `--name`.
    pub(super) fn name(&self) -> Option<&str> {
        let name = self.given.iter().find(|(flag, _)| flag.name == "--name");
        name.and_then(|(_, data)| if let Data::Text(name) = data { Some(name.as_str()) } else { None })
    }

    /// All flags but the name, once it has been used to find a pipeline.
    pub(super) fn without_name(&self) -> Self {
        let others = self.given.iter().filter(|(flag, _)| flag.name != "--name");
        Self { given: others.cloned().collect() }
    }

    /// Overrides the tables of engine and server. If the file has something else under such a name, it stays, and the
    /// parser reports it.
    pub(super) fn lay_over_top(&self, top: &mut TreeTable) {
        for (flag, data) in self.given.iter().filter(|(flag, _)| flag.table != PIPELINE) {
            lay(top, flag.table, &flag.key, data.clone(), At::Flag(flag.name));
        }
    }

    /// Overrides the table of a pipeline. A flag replaces every other way to express the same setting.
    pub(super) fn lay_over_pipeline(&self, pipeline: &mut TreeTable) {
        let grows = self.has("--backoff-base") || self.has("--backoff-cap");
        match (self.has("--tiers"), grows, self.has("--backoff-fixed")) {
            (true, false, false) | (false, false, true) => {
                pipeline.remove("backoff");
                pipeline.remove("tiers");
            }
            (false, true, false) => {
                pipeline.remove("tiers");
                set_below(pipeline, "backoff.fixed", None);
            }
            _ => {}
        }
        for (flag, replaced) in [
            ("--sink-url", "sink.webhook.endpoint"),
            ("--timeout", "sink.webhook.timeout"),
            ("--concurrency", "sink.webhook.concurrency"),
            ("--max-retries", "attempts"),
        ] {
            if self.has(flag) {
                set_below(pipeline, replaced, None);
            }
        }
        for (flag, data) in self.given.iter().filter(|(flag, _)| flag.table == PIPELINE) {
            set_below(pipeline, &flag.key, Some((data.clone(), At::Flag(flag.name))));
        }
    }
}

/// Puts a value into a subtable.
pub(super) fn lay(top: &mut TreeTable, table: &str, key: &str, data: Data, at: At) {
    if let Some(table) = top.table_mut(table, at.clone()) {
        table.set(key, data, at);
    }
}

/// Sets or removes the value of a dotted key.
fn set_below(table: &mut TreeTable, key: &str, value: Option<(Data, At)>) {
    let Some((first, rest)) = key.split_once('.') else {
        match value {
            Some((data, at)) => table.set(key, data, at),
            None => table.remove(key),
        }
        return;
    };
    let at = match &value {
        Some((_, at)) => at.clone(),
        None if table.get(first).is_none() => return,
        None => At::Flag(""),
    };
    if let Some(below) = table.table_mut(first, at) {
        set_below(below, rest, value);
    }
}

/// Messages about switches name the key: `allow_private_addresses = true` is not a flag with a value.
fn flags_with_value() -> impl Iterator<Item = &'static SettingFlag> {
    FLAGS.iter().filter(|flag| !matches!(flag.form, Form::Switch))
}

/// Rewrites a message about a key in terms of the flag that set it: `--max-retries 5` for `retries = 5`.
pub(super) fn in_words_of_flags(text: &str) -> String {
    let mut said = text.to_owned();
    for SettingFlag { name, key, .. } in flags_with_value() {
        said = said.replace(&format!("`{key}`"), &format!("`{name}`"));
    }
    // Settings are in backticks, or are what a fix consists of.
    let mut quoted = false;
    let parts = said.split('`').map(|part| {
        let flags = if quoted { setting_as_flag(part) } else { settings_as_flags(part) };
        quoted = !quoted;
        flags
    });
    parts.collect::<Vec<_>>().join("`")
}

fn settings_as_flags(text: &str) -> String {
    for between in [", or ", " and ", " instead of "] {
        if let Some((one, rest)) = text.split_once(between) {
            return format!("{}{between}{}", settings_as_flags(one), settings_as_flags(rest));
        }
    }
    setting_as_flag(text)
}

fn setting_as_flag(text: &str) -> String {
    let setting = text.split_once(" = ");
    let named = |key: &str| flags_with_value().find(|flag| flag.key == key);
    let flag = setting.and_then(|(key, value)| Some((named(key)?.name, value)));
    let Some((flag, value)) = flag else { return text.to_owned() };
    let value: String = value.chars().filter(|c| !"[]\"".contains(*c)).collect();
    format!("{flag} {}", value.replace(", ", ","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_keys_become_messages_about_flags() {
        for (said_of_key, said_of_flag) in [
            ("`tiers` must grow", "`--tiers` must grow"),
            ("tiers = [\"5s\", \"30s\"]", "--tiers 5s,30s"),
            ("retries = 3", "--max-retries 3"),
            ("both `retries = 5` and 3 tiers are set", "both `--max-retries 5` and 3 tiers are set"),
            ("`jitter = \"fool\"` is not a jitter", "`--jitter fool` is not a jitter"),
            ("write it like 5s", "write it like 5s"),
            (
                "backoff.fixed = \"1s\" and retries = 3 instead of `tiers`",
                "--backoff-fixed 1s and --max-retries 3 instead of `--tiers`",
            ),
            ("keep `retries = 3` or `attempts = 4`", "keep `--max-retries 3` or `attempts = 4`"),
        ] {
            assert_eq!(in_words_of_flags(said_of_key), said_of_flag);
        }
    }
}
