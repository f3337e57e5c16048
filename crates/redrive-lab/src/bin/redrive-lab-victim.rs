//! The process that the scenario `kills` kills: `redrive-lab-victim ORDER`. `redrive lab` uses its own executable
//! instead.

use std::process::ExitCode;

fn main() -> ExitCode {
    let order = std::env::args().nth(1).unwrap_or_default();
    match redrive_lab::testbed::victim::run(&order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redrive-lab-victim: {error}");
            ExitCode::FAILURE
        }
    }
}
