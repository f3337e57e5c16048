//! The tables of docs/guide/push.md match the code.

use redrive_sinks::push::{PushClasses, Rows};
use redrive_sinks::{apns, fcm, webpush};

const GUIDE: &str = include_str!("../../../../docs/guide/push.md");

/// The rows of the table under a heading: reason or status, and class.
fn table(heading: &str) -> Vec<(String, String)> {
    let part = GUIDE.split(&format!("\n## {heading}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = part.lines().skip_while(|line| !line.ends_with("| class |")).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].trim_matches('`').to_owned(), cells[1].to_owned())
        })
        .collect()
}

#[test]
fn the_class_tables_of_the_guide_are_those_of_the_code() {
    for (heading, rows) in
        [("Web Push", webpush::classes::ROWS), ("APNs", apns::classes::ROWS), ("FCM", fcm::classes::ROWS)]
    {
        let (table, classes) = (table(heading), PushClasses::new(rows));
        assert!(table.len() > 5, "{heading}");
        for (case, class) in &table {
            let status = match case.as_str() {
                "2xx" => 200,
                "5xx" => 599,
                other => other.parse().unwrap_or(400),
            };
            let reason = if case.starts_with("every other") { "Other" } else { case.trim_end_matches('*') };
            assert_eq!(classes.verdict(status, reason).name(), class, "{heading}: {case}");
        }
        let Rows { reasons, statuses, .. } = rows;
        let otherwise = |name: &str| name == rows.otherwise.name();
        for (reason, verdict) in reasons {
            let is_shown = table.iter().any(|(case, _)| case == reason);
            assert!(is_shown || otherwise(verdict.name()), "{heading}: {reason} is not in the guide");
        }
        for (status, verdict) in statuses {
            let is_shown =
                table.iter().any(|(case, class)| case == &status.to_string() || class == verdict.name());
            assert!(is_shown, "{heading}: {status} is not in the guide");
        }
    }
}

#[test]
fn every_requirement_points_at_a_test_that_exists() {
    let page = include_str!("../../../../docs/reference/push-requirements.md");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.contains("`crates/"))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    let asked = |ids: std::ops::RangeInclusive<u32>| ids.map(|id| format!("S1-{id}"));
    let asked = [17..=27, 30..=30, 41..=44, 48..=52].into_iter().flat_map(asked);
    let first = ["S0-1", "S0-7", "S0-11", "S0-12", "S0-13", "S0-14", "S0-15", "S1-1", "D-8"];
    for id in asked.chain(first.map(str::to_owned)) {
        assert!(rows.iter().any(|row| row[0] == id), "{id} points at no test");
    }
    for row in rows {
        let [id, _, file, test] = row.as_slice() else { panic!("{row:?}") };
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(text.contains(&format!("fn {test}(")), "{id}: {file} has no test {test}");
    }
}
