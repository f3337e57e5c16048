//! The binary `redrive`. Everything is in the library, so that tests and generators of documentation can use it.

use std::process::ExitCode;

/// Also for C: librdkafka allocates once per header. See docs/adr/0018.
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    redrive_cli::main()
}
