//! Sealing: an export becomes a snapshot, or nothing at all. Every row is checked before the first of them can be
//! claimed; what a crash leaves behind is never taken for a snapshot.

use std::fmt;
use std::path::{Path, PathBuf};

use super::checks::RowChecks;
use super::disk;
use super::input::{Export, InputError};
use super::manifest::Manifest;
use super::pipeline::{CheckedChunk, check_all};
use super::rejects;
use super::row::{BadRow, RowFault};
use super::seen::{EntryHasher, Repeats, Seen};
use super::staging::{FaultLog, LineLog, PartWriter, Staging, WrittenParts, random};
use super::store::{Store, StoreError};
use crate::identity::hex_text;

/// What becomes of an export with bad rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadRow {
    /// Nothing is sealed.
    #[default]
    Refuse,
    /// The good rows are sealed, the others written to a rejects file.
    SetAside,
}

impl OnBadRow {
    /// The word that the command line takes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::SetAside => "set-aside",
        }
    }

    /// The choice of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Refuse, Self::SetAside].into_iter().find(|choice| choice.as_str() == word)
    }
}

/// How to seal.
#[derive(Debug, Clone)]
pub struct SealOptions {
    /// What becomes of bad rows.
    pub on_bad_row: OnBadRow,
    /// Where bad rows that are set aside are listed as JSON Lines (`line`, `field`, `reason`). A file named here is
    /// written in any case; otherwise `<store>/<id>.rejects.jsonl`, where there is something to list.
    pub rejects: Option<PathBuf>,
    /// The number of rows that the export must have, bad and repeated ones included, blank lines not.
    pub expect_rows: Option<u64>,
    /// The SHA-256 that the file must have as it stands on disk, compressed where it is.
    pub expect_sha256: Option<[u8; 32]>,
    /// Now; what the manifest says.
    pub sealed_at: jiff::Timestamp,
}

/// What sealing did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The snapshot as it stands. Its `repeated`, `rejected` and `sealed_at` are those of the first sealing.
    pub manifest: Manifest,
    /// Whether the same content had been sealed before.
    pub found: bool,
    /// Rows of this export, blank lines not counted: sealed, repeated and rejected ones together.
    pub input_rows: u64,
    /// SHA-256 of the export as it stands on disk, 64 hex digits.
    pub input_sha256: String,
    /// Rows of this export that repeat an earlier one alike.
    pub repeated: u64,
    /// Rows of this export that were set aside.
    pub rejected: u64,
    /// The first 20 of those.
    pub first_rejected: Vec<BadRow>,
    /// Where all of them are listed.
    pub rejects: Option<PathBuf>,
}

/// Why nothing was sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The export cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Rows of it are bad.
    #[error("{0}")]
    BadRows(BadRows),
    /// No row at all.
    #[error("{path} holds no rows")]
    Empty {
        /// The export.
        path: PathBuf,
    },
    /// Not as many rows as expected.
    #[error("{path} has {found} rows, but {expected} were expected: the export is cut off, or it is another one")]
    RowCount {
        /// The export.
        path: PathBuf,
        /// As asked for.
        expected: u64,
        /// As counted, blank lines not.
        found: u64,
    },
    /// Another file than expected.
    #[error("{path} has the SHA-256 {found}, but {expected} was expected: the export is cut off, or it is another one")]
    Sha256 {
        /// The export.
        path: PathBuf,
        /// As asked for.
        expected: String,
        /// Of the file as it stands on disk.
        found: String,
    },
    /// The rejects file cannot be written.
    #[error("cannot write the rejects file {path}")]
    Rejects {
        /// The rejects file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The rejects file would replace something that is none.
    #[error("the rejects file would replace {path}, which {what}; name another file with --rejects")]
    RejectsReplace {
        /// The rejects file.
        path: PathBuf,
        /// What stands there.
        what: &'static str,
    },
}

