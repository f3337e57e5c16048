//! How a table of the configuration and its settings are declared.

use super::form::Form;

/// One table, and the keys it takes.
#[derive(Clone, Copy, Debug)]
pub struct SettingTable {
    /// The path as in the file: `pipeline.sink.webhook`.
    pub path: &'static str,
    pub header: Header,
    /// The comment after its header in the default file.
    pub about: &'static str,
    pub settings: &'static [Setting],
}

/// How the header of a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// `[path]`, active in the default file.
    Active,
    /// `[[path]]`, active in the default file.
    ActiveList,
    /// `[path]`, as a comment.
    Example,
    /// `[[path]]`, as a comment.
    ExampleList,
    /// `[path]`, as a comment; the keys are the user's own, and the settings are examples.
    ExampleOpen,
}

/// One key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub key: &'static str,
    pub form: Form,
    pub shown: Shown,
    /// Its description, in a sentence, without the parts that [`Self::help`] adds.
    pub about: &'static str,
    /// The kind of engine it applies to, if not to all.
    pub only: Option<&'static str>,
    /// The flag of `redrive processor` that sets it, and the name of its value in the help.
    pub flag: Option<(&'static str, &'static str)>,
}

/// The value that the default file shows, in TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The default. Commented out where the default file comments out the table.
    Default(&'static str),
    /// An example, commented out.
    Example(&'static str),
}

impl Header {
    pub fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::ActiveList)
    }

    pub fn is_list(self) -> bool {
        matches!(self, Self::ActiveList | Self::ExampleList)
    }

    pub fn is_open(self) -> bool {
        self == Self::ExampleOpen
    }
}

impl Shown {
    pub fn toml(self) -> &'static str {
        match self {
            Self::Default(toml) | Self::Example(toml) => toml,
        }
    }
}

impl SettingTable {
    /// The header as it is written.
    pub fn title(&self) -> String {
        if self.header.is_list() { format!("[[{}]]", self.path) } else { format!("[{}]", self.path) }
    }
}

impl Setting {
    /// A setting with a default.
    pub const fn default(key: &'static str, form: Form, value: &'static str, about: &'static str) -> Self {
        Self { key, form, shown: Shown::Default(value), about, only: None, flag: None }
    }

    /// A setting without a default; the default file shows an example.
    pub const fn example(key: &'static str, form: Form, value: &'static str, about: &'static str) -> Self {
        Self { key, form, shown: Shown::Example(value), about, only: None, flag: None }
    }

    /// The description with further parts of the declaration: the accepted words, unless the description explains each
    /// of them, the bounds, and the engine.
    pub fn help(&self) -> String {
        let (what, rest) = self.about.split_once("; ").unwrap_or((self.about, ""));
        let mut help = what.to_owned();
        let words = self.form.words().unwrap_or_default();
        let is_said = |word: &&str| self.about.split([' ', ',', ';', ':', '"']).any(|part| part == *word);
        if !words.iter().all(is_said) {
            help = format!("{help}: {}", words.join(" | "));
        }
        let engine = self.only.map(|engine| format!("{engine} only"));
        let rest = Some(rest.to_owned()).filter(|rest| !rest.is_empty());
        for more in [rest, self.form.bounds_text(), engine].into_iter().flatten() {
            help = format!("{help}; {more}");
        }
        help
    }

    /// The same setting, for this kind of engine only.
    #[must_use]
    pub const fn only(self, engine: &'static str) -> Self {
        Self { only: Some(engine), ..self }
    }

    /// The same setting, which a flag sets too.
    #[must_use]
    pub const fn flag(self, name: &'static str, value: &'static str) -> Self {
        Self { flag: Some((name, value)), ..self }
    }
}
