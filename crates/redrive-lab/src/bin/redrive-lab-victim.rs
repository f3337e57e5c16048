//! A process for the scenario `kills` to kill: `redrive-lab-victim ORDER`. `redrive lab` uses itself.

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
