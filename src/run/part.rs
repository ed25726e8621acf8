//! One part of a run: keys and fingerprints, a look at the ledger, and what is left to wait for. When its rows are
//! claimed and sent is decided in `queue`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use super::RunError;
use super::attempt::Granted;
use super::begun::{self, Forgotten, Unknown};
use super::destination::Destination;
use super::engine::Work;
use super::lookup;
use super::only_unsent;
use super::queue::claim_and_send;
use crate::identity::{CustomerId, Fingerprint, Identity, ReceiptKey};
use crate::ledger::{
    Claim, ClaimAnswer, ClaimBatch, ClaimRequest, ConflictRecord, DestinationNumber, ForeignCounts, Lease, PartEnd,
    Purpose, SettleRequest,
};
use crate::receipt::{self, EventKind, Settlement, State, Verdict};
use crate::rehearsal::{self, Step};
use crate::snapshot::lines;

/// How soon a row is looked at again that waits for something that no row of ours moves: a receipt of another run, or
/// the ledger's clock.
pub(super) const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(2);

/// A row as far as claiming needs it.
pub(super) struct KeyedRow {
    pub(super) key: ReceiptKey,
    fingerprint: Fingerprint,
    destination: Option<String>,
    line: Arc<[u8]>,
    /// The customer's receipt keys under other versions, where those decide; later, those that must make way.
    pub(super) others: Vec<ReceiptKey>,
}

/// Rows that may be claimed, by what for and where to.
pub(super) type Claimable = BTreeMap<(Purpose, DestinationNumber), Vec<KeyedRow>>;

/// What one pass over a part leaves behind. Its rows for different destinations go their ways at the same time, each
/// with a pass of its own that is joined to the part's in the end.
pub(super) struct Pass {
    /// The part's and its claims' worker: a number of this pass alone, so that two passes over one part in the same
    /// process are as foreign to each other as two processes are.
    pub(super) worker: i64,
    /// Runs that have receipts of our rows which will still move.
    owners: HashSet<i64>,
    /// Rows that have no receipt.
    unknown: Unknown,
    pub(super) counts: ForeignCounts,
    due_at: Option<Timestamp>,
    /// A stop or a brake left rows untouched.
    pub(super) cut_short: bool,
    /// When our lease of the part was last prolonged.
    pub(super) renewed_at: Instant,
    /// Rows that need nothing more in this pass, over all destinations.
    handled: Arc<AtomicUsize>,
    /// Keeps other parts from being begun until every row has its place or is left.
    slot: Option<Arc<OwnedSemaphorePermit>>,
}

impl Pass {
    fn of(worker: i64, slot: OwnedSemaphorePermit) -> Self {
        Self {
            worker,
            slot: Some(Arc::new(slot)),
            owners: HashSet::new(),
            unknown: Unknown::new(),
            counts: ForeignCounts::default(),
            due_at: None,
            cut_short: false,
            renewed_at: Instant::now(),
            handled: Arc::default(),
        }
    }

    /// A pass for the rows of one destination.
    fn branch(&self) -> Self {
        Self {
            worker: self.worker,
            slot: self.slot.clone(),
            owners: HashSet::new(),
            unknown: Unknown::new(),
            counts: ForeignCounts::default(),
            due_at: None,
            cut_short: false,
            renewed_at: self.renewed_at,
            handled: Arc::clone(&self.handled),
        }
    }

    fn join(&mut self, branch: &Self) {
        self.cut_short |= branch.cut_short;
        if let Some(at) = branch.due_at {
            self.wait_until(at);
        }
    }

    /// So many more rows are handled; answers how many that are now.
    pub(super) fn handled(&self, rows: usize) -> u64 {
        self.handled.fetch_add(rows, Ordering::Relaxed) as u64 + rows as u64
    }

    /// Its rows have their place, or are left: another part may be begun.
    pub(super) fn let_others_begin(&mut self) {
        self.slot = None;
    }

    pub(super) fn wait_until(&mut self, at: Timestamp) {
        self.due_at = Some(self.due_at.map_or(at, |due| due.min(at)));
    }
}

