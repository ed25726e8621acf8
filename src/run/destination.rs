//! A destination while a run is on: its provider, its places for sends and claims, and the rules that decide over an
//! outcome there. Its pace is in `pace`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::engine::PARTS_AT_ONCE;
use super::lookup::Doubts;
use super::pace::KnownPace;
use super::{Refusal, RunError};
use crate::config::{Config, DestinationConfig};
use crate::ledger::{DestinationNumber, Ledger};
use crate::provider::{self, Provider};
use crate::receipt::{Capabilities, Lookup, Policy, Replay};

/// A configured destination, ready to send.
pub(super) struct Destination {
    /// Its configuration.
    pub config: DestinationConfig,
    /// The adapter behind it.
    pub provider: Box<dyn Provider>,
    /// Its name and account as receipts refer to them.
    pub number: DestinationNumber,
    /// Sends at the same time.
    pub sends: Semaphore,
    /// Claims that are not settled yet.
    pub claims: Arc<Semaphore>,
    /// What keeps us from it, as far as this process knows.
    pub pace: KnownPace,
    /// Parts that have rows under way here.
    pub places: Semaphore,
    /// What this process has left in doubt here lately.
    pub doubts: Doubts,
}

impl Destination {
    async fn open(config: &DestinationConfig, settings: &Config, ledger: &dyn Ledger) -> Result<Self, RunError> {
        let provider = build(config, settings).map_err(|error| Refusal::Configuration(error.to_string()))?;
        let account: [u8; 32] = Sha256::digest(provider.account().as_bytes()).into();
        let number = ledger.destination(&config.name, &account).await?;
        let capabilities = provider.capabilities();
        let claims = most_claims(config, &capabilities, settings.run.max_in_flight);
        let batch = if can_decide(&capabilities) { claims.div_ceil(4) } else { claims };
        Ok(Self {
            provider,
            number,
            sends: Semaphore::new(config.concurrency),
            claims: Arc::new(Semaphore::new(claims)),
            pace: KnownPace::of(config.concurrency, config.rate, batch.clamp(1, claims)),
            places: Semaphore::new(PARTS_AT_ONCE),
            doubts: Doubts::of(capabilities.lookup),
            config: config.clone(),
        })
    }

    /// The rules that decide over an outcome here.
    pub(super) fn policy(&self, deadline: Timestamp) -> Policy {
        Policy {
            capabilities: self.provider.capabilities(),
            on_ambiguous: self.config.on_ambiguous,
            max_attempts: self.config.max_attempts,
            backoff: self.config.backoff,
            deadline,
        }
    }

    /// How the provider can be asked about an attempt.
    pub(super) fn lookup(&self) -> Option<Lookup> {
        self.provider.capabilities().lookup
    }

    /// Time from a batch's first send to the one in this place.
    pub(super) fn spacing(&self, place: u32) -> Duration {
        self.config.rate.map_or(Duration::ZERO, |rate| rate.interval.unsigned_abs().saturating_mul(place))
    }
}

/// Makes the provider of a destination; connects to nothing.
///
/// # Errors
/// A provider that does not exist, or settings that it does not take.
pub fn build(config: &DestinationConfig, settings: &Config) -> Result<Box<dyn Provider>, crate::config::ConfigError> {
    let kind = provider::kind(&config.provider).ok_or_else(|| {
        let known: Vec<&str> = provider::KINDS.iter().map(|kind| kind.name).collect();
        crate::config::ConfigError::setting(
            format!("destination.{}.provider", config.name),
            format!("is not a provider; known: {}", known.join(", ")),
        )
    })?;
    (kind.build)(provider::Build {
        destination: &config.name,
        settings: config.settings.clone(),
        send_timeout: Some(config.send_timeout),
        directory: &settings.directory,
        environment: &settings.environment,
    })
}

/// A crash leaves in doubt what was claimed and not settled: few where the destination can neither look up nor
/// replay, and never more than it sends in a third of the lease.
fn most_claims(config: &DestinationConfig, capabilities: &Capabilities, max_in_flight: usize) -> usize {
    let by_doubt = if can_decide(capabilities) { max_in_flight } else { config.concurrency.min(max_in_flight) };
    let by_rate = config.rate.map_or(usize::MAX, |rate| {
        let third = config.lease.as_millis() / 3;
        usize::try_from(third / rate.interval.as_millis().max(1)).unwrap_or(usize::MAX)
    });
    by_doubt.min(by_rate).max(1)
}

/// Whether the program finds out by itself what became of an attempt in doubt.
fn can_decide(capabilities: &Capabilities) -> bool {
    capabilities.lookup.is_some() || capabilities.replay != Replay::Never
}

/// Sleeps; `false` when stopped meanwhile.
pub(super) async fn sleep(wait: Duration, stop: &CancellationToken) -> bool {
    if wait.is_zero() {
        return !stop.is_cancelled();
    }
    tokio::select! {
        () = tokio::time::sleep(wait) => true,
        () = stop.cancelled() => false,
    }
}

/// The destinations that a run may send to, by name.
pub struct Destinations(BTreeMap<String, Arc<Destination>>);

impl Destinations {
    /// Opens every configured destination.
    ///
    /// # Errors
    /// Settings that a provider does not take, or a ledger that fails.
    pub(super) async fn open(config: &Config, ledger: &dyn Ledger) -> Result<Self, RunError> {
        let mut all = BTreeMap::new();
        for (name, destination) in &config.destinations {
            all.insert(name.clone(), Arc::new(Destination::open(destination, config, ledger).await?));
        }
        Ok(Self(all))
    }

    /// The destination with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Destination>> {
        self.0.get(name)
    }

    /// The destination that receipts refer to by this number.
    pub(super) fn numbered(&self, number: DestinationNumber) -> Option<Arc<Destination>> {
        self.0.values().find(|destination| destination.number == number).cloned()
    }

    /// The longest time until a doubtful attempt may be looked up.
    pub(super) fn longest_settle(&self) -> SignedDuration {
        self.0
            .values()
            .filter_map(|destination| destination.lookup())
            .map(|lookup| lookup.settle)
            .max()
            .unwrap_or_default()
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Destination>> {
        self.0.values()
    }

    /// The longest lease of all, which part leases take too.
    pub(super) fn longest_lease(&self) -> SignedDuration {
        self.0.values().map(|destination| destination.config.lease).max().unwrap_or(SignedDuration::from_mins(5))
    }
}
