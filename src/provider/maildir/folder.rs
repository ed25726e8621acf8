//! The files of a Maildir: written to `tmp`, moved into `new`, found again in `new` or `cur`. Blocking; knows
//! nothing of outcomes.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tempfile::{NamedTempFile, TempPath};

use super::directory_sync::DirectorySync;
use crate::identity::ReceiptKey;
use crate::rehearsal;

/// A directory's time of change tells nothing about changes of the same moment: a listing is trusted only if the
/// directory had been at rest for this long when it was taken.
const AT_REST: Duration = Duration::from_secs(2);

/// The name of a message's file: `0.<receipt key>.counterfoil`. Where others put the time of delivery it says nothing:
/// a ledger that was restored from an older copy no longer knows when the first claim was, and has to find the file.
fn file_name(key: &ReceiptKey) -> String {
    format!("0.{key}.counterfoil")
}

/// What became of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// One file stands under this name, on the disk.
    Stands { name: String },
    /// The permission was gone before the file got its name.
    NotStarted,
}

/// Where a delivery failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The file does not stand under its name.
    BeforeName,
    /// It does, but the directory may not be on the disk.
    DirectorySync,
}

/// A failed delivery.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) step: Step,
    pub(super) error: io::Error,
}

impl Trouble {
    fn before(error: io::Error) -> Self {
        Self { step: Step::BeforeName, error }
    }

    fn syncing(error: io::Error) -> Self {
        Self { step: Step::DirectorySync, error }
    }
}

/// A Maildir.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    tmp: PathBuf,
    new: PathBuf,
    cur: PathBuf,
    new_sync: DirectorySync,
    cur_sync: DirectorySync,
    read_mail: Mutex<Option<Listing>>,
}

/// What `cur` held when it was listed.
#[derive(Debug)]
struct Listing {
    changed_at: SystemTime,
    taken_at: SystemTime,
    keys: HashSet<ReceiptKey>,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        let [tmp, new, cur] = ["tmp", "new", "cur"].map(|name| path.join(name));
        let (new_sync, cur_sync) = (DirectorySync::new(new.clone()), DirectorySync::new(cur.clone()));
        Self { path, tmp, new, cur, new_sync, cur_sync, read_mail: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes sure that exactly one file stands for `key`, on the disk. `permitted` is asked as the last act before
    /// the file gets its name.
    pub(super) fn deliver(
        &self,
        key: &ReceiptKey,
        mime: &[u8],
        permitted: impl Fn() -> bool,
    ) -> Result<Delivery, Trouble> {
        let name = &file_name(key);
        if self.stands(key, name)? {
            return Ok(Delivery::Stands { name: name.clone() });
        }
        let written = match self.write(name, mime) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.create().map_err(Trouble::before)?;
                self.write(name, mime)
            }
            other => other,
        };
        let written = written.map_err(Trouble::before)?;
        rehearsal::reach(rehearsal::Step::Connected);
        if !permitted() {
            return Ok(Delivery::NotStarted);
        }
        let named = written.persist_noclobber(self.new.join(name)).or_else(|refused| {
            // `tmp` alone stands where making the Maildir was cut off, or where `new` was taken away since.
            if refused.error.kind() == ErrorKind::NotFound && self.create().is_ok() {
                return refused.path.persist_noclobber(self.new.join(name));
            }
            Err(refused)
        });
        match named {
            Ok(()) => {}
            // Another worker was faster: its file counts.
            Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => {}
            Err(refused) => return Err(Trouble::before(refused.error)),
        }
        rehearsal::reach(rehearsal::Step::RequestWritten);
        self.new_sync.sync().map_err(Trouble::syncing)?;
        Ok(Delivery::Stands { name: name.clone() })
    }

    /// Whether an earlier attempt's file stands, whether or not a reader has taken it since. It is synced again,
    /// since that attempt may have died before it did so. `new` is looked at first: a reader moves from `new` to
    /// `cur`, so that looking the other way round could miss it.
    fn stands(&self, key: &ReceiptKey, name: &str) -> Result<bool, Trouble> {
        let sync = if self.new.join(name).try_exists().map_err(Trouble::before)? {
            &self.new_sync
        } else if self.is_read(key).map_err(Trouble::before)? {
            &self.cur_sync
        } else {
            return Ok(false);
        };
        sync.sync().map_err(Trouble::syncing)?;
        Ok(true)
    }

    /// Whether `cur` holds the key's file, with whatever flags behind its name.
    fn is_read(&self, key: &ReceiptKey) -> io::Result<bool> {
        let changed_at = match fs::metadata(&self.cur) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            other => other?.modified()?,
        };
        let mut listing = self.read_mail.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = match listing.take().filter(|listing| listing.still_true(changed_at)) {
            Some(listing) => listing,
            None => Listing { changed_at, taken_at: SystemTime::now(), keys: keys_in(&self.cur)? },
        };
        let found = fresh.keys.contains(key);
        *listing = Some(fresh);
        Ok(found)
    }

    /// A file in `tmp` with these bytes, on the disk. It goes when the value is dropped.
    fn write(&self, name: &str, mime: &[u8]) -> io::Result<TempPath> {
        let mut file: NamedTempFile = tempfile::Builder::new().prefix(&format!("{name}.")).tempfile_in(&self.tmp)?;
        file.write_all(&with_line_feeds(mime))?;
        file.as_file().sync_all()?;
        Ok(file.into_temp_path())
    }

    /// Makes the three directories with mode 0700, and sees that their names are on the disk. `tmp` comes last: its
    /// absence is what shows that the others may be missing.
    fn create(&self) -> io::Result<()> {
        for directory in [&self.new, &self.cur, &self.tmp] {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        File::open(&self.path)?.sync_all()?;
        self.path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }

    /// Makes the Maildir if need be, and writes and removes a file in it.
    pub(super) fn probe(&self) -> io::Result<()> {
        self.create()?;
        self.write("probe", b"")?.close()
    }
}

impl Listing {
    fn still_true(&self, changed_at: SystemTime) -> bool {
        let at_rest = self.taken_at.duration_since(self.changed_at).is_ok_and(|rest| rest >= AT_REST);
        self.changed_at == changed_at && at_rest
    }
}

/// The receipt keys that the file names in a directory carry.
fn keys_in(directory: &Path) -> io::Result<HashSet<ReceiptKey>> {
    let mut keys = HashSet::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        keys.extend(name.to_str().and_then(|name| name.split('.').nth(1)).and_then(ReceiptKey::from_hex));
    }
    Ok(keys)
}

/// Files of a Maildir end their lines as files do; only the wire has CRLF.
fn with_line_feeds(mime: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(mime.len());
    for line in mime.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(bare) => {
                text.extend_from_slice(bare);
                text.push(b'\n');
            }
            None => text.extend_from_slice(line),
        }
    }
    text
}