/// Works through a part that was taken, and lets it go.
///
/// # Errors
/// When ledger, store or a destination fails; the part is then left to its lease.
pub(super) async fn work_part(
    work: &Arc<Work>,
    part: u32,
    worker: i64,
    slot: OwnedSemaphorePermit,
) -> Result<(), RunError> {
    let rows = keyed_rows(work, part).await?;
    let mut pass = Pass::of(worker, slot);
    let seen = rows.len();
    let mut claimable = look(work, part, rows, &mut pass).await?;
    begin(work, part, &mut claimable, &mut pass).await?;
    let handled = pass.handled(seen - claimable.values().map(Vec::len).sum::<usize>());
    work.progress.part(part, handled);
    let branches: Vec<_> = claimable
        .into_iter()
        .map(|((purpose, number), rows)| work_branch(work, part, purpose, number, rows, pass.branch()))
        .collect();
    pass.let_others_begin();
    // A destination that makes its rows wait delays no other's.
    for branch in join_all(branches).await {
        pass.join(&branch?);
    }
    wait_for_owners(work, part, &mut pass).await?;
    let end = match pass.due_at {
        _ if pass.cut_short => PartEnd::Open,
        Some(until) => PartEnd::Waiting { until },
        None => PartEnd::Done,
    };
    tracing::debug!(run = work.run_id(), part, ?end, foreign = ?pass.counts, "part let go");
    rehearsal::reach(Step::BeforePartEnd);
    work.ledger.end_part(work.run.run_number, part, worker, end, &pass.counts).await?;
    rehearsal::reach(Step::AfterPartEnd);
    if end == PartEnd::Done {
        work.progressed();
    }
    Ok(())
}

/// The rows of one destination; answers what is left of them.
async fn work_branch(
    work: &Arc<Work>,
    part: u32,
    purpose: Purpose,
    number: DestinationNumber,
    rows: Vec<KeyedRow>,
    mut pass: Pass,
) -> Result<Pass, RunError> {
    let worked = match destination_of(work, &rows, number) {
        Some(destination) if purpose == Purpose::Reconcile && destination.lookup().is_some() => {
            lookup::claim_and_look(work, part, &destination, rows, &mut pass).await
        }
        Some(destination) => claim_and_send(work, part, &destination, purpose, rows, &mut pass).await,
        None => hold_elsewhere(work, part, number, rows, &mut pass).await,
    };
    if worked.is_err() {
        // The other destinations' rows bring to an end what they have begun, and no more.
        work.halt.cancel();
    }
    pass.let_others_begin();
    worked.map(|()| pass)
}

/// Begins a part before anything of it is claimed, and takes out the rows that a restored ledger may have forgotten.
async fn begin(work: &Work, part: u32, claimable: &mut Claimable, pass: &mut Pass) -> Result<(), RunError> {
    if claimable.is_empty() {
        return Ok(());
    }
    let Some(since) = begun::begin(work, part).await? else { return Ok(()) };
    let mut forgotten = Vec::new();
    for ((_, number), rows) in claimable.iter_mut() {
        let taken = rows.extract_if(.., |row| pass.unknown.contains(&row.key));
        forgotten.extend(taken.map(|row| Forgotten {
            key: row.key,
            fingerprint: row.fingerprint,
            destination: *number,
        }));
    }
    claimable.retain(|_, rows| !rows.is_empty());
    if let Some(at) = begun::enter(work, part, since, forgotten).await? {
        pass.wait_until(at);
    }
    Ok(())
}

/// A row whose receipt is on its way in another open run is looked at again, so that the counts that are kept of this
/// part are the last word on it. A run that is closed moves nothing any more.
async fn wait_for_owners(work: &Work, part: u32, pass: &mut Pass) -> Result<(), RunError> {
    let moves = match pass.owners.is_empty() {
        true => false,
        false => work.ledger.open_runs().await?.iter().any(|run| pass.owners.contains(&run.run_number)),
    };
    work.waits_elsewhere(part, moves && pass.due_at.is_none() && !pass.cut_short);
    if moves {
        pass.wait_until(later(work, LOOK_AGAIN));
    }
    Ok(())
}

pub(super) fn later(work: &Work, wait: SignedDuration) -> Timestamp {
    let now = work.clock.now();
    now.saturating_add(wait).unwrap_or(now)
}

/// The two members of a sealed row that claiming needs.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    customer_id: Cow<'a, str>,
    #[serde(borrow)]
    destination: Option<Cow<'a, str>>,
}

async fn keyed_rows(work: &Arc<Work>, part: u32) -> Result<Vec<KeyedRow>, RunError> {
    let work = Arc::clone(work);
    tokio::task::spawn_blocking(move || {
        let bytes = work.store.part_of(&work.manifest, part)?;
        lines(&bytes).map(|line| keyed_row(&work, part, line)).collect()
    })
    .await
    .map_err(|_| RunError::Internal)?
}

fn keyed_row(work: &Work, part: u32, line: &[u8]) -> Result<KeyedRow, RunError> {
    let unreadable = |reason: String| RunError::SealedRow { snapshot: work.manifest.id.clone(), part, reason };
    let head: Head<'_> = serde_json::from_slice(line).map_err(|_| unreadable("is not a sealed row".to_owned()))?;
    let customer_id = CustomerId::new(&head.customer_id).map_err(|fault| unreadable(format!("customer_id {fault}")))?;
    let run = &work.run.new;
    let identity = Identity {
        customer_id: &customer_id,
        iso_week: run.iso_week,
        digest_type: &run.digest_type,
        content_version: &run.content_version,
    };
    Ok(KeyedRow {
        key: work.key.receipt_key(&identity),
        fingerprint: work.key.fingerprint(line, &run.content_hash),
        destination: head.destination.map(Cow::into_owned),
        line: line.into(),
        others: only_unsent::keys(work, &customer_id),
    })
}

