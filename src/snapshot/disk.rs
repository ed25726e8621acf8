//! Files and directories that only their owner may read (0600, 0700) and that outlive a power cut once written.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a directory and those above it.
pub(super) fn create_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a directory that must not exist yet.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Makes a file that must not exist yet.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).read(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file for its lock; makes it where it is absent.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Writes a directory's entries to disk: what was created or renamed in it stays so.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Puts a whole new file in place of `path`, or leaves what was there.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Mode 0600 and a name of its own, removed again unless it is renamed.
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(directory)?;
    write(file.as_file_mut())?;
    file.as_file_mut().flush()?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    sync_directory(directory)
}

/// Moves a file or directory inside one file system and makes both ends durable.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    for directory in [from.parent(), to.parent()].into_iter().flatten() {
        sync_directory(directory)?;
    }
    Ok(())
}
