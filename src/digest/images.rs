//! Images that travel inside a message: known by their content, named by file and hash.

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::error::BundleError;
use super::files::{Files, IMAGES};
use super::message::InlineImage;
use crate::identity::hex_text;

/// A bundle's images, with the content id of each by its file's name.
pub(super) type Images = (Vec<InlineImage>, BTreeMap<String, String>);

/// Takes the images out of a bundle's files. A content id is `NAME.HASH@DOMAIN`, so that it changes with the image
/// and is the same in every message.
pub(super) fn collect(directory: &Path, files: &Files, domain: &str) -> Result<Images, BundleError> {
    let (mut images, mut ids) = (Vec::new(), BTreeMap::new());
    for (inner, bytes) in files {
        let Some(name) = inner.strip_prefix(IMAGES) else { continue };
        let media_type = media_type(bytes).filter(|(_, ending)| name.ends_with(ending));
        let Some((media_type, _)) = media_type else {
            return Err(BundleError::file(
                directory.join(inner),
                "is no image of the kind that its name says; known are .png, .jpg and .gif",
            ));
        };
        let mut hash = hex_text(&Sha256::digest(bytes));
        hash.truncate(12);
        let content_id = format!("{name}.{hash}@{domain}");
        ids.insert(name.to_owned(), content_id.clone());
        images.push(InlineImage { content_id, media_type: media_type.to_owned(), bytes: bytes.clone() });
    }
    Ok((images, ids))
}

/// Media type and file ending by the first bytes.
fn media_type(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    const KINDS: [(&[u8], &str, &str); 4] = [
        (b"\x89PNG\r\n\x1a\n", "image/png", ".png"),
        (b"\xff\xd8\xff", "image/jpeg", ".jpg"),
        (b"GIF87a", "image/gif", ".gif"),
        (b"GIF89a", "image/gif", ".gif"),
    ];
    KINDS.iter().find(|(start, _, _)| bytes.starts_with(start)).map(|(_, media_type, ending)| (*media_type, *ending))
}
