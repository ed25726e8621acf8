//! What is wrong with a configuration, by file, line and setting; never a secret's value.

use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A setting is unknown, missing or has a value that cannot be used.
    #[error("setting `{setting}`: {reason}")]
    Setting {
        /// Full name, such as `destination.retail.rate`.
        setting: String,
        /// What is wrong and what is expected.
        reason: String,
    },
    /// The same, with the place where the setting was found or is missing.
    #[error("{place}: setting `{setting}`: {reason}")]
    Located {
        /// File and line, or an environment variable.
        place: String,
        /// Full name, such as `destination.retail.rate`.
        setting: String,
        /// What is wrong and what is expected.
        reason: String,
    },
    /// An environment variable that begins like ours and is none of ours.
    #[error("environment variable {name}: {reason}")]
    Variable {
        /// Its name.
        name: String,
        /// What is wrong and what is expected.
        reason: String,
    },
}

impl ConfigError {
    /// An error about one setting.
    pub fn setting(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Setting { setting: name.into(), reason: reason.into() }
    }

    /// An error about an environment variable.
    pub fn variable(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Variable { name: name.into(), reason: reason.into() }
    }
}
