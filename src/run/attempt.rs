//! What happens between a grant and its settle: rendering, one attempt, and the batches that record outcomes.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use tokio::sync::{Mutex, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use super::RunError;
use super::destination::Destination;
use super::engine::Work;
use super::suppression;
use crate::digest::{Message, ReceiptFacts};
use crate::identity::{Fingerprint, ReceiptKey};
use crate::ledger::{Claim, Lease, LedgerError, OpenBreaker, SettleAnswer, SettleRequest};
use crate::provider::Outgoing;
use crate::receipt::{self, Attempt, EventKind, Outcome, Policy, Reason, RetryAfter, Settlement, State};
use crate::rehearsal::{self, Step};
use crate::snapshot::Row;

/// No outcome waits longer than this to be recorded.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);

/// How late a send may come and still count as taken from the rate when it was reserved.
const RATE_LAPSES: Duration = Duration::from_millis(500);

/// Time between two offers of the same outcomes to a ledger that is out of reach.
const SETTLE_AGAIN: Duration = Duration::from_secs(1);

/// A granted row, before it is rendered.
pub(super) struct Granted {
    /// The permission.
    pub claim: Claim,
    /// Its content.
    pub fingerprint: Fingerprint,
    /// The sealed line.
    pub line: Arc<[u8]>,
}

/// When and as what the sends of a chunk begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    /// When the first of them may start; the others follow at the destination's rate.
    pub at: Instant,
    /// The open breaker that they probe.
    pub probe: Option<OpenBreaker>,
}

impl Start {
    /// As from now, by a destination that is trusted.
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), probe: None }
    }
}

/// From when on a chunk has its places in the rate.
#[derive(Debug)]
struct Anchor {
    /// The start of the first place that is counted from here.
    at: Instant,
    /// Which place that is.
    first: u32,
    /// The chunk's places end before this one.
    end: u32,
}

/// What became of a chunk of granted rows.
#[derive(Debug, Default)]
pub(super) struct ChunkEnd {
    /// The earliest instant at which one of them wants another attempt.
    pub due_at: Option<Timestamp>,
}

/// One attempt's end on its way into the ledger.
pub(super) struct Ended {
    pub(super) request: SettleRequest,
    /// Whether the attempt is charged to the receipt.
    pub(super) spent: bool,
}

/// Granted rows of one part and destination that are sent, or looked up, and settled together.
pub(super) struct Chunk<'a> {
    pub(super) work: &'a Arc<Work>,
    pub(super) destination: &'a Arc<Destination>,
    part: u32,
    /// The open breaker that is probed.
    probe: Option<OpenBreaker>,
    rate: Mutex<Anchor>,
    /// When the claims end on our own clock; they were asked for together.
    lease: Lease,
    /// The ledger does not take outcomes at the moment: nothing more is begun that it would have to remember.
    ledger_is_away: AtomicBool,
}

