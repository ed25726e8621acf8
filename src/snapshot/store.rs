//! Where sealed snapshots live: one folder a snapshot, named by its id, that holds the parts and the manifest, in a
//! directory or in a bucket of an object store. What makes a snapshot valid is decided here, once for both; how bytes
//! get there and back is [`Directory`]'s and [`Bucket`]'s.
//!
//! Every method blocks, on the file system or on the network; asynchronous callers wrap it in `spawn_blocking`. A
//! store may be shared by any number of processes.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::bucket::Bucket;
use super::directory::Directory;
use super::manifest::{MANIFEST, Manifest, is_id, part_name};
use super::{StoreLocation, disk};
use crate::identity::hex_text;

/// A snapshot store.
#[derive(Debug, Clone)]
pub struct Store {
    place: Place,
}

/// Where the bytes are. Names are relative, with slashes between their parts.
#[derive(Debug, Clone)]
enum Place {
    Directory(Directory),
    Bucket(Bucket),
}

/// What went wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Reading or writing a file failed.
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
    /// An object store refused, or could not be reached.
    #[error("snapshot store: cannot {action} {place}: {reason}")]
    Remote {
        /// `read`, `write`, …
        action: &'static str,
        /// Bucket and name, as a URL.
        place: String,
        /// What is wrong and what to do; without secrets.
        reason: String,
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
        /// The file, or the object's URL.
        path: PathBuf,
    },
}

impl StoreError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the store itself is out of reach, so that nothing else can be read from it either.
    pub const fn is_out_of_reach(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Remote { .. })
    }
}

