//! `maildir`: delivers into a Maildir on this machine, one file a receipt key, named by the key, so that a repeated
//! send finds what stands and adds nothing. This file holds settings and outcomes; `folder` holds the files.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Build, Kind, Outgoing, Provider};
use crate::config::ConfigError;
use crate::receipt::{Capabilities, Outcome, Replay};

mod directory_sync;
mod folder;

use folder::{Delivery, Folder, Step, Trouble};

const SEND_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const KIND: Kind = Kind {
    name: "maildir",
    summary: "delivers into a Maildir on this machine: setting `path`",
    send_timeout: SEND_TIMEOUT,
    build,
};

fn build(build: Build<'_>) -> Result<Box<dyn Provider>, ConfigError> {
    let Build { settings, directory, send_timeout, .. } = build;
    settings.refuse_unknown(&["path"])?;
    let path = settings.required_text("path")?;
    if path.is_empty() {
        return Err(ConfigError::setting(settings.name("path"), "is empty; name a directory such as \"outbox\""));
    }
    let joined = directory.join(path);
    let absolute = std::path::absolute(&joined).map_err(|error| {
        ConfigError::setting(settings.name("path"), format!("{} is not a usable path: {error}", joined.display()))
    })?;
    Ok(Box::new(Maildir {
        setting: settings.name("path"),
        folder: Arc::new(Folder::new(absolute)),
        send_timeout: send_timeout.unwrap_or(SEND_TIMEOUT),
    }))
}

#[derive(Debug)]
struct Maildir {
    /// Full name of the setting `path`, for messages.
    setting: String,
    folder: Arc<Folder>,
    send_timeout: Duration,
}

#[async_trait]
impl Provider for Maildir {
    fn capabilities(&self) -> Capabilities {
        Capabilities { replay: Replay::Always, lookup: None }
    }

    fn account(&self) -> String {
        format!("maildir {}", self.folder.path().display())
    }

    async fn check(&self) -> Result<String, String> {
        let folder = Arc::clone(&self.folder);
        let probed = tokio::task::spawn_blocking(move || folder.probe()).await;
        match probed {
            Ok(Ok(())) => Ok(format!("{} is a Maildir and can be written to", self.folder.path().display())),
            Ok(Err(error)) => Err(self.problem(&error)),
            Err(stopped) => Err(format!("the check did not end: {stopped}")),
        }
    }

    async fn send(&self, outgoing: Outgoing<'_>) -> Outcome {
        let lease = *outgoing.lease;
        let send_timeout = self.send_timeout;
        if !lease.covers(send_timeout) {
            return Outcome::NotStarted;
        }
        let folder = Arc::clone(&self.folder);
        let key = *outgoing.key;
        let mime = outgoing.message.to_mime();
        let delivered =
            tokio::task::spawn_blocking(move || folder.deliver(&key, &mime, || lease.covers(send_timeout))).await;
        match delivered {
            Ok(Ok(Delivery::Stands { name })) => Outcome::Accepted { reference: name },
            Ok(Ok(Delivery::NotStarted)) => Outcome::NotStarted,
            Ok(Err(trouble)) => self.outcome(&trouble),
            // The runtime is going down or the work died: the file may stand.
            Err(_) => Outcome::Ambiguous { code: "file_work_ended_early".to_owned() },
        }
    }
}

impl Maildir {
    /// Before the file stands under its name, an error proves that nothing was accepted. After that only the
    /// directory's sync can fail: the file may or may not survive a power cut, and a repeat finds out.
    fn outcome(&self, trouble: &Trouble) -> Outcome {
        let kind = trouble.error.kind();
        if trouble.step == Step::DirectorySync {
            return Outcome::Ambiguous { code: "directory_sync".to_owned() };
        }
        match kind {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Outcome::Unavailable { code: "disk_full".to_owned() },
            _ if needs_a_person(kind) => Outcome::Misconfigured { problem: self.problem(&trouble.error) },
            _ => Outcome::Unavailable { code: "file_error".to_owned() },
        }
    }

    fn problem(&self, error: &Error) -> String {
        format!(
            "setting `{}`: cannot write to {} ({}); make it a directory that this user may write to",
            self.setting,
            self.folder.path().display(),
            error.kind()
        )
    }
}

/// Errors that no waiting cures: they concern every message alike.
fn needs_a_person(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::InvalidFilename
    )
}

#[cfg(test)]
mod tests;
