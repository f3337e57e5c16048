//! The tests and the Docker Compose file for users have the same Kafka version.

use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

#[test]
fn tests_and_compose_name_one_version() {
    let pom = read("scripts/kafka/pom.xml");
    let version = pom.split("<kafka.version>").nth(1).unwrap().split('<').next().unwrap();
    let compose = read("deploy/compose.yaml");
    let images: Vec<_> =
        compose.lines().filter_map(|line| line.trim().strip_prefix("image: apache/kafka:")).collect();
    assert!(!images.is_empty());
    assert!(images.iter().all(|image| *image == version), "{images:?} and {version}");
}
