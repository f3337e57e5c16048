//! Combines file, environment and flags into one configuration, or one report of all faults.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use toml::de::DeTable;

use super::alert::AlertConfig;
use super::engine::EngineConfig;
use super::fault::{Fault, Faults, Severity};
use super::flags::{ProcessorFlags, in_words_of_flags, lay};
use super::named::Named;
use super::pipeline::{FoundPipeline, PipelineConfig};
use super::reader::{Section, SettingReader};
use super::secrets;
use super::server::ServerConfig;
use super::sinks::registry::KEYS;
use super::source::Source;
use super::tree::{At, Data, Node, TreeTable};
use crate::args::Global;
use crate::exit::{Exit, Failed};
use crate::output::{Output, Paint};

pub const FILE_DEFAULT: &str = "redrive.toml";
/// Far larger than any configuration; a larger file was given by mistake.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The checked configuration of a processor.
#[derive(Clone, Debug)]
pub struct Config {
    pub engine: EngineConfig,
    pub server: ServerConfig,
    pub pipelines: Vec<PipelineConfig>,
    pub alerts: Vec<AlertConfig>,
    /// Where the values of `[engine]` and `[server]` were given, by dotted key.
    pub(super) given: std::collections::BTreeMap<String, At>,
    pub(super) source: Option<Source>,
}

/// The variables for top-level settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `REDRIVE_ENGINE`
    pub engine: Option<String>,
    /// `REDRIVE_DIR`
    pub dir: Option<String>,
    /// `REDRIVE_LISTEN`
    pub listen: Option<String>,
    /// Whether `REDRIVE_TOKEN` is set; its value is not needed here.
    pub token: bool,
}

impl Environment {
    pub fn of_process() -> Self {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            engine: given("REDRIVE_ENGINE"),
            dir: given("REDRIVE_DIR"),
            listen: given("REDRIVE_LISTEN"),
            token: given("REDRIVE_TOKEN").is_some(),
        }
    }

    fn lay_over(&self, top: &mut TreeTable) {
        let all = [
            ("engine", "kind", "REDRIVE_ENGINE", &self.engine),
            ("engine", "dir", "REDRIVE_DIR", &self.dir),
            ("server", "listen", "REDRIVE_LISTEN", &self.listen),
        ];
        for (table, key, name, value) in all {
            if let Some(value) = value {
                lay(top, table, key, Data::Text(value.clone()), At::Variable(name));
            }
        }
    }
}

/// The result: a configuration unless there are errors, and all faults.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Option<Config>,
    pub faults: Faults,
}

impl Config {
    /// Loads the configuration from global flags, environment and `flags`, and reports every fault; fails with exit
    /// code 2. Warnings are reported too, without stopping.
    pub fn load(global: &Global, flags: &ProcessorFlags, out: &mut Output) -> Result<Self, Failed> {
        let mut environment = Environment::of_process();
        environment.token |= global.token_file.is_some();
        let loaded = load(global, flags, &environment)?;
        loaded.report(out)
    }

    /// The same for a service: warnings go to `warn`, which is its log.
    pub fn load_warning(
        global: &Global,
        flags: &ProcessorFlags,
        out: &mut Output,
        warn: impl Fn(&str),
    ) -> Result<Self, Failed> {
        let mut environment = Environment::of_process();
        environment.token |= global.token_file.is_some();
        let mut loaded = load(global, flags, &environment)?;
        if loaded.config.is_some() {
            loaded
                .faults
                .lines(Paint::OFF)
                .iter()
                .for_each(|line| warn(line.trim_start_matches("warning: ")));
            loaded.faults.all.clear();
        }
        loaded.report(out)
    }
}

impl Loaded {
    /// Adds faults outside the text.
    fn look_at(&mut self, named: &[Named]) {
        self.faults.all.extend(named.iter().flat_map(Named::faults).map(of_flag));
        self.faults.sort();
        if self.faults.errors() > 0 {
            self.config = None;
        }
    }

