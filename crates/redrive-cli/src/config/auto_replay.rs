//! `[pipeline.auto_replay]`: automatic replay of letters whose cause may be gone.

use redrive::internal::replay::pace::RATE_MAX;
use redrive::replay::AutoReplay;
use redrive_core::duration::print;
use redrive_core::rate;

use super::fault::Fault;
use super::protection::TableValues;
use super::reader::{Section, SettingReader};
use super::words::quoted;

#[derive(Clone, Debug, PartialEq, Default)]
pub struct AutoReplayConfig {
    pub enabled: bool,
    pub settings: AutoReplay,
}

impl AutoReplayConfig {
    /// All effective values, as TOML.
    pub(super) fn values(&self) -> TableValues {
        let values = vec![
            ("enabled", self.enabled.to_string()),
            ("rate", quoted(&format!("{}/s", self.settings.rate))),
            ("healthy_for", quoted(&print(self.settings.healthy_for))),
            ("age_max", quoted(&print(self.settings.age_max))),
            ("tenant_max", self.settings.tenant_max.unwrap_or(0).to_string()),
        ];
        ("auto_replay", values)
    }
}

pub(super) fn read(reader: &mut SettingReader, pipeline: &Section<'_>) -> AutoReplayConfig {
    let mut config = AutoReplayConfig::default();
    let Some(table) = reader.table(pipeline, "auto_replay") else { return config };
    reader.unknown_keys(&table);
    if let Some(enabled) = reader.switch(&table, "enabled") {
        config.enabled = enabled.value;
    }
    if let Some(given) = reader.text(&table, "rate") {
        if let Some(rate) = rate::parse(&given.value).ok().filter(|rate| *rate <= RATE_MAX) {
            config.settings.rate = rate;
        } else {
            let problem = format!("`auto_replay.rate = \"{}\"` is not a rate", given.value);
            let fix = "auto_replay.rate = \"5/s\"";
            reader.fault(pipeline, Fault::value("auto_replay.rate", problem, fix, given.at));
        }
    }
    if let Some(given) = reader.duration(&table, "healthy_for") {
        config.settings.healthy_for = given.value;
    }
    if let Some(given) = reader.duration(&table, "age_max") {
        config.settings.age_max = given.value;
    }
    if let Some(given) = reader.whole(&table, "tenant_max") {
        config.settings.tenant_max = (given.value > 0).then_some(given.value);
    }
    config
}