/// Looks at the ledger in one batch and sorts the rows by what may be done for them.
async fn look(work: &Arc<Work>, part: u32, rows: Vec<KeyedRow>, pass: &mut Pass) -> Result<Claimable, RunError> {
    let week = work.run.new.iso_week;
    let keys: Vec<ReceiptKey> = rows.iter().map(|row| row.key).collect();
    let found = work.ledger.look(week, &keys).await?;
    let now = work.clock.now();
    let seen = rows.len();
    let mut claimable = Claimable::new();
    let mut conflicts = Vec::new();
    let mut ended = Vec::new();
    for (mut row, found) in rows.into_iter().zip(found) {
        if found.is_some() {
            // Claimed before: the other versions were asked then.
            row.others.clear();
        }
        let verdict = receipt::verdict(found.as_ref().map(|found| &found.standing), &row.fingerprint, now);
        let owner = found.as_ref().map(|found| found.run_number).filter(|owner| *owner != work.run.run_number);
        if let Some(owner) = owner.filter(|_| verdict != Verdict::Conflict) {
            if count_foreign(&mut pass.counts, verdict) {
                pass.owners.insert(owner);
            }
            continue;
        }
        match verdict {
            Verdict::Conflict => conflicts.push(ConflictRecord { key: row.key, presented: row.fingerprint, part }),
            Verdict::Claimable => {
                if found.is_none() {
                    pass.unknown.insert(row.key);
                }
                let number = work.route(row.destination.as_deref())?.number;
                claimable.entry((Purpose::Send, number)).or_default().push(row);
            }
            Verdict::Ambiguous => {
                // A doubtful attempt is only ever repeated where it was made.
                let number = match found {
                    Some(found) => found.destination,
                    None => work.route(row.destination.as_deref())?.number,
                };
                claimable.entry((Purpose::Reconcile, number)).or_default().push(row);
            }
            Verdict::LeaseEnded => ended.push(row.key),
            Verdict::InProgress { until: at } | Verdict::NotDue { at } => pass.wait_until(at),
            Verdict::Duplicate | Verdict::Settled(_) => {}
        }
    }
    let room = work.brakes.conflicts(part, seen, conflicts.len());
    if conflicts.len() > room {
        // What the brake keeps from being recorded is for the next one who asks.
        conflicts.truncate(room);
        pass.cut_short = true;
    }
    if !conflicts.is_empty() {
        work.ledger.record_conflicts(work.run.run_number, week, &conflicts).await?;
    }
    end_leases(work, &ended, pass).await?;
    only_unsent::leave_out_served(work, claimable, pass).await
}

/// A row whose receipt belongs to another run is that run's to send; here it is only counted. Answers whether that may
/// still change without a person.
fn count_foreign(counts: &mut ForeignCounts, verdict: Verdict) -> bool {
    match verdict {
        Verdict::Duplicate => counts.duplicate += 1,
        Verdict::InProgress { .. } | Verdict::LeaseEnded | Verdict::Ambiguous => counts.in_progress += 1,
        Verdict::NotDue { .. } | Verdict::Claimable => counts.retryable += 1,
        Verdict::Settled(State::Held) => counts.held += 1,
        Verdict::Settled(State::Suppressed) => counts.suppressed += 1,
        Verdict::Settled(State::Quarantined) | Verdict::Conflict => counts.quarantined += 1,
        Verdict::Settled(_) => counts.failed += 1,
    }
    !matches!(verdict, Verdict::Duplicate | Verdict::Settled(_) | Verdict::Conflict)
}