    /// Reports the faults, in the one form that every command uses.
    pub fn report(self, out: &mut Output) -> Result<Config, Failed> {
        match self.config {
            Some(config) if self.faults.errors() == 0 => {
                for line in self.faults.lines(out.notes_paint()) {
                    out.note(&line);
                }
                Ok(config)
            }
            _ => {
                if out.is_json() {
                    out.json(&self.faults.to_json())?;
                } else {
                    for line in self.faults.lines(out.notes_paint()) {
                        out.complain(&line);
                    }
                }
                Err(Failed::silent(Exit::Usage))
            }
        }
    }
}

/// Reads the file, if there is one, builds the configuration, and checks the files it names: everything that would stop
/// a processor is reported.
pub fn load(global: &Global, flags: &ProcessorFlags, environment: &Environment) -> Result<Loaded, Failed> {
    let (mut loaded, mut named) = build_naming(find(global, flags)?, flags, environment);
    named.extend(global.token_file.clone().map(|path| {
        let at = At::Flag("--token-file");
        Named::new(None, move || secrets::exposed("token_file", &path, &at).into_iter().collect())
    }));
    loaded.look_at(&named);
    Ok(loaded)
}

/// The same without checking other files, for clients that only need the address of a processor: they may not be able
/// to read its secrets.
pub fn load_text(global: &Global, environment: &Environment) -> Result<Loaded, Failed> {
    let flags = ProcessorFlags::default();
    Ok(build(find(global, &flags)?, &flags, environment))
}

fn find(global: &Global, flags: &ProcessorFlags) -> Result<Option<Source>, Failed> {
    let from_flags = flags.any_of_pipeline();
    match &global.config {
        Some(path) => read(path).map(Some),
        // A pipeline from flags alone is not mixed with a file that happens to exist.
        None if from_flags => Ok(None),
        None if Path::new(FILE_DEFAULT).exists() => read(Path::new(FILE_DEFAULT)).map(Some),
        None => Err(Failed::usage(format!("there is no {FILE_DEFAULT} here and no --config"))
            .hint("`redrive config default > redrive.toml` writes one; --sink-url URL runs without one")),
    }
}

fn read(path: &Path) -> Result<Source, Failed> {
    let failed = |problem: String| Failed::usage(format!("{}: {problem}", path.display()));
    let file = fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("larger than {FILE_BYTES_MAX} bytes, too large for a configuration")));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed("not UTF-8 text".to_owned()))?;
    Ok(Source::new(path.display().to_string(), text))
}

/// Builds the configuration from a text, flags and variables. Pure, and defined for every text: files that it names are
/// checked only by [`load`].
pub fn build(source: Option<Source>, flags: &ProcessorFlags, environment: &Environment) -> Loaded {
    build_naming(source, flags, environment).0
}

/// The same, and the things it names outside the text.
fn build_naming(
    source: Option<Source>,
    flags: &ProcessorFlags,
    environment: &Environment,
) -> (Loaded, Vec<Named>) {
    let mut faults = Vec::new();
    let mut top = match &source {
        Some(source) => parse(source, &mut faults),
        None => TreeTable::default(),
    };
    let broken: Vec<usize> = faults.iter().filter_map(|fault| line_of(fault, source.as_ref())).collect();
    environment.lay_over(&mut top);
    flags.lay_over_top(&mut top);
    let mut reader = SettingReader::new(&KEYS);
    lay_pipeline(&mut top, flags, &mut reader);

    let config = read_all(&mut reader, &top, environment, source.as_ref());
    // After a broken line, settings may wrongly look missing or strange.
    let follows = |fault: &Fault| {
        !broken.is_empty() && line_of(fault, source.as_ref()).is_none_or(|line| broken.contains(&line))
    };
    faults.extend(reader.faults.into_iter().filter(|fault| !follows(fault)).map(of_flag));
    let mut faults = Faults { source, all: faults, keys: &KEYS };
    faults.sort();
    (Loaded { config: config.filter(|_| faults.errors() == 0), faults }, reader.named)
}

