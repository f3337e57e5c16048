//! The Helm chart: templates and values name the same settings, and `helm`, if installed, renders it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/redrive")
}

/// Every path that a template reads: `.Values.image.tag` is `image.tag`.
fn read_by_templates() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(chart().join("templates")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for part in text.split(".Values.").skip(1) {
            let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(part.len());
            found.insert(part[..end].to_owned());
        }
    }
    found
}

/// Every path of `values.yaml`, which is block style with two spaces for each level.
fn values() -> BTreeSet<String> {
    let text = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let (mut found, mut above): (BTreeSet<String>, Vec<&str>) = (BTreeSet::new(), Vec::new());
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty()) {
        let (key, _) = line.trim_start().split_once(':').unwrap_or_else(|| panic!("no key in {line:?}"));
        above.truncate((line.len() - line.trim_start().len()) / 2);
        above.push(key);
        found.insert(above.join("."));
    }
    found
}

#[test]
fn templates_and_values_name_the_same_settings() {
    let (read, values) = (read_by_templates(), values());
    let unknown: Vec<_> = read.difference(&values).collect();
    assert!(unknown.is_empty(), "templates read {unknown:?}, and values.yaml has no such key");
    // A template may read a whole block such as `resources` instead of its parts.
    let is_read = |value: &String| {
        let below = |path: &String| path == value || path.starts_with(&format!("{value}."));
        let above = |path: &String| value.starts_with(&format!("{path}."));
        read.iter().any(|path| below(path) || above(path))
    };
    let unused: Vec<_> = values.iter().filter(|value| !is_read(value)).collect();
    assert!(unused.is_empty(), "values.yaml has {unused:?}, and no template reads it");
}

#[test]
fn helm_renders_the_chart_where_it_is_installed() {
    if Command::new("helm").arg("version").output().is_err() {
        eprintln!("skipped: there is no helm");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("redrive.toml");
    std::fs::write(&config, "[engine]\nkind = \"kafka\"\n").unwrap();
    let from_file = format!("config={}", config.display());
    let render = |more: &[&str]| {
        let ran = Command::new("helm").args(["template", "orders"]).arg(chart()).args(more).output().unwrap();
        let text = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (ran.status.success(), text.concat())
    };
    let (rendered, text) = render(&["--set-file", &from_file, "--set", "storage.className=fast"]);
    assert!(rendered, "{text}");
    for line in [
        "kind: StatefulSet",
        "kind: ConfigMap",
        "kind: PodDisruptionBudget",
        "kind: Service",
        "    kind = \"kafka\"",
        "storageClassName: fast",
        "replicas: 3",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let (rendered, text) = render(&[]);
    assert!(!rendered && text.contains("config is missing: --set-file config=redrive.toml"), "{text}");
}