/// The bad rows of an export that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRows {
    /// The export.
    pub path: PathBuf,
    /// The first 20 by line.
    pub first: Vec<BadRow>,
    /// All of them.
    pub total: u64,
    /// Whether good rows are left, which could be sealed by themselves.
    pub others_are_good: bool,
}

impl fmt::Display for BadRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = if self.total == 1 { "row" } else { "rows" };
        writeln!(f, "{}: {} bad {rows}, nothing was sealed", self.path.display(), self.total)?;
        for row in &self.first {
            writeln!(f, "  {row}")?;
        }
        match self.total - self.first.len() as u64 {
            0 => {}
            more => writeln!(f, "  and {more} more")?,
        }
        match self.others_are_good {
            true => f.write_str("correct the export, or seal the good rows alone with --on-bad-row set-aside"),
            false => f.write_str("correct the export; it has no good row"),
        }
    }
}

/// Seals an export into the store. Blocks; the work is spread over all cores. `progress` is called on this thread now
/// and then with the number of rows read so far.
///
/// The same content gives the same id, however it is compressed and in whatever order the members of its rows stand;
/// a snapshot that is there already is found. Two processes may seal at once.
///
/// # Errors
/// Every reason for which nothing was sealed; the store is then as it was.
pub fn seal(
    input: &Path,
    store: &Store,
    checks: &RowChecks<'_>,
    options: &SealOptions,
    progress: &dyn Fn(u64),
) -> Result<Sealed, SealError> {
    let mut export = Export::open(input)?;
    rejects::may_be_written(input, options)?;
    let staging = Staging::begin(store)?;
    let mut intake = Intake::begin(&staging, options)?;
    let hasher = EntryHasher::new(&random()?);
    let read = check_all(&mut export, checks, &hasher, |chunk| {
        intake.take(chunk)?;
        progress(intake.input_rows);
        Ok(())
    });
    let input_sha256 = verify_input(input, export, read, options)?;
    intake.expect_rows(input, options)?;
    let staged = intake.finish(&staging)?;
    if staged.is_refused(options) {
        return Err(SealError::BadRows(staged.into_bad_rows(input)));
    }
    staged.publish(store, &staging, options, input_sha256)
}

/// Hashes the whole file and compares. Another file than the expected one explains whatever else went wrong.
fn verify_input(
    path: &Path,
    export: Export,
    read: Result<(), SealError>,
    options: &SealOptions,
) -> Result<String, SealError> {
    let Some(expected) = options.expect_sha256 else {
        read?;
        return Ok(hex_text(&export.sha256()?));
    };
    let found = export.sha256()?;
    if found != expected {
        let (expected, found) = (hex_text(&expected), hex_text(&found));
        return Err(SealError::Sha256 { path: path.to_owned(), expected, found });
    }
    read?;
    Ok(hex_text(&found))
}

/// Rows on their way into the staging directory.
struct Intake {
    input_rows: u64,
    seen: Seen,
    parts: PartWriter,
    lines: LineLog,
    faults: FaultLog,
    /// A bad row means that nothing will be sealed: good rows are still compared, but not written any more.
    refuse: bool,
}

impl Intake {
    fn begin(staging: &Staging, options: &SealOptions) -> Result<Self, StoreError> {
        let refuse = options.on_bad_row == OnBadRow::Refuse;
        Ok(Self {
            input_rows: 0,
            seen: Seen::new(),
            parts: PartWriter::begin(staging.path("all"))?,
            lines: LineLog::begin(staging.path("lines"))?,
            faults: FaultLog::begin(staging.path("rejects"), !refuse)?,
            refuse,
        })
    }

    fn take(&mut self, chunk: CheckedChunk) -> Result<(), SealError> {
        self.input_rows += chunk.rows.len() as u64 + chunk.bad.len() as u64;
        for (row, entry, line) in chunk.rows() {
            self.seen.push(entry);
            if !self.refuse || self.faults.total() == 0 {
                self.parts.push(row)?;
                self.lines.push(line)?;
            }
        }
        Ok(self.faults.push(chunk.bad)?)
    }