/// Renders, sends and settles a chunk of granted rows of one part and destination. Sends that were begun are always
/// brought to their end, and their outcomes are offered to the ledger for as long as the claims live: an accepted
/// message whose outcome is dropped is one in doubt.
///
/// # Errors
/// When the ledger fails; receipts whose outcome could not be recorded stay claimed until their lease ends.
pub(super) async fn send_chunk(
    work: &Arc<Work>,
    destination: &Arc<Destination>,
    part: u32,
    granted: Vec<Granted>,
    start: Start,
) -> Result<ChunkEnd, RunError> {
    let Some(lease) = granted.first().map(|granted| granted.claim.lease) else { return Ok(ChunkEnd::default()) };
    let chunk = Chunk::begin(work, destination, part, lease, start, granted.len());
    rehearsal::reach(Step::BeforeRender);
    let rendered = render(work, granted).await?;
    rehearsal::reach(Step::AfterRender);
    let (rendered, ready) = suppression::screen(work, destination, part, rendered).await;
    let sends: FuturesUnordered<_> =
        (0_u32..).zip(rendered).map(|(place, (granted, message))| chunk.attempt(place, granted, message)).collect();
    chunk.record_all(sends, ready).await
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

impl Anchor {
    fn start_of(&self, place: u32, destination: &Destination) -> Instant {
        self.at + destination.spacing(place.saturating_sub(self.first))
    }
}

impl<'a> Chunk<'a> {
    /// A chunk of so many claims that were asked for together and end with `lease`.
    pub(super) fn begin(
        work: &'a Arc<Work>,
        destination: &'a Arc<Destination>,
        part: u32,
        lease: Lease,
        start: Start,
        claims: usize,
    ) -> Self {
        let end = u32::try_from(claims).unwrap_or(u32::MAX);
        let rate = Mutex::new(Anchor { at: start.at, first: 0, end });
        Self { work, destination, part, probe: start.probe, rate, lease, ledger_is_away: AtomicBool::new(false) }
    }

    /// Brings everything that was begun to its end and records the ends in batches as they come; `ready` are those
    /// that are known already.
    ///
    /// # Errors
    /// When the ledger fails; receipts whose end could not be recorded stay claimed until their lease ends.
    pub(super) async fn record_all(
        &self,
        mut begun: FuturesUnordered<impl Future<Output = Ended>>,
        mut ready: Vec<Ended>,
    ) -> Result<ChunkEnd, RunError> {
        let (mut end, mut failed) = (ChunkEnd::default(), None);
        let mut flush_at = Instant::now() + FLUSH_INTERVAL;
        loop {
            tokio::select! {
                next = begun.next() => match next {
                    Some(ended) => ready.push(ended),
                    None => break,
                },
                () = sleep_until(flush_at) => {
                    let batch = std::mem::take(&mut ready);
                    let mut recording = pin!(self.record(batch, &mut end));
                    // The others go on meanwhile.
                    let recorded = loop {
                        tokio::select! {
                            recorded = &mut recording => break recorded,
                            Some(ended) = begun.next() => ready.push(ended),
                        }
                    };
                    failed = failed.or(recorded.err());
                    flush_at = Instant::now() + FLUSH_INTERVAL;
                }
            }
        }
        failed = failed.or(self.record(ready, &mut end).await.err());
        failed.map_or(Ok(end), Err)
    }

    /// Makes one attempt, or finds out that none may be made.
    async fn attempt(&self, place: u32, granted: Granted, message: Rendered) -> Ended {
        let (work, destination) = (self.work, self.destination);
        let Granted { claim, fingerprint, .. } = granted;
        let policy = destination.policy(work.run.new.deadline_at);
        let barred = |began_at| receipt::barred(&claim.grant.attempt(began_at), &policy);
        // What may not begin any more waits for nothing.
        let may_wait = message.is_ok() && barred(work.clock.now()).is_none();
        let turn = if may_wait { self.turn(place, &claim).await } else { None };
        let began_at = work.clock.now();
        let facts = claim.grant.attempt(began_at);
        let settlement = match (message, barred(began_at)) {
            (Err(reason), _) => {
                tracing::warn!(receipt = claim.key.short(), run = work.run_id(), "cannot be rendered: {reason}");
                receipt::unsent(&facts, &policy, Reason::RenderError, began_at)
            }
            (Ok(_), Some(barred)) => barred,
            (Ok(message), None) => {
                let outcome = match &turn {
                    Some(_) => {
                        let outgoing = Outgoing { key: &claim.key, message: &message, lease: &claim.lease };
                        rehearsal::reach(Step::BeforeSend);
                        let outcome = destination.provider.send(outgoing).await;
                        rehearsal::reach(Step::AnswerReceived);
                        outcome
                    }
                    None => Outcome::NotStarted,
                };
                drop(turn);
                let settlement = self.settlement(&facts, &outcome, &policy);
                self.after_outcome(&claim.key, outcome, &settlement).await;
                settlement
            }
        };
        self.ended(&claim, fingerprint, began_at, settlement)
    }

    /// The end of a claim whose attempt or look began at `began_at`.
    pub(super) fn ended(
        &self,
        claim: &Claim,
        fingerprint: Fingerprint,
        began_at: Timestamp,
        settlement: Settlement,
    ) -> Ended {
        if settlement.ambiguous_since.is_some() && settlement.event != EventKind::GiveBack {
            self.destination.doubts.note(&claim.key);
        }
        let spent = settlement.attempts > claim.grant.attempts;
        // A doubt counts its provider's window from here, also where a probe left it and nothing was charged.
        let first_attempt = spent || settlement.ambiguous_since.is_some_and(|since| since == began_at);
        let first_attempt_at = claim.grant.first_attempt_at.or(first_attempt.then_some(began_at));
        let request = SettleRequest {
            key: claim.key,
            fingerprint,
            part: self.part,
            grant_number: claim.grant.grant_number,
            claimed_at: claim.grant.claimed_at,
            first_claimed_at: claim.grant.first_claimed_at,
            first_attempt_at,
            destination: self.destination.number,
            settlement,
        };
        Ended { request, spent }
    }

    /// What an outcome does to its receipt. A probe, and an attempt that finds a destination gone that is left alone by
    /// now, costs the receipt no attempt.
    fn settlement(&self, facts: &Attempt, outcome: &Outcome, policy: &Policy) -> Settlement {
        let found_gone = matches!(outcome, Outcome::Unavailable { .. }) && self.destination.pace.is_left_alone();
        let decide = if self.probe.is_some() || found_gone { receipt::uncharged } else { receipt::settlement };
        decide(facts, outcome, policy, self.work.clock.now(), self.work.random())
    }

    /// Waits for this send's place in the rate and among those at the same time; `None` where it may not be begun.
    async fn turn(&self, place: u32, claim: &Claim) -> Option<SemaphorePermit<'_>> {
        tokio::select! {
            turn = self.place_in_the_rate(place, claim) => turn,
            () = self.work.halt.cancelled() => None,
        }
    }

    async fn place_in_the_rate(&self, place: u32, claim: &Claim) -> Option<SemaphorePermit<'_>> {
        let (work, destination) = (self.work, self.destination);
        let starts_at = self.rate.lock().await.start_of(place, destination);
        sleep_until(starts_at).await;
        let turn = destination.sends.acquire().await.ok()?;
        if let Err(error) = self.still_at_the_rate(place).await {
            work.fail(error);
            return None;
        }
        if let Err(error) = destination.read_pace(work.ledger.as_ref()).await {
            work.fail(error);
            return None;
        }
        let may_begin = !work.halt.is_cancelled()
            && !self.ledger_is_away.load(Ordering::Relaxed)
            && destination.pace.may_begin(work.clock.now(), self.probe.is_some())
            && claim.lease.covers(destination.config.send_timeout);
        may_begin.then_some(turn)
    }

    /// Whether nothing new may be begun, because the ledger would have to remember it and does not answer.
    pub(super) fn ledger_is_away(&self) -> bool {
        self.ledger_is_away.load(Ordering::Relaxed)
    }

    /// A send that could not start when it was to start has lost its place: the others have gone on at the rate
    /// meanwhile. It queues again, with all that come behind it in its chunk.
    async fn still_at_the_rate(&self, place: u32) -> Result<(), RunError> {
        let destination = self.destination;
        let Some(rate) = destination.config.rate else { return Ok(()) };
        let starts_at = {
            let mut anchor = self.rate.lock().await;
            if anchor.start_of(place, destination).elapsed() > RATE_LAPSES.max(rate.interval.unsigned_abs()) {
                let left = anchor.end.saturating_sub(place).max(1);
                let wait = destination.reserve(left as usize, self.work.ledger.as_ref()).await?;
                *anchor = Anchor { at: Instant::now() + wait, first: place, ..*anchor };
            }
            anchor.start_of(place, destination)
        };
        sleep_until(starts_at).await;
        Ok(())
    }

    /// What an outcome means beyond its own receipt, which is recorded whatever becomes of this.
    async fn after_outcome(&self, key: &ReceiptKey, outcome: Outcome, settlement: &Settlement) {
        let (work, destination) = (self.work, self.destination);
        let answered = destination.answered(&outcome, self.probe, work.clock.now(), work.ledger.as_ref()).await;
        if let Err(error) = answered {
            work.fail(error);
        }
        match outcome {
            Outcome::Throttled { until, .. } => {
                let until = match until {
                    RetryAfter::In(span) => work.clock.now().saturating_add(span).ok(),
                    RetryAfter::At(at) => Some(at),
                    RetryAfter::Unspecified => settlement.next_attempt_at,
                };
                if let Some(until) = until
                    && let Err(error) = destination.pause(until, work.ledger.as_ref()).await
                {
                    work.fail(error);
                }
            }
            Outcome::Misconfigured { problem } => {
                work.fail(RunError::Misconfigured { destination: destination.config.name.clone(), problem });
            }
            Outcome::Rejected { code, .. } => {
                tracing::warn!(receipt = key.short(), run = work.run_id(), code, "refused for good by the provider");
            }
            _ => {}
        }
    }

    /// Records what is ready, in one batch.
    async fn record(&self, ready: Vec<Ended>, end: &mut ChunkEnd) -> Result<(), RunError> {
        if ready.is_empty() {
            return Ok(());
        }
        let work = self.work;
        let spent = ready.iter().filter(|ended| ended.spent).count();
        let requests: Vec<SettleRequest> = ready.into_iter().map(|ended| ended.request).collect();
        let answers = match self.settle(&requests).await {
            Ok(answers) => answers,
            Err(error) => {
                work.halt.cancel();
                return Err(error.into());
            }
        };
        let rejected = requests.iter().filter(|request| request.settlement.reason == Some(Reason::Rejected)).count();
        work.brakes.rejections(spent, rejected);
        let moved = |request: &SettleRequest| match request.settlement.event {
            EventKind::Lookup => true,
            // A probe that is not accepted is waiting, whatever it costs.
            _ if self.probe.is_some() => request.settlement.state == State::Sent,
            _ => request.settlement.state != State::Retryable,
        };
        if spent > 0 || requests.iter().any(moved) {
            work.progressed();
        }
        self.tell_of_trouble(&requests);
        for (request, answer) in requests.iter().zip(answers) {
            let Settlement { state, reason, provider_code: code, .. } = &request.settlement;
            tracing::trace!(receipt = request.key.short(), run = work.run_id(), %state, ?reason, ?code, ?answer, "settled");
            let due_at = match answer {
                SettleAnswer::Recorded(State::Retryable) => request.settlement.next_attempt_at,
                SettleAnswer::Recorded(_) => continue,
                SettleAnswer::TooLate => {
                    let (receipt, run) = (request.key.short(), work.run_id());
                    tracing::warn!(receipt, run, "settled after its lease; kept as an event");
                    None
                }
            };
            let at = due_at.unwrap_or_else(|| work.clock.now());
            end.due_at = Some(end.due_at.map_or(at, |due| due.min(at)));
        }
        Ok(())
    }

    /// One line for a batch, however many attempts or looks of it came to nothing for now.
    fn tell_of_trouble(&self, requests: &[SettleRequest]) {
        let troubled = |request: &&SettleRequest| {
            let reason = request.settlement.reason;
            matches!(
                reason,
                Some(
                    Reason::Unavailable
                        | Reason::Deferred
                        | Reason::Throttled
                        | Reason::Ambiguous
                        | Reason::Undecidable
                        | Reason::LookupFailed
                        | Reason::LookupRetentionOver
                )
            )
        };
        let Some(first) = requests.iter().find(troubled) else { return };
        let (attempts, count) = (requests.len(), requests.iter().filter(troubled).count());
        let (destination, run) = (&self.destination.config.name, self.work.run_id());
        let (reason, code) =
            (first.settlement.reason.map_or("", Reason::as_str), first.settlement.provider_code.as_deref());
        if first.settlement.event == EventKind::Lookup {
            tracing::warn!(
                destination,
                run,
                reason,
                code,
                "{count} of {attempts} looks at the provider decided nothing"
            );
        } else {
            tracing::warn!(destination, run, reason, code, "{count} of {attempts} attempts were not accepted");
        }
    }

    /// Offers outcomes to the ledger until it takes them, at most until the claims end.
    async fn settle(&self, requests: &[SettleRequest]) -> crate::ledger::Result<Vec<SettleAnswer>> {
        let run = &self.work.run;
        loop {
            rehearsal::reach(Step::BeforeSettle);
            let settled = self.work.ledger.settle(run.run_number, run.new.iso_week, requests).await;
            rehearsal::reach(Step::AfterSettle);
            match settled {
                Err(LedgerError::Unreachable(error)) if self.lease.covers(SETTLE_AGAIN) => {
                    tracing::warn!(run = self.work.run_id(), %error, "outcomes wait for the ledger");
                    self.ledger_is_away.store(true, Ordering::Relaxed);
                    tokio::time::sleep(SETTLE_AGAIN).await;
                }
                other => {
                    self.ledger_is_away.store(other.is_err(), Ordering::Relaxed);
                    return other;
                }
            }
        }
    }
}
