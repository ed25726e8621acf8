//! Where sealed snapshots live: a directory with one folder a snapshot, named by its id, that holds the parts and the
//! manifest. Everything is readable for its owner only.
//!
//! Every method blocks on the file system: one part is about a megabyte, so a call takes milliseconds on a local
//! disk; asynchronous callers wrap it in `spawn_blocking`. A store may be shared by any number of processes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{PART_ROWS, disk};
use crate::identity::hex_text;

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
    fn is_sound(&self) -> bool {
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
        source: io::Error,
    },
    /// No such snapshot.
    #[error("snapshot store: there is no sealed snapshot {id}")]
    Absent {
        /// The id asked for.
        id: String,
    },
    /// No such part of a snapshot that is there.
    #[error("snapshot store: snapshot {id} has no part {number}")]
    AbsentPart {
        /// The snapshot.
        id: String,
        /// The part asked for.
        number: u32,
    },
    /// Not the form of an id.
    #[error("snapshot store: a snapshot's id is 64 lower-case hex digits")]
    Id,
    /// The bytes are not those that were sealed.
    #[error("snapshot store: {path} is not what was sealed; restore it from a copy or seal the export again")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

impl StoreError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl Store {
    /// Opens the store at a directory, which is made where it is absent.
    ///
    /// # Errors
    /// A directory that cannot be made or is none.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        disk::create_directories(directory).map_err(StoreError::io("create", directory))?;
        Ok(Self { root: directory.to_owned() })
    }

    /// The manifest of a sealed snapshot.
    ///
    /// # Errors
    /// [`StoreError::Absent`], [`StoreError::Damaged`], or a file that cannot be read.
    pub fn manifest(&self, id: &str) -> Result<Manifest, StoreError> {
        let path = self.snapshot_directory(id)?.join(MANIFEST);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Absent { id: id.to_owned() });
            }
            read => read.map_err(StoreError::io("read", &path))?,
        };
        match serde_json::from_slice::<Manifest>(&bytes) {
            Ok(manifest) if manifest.id == id && manifest.is_sound() => Ok(manifest),
            _ => Err(StoreError::Damaged { path }),
        }
    }

    /// The bytes of one part, just as they were sealed. Reads the manifest first; [`Store::part_of`] spares that.
    ///
    /// # Errors
    /// See [`Store::manifest`] and [`Store::part_of`].
    pub fn part(&self, id: &str, number: u32) -> Result<Vec<u8>, StoreError> {
        self.part_of(&self.manifest(id)?, number)
    }

    /// The bytes of one part of a manifest at hand, just as they were sealed: [`lines`] takes them apart.
    ///
    /// # Errors
    /// [`StoreError::AbsentPart`], [`StoreError::Damaged`] where the hash differs or the file is gone, or a file that
    /// cannot be read.
    pub fn part_of(&self, manifest: &Manifest, number: u32) -> Result<Vec<u8>, StoreError> {
        let expected = usize::try_from(number).ok().and_then(|index| manifest.part_sha256.get(index));
        let absent = || StoreError::AbsentPart { id: manifest.id.clone(), number };
        let expected = expected.ok_or_else(absent)?;
        let path = self.snapshot_directory(&manifest.id)?.join(part_name(number));
        match fs::read(&path) {
            Ok(bytes) if hex_text(&Sha256::digest(&bytes)) == *expected => Ok(bytes),
            Ok(_) => Err(StoreError::Damaged { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::Damaged { path }),
            Err(source) => Err(StoreError::Io { action: "read", path, source }),
        }
    }

    /// Every sealed snapshot, the one sealed first at the front.
    ///
    /// # Errors
    /// A directory that cannot be read, or a damaged manifest.
    pub fn list(&self) -> Result<Vec<Manifest>, StoreError> {
        let read = StoreError::io("read", &self.root);
        let entries = fs::read_dir(&self.root).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(read)?;
        let mut manifests = Vec::new();
        for name in entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_id(name)) {
            match self.manifest(&name) {
                Err(StoreError::Absent { .. }) => {}
                found => manifests.push(found?),
            }
        }
        manifests.sort_by(|a, b| (a.sealed_at, &a.id).cmp(&(b.sealed_at, &b.id)));
        Ok(manifests)
    }

    /// The snapshot that was sealed last.
    ///
    /// # Errors
    /// See [`Store::list`].
    pub fn latest(&self) -> Result<Option<Manifest>, StoreError> {
        Ok(self.list()?.pop())
    }

    /// Puts a directory of finished parts in its place, with its manifest. Where the snapshot is there already, the
    /// standing one is kept, and parts of it that are damaged are mended. Answers the standing manifest and whether
    /// it stood before.
    pub(super) fn publish(&self, parts: &Path, manifest: Manifest) -> Result<(Manifest, bool), StoreError> {
        let _lock = self.lock()?;
        let place = self.snapshot_directory(&manifest.id)?;
        if place.exists() {
            return Ok((self.mend(parts, manifest)?, true));
        }
        write_manifest(parts, &manifest)?;
        match disk::rename(parts, &place) {
            Ok(()) => Ok((manifest, false)),
            // On a file system without locks another process may have come first; it holds the same content.
            Err(_) if place.exists() && parts.exists() => Ok((self.mend(parts, manifest)?, true)),
            Err(source) => Err(StoreError::Io { action: "publish", path: place, source }),
        }
    }

    /// Compares a standing snapshot with the same content sealed anew and replaces what is damaged.
    fn mend(&self, parts: &Path, manifest: Manifest) -> Result<Manifest, StoreError> {
        let place = self.snapshot_directory(&manifest.id)?;
        for number in (0..).take(manifest.part_rows.len()) {
            match self.part_of(&manifest, number) {
                Err(StoreError::Damaged { path }) => {
                    disk::rename(&parts.join(part_name(number)), &path).map_err(StoreError::io("mend", &path))?;
                }
                sound => drop(sound?),
            }
        }
        match self.manifest(&manifest.id) {
            Ok(standing) => Ok(standing),
            Err(StoreError::Damaged { .. } | StoreError::Absent { .. }) => {
                write_manifest(&place, &manifest)?;
                Ok(manifest)
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps other processes from tidying and publishing until it is dropped.
    pub(super) fn lock(&self) -> Result<File, StoreError> {
        let path = self.root.join(".lock");
        let file = disk::open_lock(&path).map_err(StoreError::io("open", &path))?;
        file.lock().map_err(StoreError::io("lock", &path))?;
        Ok(file)
    }

    fn snapshot_directory(&self, id: &str) -> Result<PathBuf, StoreError> {
        if is_id(id) { Ok(self.root.join(id)) } else { Err(StoreError::Id) }
    }
}

const MANIFEST: &str = "manifest.json";

/// Name of a part's file in a snapshot's directory.
pub(super) fn part_name(number: u32) -> String {
    format!("part-{number:06}.jsonl")
}

/// The sealed rows of a part, without their line feeds.
pub fn lines(part: &[u8]) -> impl Iterator<Item = &[u8]> {
    part.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn write_manifest(directory: &Path, manifest: &Manifest) -> Result<(), StoreError> {
    let path = directory.join(MANIFEST);
    disk::replace(&path, |file| {
        serde_json::to_writer_pretty(&mut *file, manifest)?;
        io::Write::write_all(file, b"\n")
    })
    .map_err(StoreError::io("write", &path))
}
