//! A destination while a run is on: its provider, its places for sends and claims, its pace, and the rules that
//! decide over an outcome there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::lookup::Doubts;
use super::{Clock, Refusal, RunError};
use crate::config::{Config, DestinationConfig};
use crate::ledger::{DestinationNumber, Ledger};
use crate::provider::{self, Provider};
use crate::receipt::{Capabilities, Lookup, Policy, Replay};

/// How long a reading of a destination's pause is good for.
const PAUSE_READING: Duration = Duration::from_secs(1);

/// A pause that ends so soon is waited for on the spot; for a longer one the rows are left, so that they hold up
/// neither other destinations nor the end of the run.
const SHORT_PAUSE: SignedDuration = SignedDuration::from_secs(2);

/// Whether a batch may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// The first of its sends may start now.
    Go,
    /// The destination is paused until then.
    Paused(Timestamp),
    /// The run was stopped.
    Stopped,
}

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
    /// Greatest number of rows claimed at once.
    pub batch: usize,
    /// What this process has left in doubt here lately.
    pub doubts: Doubts,
    pause: Mutex<Pause>,
}

#[derive(Debug, Default)]
struct Pause {
    read_at: Option<Instant>,
    until: Option<Timestamp>,
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
            batch: batch.clamp(1, claims),
            doubts: Doubts::of(capabilities.lookup),
            pause: Mutex::default(),
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

    /// Whether this process knows of a pause. One that was read or set stays true until its end: no pause is shortened.
    pub(super) fn is_paused(&self, now: Timestamp) -> bool {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner).until.is_some_and(|until| until > now)
    }

    /// Waits until `count` sends may start at the shared rate, unless the destination is paused for longer.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn admit(
        &self,
        count: usize,
        ledger: &dyn Ledger,
        clock: &Clock,
        stop: &CancellationToken,
    ) -> Result<Admission, RunError> {
        match self.unpaused(ledger, clock, stop).await? {
            Admission::Go => {}
            kept_off => return Ok(kept_off),
        }
        let wait = match self.config.rate {
            None => Duration::ZERO,
            Some(rate) => {
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                ledger.reserve(&self.config.name, count, rate).await?.wait.unsigned_abs()
            }
        };
        Ok(if sleep(wait, stop).await { Admission::Go } else { Admission::Stopped })
    }

    /// Waits for the end of a short pause: all that a look has to wait for.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn unpaused(
        &self,
        ledger: &dyn Ledger,
        clock: &Clock,
        stop: &CancellationToken,
    ) -> Result<Admission, RunError> {
        while let Some(until) = self.paused_until(ledger).await? {
            let wait = until.duration_since(clock.now());
            if !wait.is_positive() {
                break;
            }
            if wait > SHORT_PAUSE {
                return Ok(Admission::Paused(until));
            }
            if !sleep(wait.unsigned_abs().min(PAUSE_READING), stop).await {
                return Ok(Admission::Stopped);
            }
        }
        Ok(if stop.is_cancelled() { Admission::Stopped } else { Admission::Go })
    }

    /// Pauses the destination for every worker.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn pause(&self, until: Timestamp, ledger: &dyn Ledger) -> Result<(), RunError> {
        {
            // At once for our own sends; the next admission reads what all the others have set.
            let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
            *pause = Pause { read_at: None, until: pause.until.max(Some(until)) };
        }
        Ok(ledger.pause(&self.config.name, until).await?)
    }

    async fn paused_until(&self, ledger: &dyn Ledger) -> Result<Option<Timestamp>, RunError> {
        {
            let pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
            if pause.read_at.is_some_and(|at| at.elapsed() < PAUSE_READING) {
                return Ok(pause.until);
            }
        }
        let until = ledger.paused_until(&self.config.name).await?;
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        *pause = Pause { read_at: Some(Instant::now()), until: pause.until.max(until) };
        Ok(pause.until)
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

    /// The longest lease of all, which part leases take too.
    pub(super) fn longest_lease(&self) -> jiff::SignedDuration {
        self.0.values().map(|destination| destination.config.lease).max().unwrap_or(jiff::SignedDuration::from_mins(5))
    }
}
