//! Generates the commented default file and its reference page from the declared settings.

use std::fmt::Write as _;
use std::sync::LazyLock;

use super::declared::{Setting, SettingTable, Shown};
use super::engine::EngineConfig;
use super::sinks::registry::KEYS;

const HEAD: &str = "\
# The default configuration of Redrive. A line that begins with `#` and a key is a setting that has no default, that is for
# another engine, or whose table is left at its defaults; remove the `#` to use it.
";
/// The column where comments begin, if the value leaves room.
const COMMENTS_AT: usize = 38;

static TEXT: LazyLock<String> = LazyLock::new(write);

/// The default file. `redrive config default` prints it; docs/reference/configuration.md includes it.
pub fn text() -> &'static str {
    &TEXT
}

fn write() -> String {
    let mut text = HEAD.to_owned();
    for table in KEYS.declared() {
        if table.header.is_active() || table.path.starts_with("pipeline.sink.") || table.path == "alert" {
            text.push('\n');
        }
        line(&mut text, table.header.is_active(), &table.title(), table.about);
        for setting in table.settings {
            let key = key(table, setting);
            let is_of_engine =
                setting.only.is_none_or(|engine| engine == EngineConfig::default().kind.name());
            let is_default = matches!(setting.shown, Shown::Default(_));
            let is_active = table.header.is_active() && is_default && is_of_engine;
            line(&mut text, is_active, &format!("{key} = {}", setting.shown.toml()), &setting.help());
        }
    }
    text
}

/// A key as written in TOML: the user's own keys may contain dots.
fn key(table: &SettingTable, setting: &Setting) -> String {
    if table.header.is_open() { format!("\"{}\"", setting.key) } else { setting.key.to_owned() }
}

fn line(text: &mut String, is_active: bool, code: &str, about: &str) {
    let code = if is_active { code.to_owned() } else { format!("#{code}") };
    let _ = match (about, code.chars().count()) {
        ("", _) => writeln!(text, "{code}"),
        (_, width) if width < COMMENTS_AT => writeln!(text, "{code:<COMMENTS_AT$}# {about}"),
        _ => writeln!(text, "{code}   # {about}"),
    };
}

/// The page docs/reference/configuration.md.
pub fn page() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Generated from the declared settings; see CONTRIBUTING.md. Do not edit. -->\n\n\
         `redrive.toml`, or the file that `--config` or `REDRIVE_CONFIG` names. Flags go over `REDRIVE_ENGINE`, \
         `REDRIVE_DIR` and `REDRIVE_LISTEN`, those over the file, the file over the defaults. \
         `redrive config show --origin` prints every value that holds and where it came from; `redrive config check` \
         prints every fault in one run. An unknown key is an error. Durations are written like `100ms`, `5s`, `5m`, \
         `1h30m` or `1d`.\n",
    );
    for table in KEYS.declared() {
        let _ =
            write!(page, "\n## `{}`\n\n| key | default or example | |\n| --- | --- | --- |\n", table.title());
        for setting in table.settings {
            let value = match setting.shown {
                Shown::Default(value) => format!("`{value}`"),
                Shown::Example(value) => format!("e.g. `{value}`"),
            };
            let escape = |text: &str| text.replace('|', "\\|");
            let (key, about) = (key(table, setting), escape(&setting.help()));
            let _ = writeln!(page, "| `{key}` | {} | {about} |", escape(&value));
        }
    }
    page.push_str(&super::profile_table::section());
    page.push_str("\n## The file\n\n`redrive config default` prints it.\n\n```toml\n");
    page.push_str(text());
    page.push_str("```\n");
    page
}
