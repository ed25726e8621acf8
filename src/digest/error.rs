//! What is wrong with a bundle, or with a message that it should have made. Never a row's content.

use std::path::PathBuf;

/// A template bundle that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Reading a file or directory failed.
    #[error("template bundle: cannot read {}", path.display())]
    Read {
        /// What could not be read.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file or directory as a whole is wrong.
    #[error("template bundle: {}: {reason}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A line of a template is wrong.
    #[error("template bundle: {}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A setting that shapes every message is wrong.
    #[error("setting `{setting}`: {reason}")]
    Setting {
        /// `from` or `unsubscribe`.
        setting: &'static str,
        /// What is wrong and what is expected.
        reason: String,
    },
}

impl BundleError {
    pub(super) fn file(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::File { path: path.into(), reason: reason.into() }
    }
}

/// A message that could not be made from a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A template met something that it cannot show.
    #[error("template {file}:{line}: {reason}")]
    Template {
        /// Path inside the bundle.
        file: String,
        /// From 1; 0 where the engine does not know it.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The row breaks a rule of [`Bundle::check`](super::Bundle::check), or the subject that came out of it does.
    #[error("{field} {reason}")]
    Row {
        /// The member, such as `unsubscribe_url`, or `subject`.
        field: String,
        /// What is wrong and what is expected.
        reason: String,
    },
}

/// Words of our own inside an error of the template engine; the only ones that are passed on, because the engine's
/// may quote a value.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub(super) String);

/// An error for a filter or function to return.
pub(super) fn refusal(reason: impl Into<String>) -> minijinja::Error {
    let refusal = Refusal(reason.into());
    minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, "refused").with_source(refusal)
}

/// The engine's error in words that quote no value.
pub(super) fn reason_of(error: &minijinja::Error) -> String {
    let mut cause = Some(error as &dyn std::error::Error);
    while let Some(found) = cause {
        if let Some(own) = found.downcast_ref::<Refusal>() {
            return own.0.clone();
        }
        cause = found.source();
    }
    match error.kind() {
        minijinja::ErrorKind::UndefinedError => {
            "a variable does not exist; test for it with `is defined` where it may be absent".to_owned()
        }
        kind => kind.to_string(),
    }
}

impl From<minijinja::Error> for RenderError {
    fn from(error: minijinja::Error) -> Self {
        Self::Template {
            file: error.name().unwrap_or("?").to_owned(),
            line: error.line().unwrap_or(0),
            reason: reason_of(&error),
        }
    }
}
