//! Each row of docs/reference/letters-requirements.md names a test that exists.

#[test]
fn every_requirement_points_at_a_test_that_exists() {
    let page = include_str!("../../../docs/reference/letters-requirements.md");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.contains("`crates/"))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    assert!(rows.len() > 100, "{} rows: the page is written otherwise", rows.len());
    for row in rows {
        let [id, what, file, test] = row.as_slice() else { panic!("{row:?}") };
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(text.contains(&format!("fn {test}(")), "{id} {what}: {file} has no test {test}");
    }
}
