//! The ids of messages that continue under a new id. An edit assigns one if the receiver may already have applied the
//! message under its previous id. The new id contains the previous one, so the ids alone show that they belong
//! together.

use redrive_core::message::limits;

use crate::naming;

/// Separates the previous id from the edit that assigned the new one: `o-1~e-12`.
const CONTINUED: char = '~';

/// The id under which a message continues after this edit; `None` if it would be too long.
pub fn continued_id(id: &str, edit: &str) -> Option<String> {
    let new = format!("{id}{CONTINUED}{edit}");
    (new.len() <= limits::ID_BYTES_MAX).then_some(new)
}

/// The ids that a message with this id may have had before, the latest first. They are read from the id alone; whether
/// the message really had them is known only with the edits of its letter ([`accepted_id`]).
pub fn ids_before(id: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(id), |id| split(id).map(|(before, _)| before)).skip(1)
}

/// The id under which a message with these edits was accepted. A producer's id that only looks like a continued one is
/// returned unchanged.
pub fn accepted_id<'a>(id: &'a str, edits: &[String]) -> &'a str {
    let known = |id: &&'a str| split(id).filter(|(_, edit)| edits.iter().any(|one| one == edit));
    std::iter::successors(Some(id), |id| known(id).map(|(before, _)| before)).last().unwrap_or(id)
}

/// Splits an id into the previous id and the edit that replaced it.
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
