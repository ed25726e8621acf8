//! Where the list of bad rows may be written. It replaces what stands there, so that next week's list takes the place
//! of this week's; it must never take the place of anything else, least of all of the export. Not how it is written.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::seal::{OnBadRow, SealError, SealOptions};

/// How every line of a rejects file begins.
const BEGINNING: &[u8] = b"{\"line\":";

/// The file that was asked for, where one will be written.
pub(super) fn named(options: &SealOptions) -> Option<&Path> {
    options.rejects.as_deref().filter(|_| options.on_bad_row == OnBadRow::SetAside)
}

/// Refuses a rejects file in the place of something else, before any work is done.
pub(super) fn may_be_written(input: &Path, options: &SealOptions) -> Result<(), SealError> {
    let Some(path) = named(options) else { return Ok(()) };
    let refuse = |what| Err(SealError::RejectsReplace { path: path.to_owned(), what });
    let unreadable = |source| SealError::Rejects { path: path.to_owned(), source };
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(unreadable)?,
    };
    // A device or a directory would be replaced by a file of the same name.
    if !found.is_file() {
        return refuse("is no regular file");
    }
    match (fs::canonicalize(path), fs::canonicalize(input)) {
        (Ok(path), Ok(input)) if path == input => return refuse("is the export itself"),
        _ => {}
    }
    let mut beginning = Vec::new();
    let limit = BEGINNING.len() as u64;
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut beginning)).map_err(unreadable)?;
    match beginning.is_empty() || beginning == BEGINNING {
        true => Ok(()),
        false => refuse("exists and is no rejects file"),
    }
}
