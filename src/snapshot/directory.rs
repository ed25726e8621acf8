//! A snapshot store in a directory: everything is readable for its owner only, and what was written outlives a power
//! cut. Names are relative to the directory. Not what makes a snapshot valid.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::disk;
use super::store::StoreError;

/// The directory.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    root: PathBuf,
}

impl Directory {
    /// Makes it where it is absent.
    pub(super) fn open(root: &Path) -> Result<Self, StoreError> {
        disk::create_directories(root).map_err(StoreError::io("create", root))?;
        Ok(Self { root: root.to_owned() })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn has_folder(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// What stands directly in the directory.
    pub(super) fn folders(&self) -> Result<Vec<String>, StoreError> {
        let read = StoreError::io("read", &self.root);
        let entries = fs::read_dir(&self.root).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(read)?;
        Ok(entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path(name);
        match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => Ok(Some(read.map_err(StoreError::io("read", &path))?)),
        }
    }

    /// Takes a finished directory into its place; `false` where the place is taken.
    pub(super) fn adopt(&self, directory: &Path, name: &str) -> Result<bool, StoreError> {
        let place = self.path(name);
        match disk::rename(directory, &place) {
            Ok(()) => Ok(true),
            Err(_) if place.exists() && directory.exists() => Ok(false),
            Err(source) => Err(StoreError::Io { action: "publish", path: place, source }),
        }
    }

    pub(super) fn put_file(&self, name: &str, from: &Path) -> Result<(), StoreError> {
        let path = self.path(name);
        disk::rename(from, &path).map_err(StoreError::io("write", &path))
    }

    pub(super) fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path(name);
        disk::replace(&path, |file| file.write_all(bytes)).map_err(StoreError::io("write", &path))
    }

    /// Writes a new file whole, with the folders above it; `false` where one stands there.
    pub(super) fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        let path = self.path(name);
        disk::create_whole(&self.root, &path, bytes).map_err(StoreError::io("write", &path))
    }

    /// Every file below a folder, those on their way into their place left out.
    pub(super) fn names(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let path = self.path(&folder);
            let entries = match fs::read_dir(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read.map_err(StoreError::io("read", &path))?,
            };
            for entry in entries {
                let entry = entry.map_err(StoreError::io("read", &path))?;
                let kind = entry.file_type().map_err(StoreError::io("read", &path))?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let name = format!("{folder}/{name}");
                match kind.is_dir() {
                    true => folders.push(name),
                    false => names.push(name),
                }
            }
        }
        Ok(names)
    }
}
