//! What a provider is: one trait, explicit capabilities, and the registry of the kinds that exist.
//!
//! Nothing here knows a particular provider. Adding one is a file beside this one and a line in [`KINDS`].

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use crate::config::{ConfigError, Settings};
use crate::digest::Message;
use crate::identity::ReceiptKey;
use crate::ledger::Lease;
use crate::receipt::{Capabilities, Outcome, Sighting};

mod discard;
#[cfg(test)]
mod fixtures;
mod http;
mod maildir;
mod privacy;
mod secret_file;
mod smtp;
mod transport;
mod trust;

/// One message on its way.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The receipt key, which travels with the message in whatever form the provider can find again.
    pub key: &'a ReceiptKey,
    /// The rendered message; the same for every attempt.
    pub message: &'a Message,
    /// Checked as the last act before the bytes that can be accepted.
    pub lease: &'a Lease,
}

/// A configured account that messages are handed to.
#[async_trait]
pub trait Provider: Send + Sync {
    /// What it can do about an attempt whose outcome is unknown.
    fn capabilities(&self) -> Capabilities;

    /// What tells this account from another one: provider, host or account, stream, credential id, in one line
    /// without secrets. It is stored only as a hash.
    fn account(&self) -> String;

    /// Finds out whether the destination can be reached with these settings; sends nothing. The text says in one
    /// line what was found.
    async fn check(&self) -> Result<String, String>;

    /// Finds out by our key what became of earlier attempts; changes nothing. Only asked where
    /// [`Capabilities::lookup`] says that it can be, never retries, and takes no longer than its time-outs.
    async fn look_up(&self, _key: &ReceiptKey) -> Sighting {
        Sighting::Unknown { code: "no_lookup".to_owned() }
    }

    /// Makes one attempt. Never panics, never retries, never sleeps longer than its time-outs.
    async fn send(&self, outgoing: Outgoing<'_>) -> Outcome;
}

/// What every kind of provider is built from.
#[derive(Debug)]
pub struct Build<'a> {
    /// Name of the destination, for messages.
    pub destination: &'a str,
    /// The kind's own settings: all of the destination's that are not common to every kind.
    pub settings: Settings,
    /// Longest time from the decisive bytes to the answer; `None` takes the kind's own default.
    pub send_timeout: Option<Duration>,
    /// Directory of the configuration file, which paths are relative to.
    pub directory: &'a Path,
    /// The setting `environment`.
    pub environment: &'a str,
}

/// A kind of provider.
pub struct Kind {
    /// The word in `provider = "…"`.
    pub name: &'static str,
    /// One line for documentation and errors.
    pub summary: &'static str,
    /// The default of `send_timeout`.
    pub send_timeout: Duration,
    /// Checks the settings and makes the provider; connects to nothing.
    pub build: fn(Build<'_>) -> Result<Box<dyn Provider>, ConfigError>,
}

/// Every kind that exists, in the order of the documentation.
pub const KINDS: &[Kind] = &[maildir::KIND, smtp::KIND, http::KIND, discard::KIND];

/// The kind with this name.
pub fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}
