//! The pages of docs/reference that are generated from the code. `REDRIVE_REGENERATE=1 cargo test -p redrive-cli`
//! writes them; without it the same test fails if one is out of date.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::commands::Cli;
use crate::exit::Exit;

/// docs/reference/cli.md
pub fn cli_page() -> String {
    let mut page = String::from(
        "# Command line\n\n\
         <!-- Generated from the help of the program; see CONTRIBUTING.md. Do not edit. -->\n\n\
         Every command takes the global options. Data goes to stdout, progress and remarks to stderr; `--json` prints \
         JSON wherever a table is printed; `NO_COLOR` switches colour off.\n\n\
         | exit code | |\n| --- | --- |\n",
    );
    for exit in Exit::ALL {
        let _ = writeln!(page, "| {} | {} |", exit.code(), exit.meaning());
    }
    let mut root = Cli::command().term_width(100).disable_version_flag(true);
    root.build();
    describe(&root, &mut page);
    page
}

fn describe(command: &Command, page: &mut String) {
    // `redrive help x` shows the same text, and `help` itself needs no page.
    let mut command = command.clone();
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        describe(sub, page);
    }
}

/// docs/reference/configuration.md
pub fn configuration_page() -> String {
    crate::config::default::page()
}
