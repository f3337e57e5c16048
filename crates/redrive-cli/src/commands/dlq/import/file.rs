//! Reads letters from a file, one per line, as `redrive dlq export` writes them.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::batch::{Batches, ImportBatch};
use super::tally::Tally;
use crate::exit::Failed;

/// Opens the file; `-` is stdin.
pub fn open(path: &Path) -> Result<Box<dyn Read + Send>, Failed> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = std::fs::File::open(path);
    Ok(Box::new(file.map_err(|error| Failed::usage(format!("{}: {error}", path.display())))?))
}

/// Passes the lines on in batches until the receiver is gone.
pub fn read(from: Box<dyn Read + Send>, give: &mut dyn FnMut(ImportBatch) -> bool) -> Result<Tally, Failed> {
    let (mut tally, mut batches) = (Tally::default(), Batches::default());
    for (index, line) in BufReader::new(from).split(b'\n').enumerate() {
        let line = line.map_err(|error| Failed::usage(format!("line {}: {error}", index + 1)))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        tally.read += 1;
        tally.understood += 1;
        if let Some(full) = batches.push(&line, format!("line {}", index + 1))
            && !give(full)
        {
            return Ok(tally);
        }
    }
    if let Some(rest) = batches.take() {
        give(rest);
    }
    Ok(tally)
}
