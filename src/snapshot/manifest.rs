//! What a sealed snapshot consists of, and the names of its files. No I/O.

use serde::{Deserialize, Serialize};

use super::PART_ROWS;

/// Name of the manifest in a snapshot's directory.
pub(super) const MANIFEST: &str = "manifest.json";

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

impl Manifest {
    /// Whether the members agree with one another.
    pub(super) fn is_sound(&self) -> bool {
        let full = |rows: &u32| usize::try_from(*rows).is_ok_and(|rows| rows == PART_ROWS);
        let all_but_last_full = self.part_rows.split_last().is_some_and(|(last, others)| {
            others.iter().all(full) && usize::try_from(*last).is_ok_and(|rows| (1..=PART_ROWS).contains(&rows))
        });
        is_id(&self.id)
            && all_but_last_full
            && self.part_rows.iter().copied().map(u64::from).sum::<u64>() == self.rows
            && self.part_sha256.len() == self.part_rows.len()
            && self.part_sha256.iter().all(|hash| is_id(hash))
    }
}

/// Name of a part's file in a snapshot's directory.
pub(super) fn part_name(number: u32) -> String {
    format!("part-{number:06}.jsonl")
}

/// The sealed rows of a part, without their line feeds.
pub fn lines(part: &[u8]) -> impl Iterator<Item = &[u8]> {
    part.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// Whether a text has the form of a snapshot's id.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
