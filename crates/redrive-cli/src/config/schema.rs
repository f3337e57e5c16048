//! The configuration as a JSON Schema, for editors and taplo, generated from the declared settings.

use serde_json::{Map, Value, json};
use toml::de::DeTable;

use super::declared::{Form, Setting, SettingTable, Shown};
use super::keys::Keys;
use super::tree::{self, Data};

/// The dialect that taplo and editors support.
const DIALECT: &str = "http://json-schema.org/draft-07/schema#";

/// The schema of the whole file.
pub fn schema(keys: &Keys) -> Value {
    let mut schema = table(keys, "");
    schema["$schema"] = DIALECT.into();
    schema["title"] = "redrive.toml".into();
    schema
}

/// The schema of a table with its settings and subtables.
fn table(keys: &Keys, path: &str) -> Value {
    let declared = keys.declared().iter().find(|table| table.path == path);
    let mut properties = Map::new();
    for key in keys.of(path).unwrap_or_default() {
        let below = if path.is_empty() { (*key).to_owned() } else { format!("{path}.{key}") };
        let setting = declared.and_then(|table| table.settings.iter().find(|setting| setting.key == *key));
        let property = match setting {
            Some(one) if !matches!(one.form, Form::Inline) => setting_schema(one),
            _ => table_property(keys, &below, setting),
        };
        properties.insert((*key).to_owned(), property);
    }
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

fn table_property(keys: &Keys, path: &str, inline: Option<&Setting>) -> Value {
    let declared = keys.declared().iter().find(|table| table.path == path);
    let header = declared.map(|table| table.header);
    let mut schema = match header {
        Some(header) if header.is_open() => {
            json!({"type": "object", "additionalProperties": {"type": ["string", "integer", "number", "boolean"]}})
        }
        Some(header) if header.is_list() => json!({"type": "array", "items": table(keys, path)}),
        _ => table(keys, path),
    };
    let about = declared.map(|table: &SettingTable| table.about).filter(|about| !about.is_empty());
    if let Some(about) = about.map(str::to_owned).or(inline.map(Setting::help)) {
        schema["description"] = about.into();
    }
    schema
}

fn setting_schema(setting: &Setting) -> Value {
    let mut schema = setting.form.schema();
    schema["description"] = setting.help().into();
    match setting.shown {
        Shown::Default(toml) => schema["default"] = value_of(toml),
        Shown::Example(toml) => schema["examples"] = json!([value_of(toml)]),
    }
    schema
}

/// Converts a TOML value to JSON.
fn value_of(toml: &str) -> Value {
    file_as_json(&format!("value = {toml}")).get("value").cloned().unwrap_or(Value::Null)
}

/// A whole file as JSON, as an editor validates it; invalid TOML is left out.
pub fn file_as_json(text: &str) -> Value {
    let (table, _) = DeTable::parse_recoverable(text);
    table_as_json(&tree::TreeTable::of_file(table.get_ref()))
}

fn table_as_json(table: &tree::TreeTable) -> Value {
    Value::Object(table.entries.iter().map(|entry| (entry.key.clone(), as_json(&entry.node.data))).collect())
}

fn as_json(data: &Data) -> Value {
    match data {
        Data::Text(text) => text.as_str().into(),
        Data::Whole(number) => (*number).into(),
        Data::Number(number) => (*number).into(),
        Data::Switch(on) => (*on).into(),
        Data::List(items) => items.iter().map(|item| as_json(&item.data)).collect(),
        Data::Table(table) => table_as_json(table),
        Data::Other(_) => Value::Null,
    }
}
