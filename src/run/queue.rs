//! The way of a part's rows to their destination: a place there, a batch as pace and brakes allow, claims, sends. Rows
//! that would wait for long are left, so that waiting costs nothing and survives a restart.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::SemaphorePermit;

use super::RunError;
use super::attempt::{self, Start};
use super::destination::{Destination, sleep};
use super::engine::Work;
use super::only_unsent;
use super::pace::Admission;
use super::part::{KeyedRow, Pass, claim};
use crate::ledger::Purpose;

/// What keeps us from a destination for no longer than this is waited for on the spot.
const ON_THE_SPOT: SignedDuration = SignedDuration::from_secs(15);

/// How long a part waits for a place at a destination that is merely busy, where rows of others may stand behind it.
const FOR_A_PLACE: Duration = Duration::from_secs(2);

/// What the next batch is.
enum Next<'a> {
    /// So many rows, which start then and hold these places among the claims.
    Batch { rows: usize, start: Start, claims: SemaphorePermit<'a> },
    /// Ask again.
    Again,
    /// The rows are left; the pass says for how long.
    Leave,
}

/// Claims rows in batches as places, pace and brakes allow, and sends what was granted.
pub(super) async fn claim_and_send(
    work: &Arc<Work>,
    part: u32,
    destination: &Arc<Destination>,
    purpose: Purpose,
    mut rows: Vec<KeyedRow>,
    pass: &mut Pass,
) -> Result<(), RunError> {
    destination.pace.meet();
    let Some(_place) = place(work, part, destination, rows.len(), pass).await? else { return Ok(()) };
    pass.let_others_begin();
    while !rows.is_empty() {
        let (count, start, claims) = match next(work, destination, purpose, rows.len(), pass).await? {
            Next::Batch { rows, start, claims } => (rows, start, claims),
            Next::Again => continue,
            Next::Leave => return Ok(()),
        };
        if !still_ours(work, part, pass).await? {
            // Another worker has taken the part over; the receipts decide, but there is no need to race it.
            pass.cut_short = true;
            return Ok(());
        }
        let rest = rows.split_off(count.min(rows.len()));
        let batch = std::mem::replace(&mut rows, rest);
        let handled = pass.handled(batch.len());
        let batch = only_unsent::take_place(work, batch, pass).await?;
        let granted = claim(work, part, destination.number, destination.config.lease, purpose, batch, pass).await?;
        let end = attempt::send_chunk(work, destination, part, granted, start).await?;
        work.progress.part(part, handled);
        if let Some(at) = end.due_at {
            pass.wait_until(at);
        }
        if !destination.pace.is_blocked(work.clock.now()) {
            destination.pace.went_well();
        }
        drop(claims);
    }
    Ok(())
}

/// A place among the parts that have rows under way at a destination. Where other destinations exist, it is only waited
/// for as long as one is likely to come free: rows behind these may be for one that is not busy.
async fn place<'a>(
    work: &Arc<Work>,
    part: u32,
    destination: &'a Destination,
    rows: usize,
    pass: &mut Pass,
) -> Result<Option<SemaphorePermit<'a>>, RunError> {
    let now = work.clock.now();
    let alone = work.destinations.all().nth(1).is_none();
    let busy_for_long = destination.config.rate.is_some() || destination.pace.is_blocked(now);
    let patience = if busy_for_long { Duration::ZERO } else { FOR_A_PLACE };
    let mut acquiring = pin!(destination.places.acquire());
    loop {
        tokio::select! {
            biased;
            () = work.halt.cancelled() => {}
            place = &mut acquiring => return Ok(place.ok()),
            () = tokio::time::sleep(if alone { FOR_A_PLACE } else { patience }) => {}
        }
        if work.halt.is_cancelled() || !still_ours(work, part, pass).await? {
            pass.cut_short = true;
            return Ok(None);
        }
        if !alone {
            leave(work, pass, destination.pace.come_back(rows, destination.config.rate, work.clock.now()));
            return Ok(None);
        }
    }
}

