//! A snapshot while it is being sealed: a directory `.sealing-…` in the store's own directory, where nobody looks for
//! snapshots, or in a private one for temporary files where the store is a bucket, with a lock that its process holds. Those of processes that died are removed by the next one that seals.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::manifest::part_name;
use super::row::BadRow;
use super::store::{Store, StoreError};
use super::{PART_ROWS, disk};
use crate::identity::hex_text;

const PREFIX: &str = ".sealing-";
const LOCK: &str = "lock";

/// The directory of one sealing; removed when it is dropped.
pub(super) struct Staging {
    directory: PathBuf,
    _lock: File,
}

impl Staging {
    /// Makes the directory, after removing those that no living process holds.
    pub(super) fn begin(store: &Store) -> Result<Self, StoreError> {
        let root = store.workspace()?;
        // While the store is locked nobody is between making a directory and locking it, so that one without a
        // lock belongs to nobody.
        let _store_lock = disk::lock(&root).map_err(StoreError::io("lock", &root))?;
        remove_abandoned(&root)?;
        let directory = root.join(format!("{PREFIX}{}", hex_text(&random::<8>()?)));
        disk::create_directory(&directory).map_err(StoreError::io("create", &directory))?;
        let path = directory.join(LOCK);
        let lock = disk::open_lock(&path).map_err(StoreError::io("create", &path))?;
        lock.lock().map_err(StoreError::io("lock", &path))?;
        Ok(Self { directory, _lock: lock })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next sealing.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn remove_abandoned(root: &Path) -> Result<(), StoreError> {
    let entries = fs::read_dir(root).map_err(StoreError::io("read", root))?;
    for entry in entries {
        let entry = entry.map_err(StoreError::io("read", root))?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && !is_held(&path) {
            match fs::remove_dir_all(&path) {
                // Its process was just about to remove it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(StoreError::io("remove", &path))?,
            }
        }
    }
    Ok(())
}

/// Whether a living process holds the lock of a directory. In doubt it does.
fn is_held(directory: &Path) -> bool {
    match File::open(directory.join(LOCK)) {
        Ok(lock) => match lock.try_lock() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => true,
        },
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Random bytes of the operating system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(StoreError::Io {
            action: "get random bytes from",
            path: PathBuf::from("the operating system"),
            source: io::Error::other(error),
        }),
    }
}

/// What a [`PartWriter`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenParts {
    pub(super) directory: PathBuf,
    pub(super) id: String,
    pub(super) part_rows: Vec<u32>,
    pub(super) part_sha256: Vec<String>,
}

/// Cuts rows into parts. Each part is on disk before the next begins; none is held in memory.
pub(super) struct PartWriter {
    written: WrittenParts,
    whole: Sha256,
    part: Option<OpenPart>,
}

struct OpenPart {
    path: PathBuf,
    file: BufWriter<File>,
    hash: Sha256,
    rows: u32,
}

impl PartWriter {
    pub(super) fn begin(directory: PathBuf) -> Result<Self, StoreError> {
        disk::create_directory(&directory).map_err(StoreError::io("create", &directory))?;
        let written = WrittenParts { directory, id: String::new(), part_rows: Vec::new(), part_sha256: Vec::new() };
        Ok(Self { written, whole: Sha256::new(), part: None })
    }

    /// Adds a row, which ends with its line feed.
    pub(super) fn push(&mut self, row: &[u8]) -> Result<(), StoreError> {
        let mut part = match self.part.take() {
            Some(part) => part,
            None => self.open_part()?,
        };
        part.file.write_all(row).map_err(StoreError::io("write", &part.path))?;
        part.hash.update(row);
        self.whole.update(row);
        part.rows += 1;
        if usize::try_from(part.rows).is_ok_and(|rows| rows >= PART_ROWS) {
            return self.end_part(part);
        }
        self.part = Some(part);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<WrittenParts, StoreError> {
        if let Some(part) = self.part.take() {
            self.end_part(part)?;
        }
        self.written.id = hex_text(&self.whole.finalize());
        Ok(self.written)
    }

    fn open_part(&self) -> Result<OpenPart, StoreError> {
        let number = u32::try_from(self.written.part_rows.len()).unwrap_or(u32::MAX);
        let path = self.written.directory.join(part_name(number));
        let file = disk::create_file(&path).map_err(StoreError::io("create", &path))?;
        Ok(OpenPart { path, file: BufWriter::with_capacity(64 << 10, file), hash: Sha256::new(), rows: 0 })
    }

    fn end_part(&mut self, part: OpenPart) -> Result<(), StoreError> {
        let written = part.file.into_inner().map_err(io::IntoInnerError::into_error);
        written.and_then(|file| file.sync_all()).map_err(StoreError::io("write", &part.path))?;
        self.written.part_sha256.push(hex_text(&part.hash.finalize()));
        self.written.part_rows.push(part.rows);
        Ok(())
    }
}

/// The line of each staged row, on disk: only needed where rows turn out to repeat others.
pub(super) struct LineLog {
    path: PathBuf,
    file: BufWriter<File>,
}

impl LineLog {
    pub(super) fn begin(path: PathBuf) -> Result<Self, StoreError> {
        let file = disk::create_file(&path).map_err(StoreError::io("create", &path))?;
        Ok(Self { path, file: BufWriter::new(file) })
    }

