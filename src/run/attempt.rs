//! What happens between a grant and its settle: rendering, one attempt, and the batches that record outcomes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use super::RunError;
use super::destination::Destination;
use super::engine::Work;
use super::suppression;
use crate::digest::{Message, ReceiptFacts};
use crate::identity::{Fingerprint, ReceiptKey};
use crate::ledger::{Claim, SettleAnswer, SettleRequest};
use crate::provider::Outgoing;
use crate::receipt::{self, Attempt, EventKind, Outcome, Reason, RetryAfter, Settlement, State};
use crate::snapshot::Row;

/// No outcome waits longer than this to be recorded.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);

/// A granted row, before it is rendered.
pub(super) struct Granted {
    /// The permission.
    pub claim: Claim,
    /// Its content.
    pub fingerprint: Fingerprint,
    /// The sealed line.
    pub line: Arc<[u8]>,
}

/// What became of a chunk of granted rows.
#[derive(Debug, Default)]
pub(super) struct ChunkEnd {
    /// The earliest instant at which one of them wants another attempt.
    pub due_at: Option<Timestamp>,
}

/// One attempt's end on its way into the ledger.
pub(super) struct Ended {
    pub(super) claim: Claim,
    pub(super) fingerprint: Fingerprint,
    pub(super) settlement: Settlement,
    pub(super) first_attempt_at: Option<Timestamp>,
}

/// Renders, sends and settles a chunk of granted rows of one part and destination.
///
/// # Errors
/// When the ledger fails; receipts whose outcome could not be recorded stay claimed until their lease ends.
pub(super) async fn send_chunk(
    work: &Arc<Work>,
    destination: &Arc<Destination>,
    part: u32,
    granted: Vec<Granted>,
) -> Result<ChunkEnd, RunError> {
    let rendered = render(work, granted).await?;
    let (rendered, mut ready) = suppression::screen(work, destination, rendered).await;
    let mut sends: FuturesUnordered<_> =
        rendered.into_iter().map(|(granted, message)| attempt(work, destination, granted, message)).collect();
    let mut end = ChunkEnd::default();
    let mut flush_at = Instant::now() + FLUSH_INTERVAL;
    loop {
        tokio::select! {
            next = sends.next() => match next {
                Some(ended) => {
                    ready.push(ended?);
                    continue;
                }
                None => break,
            },
            () = sleep_until(flush_at) => {}
        }
        settle(work, destination, part, &mut ready, &mut end).await?;
        flush_at = Instant::now() + FLUSH_INTERVAL;
    }
    settle(work, destination, part, &mut ready, &mut end).await?;
    Ok(end)
}

pub(super) type Rendered = Result<Message, String>;

/// Renders on the blocking threads, which keeps the executor free for I/O.
async fn render(work: &Arc<Work>, granted: Vec<Granted>) -> Result<Vec<(Granted, Rendered)>, RunError> {
    let work = Arc::clone(work);
    tokio::task::spawn_blocking(move || {
        granted
            .into_iter()
            .map(|granted| {
                let message = render_one(&work, &granted.claim, &granted.line);
                (granted, message)
            })
            .collect()
    })
    .await
    .map_err(|_| RunError::Internal)
}

fn render_one(work: &Work, claim: &Claim, line: &[u8]) -> Rendered {
    let row = Row::from_sealed(line).map_err(|fault| format!("{}: {}", fault.field, fault.reason))?;
    let facts = ReceiptFacts { key: claim.key, first_claimed_at: claim.grant.first_claimed_at };
    work.bundle
        .render(&row, &facts, &work.run.new.digest_type, work.keyring.stable())
        .map_err(|error| error.to_string())
}

