//! Secrets of a destination: each stands in a file of its own that nobody else may read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use secrecy::SecretString;

use crate::config::ConfigError;

/// Reads a secret, a `word` such as "password": the file's content without the line end behind it.
///
/// # Errors
/// A file that cannot be read, that others may read, or that holds something else than one line.
pub(super) fn read(path: &Path, word: &str) -> Result<SecretString, ConfigError> {
    let refuse = |reason: String| ConfigError::File { path: path.to_owned(), reason };
    let mode = fs::metadata(path).map_err(|error| refuse(format!("cannot be read: {error}")))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(refuse(format!(
            "holds a {word} and others may read it (mode {:03o}); run `chmod 600` on it",
            mode & 0o777
        )));
    }
    let content = fs::read_to_string(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let secret = content.trim_end_matches(['\r', '\n']);
    if secret.is_empty() || secret.chars().any(char::is_control) {
        return Err(refuse(format!("must hold a {word} in one line, without control characters")));
    }
    Ok(SecretString::from(secret))
}