    pub(super) fn push(&mut self, line: u32) -> Result<(), StoreError> {
        self.file.write_all(&line.to_le_bytes()).map_err(StoreError::io("write", &self.path))
    }

    /// Writes the staged rows anew, without those that came from `left_out` (sorted).
    pub(super) fn rewrite(
        mut self,
        from: &WrittenParts,
        to: PathBuf,
        left_out: &[u32],
    ) -> Result<WrittenParts, StoreError> {
        self.file.flush().map_err(StoreError::io("write", &self.path))?;
        let read_log = || StoreError::io("read", &self.path);
        let mut log = BufReader::new(File::open(&self.path).map_err(read_log())?);
        let mut left_out = left_out.iter().peekable();
        let mut writer = PartWriter::begin(to)?;
        for number in (0..).take(from.part_rows.len()) {
            let path = from.directory.join(part_name(number));
            let mut part = BufReader::new(File::open(&path).map_err(StoreError::io("open", &path))?);
            let mut row = Vec::new();
            while part.read_until(b'\n', &mut row).map_err(StoreError::io("read", &path))? > 0 {
                let mut line = [0; 4];
                log.read_exact(&mut line).map_err(read_log())?;
                if left_out.next_if_eq(&&u32::from_le_bytes(line)).is_none() {
                    writer.push(&row)?;
                }
                row.clear();
            }
        }
        writer.finish()
    }
}

/// The rows that are not sealed: the first of them for people, their number, and all of them on disk where asked for.
pub(super) struct FaultLog {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    first: Vec<BadRow>,
    total: u64,
}

/// Bad rows that an error names.
pub(super) const SHOWN_FAULTS: usize = 20;

impl FaultLog {
    pub(super) fn begin(path: PathBuf, keep_all: bool) -> Result<Self, StoreError> {
        let create = || disk::create_file(&path).map(BufWriter::new);
        let file = keep_all.then(create).transpose().map_err(StoreError::io("create", &path))?;
        Ok(Self { path, file, first: Vec::new(), total: 0 })
    }

    /// Adds bad rows, in the order of their lines.
    pub(super) fn push(&mut self, rows: Vec<BadRow>) -> Result<(), StoreError> {
        if let Some(file) = &mut self.file {
            rows.iter().try_for_each(|row| write_line(file, row)).map_err(StoreError::io("write", &self.path))?;
        }
        self.total += rows.len() as u64;
        self.first.extend(rows.into_iter().take(SHOWN_FAULTS.saturating_sub(self.first.len())));
        Ok(())
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The first bad rows by line, among those pushed and `others`, which come in order too.
    pub(super) fn first_with(&self, others: impl Iterator<Item = BadRow>) -> Vec<BadRow> {
        let mut first: Vec<BadRow> = self.first.iter().cloned().chain(others.take(SHOWN_FAULTS)).collect();
        first.sort_by_key(|row| row.line);
        first.truncate(SHOWN_FAULTS);
        first
    }

    /// Copies all bad rows as JSON Lines, those pushed and `others`, by line.
    pub(super) fn copy_with(self, others: impl Iterator<Item = BadRow>, to: &mut File) -> io::Result<()> {
        let mut to = BufWriter::new(to);
        let mut others = others.peekable();
        if let Some(file) = self.file {
            file.into_inner().map_err(io::IntoInnerError::into_error)?;
            for line in BufReader::new(File::open(&self.path)?).lines() {
                let line = line?;
                let number = serde_json::from_str::<LineNumber>(&line)?.line;
                while let Some(other) = others.next_if(|other| other.line < number) {
                    write_line(&mut to, &other)?;
                }
                writeln!(to, "{line}")?;
            }
        }
        others.try_for_each(|other| write_line(&mut to, &other))?;
        to.flush()
    }
}

#[derive(serde::Deserialize)]
struct LineNumber {
    line: u64,
}

fn write_line(file: &mut impl Write, row: &BadRow) -> io::Result<()> {
    serde_json::to_writer(&mut *file, row)?;
    file.write_all(b"\n")
}
