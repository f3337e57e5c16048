//! Passes the commit to the lab's programs, so that a result names the code that produced it.

#[path = "build/commit.rs"]
mod commit;

use std::path::Path;

/// Overrides the commit: for builds outside a checkout, or to report a different one.
const OVERRIDE: &str = "REDRIVE_COMMIT";

/// The sources of the programs, relative to the root of the checkout. A change anywhere else neither rebuilds the lab
/// nor marks its commit as dirty.
const MADE_OF: [&str; 7] = [
    "Cargo.lock",
    "crates/redrive-core",
    "crates/redrive",
    "crates/redrive-kafka",
    "crates/redrive-postgres",
    "crates/redrive-lab",
    "lab/scenarios",
];

fn main() {
    println!("cargo::rerun-if-env-changed={OVERRIDE}");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = commit::of(here, &MADE_OF, std::env::var(OVERRIDE).ok().as_deref());
    // Without any `rerun-if-changed`, Cargo would watch the whole package.
    println!("cargo::rerun-if-changed=build.rs");
    for path in &found.watch {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=REDRIVE_BUILT_FROM={}", found.commit);
}
