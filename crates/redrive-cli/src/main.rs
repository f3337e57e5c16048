//! The binary `redrive`. Everything is in the library, so that tests and generators of documentation can use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    redrive_cli::main()
}
