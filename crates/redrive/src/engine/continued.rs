//! The ids of messages that go on under another id: an edit gives one to a message that its receiver may have applied under
//! its first. The new id says which it was before, so that the ids alone are enough to tell.

use redrive_core::message::limits;

use crate::naming;

/// Between the id of a message and the edit that gave it a new one: `o-1~e-12`.
const CONTINUED: char = '~';

/// The id under which a message goes on after this edit; `None` if there is no room for it.
pub fn continued_id(id: &str, edit: &str) -> Option<String> {
    let new = format!("{id}{CONTINUED}{edit}");
    (new.len() <= limits::ID_BYTES_MAX).then_some(new)
}

/// The ids that a message with this one may have had before, the latest first. By its name alone: whether it had them is
/// known to its letter ([`accepted_id`]).
pub fn ids_before(id: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(id), |id| split(id).map(|(before, _)| before)).skip(1)
}

/// The id that a message was accepted under, of which these edits are known. A producer's id that only looks like a
/// continued one stays what it is.
pub fn accepted_id<'a>(id: &'a str, edits: &[String]) -> &'a str {
    let known = |id: &&'a str| split(id).filter(|(_, edit)| edits.iter().any(|one| one == edit));
    std::iter::successors(Some(id), |id| known(id).map(|(before, _)| before)).last().unwrap_or(id)
}

/// The id before, and the edit that gave this one.
fn split(id: &str) -> Option<(&str, &str)> {
    let parts @ (before, edit) = id.rsplit_once(CONTINUED)?;
    naming::number('e', edit).filter(|_| !before.is_empty()).map(|_| parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_id_says_which_it_was_before() {
        let first = continued_id("o-1", "e-12").unwrap();
        let second = continued_id(&first, "e-k3x9q-13").unwrap();
        assert_eq!(ids_before(&second).collect::<Vec<_>>(), ["o-1~e-12", "o-1"]);
        for none in ["o-1", "o-1~", "o-1~x-1", "o-1~e-", "o-1~e-1x", "~e-1", "o-1-e-12"] {
            assert_eq!(ids_before(none).count(), 0, "{none}");
        }
        assert_eq!(continued_id(&"x".repeat(limits::ID_BYTES_MAX), "e-1"), None);
    }

    #[test]
    fn only_its_own_edits_gave_a_message_its_id() {
        let edits = ["e-12".to_owned(), "e-14".to_owned()];
        assert_eq!(accepted_id("o-1~e-12~e-14", &edits), "o-1");
        assert_eq!(accepted_id("o-1~e-12", &edits), "o-1");
        assert_eq!(accepted_id("o-1~e-7", &edits), "o-1~e-7", "a producer named it so");
        assert_eq!(accepted_id("o-1~e-7~e-12", &edits), "o-1~e-7");
        assert_eq!(accepted_id("o-1", &[]), "o-1");
    }
}