fn parse(source: &Source, faults: &mut Vec<Fault>) -> TreeTable {
    let (table, errors) = DeTable::parse_recoverable(source.text());
    for error in errors {
        let at = At::File(error.span().unwrap_or(0..0));
        let problem = format!("this is not TOML: {}", error.message().trim().replace('\n', " "));
        faults.push(Fault::value("", problem, "see https://toml.io, or `redrive config default`", at));
    }
    TreeTable::of_file(table.get_ref())
}

fn line_of(fault: &Fault, source: Option<&Source>) -> Option<usize> {
    match fault.at.first() {
        Some(At::File(span)) => source.map(|source| source.line(span.start)),
        _ => None,
    }
}

/// Applies the flags of a pipeline to the selected one, or creates one.
fn lay_pipeline(top: &mut TreeTable, flags: &ProcessorFlags, reader: &mut SettingReader) {
    if !flags.any_of_pipeline() {
        return;
    }
    let at = At::Flag("--name");
    let pipelines = top.entries.iter_mut().find(|entry| entry.key == "pipeline");
    let Some(pipelines) = pipelines else {
        let mut pipeline = TreeTable::default();
        pipeline.set("name", Data::Text("default".to_owned()), at.clone());
        if flags.has("--source") {
            pipeline.remove("name");
        }
        flags.lay_over_pipeline(&mut pipeline);
        let node = Node { data: Data::Table(pipeline), at: at.clone() };
        top.set("pipeline", Data::List(vec![node]), at);
        return;
    };
    // The parser reports anything else under this name.
    let Data::List(items) = &mut pipelines.node.data else { return };
    let mut tables: Vec<&mut TreeTable> = items
        .iter_mut()
        .filter_map(|item| match &mut item.data {
            Data::Table(table) => Some(table),
            _ => None,
        })
        .collect();
    let is_named = |table: &TreeTable, name: &str| {
        let text = |key: &str| table.get(key).map(|entry| entry.node.data.clone());
        text("name").or_else(|| text("source")) == Some(Data::Text(name.to_owned()))
    };
    match (flags.name(), &mut tables[..]) {
        (None, [only]) => flags.lay_over_pipeline(only),
        (None, all) => {
            let problem = format!("the file has {} pipelines; choose one with `--name`", all.len());
            reader.faults.push(Fault::line("name", problem, "", vec![at]));
        }
        (Some(name), all) => {
            if let Some(table) = all.iter_mut().find(|table| is_named(table, name)) {
                // The name served only to find it.
                flags.without_name().lay_over_pipeline(table);
            } else {
                let problem = format!("the file has no pipeline `{name}`; name one that it has");
                reader.faults.push(Fault::line("name", problem, "", vec![at]));
            }
        }
    }
}

