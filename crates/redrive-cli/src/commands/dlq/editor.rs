//! Opens a text in the user's editor.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use redrive::internal::letters::json_text::JsonText;
use tokio::process::Command;

use crate::exit::{Exit, Failed};

/// An edited text, and the file that holds it until it is saved elsewhere.
#[derive(Debug)]
pub struct Draft {
    pub text: String,
    path: PathBuf,
}

impl Draft {
    /// The location of the text after an edit was refused.
    pub fn whereabouts(&self) -> String {
        format!("your text is in {}", self.path.display())
    }

    /// Removes the file, once the text is saved elsewhere.
    pub fn remove(self) {
        remove(&self.path);
    }
}

/// Opens the text in the editor and returns the result; `None` if it is unchanged. A text that was JSON must still be
/// JSON.
pub async fn edit(text: &str) -> Result<Option<Draft>, Failed> {
    let editor =
        ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|e| !e.is_empty()));
    let Some(editor) = editor else {
        return Err(Failed::usage("neither VISUAL nor EDITOR is set")
            .hint("set one, or describe the change with --set /path=json"));
    };
    let path = scratch(text).map_err(|error| failed(&format!("a file for the editor: {error}")))?;
    let status =
        Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(&path).status().await;
    let new = match status {
        Ok(status) if status.success() => {
            fs::read_to_string(&path).map_err(|error| format!("the edited text: {error}"))
        }
        Ok(status) => Err(format!("`{editor}` ended with {status}")),
        Err(error) => Err(format!("`{editor}` could not be started: {error}")),
    };
    let new = match new {
        Ok(new) => new,
        Err(problem) => {
            remove(&path);
            return Err(failed(&format!("{problem}; nothing was changed")));
        }
    };
    // Editors add a line end at the end of a file.
    let new = if text.ends_with('\n') { new } else { new.trim_end_matches('\n').to_owned() };
    let draft = Draft { text: new, path };
    if JsonText::parse(text.as_bytes()).is_ok()
        && let Err(fault) = JsonText::parse(draft.text.as_bytes())
    {
        return Err(
            failed(&format!("the edited text: {fault}; nothing was changed")).hint(draft.whereabouts())
        );
    }
    if draft.text == text {
        draft.remove();
        return Ok(None);
    }
    Ok(Some(draft))
}

/// Creates a file that only its owner can read.
fn scratch(text: &str) -> std::io::Result<PathBuf> {
    let dir = std::env::temp_dir();
    let mut number = 0_u32;
    loop {
        let path = dir.join(format!("redrive-edit-{}-{number}.json", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => {
                file.write_all(text.as_bytes())?;
                return Ok(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn remove(path: &PathBuf) {
    // Failing to remove the file must not fail the edit.
    let _ = fs::remove_file(path);
}

fn failed(message: &str) -> Failed {
    Failed::new(Exit::Bad, message)
}
