//! The content of a scenario file as text: values for readers, and a hash that tells whether two files would run the
//! same.

use toml::{Table, Value};

use crate::fate::fnv1a64;

/// Keys that can change without requiring another run: texts about the result, and the parameters and ranges of quick
/// and broken runs.
const NOT_IN_THE_HASH: [&str; 6] = ["explains", "answers", "takes", "quick", "quick_real", "broken"];

/// Formats a value without quotes.
pub(super) fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(is_so) => is_so.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(all) => all.iter().map(written).collect::<Vec<_>>().join(", "),
        Value::Table(table) => {
            let mut entries: Vec<_> = table.iter().collect();
            entries.sort_by_key(|(name, _)| name.as_str());
            let entry = |(name, value): (&String, &Value)| format!("{name} = {}", written(value));
            format!("{{ {} }}", entries.into_iter().map(entry).collect::<Vec<_>>().join("; "))
        }
    }
}

/// The hash in hexadecimal, independent of comments and the order of lines.
pub(super) fn hash(content: &Table) -> String {
    let kept = |table: &Table| -> Table {
        let is_kept = |name: &String| !NOT_IN_THE_HASH.iter().any(|not| not == name);
        table.iter().filter(|(name, _)| is_kept(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
    };
    let mut content = kept(content);
    for expected in content.get_mut("expect").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Table(table) = expected {
            *table = kept(table);
        }
    }
    format!("{:016x}", fnv1a64(written(&Value::Table(content)).as_bytes()))
}
