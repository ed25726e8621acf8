//! Looking up at the provider what became of attempts in doubt: under a grant like any attempt, without rendering,
//! without a place in the rate, and also after the deadline. What an answer means is decided by
//! [`crate::receipt::looked`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use jiff::SignedDuration;
use tokio::sync::SemaphorePermit;

use super::RunError;
use super::attempt::{Chunk, ChunkEnd, Ended, Granted, Start};
use super::destination::Destination;
use super::engine::Work;
use super::part::{KeyedRow, Pass, claim, later};
use super::queue::still_ours;
use crate::identity::ReceiptKey;
use crate::ledger::{Lease, Purpose};
use crate::receipt::{self, Looks, Lookup, Outcome};
use crate::rehearsal::{self, Step};

/// So many keys are remembered at most; about ten megabytes.
const MOST_DOUBTS: usize = 100_000;

/// Which keys this process has left in doubt within the last settle time, on its own monotonic clock: a look begins
/// no sooner, whatever the database's clock, or another process that follows it, makes of the time. Where so many are
/// in doubt that not all can be remembered, the instants in the ledger alone decide about the rest.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    settle: Duration,
    ended_at: Mutex<HashMap<ReceiptKey, Instant>>,
}

impl Doubts {
    /// Remembers nothing where nobody can be asked.
    pub(super) fn of(lookup: Option<Lookup>) -> Self {
        let settle = lookup.map_or(Duration::ZERO, |lookup| lookup.settle.max(SignedDuration::ZERO).unsigned_abs());
        Self { settle, ended_at: Mutex::default() }
    }

    /// An attempt or a look under this key has just ended and left a doubt.
    pub(super) fn note(&self, key: &ReceiptKey) {
        if self.settle.is_zero() {
            return;
        }
        let mut ended_at = self.ended_at.lock().unwrap_or_else(PoisonError::into_inner);
        if ended_at.len() >= MOST_DOUBTS {
            ended_at.retain(|_, at| at.elapsed() < self.settle);
        }
        if ended_at.len() < MOST_DOUBTS || ended_at.contains_key(key) {
            ended_at.insert(*key, Instant::now());
        }
    }

    /// How long a look at this key has to wait still.
    fn wait(&self, key: &ReceiptKey) -> Option<Duration> {
        let ended_at = self.ended_at.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ended_at.get(key)?;
        self.settle.checked_sub(at.elapsed()).filter(|wait| !wait.is_zero())
    }
}

/// Claims doubtful rows in batches and looks up what was granted. Only a pause holds looks back: they take nothing of
/// the rate, and they go on while a destination takes no messages, since what it has accepted can be told all the same.
pub(super) async fn claim_and_look(
    work: &Arc<Work>,
    part: u32,
    destination: &Arc<Destination>,
    rows: Vec<KeyedRow>,
    pass: &mut Pass,
) -> Result<(), RunError> {
    pass.let_others_begin();
    let mut rows = not_too_early(work, destination, rows, pass).into_iter().peekable();
    while rows.peek().is_some() {
        let batch: Vec<KeyedRow> = rows.by_ref().take(destination.pace.batch()).collect();
        let count = batch.len();
        let places = tokio::select! {
            // The semaphore is never closed.
            places = destination.claims.acquire_many(u32::try_from(count).unwrap_or(u32::MAX)) => places.ok(),
            () = work.halt.cancelled() => None,
        };
        if places.is_none() || work.must_stop() {
            pass.cut_short = true;
            return Ok(());
        }
        if let Some(until) = destination.paused_until(work.ledger.as_ref(), &work.clock).await? {
            pass.wait_until(until);
            return Ok(());
        }
        if !still_ours(work, part, pass).await? {
            pass.cut_short = true;
            return Ok(());
        }
        let (number, lease) = (destination.number, destination.config.lease);
        let granted = claim(work, part, number, lease, Purpose::Reconcile, batch, pass).await?;
        if let Some(at) = look_chunk(work, destination, part, granted).await?.due_at {
            pass.wait_until(at);
        }
        work.progress.part(part, pass.handled(count));
        drop(places);
    }
    Ok(())
}

/// The rows that may be looked up now; the others are waited for.
fn not_too_early(work: &Work, destination: &Destination, rows: Vec<KeyedRow>, pass: &mut Pass) -> Vec<KeyedRow> {
    let mut may_be_looked_up = |row: &KeyedRow| match destination.doubts.wait(&row.key) {
        Some(wait) => {
            pass.wait_until(later(work, SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX)));
            false
        }
        None => true,
    };
    rows.into_iter().filter(|row| may_be_looked_up(row)).collect()
}

