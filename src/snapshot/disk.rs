//! Files and directories that only their owner may read (0600, 0700) and that outlive a power cut once written.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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

/// Keeps other processes from a directory until the lock is dropped.
pub(super) fn lock(directory: &Path) -> io::Result<File> {
    let file = open_lock(&directory.join(".lock"))?;
    file.lock()?;
    Ok(file)
}

/// Puts a whole new file at `path`, with the directories between `root` and it; `false` where one stands there.
pub(super) fn create_whole(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let directory = path.parent().unwrap_or(root);
    if !directory.exists() {
        create_directories(directory)?;
        for above in directory.ancestors().skip(1).take_while(|above| above.starts_with(root)) {
            sync_directory(above)?;
        }
    }
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => sync_directory(directory).map(|()| true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}

/// A directory for temporary files that nobody but this user can look into.
pub(super) fn private_directory() -> io::Result<PathBuf> {
    let above = std::env::temp_dir();
    let ours = tempfile::tempfile_in(&above)?.metadata()?.uid();
    let directory = above.join(format!("counterfoil-{ours}"));
    match create_directory(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not followed: whoever may write beside it could have laid a link there.
    let found = fs::symlink_metadata(&directory)?;
    if found.is_dir() && found.uid() == ours && found.mode() & 0o077 == 0 {
        return Ok(directory);
    }
    let problem = format!("{} belongs to somebody else; set TMPDIR to a directory of this user", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}