/// Makes one attempt, or finds out that none may be made.
async fn attempt(
    work: &Arc<Work>,
    destination: &Arc<Destination>,
    granted: Granted,
    message: Rendered,
) -> Result<Ended, RunError> {
    let Granted { claim, fingerprint, .. } = granted;
    let began_at = work.clock.now();
    let facts = Attempt {
        attempts: claim.grant.attempts,
        began_at,
        first_attempt_at: claim.grant.first_attempt_at.unwrap_or(began_at),
        ambiguous_since: claim.grant.ambiguous_since,
    };
    let policy = destination.policy(work.run.new.deadline_at);
    let settlement = match message {
        Err(reason) => {
            tracing::warn!(receipt = claim.key.short(), run = work.run_id(), "cannot be rendered: {reason}");
            receipt::unsent(&facts, &policy, Reason::RenderError, began_at)
        }
        Ok(_) if began_at > policy.deadline => receipt::unsent(&facts, &policy, Reason::DeadlinePassed, began_at),
        Ok(message) => {
            let outcome = hand_over(work, destination, &claim, &message).await;
            let settlement = receipt::settlement(&facts, &outcome, &policy, work.clock.now(), work.random());
            after_outcome(work, destination, &claim.key, outcome, &settlement).await?;
            settlement
        }
    };
    let first_attempt_at = claim.grant.first_attempt_at.or((settlement.attempts > facts.attempts).then_some(began_at));
    Ok(Ended { claim, fingerprint, settlement, first_attempt_at })
}

async fn hand_over(work: &Work, destination: &Destination, claim: &Claim, message: &Message) -> Outcome {
    // The semaphore is never closed; a closed one would mean that nothing may be sent any more.
    let Ok(_place) = destination.sends.acquire().await else { return Outcome::NotStarted };
    if work.halt.is_cancelled() || !claim.lease.covers(destination.config.send_timeout) {
        return Outcome::NotStarted;
    }
    destination.provider.send(Outgoing { key: &claim.key, message, lease: &claim.lease }).await
}

/// What an outcome means beyond its own receipt.
async fn after_outcome(
    work: &Arc<Work>,
    destination: &Destination,
    key: &ReceiptKey,
    outcome: Outcome,
    settlement: &Settlement,
) -> Result<(), RunError> {
    match outcome {
        Outcome::Throttled { until, .. } => {
            let until = match until {
                RetryAfter::In(span) => work.clock.now().saturating_add(span).ok(),
                RetryAfter::At(at) => Some(at),
                RetryAfter::Unspecified => settlement.next_attempt_at,
            };
            if let Some(until) = until {
                destination.pause(until, work.ledger.as_ref()).await?;
            }
        }
        Outcome::Misconfigured { problem } => work.misconfigured(&destination.config.name, problem),
        Outcome::Rejected { code, .. } => {
            tracing::warn!(receipt = key.short(), run = work.run_id(), code, "refused for good by the provider");
        }
        _ => {}
    }
    Ok(())
}

/// Records what is ready, in one batch.
async fn settle(
    work: &Arc<Work>,
    destination: &Destination,
    part: u32,
    ready: &mut Vec<Ended>,
    end: &mut ChunkEnd,
) -> Result<(), RunError> {
    if ready.is_empty() {
        return Ok(());
    }
    let requests: Vec<SettleRequest> = ready
        .drain(..)
        .map(|ended| SettleRequest {
            key: ended.claim.key,
            fingerprint: ended.fingerprint,
            part,
            grant_number: ended.claim.grant.grant_number,
            claimed_at: ended.claim.grant.claimed_at,
            first_claimed_at: ended.claim.grant.first_claimed_at,
            first_attempt_at: ended.first_attempt_at,
            destination: destination.number,
            settlement: ended.settlement,
        })
        .collect();
    let answers = work.ledger.settle(work.run.run_number, work.run.new.iso_week, &requests).await?;
    let mut rejected = 0;
    let mut attempts = 0;
    for (request, answer) in requests.iter().zip(answers) {
        attempts += usize::from(request.settlement.event != EventKind::GiveBack);
        rejected += usize::from(request.settlement.reason == Some(Reason::Rejected));
        match answer {
            SettleAnswer::Recorded(State::Retryable) => {
                let at = request.settlement.next_attempt_at.unwrap_or_else(|| work.clock.now());
                end.due_at = Some(end.due_at.map_or(at, |due| due.min(at)));
            }
            SettleAnswer::Recorded(_) => {}
            SettleAnswer::TooLate => {
                tracing::warn!(
                    receipt = request.key.short(),
                    run = work.run_id(),
                    "settled after its lease; kept as an event"
                );
                let now = work.clock.now();
                end.due_at = Some(end.due_at.map_or(now, |due| due.min(now)));
            }
        }
    }
    work.brakes.rejections(attempts, rejected);
    Ok(())
}