impl Store {
    /// Opens the store at a directory, which is made where it is absent.
    ///
    /// # Errors
    /// A directory that cannot be made or is none.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self { place: Place::Directory(Directory::open(directory)?) })
    }

    /// Opens the store where the configuration says. A bucket is not asked for anything yet.
    ///
    /// # Errors
    /// See [`Store::open`]; settings of an object store that cannot be used.
    pub fn at(location: &StoreLocation) -> Result<Self, StoreError> {
        match location {
            StoreLocation::Directory(directory) => Self::open(directory),
            StoreLocation::Bucket(bucket) => Ok(Self { place: Place::Bucket(Bucket::open(bucket)?) }),
        }
    }

    /// The manifest of a sealed snapshot.
    ///
    /// # Errors
    /// [`StoreError::Absent`], [`StoreError::Damaged`], or a store that cannot be read.
    pub fn manifest(&self, id: &str) -> Result<Manifest, StoreError> {
        let name = file_of(id, MANIFEST)?;
        let Some(bytes) = self.read(&name)? else { return Err(StoreError::Absent { id: id.to_owned() }) };
        match serde_json::from_slice::<Manifest>(&bytes) {
            Ok(manifest) if manifest.id == id && manifest.is_sound() => Ok(manifest),
            _ => Err(StoreError::Damaged { path: self.shown(&name) }),
        }
    }

    /// The bytes of one part, just as they were sealed. Reads the manifest first; [`Store::part_of`] spares that.
    ///
    /// # Errors
    /// See [`Store::manifest`] and [`Store::part_of`].
    pub fn part(&self, id: &str, number: u32) -> Result<Vec<u8>, StoreError> {
        self.part_of(&self.manifest(id)?, number)
    }

    /// The bytes of one part of a manifest at hand, just as they were sealed: [`super::lines`] takes them apart.
    ///
    /// # Errors
    /// [`StoreError::AbsentPart`], [`StoreError::Damaged`] where the hash differs or the file is gone, or a store that
    /// cannot be read.
    pub fn part_of(&self, manifest: &Manifest, number: u32) -> Result<Vec<u8>, StoreError> {
        let expected = usize::try_from(number).ok().and_then(|index| manifest.part_sha256.get(index));
        let absent = || StoreError::AbsentPart { id: manifest.id.clone(), number };
        let expected = expected.ok_or_else(absent)?;
        let name = file_of(&manifest.id, &part_name(number))?;
        match self.read(&name)? {
            Some(bytes) if hex_text(&Sha256::digest(&bytes)) == *expected => Ok(bytes),
            _ => Err(StoreError::Damaged { path: self.shown(&name) }),
        }
    }

    /// Every sealed snapshot, the one sealed first at the front.
    ///
    /// # Errors
    /// A store that cannot be read, or a damaged manifest.
    pub fn list(&self) -> Result<Vec<Manifest>, StoreError> {
        let folders = match &self.place {
            Place::Directory(directory) => directory.folders()?,
            Place::Bucket(bucket) => bucket.folders()?,
        };
        let mut manifests = Vec::new();
        for id in folders.into_iter().filter(|name| is_id(name)) {
            match self.manifest(&id) {
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

    /// Puts finished parts in their place and the manifest last: a snapshot without one does not exist. Where the
    /// snapshot is there already, the standing one is kept, and parts of it that are damaged are mended. Answers the
    /// standing manifest and whether it stood before.
    pub(super) fn publish(&self, parts: &Path, manifest: Manifest) -> Result<(Manifest, bool), StoreError> {
        match &self.place {
            Place::Directory(directory) => {
                let _lock = disk::lock(directory.root()).map_err(StoreError::io("lock", directory.root()))?;
                if directory.has_folder(&manifest.id) {
                    return Ok((self.mend(parts, manifest)?, true));
                }
                disk::replace(&parts.join(MANIFEST), |file| file.write_all(&manifest_bytes(&manifest)))
                    .map_err(StoreError::io("write", parts))?;
                match directory.adopt(parts, &manifest.id)? {
                    true => Ok((manifest, false)),
                    // On a file system without locks another process may have come first; it holds the same content.
                    false => Ok((self.mend(parts, manifest)?, true)),
                }
            }
            Place::Bucket(bucket) => {
                match self.manifest(&manifest.id) {
                    Err(StoreError::Absent { .. }) => {}
                    Ok(_) | Err(StoreError::Damaged { .. }) => return Ok((self.mend(parts, manifest)?, true)),
                    Err(error) => return Err(error),
                }
                // What a sealing that broke off has left there is the same content, or is replaced by it.
                for number in (0..).take(manifest.part_rows.len()) {
                    let name = part_name(number);
                    bucket.put_file(&file_of(&manifest.id, &name)?, &parts.join(&name))?;
                }
                match bucket.create(&file_of(&manifest.id, MANIFEST)?, manifest_bytes(&manifest))? {
                    true => Ok((manifest, false)),
                    false => Ok((self.mend(parts, manifest)?, true)),
                }
            }
        }
    }

    /// Compares a standing snapshot with the same content sealed anew and replaces what is damaged.
    fn mend(&self, parts: &Path, manifest: Manifest) -> Result<Manifest, StoreError> {
        for number in (0..).take(manifest.part_rows.len()) {
            match self.part_of(&manifest, number) {
                Err(StoreError::Damaged { .. }) => {
                    let name = part_name(number);
                    self.put_file(&file_of(&manifest.id, &name)?, &parts.join(&name))?;
                }
                sound => drop(sound?),
            }
        }
        match self.manifest(&manifest.id) {
            Ok(standing) => Ok(standing),
            Err(StoreError::Damaged { .. } | StoreError::Absent { .. }) => {
                let name = file_of(&manifest.id, MANIFEST)?;
                match &self.place {
                    Place::Directory(directory) => directory.replace(&name, &manifest_bytes(&manifest))?,
                    Place::Bucket(bucket) => bucket.put(&name, manifest_bytes(&manifest))?,
                }
                Ok(manifest)
            }
            Err(error) => Err(error),
        }
    }

    /// Where a sealing may lay out its parts, and where its list of rejected rows goes unless another file is named.
    pub(super) fn workspace(&self) -> Result<PathBuf, StoreError> {
        match &self.place {
            Place::Directory(directory) => Ok(directory.root().to_owned()),
            Place::Bucket(_) => disk::private_directory().map_err(StoreError::io("use", &std::env::temp_dir())),
        }
    }

    /// Moves a finished file into the store, in place of what stands under the name.
    pub(super) fn put_file(&self, name: &str, from: &Path) -> Result<(), StoreError> {
        match &self.place {
            Place::Directory(directory) => directory.put_file(name, from),
            Place::Bucket(bucket) => bucket.put_file(name, from),
        }
    }

    /// The bytes under a name; `None` where there is nothing.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match &self.place {
            Place::Directory(directory) => directory.read(name),
            Place::Bucket(bucket) => bucket.read(name),
        }
    }

    /// Writes under a name that nothing stands under; `false` where something does.
    pub(super) fn create(&self, name: &str, bytes: Vec<u8>) -> Result<bool, StoreError> {
        match &self.place {
            Place::Directory(directory) => directory.create(name, &bytes),
            Place::Bucket(bucket) => bucket.create(name, bytes),
        }
    }

    /// Every name below a folder, at any depth, relative to the store.
    pub(super) fn names(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        match &self.place {
            Place::Directory(directory) => directory.names(folder),
            Place::Bucket(bucket) => bucket.names(folder),
        }
    }

    /// A name as messages show it: a path, or a URL.
    pub(super) fn shown(&self, name: &str) -> PathBuf {
        match &self.place {
            Place::Directory(directory) => directory.path(name),
            Place::Bucket(bucket) => PathBuf::from(bucket.shown(name)),
        }
    }
}

fn file_of(id: &str, name: &str) -> Result<String, StoreError> {
    if is_id(id) { Ok(format!("{id}/{name}")) } else { Err(StoreError::Id) }
}

fn manifest_bytes(manifest: &Manifest) -> Vec<u8> {
    // Numbers and texts: nothing that JSON could refuse.
    let mut bytes = serde_json::to_vec_pretty(manifest).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