    fn expect_rows(&self, path: &Path, options: &SealOptions) -> Result<(), SealError> {
        let (path, found) = (path.to_owned(), self.input_rows);
        match options.expect_rows {
            Some(expected) if expected != found => Err(SealError::RowCount { path, expected, found }),
            _ if found == 0 => Err(SealError::Empty { path }),
            _ => Ok(()),
        }
    }

    /// Finds the rows that repeat or contradict others and leaves them out.
    fn finish(self, staging: &Staging) -> Result<Staged, SealError> {
        let repeats = self.seen.finish();
        let rejected = self.faults.total() + repeats.contradicting.len() as u64;
        let mut parts = self.parts.finish()?;
        let left_out = repeats.lines();
        if !left_out.is_empty() && (!self.refuse || rejected == 0) {
            parts = self.lines.rewrite(&parts, staging.path("kept"), &left_out)?;
        }
        Ok(Staged { input_rows: self.input_rows, parts, repeats, faults: self.faults, rejected })
    }
}

/// Everything that is to be sealed, on disk but not in its place.
struct Staged {
    input_rows: u64,
    parts: WrittenParts,
    repeats: Repeats,
    faults: FaultLog,
    rejected: u64,
}

impl Staged {
    fn good_rows(&self) -> u64 {
        self.input_rows - self.rejected - self.repeats.alike.len() as u64
    }

    fn is_refused(&self, options: &SealOptions) -> bool {
        self.good_rows() == 0 || (self.rejected > 0 && options.on_bad_row == OnBadRow::Refuse)
    }

    fn into_bad_rows(self, path: &Path) -> BadRows {
        BadRows {
            path: path.to_owned(),
            others_are_good: self.good_rows() > 0,
            total: self.rejected,
            first: self.faults.first_with(contradictions(&self.repeats)),
        }
    }

    fn publish(
        self,
        store: &Store,
        staging: &Staging,
        options: &SealOptions,
        input_sha256: String,
    ) -> Result<Sealed, SealError> {
        let (repeated, rejected) = (self.repeats.alike.len() as u64, self.rejected);
        let manifest = Manifest {
            rows: self.good_rows(),
            id: self.parts.id,
            part_rows: self.parts.part_rows,
            part_sha256: self.parts.part_sha256,
            repeated,
            rejected,
            sealed_at: options.sealed_at,
        };
        let first_rejected = self.faults.first_with(contradictions(&self.repeats));
        // Before the snapshot is there: nobody may find one whose rejected rows are not listed.
        let rejects = match rejects::named(options) {
            Some(path) => {
                disk::replace(path, |file| self.faults.copy_with(contradictions(&self.repeats), file))
                    .map_err(|source| SealError::Rejects { path: path.to_owned(), source })?;
                Some(path.to_owned())
            }
            None if rejected > 0 => {
                let (list, name) = (staging.path("list"), format!("{}.rejects.jsonl", manifest.id));
                disk::replace(&list, |file| self.faults.copy_with(contradictions(&self.repeats), file))
                    .map_err(StoreError::io("write", &list))?;
                store.put_file(&name, &list)?;
                Some(store.shown(&name))
            }
            None => None,
        };
        let (manifest, found) = store.publish(&self.parts.directory, manifest)?;
        let input_rows = self.input_rows;
        Ok(Sealed { manifest, found, input_rows, input_sha256, repeated, rejected, first_rejected, rejects })
    }
}

/// The bad rows that only the whole export shows, by line.
fn contradictions(repeats: &Repeats) -> impl Iterator<Item = BadRow> {
    repeats.contradicting.iter().map(|(line, other)| {
        let reason = format!("is the customer of line {other} too, with different content");
        BadRow::new(u64::from(*line), RowFault::new("customer_id", reason))
    })
}
