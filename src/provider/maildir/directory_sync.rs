//! One fsync of a directory for everyone who waits for it. Blocking; called from threads that may block.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Groups syncs of one directory: whoever comes while one is running shares the next, which begins after all of
/// them came and therefore covers what each of them did to the directory.
#[derive(Debug)]
pub(super) struct DirectorySync {
    directory: PathBuf,
    progress: Mutex<Progress>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// Syncs asked for so far; the number of a request is the count with it.
    requested: u64,
    /// Every request up to this number is covered by a sync that succeeded.
    covered: u64,
    running: bool,
}

impl DirectorySync {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, progress: Mutex::default(), ended: Condvar::new() }
    }

    /// Returns once the directory, as it was when this was called, is on the disk.
    ///
    /// # Errors
    /// The system's error, to the one whose sync failed; those who waited for the same sync try their own.
    pub(super) fn sync(&self) -> io::Result<()> {
        let mut progress = self.lock();
        progress.requested += 1;
        let request = progress.requested;
        while progress.covered < request {
            if progress.running {
                progress = self.ended.wait(progress).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let covers = progress.requested;
            progress.running = true;
            drop(progress);
            let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
            progress = self.lock();
            progress.running = false;
            self.ended.notify_all();
            synced?;
            progress.covered = covers;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