/// Waits for what the next batch needs.
async fn next<'a>(
    work: &Arc<Work>,
    destination: &'a Destination,
    purpose: Purpose,
    left: usize,
    pass: &mut Pass,
) -> Result<Next<'a>, RunError> {
    let rows = left.min(destination.pace.batch());
    let wanted = u32::try_from(rows).unwrap_or(u32::MAX);
    let claims = tokio::select! {
        // The semaphore is never closed.
        claims = destination.claims.acquire_many(wanted) => claims.ok(),
        () = work.halt.cancelled() => None,
    };
    let Some(mut claims) = claims.filter(|_| !work.must_stop()) else {
        pass.cut_short = true;
        return Ok(Next::Leave);
    };
    if comes_too_late(work, destination, purpose) {
        // Nothing of these is sent any more, so nothing keeps them from being settled.
        return Ok(Next::Batch { rows, start: Start::now(), claims });
    }
    match destination.admit(rows, work.ledger.as_ref(), &work.clock, &work.halt).await? {
        Admission::Go => {
            if destination.config.rate.is_some() {
                // Taking one's turn at a rate is no idle waiting.
                work.progressed();
            }
            Ok(Next::Batch { rows, start: Start::now(), claims })
        }
        Admission::Probe(open) => {
            let claims = claims.split(1).unwrap_or(claims);
            Ok(Next::Batch { rows: 1, start: Start { probe: Some(open), ..Start::now() }, claims })
        }
        Admission::Stopped => {
            pass.cut_short = true;
            Ok(Next::Leave)
        }
        Admission::Paused(until) | Admission::Open(until) => {
            drop(claims);
            wait_or_leave(work, destination, until, pass).await
        }
    }
}

/// Whether these rows can only be settled: past the deadline nothing is sent, and where the provider cannot be asked
/// about an earlier attempt, nothing else leaves us either.
fn comes_too_late(work: &Work, destination: &Destination, purpose: Purpose) -> bool {
    let asks = purpose == Purpose::Reconcile && destination.provider.capabilities().lookup.is_some();
    work.clock.now() > work.run.new.deadline_at && !asks
}

/// Waits until a destination may be used again where that is soon, else leaves the rows until then. Whoever waited comes
/// back a random time later than all the others.
async fn wait_or_leave<'a>(
    work: &Work,
    destination: &Destination,
    until: Timestamp,
    pass: &mut Pass,
) -> Result<Next<'a>, RunError> {
    let jitter = destination.config.backoff.wait(1, work.random());
    let until = until.saturating_add(jitter).unwrap_or(until);
    let wait = until.duration_since(work.clock.now()).max(SignedDuration::ZERO);
    if wait > ON_THE_SPOT || !work.may_wait(wait.unsigned_abs()) {
        leave(work, pass, until);
        return Ok(Next::Leave);
    }
    if sleep(wait.unsigned_abs(), &work.halt).await {
        return Ok(Next::Again);
    }
    pass.cut_short = true;
    Ok(Next::Leave)
}

/// Leaves rows until then, at the latest until they come too late.
fn leave(work: &Work, pass: &mut Pass, until: Timestamp) {
    let deadline = work.run.new.deadline_at;
    let too_late = deadline.saturating_add(SignedDuration::from_millis(1)).unwrap_or(deadline);
    pass.wait_until(if work.clock.now() > deadline { until } else { until.min(too_late) });
}

/// Prolongs our lease of the part once a third of it is over.
pub(super) async fn still_ours(work: &Work, part: u32, pass: &mut Pass) -> Result<bool, RunError> {
    let lease = work.destinations.longest_lease();
    if pass.renewed_at.elapsed() < lease.unsigned_abs() / 3 {
        return Ok(true);
    }
    pass.renewed_at = Instant::now();
    Ok(work.ledger.renew_part(work.run.run_number, part, pass.worker, lease).await?)
}
