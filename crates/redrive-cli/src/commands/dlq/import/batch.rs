//! Lines for the processor, in batches of the size of one request.

/// The maximum number of lines in a request. The limit on bytes is approximate; both are well below what a processor
/// accepts.
const LINES_MAX: usize = 1_000;
const BYTES_MAX: usize = 8 << 20;

/// The lines of one request, each with its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportBatch {
    pub body: Vec<u8>,
    pub places: Vec<String>,
}

/// Collects lines.
#[derive(Debug, Default)]
pub struct Batches {
    open: ImportBatch,
}

impl Batches {
    /// Adds a line; returns the previous batch if it is full.
    pub fn push(&mut self, line: &[u8], place: String) -> Option<ImportBatch> {
        let is_full = self.open.places.len() >= LINES_MAX || self.open.body.len() + line.len() > BYTES_MAX;
        let full = if is_full { self.take() } else { None };
        self.open.body.extend_from_slice(line);
        self.open.body.push(b'\n');
        self.open.places.push(place);
        full
    }

    /// Takes the collected batch, if it is not empty.
    pub fn take(&mut self) -> Option<ImportBatch> {
        (!self.open.places.is_empty()).then(|| std::mem::take(&mut self.open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_with_its_lines_or_its_bytes() {
        let mut batches = Batches::default();
        assert_eq!(batches.take(), None);
        let given: Vec<ImportBatch> =
            (0..2_500).filter_map(|n| batches.push(b"{}", format!("line {n}"))).collect();
        assert_eq!(given.iter().map(|batch| batch.places.len()).collect::<Vec<_>>(), [1_000, 1_000]);
        assert_eq!(given[1].places[0], "line 1000");
        assert_eq!(batches.take().map(|rest| rest.places.len()), Some(500));
        let large = vec![b'x'; BYTES_MAX];
        assert_eq!(batches.push(&large, "one".to_owned()), None);
        assert_eq!(batches.push(b"y", "two".to_owned()).map(|full| full.body.len()), Some(BYTES_MAX + 1));
    }
}
