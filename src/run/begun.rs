//! The beginning of a visit and of a part: its mark in the ledger, its marker beside the snapshots, and, where the ledger may have
//! forgotten what was sent, receipts in doubt for its rows before any of them is claimed.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::RunError;
use super::engine::Work;
use super::restored::{self, blocking};
use crate::identity::{Fingerprint, ReceiptKey};
use crate::ledger::{DestinationNumber, PartTrust, SettleRequest};
use crate::receipt;
use crate::snapshot::{Mark, Marker, MarkerPlace};

/// What this process knows of the parts of a run that were begun.
#[derive(Debug)]
pub(super) struct Begun {
    ledger_id: String,
    parts: Mutex<BTreeSet<u32>>,
}

impl Begun {
    /// Parts whose markers stand there.
    pub(super) fn new(ledger_id: String, parts: BTreeSet<u32>) -> Self {
        Self { ledger_id, parts: Mutex::new(parts) }
    }

    fn knows(&self, part: u32) -> bool {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).contains(&part)
    }

    fn add(&self, part: u32) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(part);
    }
}

/// Marks a part before the first claim in it. Answers since when rows of it that have no receipt may have been sent.
/// Called after the look at its receipts: what was looked at before is then not newer than what is asked here.
///
/// # Errors
/// When ledger or store fails; nothing was claimed.
pub(super) async fn begin(work: &Work, part: u32) -> Result<Option<Timestamp>, RunError> {
    let run_number = work.run.run_number;
    let asked = work.ledger.trust(run_number, Some(part)).await?;
    let marked = asked.parts.iter().any(|known| known.marked);
    let known = work.begun.knows(part);
    let lost = !marked && (known || stands(work, part).await?);
    let mut doubted = asked.takes_new.then(|| since(&asked.parts)).flatten();
    if lost || asked.answering.differs_from(&asked.known) {
        doubted = doubt(work, part).await?;
    }
    if !known {
        work.ledger.mark_part(run_number, part).await?;
        let written = write(work, Mark::Part(part)).await?;
        work.begun.add(part);
        if !written && !marked && !lost {
            // Somebody wrote it between our two questions, and the ledger does not know: it was set back just now.
            doubted = doubt(work, part).await?;
        }
    }
    Ok(doubted)
}

/// Counts that this process comes to work on an open run, or has closed it: first in the ledger, then beside the
/// snapshots. A copy of the ledger from before knows of fewer visits.
///
/// # Errors
/// When ledger or store fails.
pub(super) async fn visit(work: &Work) -> Result<(), RunError> {
    if work.run.closed_at.is_some() {
        return Ok(());
    }
    let number = work.ledger.visit(work.run.run_number).await?;
    write(work, Mark::Visit(number)).await?;
    Ok(())
}

/// Acts on a loss that shows while a run is on.
async fn doubt(work: &Work, part: u32) -> Result<Option<Timestamp>, RunError> {
    let open = work.ledger.open_runs().await?;
    restored::doubt_open_runs(work.ledger.as_ref(), &work.store, &open, true).await?;
    let now = work.ledger.trust(work.run.run_number, Some(part)).await?;
    Ok(now.takes_new.then(|| since(&now.parts)).flatten())
}

fn since(parts: &[PartTrust]) -> Option<Timestamp> {
    parts.iter().find_map(|part| part.doubted_since)
}

fn place(work: &Work, mark: Mark) -> MarkerPlace {
    let run = &work.run.new;
    MarkerPlace {
        iso_week: run.iso_week,
        digest_type: run.digest_type.clone(),
        content_version: run.content_version.clone(),
        run_id: run.run_id.clone(),
        mark,
    }
}

async fn stands(work: &Work, part: u32) -> Result<bool, RunError> {
    let place = place(work, Mark::Part(part));
    blocking(&work.store, move |store| Ok(store.marker(&place)?.is_some())).await
}

/// Writes a marker; `false` where it stands there already.
async fn write(work: &Work, mark: Mark) -> Result<bool, RunError> {
    let (ledger, run) = (work.begun.ledger_id.clone(), work.run.new.run_id.clone());
    let (place, marker) = (place(work, mark), Marker { ledger, run, at: work.clock.now() });
    blocking(&work.store, move |store| store.mark(&place, &marker)).await
}

/// A row without a receipt, in a part that is in doubt.
pub(super) struct Forgotten {
    /// Its key.
    pub key: ReceiptKey,
    /// Its content.
    pub fingerprint: Fingerprint,
    /// Where it would go.
    pub destination: DestinationNumber,
}

/// Enters receipts for rows that may have been sent since then. Answers when the first of them is due.
///
/// # Errors
/// When the ledger fails; nothing was claimed.
pub(super) async fn enter(
    work: &Work,
    part: u32,
    since: Timestamp,
    rows: Vec<Forgotten>,
) -> Result<Option<Timestamp>, RunError> {
    let (run, now) = (&work.run, work.clock.now());
    let request = |row: Forgotten| {
        let destination = work.destinations.numbered(row.destination)?;
        let policy = destination.policy(run.new.deadline_at);
        Some(SettleRequest {
            key: row.key,
            fingerprint: row.fingerprint,
            part,
            // As a claim would have been that ended without an outcome.
            grant_number: 1,
            claimed_at: since,
            first_claimed_at: since,
            first_attempt_at: Some(since),
            destination: row.destination,
            settlement: receipt::ledger_restored(since, &policy, now, work.random()),
        })
    };
    let requests: Vec<SettleRequest> = rows.into_iter().filter_map(request).collect();
    let due_at = requests.iter().filter_map(|request| request.settlement.next_attempt_at).min();
    if !requests.is_empty() {
        let receipts = requests.len();
        work.ledger.settle(run.run_number, run.new.iso_week, &requests).await?;
        tracing::warn!(run = work.run_id(), part, receipts, "rows that a restored ledger does not know are in doubt");
        work.progressed();
    }
    work.ledger.doubt_entered(run.run_number, part).await?;
    Ok(due_at)
}

/// Keys of rows that have no receipt, as a look found them.
pub(super) type Unknown = HashSet<ReceiptKey>;
