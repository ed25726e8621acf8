//! The hash of everything that shapes a message besides the row: what the ledger pins for a content version.
//!
//! SHA-256 over this sequence of blocks, each written as its length (8 bytes, big-endian) and its bytes:
//!
//! 1. for every file of the bundle, in byte order of the paths: the path inside the bundle with `/` between its
//!    parts (UTF-8), then the file's bytes;
//! 2. the sender as `name <address>`, or the bare address where there is no name: exactly the configured name,
//!    one space, `<`, the address, `>`;
//! 3. the unsubscribe pattern as configured;
//! 4. [`RENDER_VERSION`](super::RENDER_VERSION) in decimal digits.

use std::collections::BTreeMap;

use lettre::message::Mailbox;
use sha2::{Digest, Sha256};

/// Hashes a bundle's files, `from`, unsubscribe pattern and render version.
pub(super) fn content_hash(
    files: &BTreeMap<String, Vec<u8>>,
    from: &Mailbox,
    unsubscribe: &str,
    render_version: u32,
) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut block = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for (path, bytes) in files {
        block(path.as_bytes());
        block(bytes);
    }
    let sender = from.name.as_ref().map_or_else(|| from.email.to_string(), |name| format!("{name} <{}>", from.email));
    block(sender.as_bytes());
    block(unsubscribe.as_bytes());
    block(render_version.to_string().as_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::content_hash;
    use crate::identity::hex_text;

    fn files() -> BTreeMap<String, Vec<u8>> {
        BTreeMap::from([("subject.txt".to_owned(), b"S".to_vec()), ("body.txt".to_owned(), b"T".to_vec())])
    }

    /// The hex digits come from another implementation of the module's page.
    #[test]
    fn the_hash_is_the_documented_sequence_of_blocks() {
        use sha2::{Digest, Sha256};
        let mut bytes = Vec::new();
        for block in ["body.txt", "T", "subject.txt", "S", "Bank <a@example.test>", "https://example.test/", "7"] {
            bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, u8::try_from(block.len()).expect("short")]);
            bytes.extend_from_slice(block.as_bytes());
        }
        let from = "Bank <a@example.test>".parse().expect("a mailbox");
        let hash = content_hash(&files(), &from, "https://example.test/", 7);
        assert_eq!(hash, <[u8; 32]>::from(Sha256::digest(&bytes)));
        assert_eq!(hex_text(&hash), "077bb2548dc9e6354269adb62b5a4e55d5efa51d71666950d6d0e79d65ea30fa");
    }

    #[test]
    fn every_ingredient_changes_the_hash() {
        let bank = "Bank <a@example.test>".parse().expect("a mailbox");
        let original = content_hash(&files(), &bank, "u", 1);
        let mut renamed = files();
        let text = renamed.remove("body.txt").expect("there");
        renamed.insert("body.html".to_owned(), text);
        let mut moved = files();
        moved.insert("body.txt".to_owned(), b"TS".to_vec());
        let mut added = files();
        added.insert("images/a.png".to_owned(), Vec::new());
        let others = [
            content_hash(&renamed, &bank, "u", 1),
            content_hash(&moved, &bank, "u", 1),
            content_hash(&added, &bank, "u", 1),
            content_hash(&files(), &"a@example.test".parse().expect("a mailbox"), "u", 1),
            content_hash(&files(), &"Bank <b@example.test>".parse().expect("a mailbox"), "u", 1),
            content_hash(&files(), &bank, "v", 1),
            content_hash(&files(), &bank, "u", 2),
        ];
        assert!(others.iter().all(|other| *other != original));
        assert_eq!(content_hash(&files(), &bank, "u", 1), original);
    }
}
