//! Reads the keyring from its file or from the environment. A file that others may read is refused.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

use super::{KeyringSource, environment};
use crate::identity::keyring::{Keyring, KeyringError};

/// Why there is no keyring. No message holds any part of a secret.
#[derive(Debug, thiserror::Error)]
pub enum KeyringSourceError {
    /// There is no file.
    #[error(
        "there is no keyring at {}; `counterfoil keys generate --out {}` makes one for a new ledger", path.display(), shell_word(path)
    )]
    Absent {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("the keyring {} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Others than the owner may use the file.
    #[error("the keyring {} has mode {mode:04o}, others may use it; type: chmod 600 {}", path.display(), shell_word(path))]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its mode's last four digits.
        mode: u32,
    },
    /// The text is not UTF-8.
    #[error("the keyring {} is not UTF-8 text", path.display())]
    Encoding {
        /// The file.
        path: PathBuf,
    },
    /// The text is no keyring. A syntax error begins with its line.
    #[error("keyring {origin}: {source}")]
    Content {
        /// The file, or the environment variable.
        origin: String,
        /// What is wrong.
        source: KeyringError,
    },
}

/// A path as a shell takes it.
pub(crate) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Reads and checks the keyring.
///
/// # Errors
/// A file that is missing, unreadable or open to others; a text that is no keyring.
pub fn load_keyring(source: &KeyringSource) -> Result<Keyring, KeyringSourceError> {
    let (text, origin) = match source {
        KeyringSource::File(path) => (read(path)?, path.display().to_string()),
        KeyringSource::Environment(text) => (text.clone(), format!("in {}", environment::KEYRING)),
    };
    Keyring::parse(&text).map_err(|source| KeyringSourceError::Content { origin, source })
}

fn read(path: &Path) -> Result<SecretString, KeyringSourceError> {
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => KeyringSourceError::Absent { path: path.to_owned() },
        _ => KeyringSourceError::Unreadable { path: path.to_owned(), source },
    };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    // The mode of what was opened, not of what may stand there by now.
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyringSourceError::Permissions { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| KeyringSourceError::Encoding { path: path.to_owned() })?;
    let text = SecretString::from(text);
    Ok(text.expose_secret().strip_prefix('\u{feff}').map(SecretString::from).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    const GOOD: &str = "[[key]]\nid = \"k1\"\nfrom_week = \"2020-W01\"\n\
                        secret = \"Q0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZ\"\n\
                        [stable]\nsecret = \"Q0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZ\"\n";

    fn file(directory: &Path, text: &str, mode: u32) -> PathBuf {
        let path = directory.join("keyring.toml");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn load(text: &str, mode: u32) -> Result<Keyring, KeyringSourceError> {
        let directory = tempfile::tempdir().unwrap();
        load_keyring(&KeyringSource::File(file(directory.path(), text, mode)))
    }

    #[test]
    fn a_private_file_is_read() {
        assert_eq!(load(GOOD, 0o600).unwrap().keys().len(), 1);
        assert_eq!(load(GOOD, 0o400).unwrap().keys().len(), 1);
        assert_eq!(load(&format!("\u{feff}{GOOD}"), 0o600).unwrap().keys().len(), 1);
    }

    #[test]
    fn a_file_that_others_may_use_is_refused_with_the_command_to_type() {
        for mode in [0o640, 0o604, 0o620, 0o644, 0o660, 0o610] {
            let error = load(GOOD, mode).unwrap_err().to_string();
            assert!(error.contains(&format!("{mode:04o}")) && error.contains("chmod 600 /"), "{error}");
        }
    }

    #[test]
    fn the_environment_may_hold_the_text() {
        assert!(load_keyring(&KeyringSource::Environment(SecretString::from(GOOD))).is_ok());
        let error = load_keyring(&KeyringSource::Environment(SecretString::from(""))).unwrap_err().to_string();
        assert!(error.starts_with("keyring in COUNTERFOIL_KEYRING: "), "{error}");
    }

    #[test]
    fn a_missing_file_says_how_to_make_one() {
        let error = load_keyring(&KeyringSource::File(PathBuf::from("/nowhere/it's here"))).unwrap_err().to_string();
        assert!(
            error.ends_with("`counterfoil keys generate --out '/nowhere/it'\\''s here'` makes one for a new ledger"),
            "{error}"
        );
    }

    #[test]
    fn no_error_holds_a_part_of_a_secret() {
        const CANARY: &str = "Q0FOQVJZ";
        for broken in [
            GOOD.replace("Q0FOQVJZ\"", "Q0FOQVJZ"),
            GOOD.replace("secret = \"", "secret = "),
            GOOD.replace("secret = \"", "secret \""),
            GOOD.replace("secret", "sekret"),
            GOOD.replace("id = \"k1\"\n", ""),
            GOOD.replace("[stable]", ""),
            GOOD.replace("[stable]\n", "[stable]\nsecret = 5\n"),
            GOOD.replace("\"k1\"", "[\"Q0FOQVJZ\"]"),
            GOOD.replace("2020-W01", "Q0FOQVJZ"),
            GOOD.replace("ZQ0F", "Z!0F"),
            GOOD.replace("Q0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZ", "Q0FOQVJZ"),
            format!("{GOOD}{CANARY}"),
            format!("{GOOD}{CANARY} = 1\n"),
        ] {
            let error = load(&broken, 0o600).unwrap_err();
            let told = format!("{error} {error:?} {:?}", std::error::Error::source(&error).map(ToString::to_string));
            assert!(!told.contains(CANARY), "{told}");
        }
    }
}
