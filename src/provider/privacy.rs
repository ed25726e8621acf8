//! Keeps people out of what a provider says: its words and references may repeat an address. Pure.

use crate::digest::Message;

/// Longest reference that is kept, in characters.
const MAX_REFERENCE_CHARS: usize = 200;

/// What stands where something was left out.
pub(super) const REMOVED: &str = "(removed)";

/// Whether a word holds an address or one of the private words, whatever stands around it.
pub(super) fn is_private(word: &str, private: &[&str]) -> bool {
    word.contains('@') || holds_any(word, private)
}

/// A provider's own reference as it may be kept: in one printable line, bounded, and never one that names the
/// recipient. An `@` alone is no address of a person: many services use their Message-ID.
///
/// `None` where nothing is left of it.
pub(super) fn reference(said: &str, message: &Message) -> Option<String> {
    if names_recipient(said, message) { Some(REMOVED.to_owned()) } else { printable(said) }
}

/// The same where the recipient is not known: nothing is kept of what may be an address.
pub(super) fn reference_of_anyone(said: &str) -> Option<String> {
    if said.contains('@') || said.contains("%40") { Some(REMOVED.to_owned()) } else { printable(said) }
}

fn printable(said: &str) -> Option<String> {
    let printable = |c: char| if c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() { c } else { '?' };
    let kept: String = said.trim().chars().take(MAX_REFERENCE_CHARS).map(printable).collect();
    Some(kept).filter(|kept| !kept.is_empty())
}

fn names_recipient(said: &str, message: &Message) -> bool {
    let to = &message.to.email;
    let (user, domain) = (to.user(), to.domain());
    let is_address_like = said.contains('@') || said.contains("%40") || holds_any(said, &[domain]);
    let name = message.to.name.as_deref().unwrap_or_default().trim();
    (is_address_like && holds_any(said, &[user])) || (name.contains(' ') && holds_any(said, &[name]))
}

/// Whether one of the words stands in the text, in capitals or not, with no letter or digit right beside it.
fn holds_any(text: &str, words: &[&str]) -> bool {
    let text = text.to_lowercase();
    words.iter().filter(|word| !word.is_empty()).any(|word| {
        let word = word.to_lowercase();
        text.match_indices(&word).any(|(at, found)| {
            let before = text.get(..at).and_then(|text| text.chars().next_back());
            let behind = text.get(at + found.len()..).and_then(|text| text.chars().next());
            ![before, behind].into_iter().flatten().any(char::is_alphanumeric)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::fixtures;

    fn kept(said: &str) -> Option<String> {
        reference(said, &fixtures::message(1))
    }

    #[test]
    fn a_reference_that_names_the_recipient_is_left_out() {
        for said in [
            "zoe@example.test",
            "msg/ZOE@Example.test/1",
            "zoe%40example.test-17",
            "id=zoe(at)example.test",
            "<2026.zoe@mail.test>",
        ] {
            assert_eq!(kept(said).as_deref(), Some(REMOVED), "{said}");
        }
    }

    #[test]
    fn where_nobody_is_known_an_address_is_left_out() {
        assert_eq!(reference_of_anyone("zoe@example.test").as_deref(), Some(REMOVED));
        assert_eq!(reference_of_anyone("id/zoe%40example.test").as_deref(), Some(REMOVED));
        assert_eq!(reference_of_anyone("m-1").as_deref(), Some("m-1"));
        assert_eq!(reference_of_anyone(" "), None);
    }

    #[test]
    fn other_references_are_kept_in_one_bounded_line() {
        for said in ["4bX9zQ2mWz", "<20261130.1.AB@mail.bank.test>", "zoe-7", "0f8fad5b-d9cb-469f-a165-70867728950e"] {
            assert_eq!(kept(said).as_deref(), Some(said));
        }
        assert_eq!(kept(" a\u{7}\r\nb\u{202e}c ").as_deref(), Some("a???b?c"));
        assert_eq!(kept(&"ü".repeat(5_000)).map(|kept| kept.chars().count()), Some(200));
        assert_eq!(kept(" \t"), None);
    }
}