fn read_all(
    reader: &mut SettingReader,
    top: &TreeTable,
    environment: &Environment,
    source: Option<&Source>,
) -> Option<Config> {
    let section = Section::top(top, &KEYS);
    reader.unknown_keys(&section);
    let empty = TreeTable::default();
    let part = |reader: &mut SettingReader, key: &str| reader.table(&section, key);
    let none = |key: &str| Section::top(&empty, &KEYS).at_path(key);

    let engine = part(reader, "engine").unwrap_or_else(|| none("engine")).part("engine");
    let server = part(reader, "server").unwrap_or_else(|| none("server")).part("server");
    let mut given = std::collections::BTreeMap::new();
    for entry in &engine.table.entries {
        given.insert(format!("engine.{}", entry.key), entry.node.at.clone());
    }
    for entry in &server.table.entries {
        given.insert(format!("server.{}", entry.key), entry.node.at.clone());
    }
    let engine = EngineConfig::read(reader, &engine);
    let server = ServerConfig::read(reader, &server, environment.token);

    let tables = reader.tables(&section, "pipeline");
    if tables.is_empty() && section.get("pipeline").is_none() {
        let problem = "there is no pipeline; add [[pipeline]] with a `name` and a sink";
        let at = source.map(|_| At::File(0..0)).into_iter().collect();
        reader.fault(&section, Fault::line("pipeline", problem, "", at));
    }
    let found: Vec<FoundPipeline> = tables
        .iter()
        .enumerate()
        .map(|(i, (table, at))| PipelineConfig::read(reader, (table, at), (i, &engine)))
        .collect();
    duplicates(reader, &found);
    same_topic(reader, &found);
    let names: Vec<&str> = found.iter().filter_map(|one| Some(one.name.as_ref()?.0.as_str())).collect();
    let tables = reader.tables(&section, "alert");
    let alerts: Vec<AlertConfig> = tables
        .iter()
        .enumerate()
        .filter_map(|(i, (table, at))| AlertConfig::read(reader, (table, at), i, &names))
        .collect();
    let all = found.len();
    let pipelines: Vec<PipelineConfig> = found.into_iter().filter_map(|found| found.config).collect();
    let complete = pipelines.len() == all && !pipelines.is_empty();
    let sound = reader.faults.iter().all(|fault| fault.severity == Severity::Warning);
    (complete && sound).then(|| Config { engine, server, pipelines, alerts, given, source: source.cloned() })
}

fn duplicates(reader: &mut SettingReader, found: &[FoundPipeline]) {
    let mut reported: Vec<&str> = Vec::new();
    for one in found {
        let Some((name, _)) = &one.name else { continue };
        if reported.contains(&name.as_str()) {
            continue;
        }
        let same: Vec<&FoundPipeline> = found
            .iter()
            .filter(|other| other.name.as_ref().is_some_and(|(other, _)| other == name))
            .collect();
        if same.len() < 2 {
            continue;
        }
        reported.push(name);
        let many = if same.len() == 2 { "two".to_owned() } else { same.len().to_string() };
        let all_read = same.iter().all(|one| one.source.is_some());
        let (why, fix) = if all_read {
            (
                format!(" ({} read the topic {name})", if same.len() == 2 { "both" } else { "all" }),
                "give one a `name`",
            )
        } else {
            (String::new(), "give one another `name`")
        };
        let problem = format!("{many} pipelines are named `{name}`{why}");
        let at = same.iter().filter_map(|one| one.name.as_ref()).map(|(_, at)| at.clone()).collect();
        reader.faults.push(Fault::line("name", problem, fix, at));
    }
}

/// Reports a topic used twice: all pipelines are in one group, which delivers a record once.
fn same_topic(reader: &mut SettingReader, found: &[FoundPipeline]) {
    for (i, one) in found.iter().enumerate() {
        let same = |other: &&FoundPipeline| other.topic.is_some() && other.topic == one.topic;
        let Some(other) = found[..i].iter().find(same) else { continue };
        let (Some((name, at)), Some((other, other_at)), Some(topic)) = (&one.name, &other.name, &one.topic)
        else {
            continue;
        };
        if name == other {
            // Already reported.
            continue;
        }
        let problem = format!(
            "the pipelines `{other}` and `{name}` read the topic {topic} in one group: each record would reach only \
             one of them"
        );
        let fix = "run them as two processors, each with its own `group`";
        reader.faults.push(Fault::line("source", problem, fix, vec![other_at.clone(), at.clone()]));
    }
}

/// Rewrites a fault in a setting that came from a flag, so that it names the flag.
fn of_flag(mut fault: Fault) -> Fault {
    if let Some(At::Flag(_)) = fault.at.first() {
        fault.problem = in_words_of_flags(&fault.problem);
        fault.fix = in_words_of_flags(&fault.fix);
    }
    fault
}
