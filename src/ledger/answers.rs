//! From rows to answers: batches in key order, and what a claim is told. Decides only through
//! [`verdict`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::stored::{GrantRow, LookRow, Moment, SettledRow, StandingRow, key, state};
use super::{
    ClaimAnswer, ClaimBatch, ClaimRequest, Found, Grant, OpenBreaker, Pace, Purpose, Rate, ReceiptFilter, Reservation,
    Result, SettleAnswer, SettleRequest,
};
use crate::identity::ReceiptKey;
use crate::receipt::{EventKind, Looks, State, Verdict, verdict};

/// The requests in key order, in which every batch touches its rows.
pub(super) fn in_key_order<T>(items: &[T], key_of: impl Fn(&T) -> ReceiptKey) -> Vec<&T> {
    let mut sorted: Vec<&T> = items.iter().collect();
    sorted.sort_unstable_by_key(|item| key_of(item));
    sorted
}

/// The settles of a batch by the kind of event that each becomes, each kind in key order. Nearly always one kind.
pub(super) fn by_kind(requests: &[SettleRequest]) -> Vec<(EventKind, Vec<&SettleRequest>)> {
    let mut kinds: Vec<(EventKind, Vec<&SettleRequest>)> = Vec::new();
    for request in in_key_order(requests, |request| request.key) {
        let kind = request.settlement.event;
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, of_kind)) => of_kind.push(request),
            None => kinds.push((kind, vec![request])),
        }
    }
    kinds
}

/// The requests with texts that every database can hold: PostgreSQL has no zero character, and a provider that
/// sends one must not keep its answer from being recorded.
pub(super) fn storable(requests: &[SettleRequest]) -> Cow<'_, [SettleRequest]> {
    let clean = |text: &Option<String>| text.as_ref().is_none_or(|text| !text.contains('\0'));
    if requests
        .iter()
        .all(|request| clean(&request.settlement.provider_reference) && clean(&request.settlement.provider_code))
    {
        return Cow::Borrowed(requests);
    }
    let cleaned = |request: &SettleRequest| {
        let mut request = request.clone();
        let settlement = &mut request.settlement;
        for text in [&mut settlement.provider_reference, &mut settlement.provider_code].into_iter().flatten() {
            text.retain(|character| character != '\0');
        }
        request
    };
    Cow::Owned(requests.iter().map(cleaned).collect())
}

/// What stands under each of `keys`, in their order.
pub(super) fn standings(keys: &[ReceiptKey], rows: &[StandingRow]) -> Result<Vec<Option<Found>>> {
    let found =
        rows.iter().map(|row| Ok((key(&row.granted.receipt_key)?, row.found()?))).collect::<Result<HashMap<_, _>>>()?;
    Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
}

/// The looks so far at each of `keys`, in their order, from the events that count, oldest first.
pub(super) fn looks_of(keys: &[ReceiptKey], events: &[LookRow]) -> Result<Vec<Looks>> {
    let mut looks: HashMap<ReceiptKey, Looks> = HashMap::new();
    for row in events {
        let (kind, reason) = row.event()?;
        let so_far = looks.entry(key(&row.receipt_key)?).or_default();
        *so_far = so_far.after(kind, reason);
    }
    Ok(keys.iter().map(|key| looks.get(key).copied().unwrap_or_default()).collect())
}

/// The grants of a claim statement by key.
pub(super) fn grants(rows: &[GrantRow]) -> Result<HashMap<ReceiptKey, Grant>> {
    rows.iter().map(|row| Ok((key(&row.receipt_key)?, row.grant()?))).collect()
}

/// What was settled, by key.
pub(super) fn settled(rows: &[SettledRow]) -> Result<HashMap<ReceiptKey, SettleAnswer>> {
    rows.iter().map(|row| Ok((key(&row.receipt_key)?, SettleAnswer::Recorded(state(&row.state)?)))).collect()
}

/// What was read back for the requests that were not granted.
#[derive(Debug)]
pub(super) struct ReadBack {
    /// Whether the run is open.
    pub(super) run_is_open: bool,
    /// Whether it claims rows that have no receipt yet: not any more once a person has closed it.
    pub(super) takes_new: bool,
    /// The database's clock.
    pub(super) now: Moment,
    /// What stands.
    pub(super) rows: Vec<StandingRow>,
    /// How long ago this claim was first asked for, where an earlier try of it may have been committed.
    pub(super) in_doubt_for: Option<Duration>,
}

