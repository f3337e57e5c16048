//! Dumps the whole index as text, to compare a running one with a rebuilt one.

use crate::engine::embedded::index::tables::{IndexError, IndexTables, Reading, Space};
use crate::engine::embedded::state::book::Book;

pub(super) fn dump<S: IndexTables>(book: &Book<S>) -> Result<Vec<String>, IndexError> {
    let (prefix, runs) = (book.departed().prefix(), book.departed().runs());
    let letters = book.letters().counts();
    let mut lines = vec![
        format!("next {} prefix {prefix} runs {runs:?}", book.next_seq()),
        format!("waiting {} held {} blocked {}", book.delay().len(), book.held(), book.blocked()),
        format!(
            "letters open {} replaying {} succeeded {} discarded {} erased {}",
            letters.open, letters.replaying, letters.succeeded, letters.discarded, letters.erased
        ),
        format!("live {:?}", book.live()),
    ];
    let all = usize::MAX / 4;
    lines
        .extend(book.delay().dump(&book.table(Space::Delay))?.iter().map(|entry| format!("delay {entry:?}")));
    let slots = book.lines().range(&(0, 0), all, &book.table(Space::Lines))?;
    lines.extend(slots.iter().map(|entry| format!("line {entry:?}")));
    let reading = Reading::patiently(&**book.tables());
    let doors = book.letters().blocking_from((0, 0), all, reading)?;
    lines.extend(doors.iter().map(|entry| format!("door {entry:?}")));
    let letters = book.letters().range(0, all, reading)?;
    lines.extend(letters.iter().map(|entry| format!("letter {entry:?}")));
    lines.extend(book.letters().groups().dump(reading)?);
    let ids = book.letters().all_ids(all, reading)?;
    lines.extend(ids.iter().map(|entry| format!("letter id {entry:?}")));
    let places = book.places().range(&0, all, &book.table(Space::Places))?;
    lines.extend(places.iter().map(|entry| format!("place {entry:?}")));
    Ok(lines)
}
