//! The files of a bundle, read once: which names there may be, how large they are, and that they are plain files.
//!
//! | path | is |
//! |---|---|
//! | `subject.txt`, `body.txt`, `body.html` | the templates, required |
//! | `strings.json` | texts that the templates show, by name |
//! | `schema.json` | what `data` must be |
//! | `images/NAME.png`, `.jpg`, `.gif` | images of the HTML part |
//! | `locales/TAG/…` | the first four again, for one language |
//!
//! Anything else is refused: every file is part of the content hash, so a note or a backup would change it unseen.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::error::BundleError;

pub(super) const SUBJECT: &str = "subject.txt";
pub(super) const TEXT: &str = "body.txt";
pub(super) const HTML: &str = "body.html";
pub(super) const STRINGS: &str = "strings.json";
pub(super) const SCHEMA: &str = "schema.json";
pub(super) const IMAGES: &str = "images/";
pub(super) const LOCALES: &str = "locales/";

/// The greatest size of one file.
const MAX_FILE_BYTES: u64 = 512 * 1024;
/// The greatest size of all files together.
const MAX_TOTAL_BYTES: u64 = 2 * 1024 * 1024;
/// The greatest number of files.
const MAX_FILES: usize = 256;

/// The bytes of every file by its path inside the bundle, with `/` between the parts.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// Reads a bundle's directory.
pub(super) fn read(directory: &Path) -> Result<Files, BundleError> {
    let mut files = Files::new();
    let kind = fs::metadata(directory).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => BundleError::file(
            directory,
            "there is no such directory; a bundle is <type>/<version> below `templates`, and a new version begins \
             as a copy of the one before",
        ),
        _ => unreadable(directory, source),
    })?;
    if !kind.is_dir() {
        return Err(BundleError::file(directory, "is no directory; a bundle is the directory <type>/<version>"));
    }
    read_directory(directory, "", &mut files)?;
    let total: u64 = files.values().map(|bytes| bytes.len() as u64).sum();
    if total > MAX_TOTAL_BYTES {
        return Err(BundleError::file(
            directory,
            format!("holds more than {MAX_TOTAL_BYTES} bytes; use smaller images"),
        ));
    }
    for name in [SUBJECT, TEXT, HTML] {
        if !files.contains_key(name) {
            return Err(BundleError::file(directory.join(name), "is missing; every bundle needs it"));
        }
    }
    Ok(files)
}

fn unreadable(path: &Path, source: std::io::Error) -> BundleError {
    BundleError::Read { path: path.to_owned(), source }
}

fn read_directory(directory: &Path, prefix: &str, files: &mut Files) -> Result<(), BundleError> {
    for entry in fs::read_dir(directory).map_err(|source| unreadable(directory, source))? {
        let entry = entry.map_err(|source| unreadable(directory, source))?;
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            return Err(BundleError::file(path, "has a name that is not UTF-8; rename it"));
        };
        let inner = format!("{prefix}{name}");
        // Of the entry itself: a link is not followed.
        let kind = entry.file_type().map_err(|source| unreadable(&path, source))?;
        if kind.is_dir() && holds_directory(&inner) {
            read_directory(&path, &format!("{inner}/"), files)?;
        } else if kind.is_file() && holds_file(&inner) {
            files.insert(inner, read_file(&path)?);
        } else {
            return Err(BundleError::file(path, complaint(kind)));
        }
        if files.len() > MAX_FILES {
            return Err(BundleError::file(directory, format!("the bundle holds more than {MAX_FILES} files")));
        }
    }
    Ok(())
}

fn complaint(kind: fs::FileType) -> &'static str {
    if kind.is_file() || kind.is_dir() {
        "is no part of a bundle; there may be subject.txt, body.txt, body.html, strings.json, schema.json, \
         images/NAME.png (.jpg, .gif) and locales/TAG/ with the first four; move anything else out of it"
    } else {
        "is a link or a special file; a bundle holds plain files only, so that its hash says what is sent"
    }
}

fn holds_directory(inner: &str) -> bool {
    match inner.split('/').collect::<Vec<_>>().as_slice() {
        ["images" | "locales"] => true,
        ["locales", tag] => !tag.starts_with('.'),
        _ => false,
    }
}

fn holds_file(inner: &str) -> bool {
    match inner.split('/').collect::<Vec<_>>().as_slice() {
        [SUBJECT | TEXT | HTML | STRINGS | SCHEMA] | ["locales", _, SUBJECT | TEXT | HTML | STRINGS] => true,
        ["images", name] => is_image_name(name),
        _ => false,
    }
}

/// `[A-Za-z0-9_-]+` and a known ending: the name becomes part of a content id.
fn is_image_name(name: &str) -> bool {
    let allowed = |stem: &str| {
        !stem.is_empty()
            && stem.len() <= 64
            && stem.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    name.rsplit_once('.').is_some_and(|(stem, ending)| allowed(stem) && matches!(ending, "png" | "jpg" | "gif"))
}

fn read_file(path: &Path) -> Result<Vec<u8>, BundleError> {
    let size = fs::metadata(path).map_err(|source| unreadable(path, source))?.len();
    if size > MAX_FILE_BYTES {
        return Err(BundleError::file(path, format!("is larger than {MAX_FILE_BYTES} bytes")));
    }
    fs::read(path).map_err(|source| unreadable(path, source))
}

/// A file as text: UTF-8 without a byte order mark, line ends as `\n`.
pub(super) fn text(directory: &Path, inner: &str, bytes: &[u8]) -> Result<String, BundleError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        BundleError::Line {
            path: directory.join(inner),
            line,
            reason: "is not UTF-8; save the file as UTF-8".to_owned(),
        }
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n"))
}
