//! Where sealed snapshots live: a directory (mode 0700) with one folder a snapshot.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a sealed snapshot consists of; written last, so that a snapshot without one does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// SHA-256 over the sealed rows in order, each followed by a line feed; 64 hex digits.
    pub id: String,
    /// Sealed rows.
    pub rows: u64,
    /// Rows of each part, part 0 first.
    pub part_rows: Vec<u32>,
    /// SHA-256 of each part's bytes, 64 hex digits.
    pub part_sha256: Vec<String>,
    /// Rows that stood in the input more than once alike, when it was first sealed.
    pub repeated: u64,
    /// Rows set aside when it was first sealed.
    pub rejected: u64,
    /// When it was first sealed (RFC 3339).
    pub sealed_at: jiff::Timestamp,
}

/// A snapshot store.
#[derive(Debug, Clone)]
pub struct Store {
    /// The directory.
    pub(crate) root: PathBuf,
}

/// What went wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Reading or writing failed.
    #[error("snapshot store: cannot {action} {path}")]
    Io {
        /// `read`, `write`, …
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// No such snapshot.
    #[error("snapshot store: there is no sealed snapshot {id}")]
    Absent {
        /// The id asked for.
        id: String,
    },
    /// The bytes are not those that were sealed.
    #[error("snapshot store: {path} is not what was sealed; restore it from a copy or seal the export again")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}
