//! The configuration: file and environment read once into a validated value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use lettre::message::Mailbox;
use secrecy::{ExposeSecret as _, SecretString};

use crate::identity::{ContentVersion, DigestType};
use crate::ledger::{Mode, Rate};
use crate::receipt::OnAmbiguous;
use crate::receipt::backoff::Backoff;
use crate::rehearsal::Death;
use crate::snapshot::StoreLocation;

mod destination;
pub mod environment;
mod error;
mod keyring;
mod ledger_url;
mod load;
mod names;
pub mod quantity;
mod settings;
mod sources;
#[cfg(test)]
mod tests;

pub use error::ConfigError;
pub(crate) use keyring::shell_word;
pub use keyring::{KeyringSourceError, load_keyring};
pub use settings::Settings;
pub use sources::Sources;

/// Everything that the configuration says.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the file lies; paths in it are relative to here and already joined below.
    pub directory: PathBuf,
    /// Pinned in the ledger.
    pub environment: String,
    /// What "last week" means and when a week ends.
    pub time_zone: TimeZone,
    /// Root of the template bundles.
    pub templates: PathBuf,
    /// `[ledger]`
    pub ledger: LedgerConfig,
    /// `[keyring]`
    pub keyring: KeyringSource,
    /// `[store] url`: a directory or a bucket.
    pub store: StoreLocation,
    /// `[digest.<type>]`
    pub digests: BTreeMap<DigestType, DigestConfig>,
    /// `[destination.<name>]`
    pub destinations: BTreeMap<String, DestinationConfig>,
    /// `[run]`
    pub run: RunConfig,
    /// `[rollout]`
    pub rollout: RolloutConfig,
    /// `[retention]`
    pub retention: RetentionConfig,
    /// `COUNTERFOIL_TEST_CLOCK_OFFSET`: added to every clock that decides something. Zero outside tests.
    pub clock_offset: SignedDuration,
    /// `COUNTERFOIL_TEST_DIE_AT`: where this process ends itself. `None` outside exercises and tests.
    pub die_at: Option<Death>,
    /// Where each setting was found; for errors.
    pub sources: Sources,
}

/// `[ledger]`
#[derive(Debug, Clone)]
pub struct LedgerConfig {
    /// May hold a password.
    pub url: SecretString,
    /// Whether `run` migrates.
    pub auto_migrate: bool,
}

impl LedgerConfig {
    /// The file of an SQLite ledger; `None` where the ledger is a server.
    pub fn file(&self) -> Option<&Path> {
        self.url.expose_secret().strip_prefix("sqlite://").map(Path::new)
    }

    /// Where the ledger is, for people: a file, or host and database. Never a user's name, a password or an option.
    pub fn place(&self) -> String {
        if let Some(file) = self.file() {
            return file.display().to_string();
        }
        let parsed = url::Url::parse(self.url.expose_secret()).ok();
        let shown = parsed.map(|url| {
            let host = url.host_str().unwrap_or("localhost");
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("postgres://{host}{port}{}", url.path())
        });
        shown.unwrap_or_else(|| "a PostgreSQL server".to_owned())
    }
}

/// Where the keyring comes from.
#[derive(Debug, Clone)]
pub enum KeyringSource {
    /// A file of mode 0600 or stricter.
    File(PathBuf),
    /// The text of the environment variable `COUNTERFOIL_KEYRING`.
    Environment(SecretString),
}

/// `[digest.<type>]`
#[derive(Debug, Clone)]
pub struct DigestConfig {
    /// The version that is sent unless the command line names another.
    pub content_version: ContentVersion,
    /// Name of the destination of rows that name none.
    pub destination: String,
    /// The sender.
    pub from: Mailbox,
    /// The URL pattern with `{customer}` and `{token}`.
    pub unsubscribe: String,
    /// After the week's end.
    pub send_within: SignedDuration,
    /// Share of the last run's rows, such as 0.5 for 50 %.
    pub max_row_change: f64,
    /// Share of the rows seen.
    pub max_conflicts: f64,
    /// Share of the attempts.
    pub max_rejected: f64,
}

/// `[destination.<name>]`
#[derive(Debug, Clone)]
pub struct DestinationConfig {
    /// The table's name.
    pub name: String,
    /// A kind of [`crate::provider::KINDS`].
    pub provider: String,
    /// `None` is unlimited.
    pub rate: Option<Rate>,
    /// Sends at the same time, per process; at least 1.
    pub concurrency: usize,
    /// Attempts that may be spent on one receipt; at least 1.
    pub max_attempts: u32,
    /// Longest time from the decisive bytes to the answer.
    pub send_timeout: Duration,
    /// Length of a claim.
    pub lease: SignedDuration,
    /// Where neither lookup nor replay exists.
    pub on_ambiguous: OnAmbiguous,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// Whether the provider's text of a refusal is kept.
    pub keep_provider_text: bool,
    /// The provider kind's own settings.
    pub settings: Settings,
}

/// `[run]`
#[derive(Debug, Clone, Copy)]
pub struct RunConfig {
    /// Claims held at the same time, per process.
    pub max_in_flight: usize,
    /// How long to wait for what is due later; `None` is `auto`.
    pub wait: Option<SignedDuration>,
}

/// `[rollout]`
#[derive(Debug, Clone, Copy)]
pub struct RolloutConfig {
    /// The mode unless the command line names another.
    pub mode: Mode,
    /// Share of the customers, 0 to 1.
    pub cohort: f64,
}

/// `[retention]`
#[derive(Debug, Clone, Copy)]
pub struct RetentionConfig {
    /// Weeks for which a replay must find its receipt.
    pub replay_horizon_weeks: u32,
    /// Weeks for which receipts are kept.
    pub receipts_weeks: u32,
    /// Weeks for which snapshots are kept.
    pub snapshots_weeks: u32,
}