/// Looks up and settles a chunk of granted rows. Looks that were begun are brought to their end; what was not begun
/// when the run stops is given back. Receipts whose look could not be recorded stay claimed until their lease ends.
async fn look_chunk(
    work: &Arc<Work>,
    destination: &Arc<Destination>,
    part: u32,
    granted: Vec<Granted>,
) -> Result<ChunkEnd, RunError> {
    let Some(lease) = granted.first().map(|granted| granted.claim.lease) else { return Ok(ChunkEnd::default()) };
    let chunk = Chunk::begin(work, destination, part, lease, Start::now(), granted.len());
    let keys: Vec<ReceiptKey> = granted.iter().map(|granted| granted.claim.key).collect();
    let looks = work.ledger.looks(work.run.new.iso_week, &keys).await?;
    let begun: FuturesUnordered<_> =
        granted.into_iter().zip(looks).map(|(granted, looks)| look(&chunk, granted, looks)).collect();
    chunk.record_all(begun, Vec::new()).await
}

/// Makes one look, or finds out that none may be made now.
async fn look(chunk: &Chunk<'_>, granted: Granted, looks: Looks) -> Ended {
    let (work, destination) = (chunk.work, chunk.destination);
    let Granted { claim, fingerprint, .. } = granted;
    let turn = turn(chunk, &claim.lease).await;
    let began_at = work.clock.now();
    let attempt = claim.grant.attempt(began_at);
    let policy = destination.policy(work.run.new.deadline_at);
    let settlement = if turn.is_some() {
        rehearsal::reach(Step::BeforeLookup);
        let sighting = destination.provider.look_up(&claim.key).await;
        rehearsal::reach(Step::AfterLookup);
        receipt::looked(&attempt, looks, &sighting, &policy, work.clock.now(), work.random())
    } else {
        receipt::settlement(&attempt, &Outcome::NotStarted, &policy, began_at, 0.0)
    };
    drop(turn);
    chunk.ended(&claim, fingerprint, began_at, settlement)
}

/// Waits for a place among the requests at the same time, which looks share with sends; `None` where none may begin.
async fn turn<'a>(chunk: &Chunk<'a>, lease: &Lease) -> Option<SemaphorePermit<'a>> {
    let (work, destination) = (chunk.work, chunk.destination);
    let turn = tokio::select! {
        turn = destination.sends.acquire() => turn.ok()?,
        () = work.halt.cancelled() => return None,
    };
    let may_begin = !work.halt.is_cancelled()
        && !chunk.ledger_is_away()
        && destination.pace.may_begin(work.clock.now(), true)
        && lease.covers(destination.config.send_timeout);
    may_begin.then_some(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> ReceiptKey {
        let mut bytes = [0; 32];
        for (place, byte) in bytes.iter_mut().zip(number.to_be_bytes()) {
            *place = byte;
        }
        ReceiptKey::from_bytes(bytes)
    }

    fn settling_for(settle: SignedDuration) -> Doubts {
        Doubts::of(Some(Lookup { settle, misses: 2, retention: None }))
    }

    #[test]
    fn a_look_waits_a_settle_time_on_our_own_clock() {
        let doubts = settling_for(SignedDuration::from_hours(1));
        assert_eq!(doubts.wait(&key(1)), None, "nothing is known of it");
        doubts.note(&key(1));
        let wait = doubts.wait(&key(1)).unwrap();
        assert!(wait > Duration::from_secs(3_500) && wait <= Duration::from_secs(3_600), "{wait:?}");
        assert_eq!(doubts.wait(&key(2)), None);
    }

    #[test]
    fn what_settles_at_once_or_cannot_be_asked_waits_for_nothing() {
        for doubts in [settling_for(SignedDuration::ZERO), Doubts::of(None)] {
            doubts.note(&key(1));
            assert_eq!(doubts.wait(&key(1)), None);
        }
    }

    #[test]
    fn memory_is_bounded_and_what_is_over_makes_room() {
        let doubts = settling_for(SignedDuration::from_hours(1));
        (0..=MOST_DOUBTS).for_each(|number| doubts.note(&key(number)));
        assert_eq!(doubts.ended_at.lock().unwrap().len(), MOST_DOUBTS);
        assert_eq!(doubts.wait(&key(MOST_DOUBTS)), None, "the ledger's instants decide about the rest");
        assert!(doubts.wait(&key(0)).is_some());
        let over = settling_for(SignedDuration::from_nanos(1));
        (0..=MOST_DOUBTS).for_each(|number| over.note(&key(number)));
        assert!(over.ended_at.lock().unwrap().len() < MOST_DOUBTS);
    }
}
