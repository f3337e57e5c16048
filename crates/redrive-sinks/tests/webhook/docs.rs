//! The guide matches the code.

use redrive_sinks::ClassTable;

const GUIDE: &str = include_str!("../../../../docs/guide/webhooks.md");

/// The part of the guide between two marks.
fn part(name: &str) -> &'static str {
    let (_, rest) = GUIDE.split_once(&format!("<!-- {name} -->\n")).expect(name);
    rest.split_once(&format!("<!-- end of {name} -->")).expect(name).0
}

fn as_markdown(table: &ClassTable) -> String {
    let rows = table.rows().map(|(case, meaning)| format!("| `{case}` | `{}` |\n", meaning.name()));
    format!("| answer | class |\n| --- | --- |\n{}", rows.collect::<String>())
}

#[test]
fn the_class_tables_of_the_guide_are_those_of_the_code() {
    assert_eq!(part("class table webhook"), as_markdown(&ClassTable::webhook()));
    assert_eq!(part("class table seed-strict"), as_markdown(&ClassTable::seed_strict()));
}
