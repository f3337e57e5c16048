//! Tells the programs of the lab which commit they were built from, so that a result names the code that made it.

#[path = "build/commit.rs"]
mod commit;

use std::path::Path;

/// Names the commit where nothing else can, or where it must be another.
const OVERRIDE: &str = "REDRIVE_COMMIT";

/// What the programs are made of, from the root of the checkout. A change anywhere else neither builds the lab again nor makes
/// its commit dirty.
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
    // Watching nothing would mean: everything in this package.
    println!("cargo::rerun-if-changed=build.rs");
    for path in &found.watch {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=REDRIVE_BUILT_FROM={}", found.commit);
}