/// Declares claims ambiguous whose worker did not come back.
async fn end_leases(work: &Arc<Work>, keys: &[ReceiptKey], pass: &mut Pass) -> Result<(), RunError> {
    if keys.is_empty() {
        return Ok(());
    }
    let week = work.run.new.iso_week;
    let now = work.clock.now();
    let mut requests = Vec::new();
    let ended = work.ledger.ended_leases(week, keys).await?;
    if ended.len() < keys.len() {
        // Settled meanwhile, or the ledger's clock is behind what we make of it.
        pass.wait_until(later(work, LOOK_AGAIN));
    }
    for lost in ended {
        let attempt = lost.grant.attempt(lost.grant.claimed_at);
        let settlement = match work
            .destinations
            .get(&lost.destination_name)
            .filter(|destination| destination.number == lost.destination)
        {
            Some(destination) => {
                receipt::lease_end(&attempt, &destination.policy(work.run.new.deadline_at), now, work.random())
            }
            None => Settlement { event: EventKind::LeaseEnd, ..receipt::destination_changed(&attempt) },
        };
        if let Some(at) = settlement.next_attempt_at {
            pass.wait_until(at);
        }
        tracing::debug!(
            receipt = lost.key.short(),
            run = work.run_id(),
            state = settlement.state.as_str(),
            "lease ended without an outcome"
        );
        requests.push(SettleRequest {
            key: lost.key,
            fingerprint: lost.fingerprint,
            part: lost.part,
            grant_number: lost.grant.grant_number,
            claimed_at: lost.grant.claimed_at,
            first_claimed_at: lost.grant.first_claimed_at,
            first_attempt_at: Some(attempt.first_attempt_at),
            destination: lost.destination,
            settlement,
        });
    }
    let claims = work.ledger.end_leases(work.run.run_number, week, &requests).await?;
    if claims > 0 {
        // One line: a process that died leaves up to a thousand.
        tracing::warn!(run = work.run_id(), claims, "leases ended without an outcome; their attempts are in doubt");
        work.progressed();
    }
    Ok(())
}

/// The configured destination behind a number; `None` where a doubtful attempt went to an account that the
/// configuration does not point at any more.
fn destination_of(work: &Work, rows: &[KeyedRow], number: DestinationNumber) -> Option<Arc<Destination>> {
    let name = rows.first().and_then(|row| row.destination.as_deref());
    work.route(name)
        .ok()
        .filter(|destination| destination.number == number)
        .cloned()
        .or_else(|| work.destinations.numbered(number))
}

/// Holds receipts whose doubtful attempt went to another account than any that is configured.
async fn hold_elsewhere(
    work: &Arc<Work>,
    part: u32,
    number: DestinationNumber,
    rows: Vec<KeyedRow>,
    pass: &mut Pass,
) -> Result<(), RunError> {
    let lease = work.destinations.longest_lease();
    let granted = claim(work, part, number, lease, Purpose::Reconcile, rows, pass).await?;
    let requests: Vec<SettleRequest> = granted
        .into_iter()
        .map(|granted| {
            let grant = &granted.claim.grant;
            let attempt = grant.attempt(grant.claimed_at);
            SettleRequest {
                key: granted.claim.key,
                fingerprint: granted.fingerprint,
                part,
                grant_number: grant.grant_number,
                claimed_at: grant.claimed_at,
                first_claimed_at: grant.first_claimed_at,
                first_attempt_at: grant.first_attempt_at,
                destination: number,
                settlement: receipt::destination_changed(&attempt),
            }
        })
        .collect();
    if !requests.is_empty() {
        work.ledger.settle(work.run.run_number, work.run.new.iso_week, &requests).await?;
    }
    Ok(())
}

/// Asks for one batch of claims; what is not granted is waited for or left to whoever has it.
pub(super) async fn claim(
    work: &Arc<Work>,
    part: u32,
    destination: DestinationNumber,
    lease: jiff::SignedDuration,
    purpose: Purpose,
    mut rows: Vec<KeyedRow>,
    pass: &mut Pass,
) -> Result<Vec<Granted>, RunError> {
    rows.sort_by_key(|row| row.key);
    let requests: Vec<ClaimRequest> =
        rows.iter().map(|row| ClaimRequest { key: row.key, fingerprint: row.fingerprint, part }).collect();
    let before = Instant::now();
    let batch = ClaimBatch {
        run_number: work.run.run_number,
        iso_week: work.run.new.iso_week,
        worker: pass.worker,
        destination,
        lease,
        purpose,
        requests: &requests,
    };
    rehearsal::reach(Step::BeforeClaim);
    let answers = work.ledger.claim(&batch).await?;
    rehearsal::reach(Step::AfterClaim);
    let mut granted = Vec::with_capacity(rows.len());
    for (row, answer) in rows.into_iter().zip(answers) {
        match answer {
            ClaimAnswer::Granted(grant) => {
                let claim = Claim { key: row.key, grant, lease: Lease::counted_from(before, lease) };
                granted.push(Granted { claim, fingerprint: row.fingerprint, line: row.line });
            }
            ClaimAnswer::RunClosed => work.run_was_closed(),
            // Somebody was faster between look and claim: the next pass over the part sees what came of it.
            ClaimAnswer::Refused(Verdict::InProgress { until: at } | Verdict::NotDue { at }) => pass.wait_until(at),
            // Also where it is settled: the next look finds out which run it belongs to and counts it.
            ClaimAnswer::Refused(_) => pass.wait_until(work.clock.now()),
        }
    }
    Ok(granted)
}