impl ReadBack {
    /// The claims that an earlier try of the same batch has made: ours, live, and not older than the question.
    fn own_grant(&self, row: &StandingRow, batch: &ClaimBatch<'_>, request: &ClaimRequest) -> Result<Option<Grant>> {
        let Some(elapsed) = self.in_doubt_for else { return Ok(None) };
        let asked_at = self.now.micros().saturating_sub(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX));
        let standing = row.standing()?;
        let grant = row.granted.grant()?;
        let live = standing.lease_ends_at.is_some_and(|ends| Moment::from(ends) > self.now);
        let ours = standing.state == State::Claimed
            && standing.fingerprint == request.fingerprint
            && row.worker == Some(batch.worker)
            && Moment::from(grant.claimed_at).micros() >= asked_at;
        Ok((live && ours).then_some(grant))
    }
}

/// The answers to a batch in the order of its requests.
pub(super) fn claim_answers(
    batch: &ClaimBatch<'_>,
    granted: &HashMap<ReceiptKey, Grant>,
    back: Option<&ReadBack>,
) -> Result<Vec<ClaimAnswer>> {
    let standing = match back {
        Some(back) => {
            back.rows.iter().map(|row| Ok((key(&row.granted.receipt_key)?, row))).collect::<Result<HashMap<_, _>>>()?
        }
        None => HashMap::new(),
    };
    let answer = |request: &ClaimRequest| match (granted.get(&request.key), back) {
        (Some(grant), _) => Ok(ClaimAnswer::Granted(grant.clone())),
        (None, Some(back)) => refusal(batch, request, back, standing.get(&request.key).copied()),
        (None, None) => Ok(ClaimAnswer::RunClosed),
    };
    batch.requests.iter().map(answer).collect()
}

fn refusal(
    batch: &ClaimBatch<'_>,
    request: &ClaimRequest,
    back: &ReadBack,
    row: Option<&StandingRow>,
) -> Result<ClaimAnswer> {
    if let Some(grant) = row.map(|row| back.own_grant(row, batch, request)).transpose()?.flatten() {
        return Ok(ClaimAnswer::Granted(grant));
    }
    if !back.run_is_open {
        return Ok(ClaimAnswer::RunClosed);
    }
    if row.is_none() && !back.takes_new {
        // Left out when a person closed the run; nothing to wait for.
        return Ok(ClaimAnswer::Refused(Verdict::Settled(State::Failed)));
    }
    let now = back.now.timestamp()?;
    let standing = row.map(StandingRow::standing).transpose()?;
    let found = verdict(standing.as_ref(), &request.fingerprint, now);
    Ok(ClaimAnswer::Refused(match (found, batch.purpose) {
        // It became so between the two statements, or the purpose is the wrong one: look again.
        (Verdict::Claimable, _) | (Verdict::Ambiguous, Purpose::Reconcile) => Verdict::NotDue { at: now },
        (other, _) => other,
    }))
}

/// What `count` sends take from a rate, in microseconds; rounded up, so that the rate is never exceeded.
pub(super) fn taken(count: u32, rate: Rate) -> i64 {
    let nanoseconds = rate.interval.as_nanos().max(0).saturating_mul(i128::from(count));
    i64::try_from(nanoseconds.saturating_add(999) / 1_000).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// The wait that follows from the time of theoretical arrival after `taken` microseconds were taken.
pub(super) fn reservation(arrival: Moment, now: Moment, taken: i64, rate: Rate) -> Reservation {
    let burst = self::taken(rate.burst.saturating_sub(1), rate);
    let first = arrival.micros().saturating_sub(taken).saturating_sub(burst);
    Reservation { wait: SignedDuration::from_micros(first.saturating_sub(now.micros()).max(0)) }
}

/// A breaker is open while it has an instant at which it opened; the database keeps both instants together.
pub(super) fn pace(paused_until: Option<Timestamp>, opened_at: Option<Timestamp>, probe_at: Option<Timestamp>) -> Pace {
    let breaker = opened_at.zip(probe_at).map(|(opened_at, probe_at)| OpenBreaker { opened_at, probe_at });
    Pace { paused_until, breaker }
}

impl ReceiptFilter {
    /// The place in the order (week, key) behind which the list begins, as statements compare it.
    pub(super) fn place(&self) -> (i32, Vec<u8>) {
        let first = self.iso_week.map(|week| (week.number(), Vec::new()));
        let after = self.after.map(|(week, key)| (week.number(), key.as_bytes().to_vec()));
        first.max(after).unwrap_or_default()
    }
}
