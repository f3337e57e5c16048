//! The commented default file: the reference of every key, and the page generated from it.

use std::fmt::Write as _;

/// `redrive config default` prints it; docs/reference/configuration.md is made from it.
pub const TEXT: &str = include_str!("default.toml");

/// One part of the file: prose, or settings with their table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The table it stands in: `pipeline.sink.webhook`.
    pub table: String,
    pub key: String,
    /// As written, TOML.
    pub value: String,
    /// Whether it is in force in the file, or stands there as a comment.
    pub active: bool,
    /// What the file says about it.
    pub about: String,
}

/// Every setting of the file, in its order. `# prose` is prose; `#key = value` is a setting that is switched off.
pub fn settings() -> Vec<Setting> {
    let mut table = String::new();
    let mut above: Vec<String> = Vec::new();
    let mut settings: Vec<Setting> = Vec::new();
    for line in TEXT.lines() {
        if let Some(prose) = line.strip_prefix("# ") {
            above.push(prose.trim().to_owned());
            continue;
        }
        let (active, rest) = match line.strip_prefix('#') {
            Some(rest) => (false, rest),
            None => (true, line),
        };
        let rest = rest.trim();
        if rest.starts_with('[') {
            split_comment(rest).0.trim_matches(['[', ']']).clone_into(&mut table);
            above.clear();
        } else if let Some((key, value)) = rest.split_once(" = ") {
            let (value, about) = match split_comment(value) {
                (value, Some(about)) => (value, about.to_owned()),
                (value, None) => (value, above.join(" ")),
            };
            let key = key.trim().to_owned();
            settings.push(Setting { table: table.clone(), key, value: value.to_owned(), active, about });
        } else {
            above.clear();
        }
    }
    settings
}

/// A value and the comment behind it; a `#` inside quotes is no comment.
fn split_comment(text: &str) -> (&str, Option<&str>) {
    let mut quoted = false;
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return (text[..i].trim(), Some(text[i + 1..].trim())),
            _ => {}
        }
    }
    (text.trim(), None)
}

/// The page docs/reference/configuration.md.
pub fn page() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Generated from crates/redrive-cli/src/config/default.toml; see CONTRIBUTING.md. Do not edit. -->\n\n\
         `redrive.toml`, or the file that `--config` or `REDRIVE_CONFIG` names. Flags go over `REDRIVE_ENGINE`, \
         `REDRIVE_DIR` and `REDRIVE_LISTEN`, those over the file, the file over the defaults. \
         `redrive config show --origin` prints every value that holds and where it came from; `redrive config check` \
         prints every fault in one run. An unknown key is an error. Durations are written like `100ms`, `5s`, `5m`, \
         `1h30m` or `1d`.\n",
    );
    let mut table = None;
    for setting in settings() {
        if table.as_ref() != Some(&setting.table) {
            let header = match setting.table.as_str() {
                "pipeline" | "server.token" | "alert" => format!("[[{}]]", setting.table),
                other => format!("[{other}]"),
            };
            let _ = write!(page, "\n## `{header}`\n\n| key | default or example | |\n| --- | --- | --- |\n");
            table = Some(setting.table.clone());
        }
        let value =
            if setting.active { format!("`{}`", setting.value) } else { format!("e.g. `{}`", setting.value) };
        let escape = |text: &str| text.replace('|', "\\|");
        let _ = writeln!(page, "| `{}` | {} | {} |", setting.key, escape(&value), escape(&setting.about));
    }
    page.push_str(&super::profile_table::section());
    page.push_str("\n## The file\n\n`redrive config default` prints it.\n\n```toml\n");
    page.push_str(TEXT);
    page.push_str("```\n");
    page
}
