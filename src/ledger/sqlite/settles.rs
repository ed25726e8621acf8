//! Recording how claims end: settles, give-backs, ended leases, and what comes too late.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use sqlx::SqliteConnection;

use super::{SqliteLedger, rows, statement};
use crate::identity::{IsoWeek, ReceiptKey, hex_text};
use crate::ledger::answers::{by_kind, in_key_order, settled, storable};
use crate::ledger::failure::Try;
use crate::ledger::image::{Image, NewEvent, events_json, images_json};
use crate::ledger::slow_path::late_settle;
use crate::ledger::stored::{EndedLeaseRow, EventRow, Moment, SettledRow, key};
use crate::ledger::{EndedLease, EventRecord, SettleAnswer, SettleRequest};
use crate::receipt::EventKind;

/// All true values are given, so that a receipt that the database has lost is restored. What is no longer under
/// this very claim is left alone and not returned.
pub(in crate::ledger) const SETTLE: &str = "
INSERT INTO receipts AS r (iso_week, receipt_key, run_number, part, fingerprint, state, reason, attempts,
    grant_number, claimed_at, first_claimed_at, first_attempt_at, next_attempt_at, ambiguous_since, reconciled,
    destination_number, provider_reference, provider_code, sent_at, updated_at)
SELECT $1, unhex(t.value ->> 0), $2, t.value ->> 1, unhex(t.value ->> 2), t.value ->> 3, t.value ->> 4, t.value ->> 5,
    t.value ->> 6, t.value ->> 7, t.value ->> 8, t.value ->> 9, t.value ->> 10, t.value ->> 11, t.value ->> 12,
    t.value ->> 13, t.value ->> 14, t.value ->> 15, CASE WHEN t.value ->> 3 = 'sent' THEN $4 END, $4
FROM json_each($5) AS t WHERE true
ON CONFLICT (iso_week, receipt_key) DO UPDATE SET
    state = CASE WHEN excluded.state = 'sent' OR r.late_reference IS NOT NULL THEN 'sent'
                 WHEN r.in_conflict AND excluded.ambiguous_since IS NULL THEN 'quarantined'
                 ELSE excluded.state END,
    reason = CASE WHEN excluded.state = 'sent' OR r.late_reference IS NOT NULL THEN NULL
                  WHEN r.in_conflict AND excluded.ambiguous_since IS NULL THEN 'conflict'
                  ELSE excluded.reason END,
    next_attempt_at = CASE WHEN r.late_reference IS NOT NULL
                             OR (r.in_conflict AND excluded.ambiguous_since IS NULL) THEN NULL
                           ELSE excluded.next_attempt_at END,
    ambiguous_since = CASE WHEN r.late_reference IS NOT NULL THEN NULL ELSE excluded.ambiguous_since END,
    sent_at = CASE WHEN excluded.state = 'sent' OR r.late_reference IS NOT NULL THEN excluded.updated_at END,
    reconciled = excluded.reconciled OR (r.late_reference IS NOT NULL AND excluded.state <> 'sent'),
    provider_reference = coalesce(excluded.provider_reference, r.late_reference, r.provider_reference),
    provider_code = excluded.provider_code,
    attempts = max(r.attempts, excluded.attempts),
    grant_number = excluded.grant_number,
    claimed_at = excluded.claimed_at,
    lease_ends_at = NULL,
    first_attempt_at = coalesce(r.first_attempt_at, excluded.first_attempt_at),
    destination_number = CASE WHEN r.ambiguous_since IS NOT NULL AND excluded.ambiguous_since IS NOT NULL
                              THEN r.destination_number ELSE excluded.destination_number END,
    updated_at = excluded.updated_at
WHERE r.fingerprint = excluded.fingerprint
  AND CASE WHEN r.grant_number = excluded.grant_number
           THEN r.state = 'claimed' AND r.claimed_at = excluded.claimed_at
                AND ($3 <> 'lease_end' OR r.lease_ends_at <= excluded.updated_at)
           ELSE r.grant_number < excluded.grant_number
                AND r.state <> 'sent' AND (r.state <> 'claimed' OR excluded.state = 'sent') END
RETURNING receipt_key, state";

/// The events of what was just written.
const LOG_SETTLED: &str = "
INSERT INTO receipt_events (iso_week, receipt_key, run_number, part, kind, at, grant_number, worker, claimed_at,
    state, reason, attempts, fingerprint, first_claimed_at, first_attempt_at, next_attempt_at, ambiguous_since,
    in_conflict, reconciled, destination_number, provider_reference, provider_code, note)
SELECT r.iso_week, r.receipt_key, r.run_number, r.part, k.kind, r.updated_at, r.grant_number, r.worker, r.claimed_at,
    r.state, r.reason, r.attempts, r.fingerprint, r.first_claimed_at, r.first_attempt_at, r.next_attempt_at,
    r.ambiguous_since, r.in_conflict, r.reconciled, r.destination_number, r.provider_reference, r.provider_code,
    CASE WHEN k.kind = 'double_accept' THEN 'also accepted as ' || r.late_reference END
FROM json_each($3) AS t
CROSS JOIN receipts r ON r.iso_week = $1 AND r.receipt_key = unhex(t.value)
CROSS JOIN (SELECT $2 AS kind UNION ALL SELECT 'double_accept') AS k
WHERE k.kind <> 'double_accept' OR r.late_reference <> r.provider_reference";

const ENDED_LEASES: &str = "
SELECT r.receipt_key, r.fingerprint, r.part, r.destination_number, r.grant_number, r.attempts, r.claimed_at,
       r.first_claimed_at, r.first_attempt_at, r.ambiguous_since,
       coalesce((SELECT d.name FROM destinations d WHERE d.destination_number = r.destination_number), '')
           AS destination_name
FROM json_each($2) AS t
CROSS JOIN receipts r ON r.iso_week = $1 AND r.receipt_key = unhex(t.value) AND r.state = 'claimed'
    AND r.lease_ends_at <= $3";

/// Reads receipts whose transaction already holds the write lock.
const LOCK: &str = "
SELECT r.* FROM json_each($2) AS t
CROSS JOIN receipts r ON r.iso_week = $1 AND r.receipt_key = unhex(t.value)";

const EVENTS: &str = "
SELECT event_id, kind, at, grant_number, claimed_at, state, reason, attempts, provider_reference, provider_code,
    presented, actor, note
FROM receipt_events WHERE iso_week = $1 AND receipt_key = $2 ORDER BY event_id";

/// Writes locked receipts back; every row exists.
const REWRITE: &str = "
INSERT INTO receipts AS r (iso_week, receipt_key, run_number, part, fingerprint, state, reason, attempts,
    grant_number, worker, claimed_at, lease_ends_at, first_claimed_at, first_attempt_at, next_attempt_at,
    ambiguous_since, in_conflict, reconciled, destination_number, provider_reference, provider_code, late_reference,
    sent_at, updated_at)
SELECT $1, unhex(t.value ->> 'receipt_key'), t.value ->> 'run_number', t.value ->> 'part', unhex(t.value ->> 'fingerprint'), t.value ->> 'state', t.value ->> 'reason',
    t.value ->> 'attempts', t.value ->> 'grant_number', t.value ->> 'worker',
    t.value ->> 'claimed_at',
    t.value ->> 'lease_ends_at',
    t.value ->> 'first_claimed_at',
    t.value ->> 'first_attempt_at',
    t.value ->> 'next_attempt_at',
    t.value ->> 'ambiguous_since',
    t.value ->> 'in_conflict', t.value ->> 'reconciled', t.value ->> 'destination_number', t.value ->> 'provider_reference', t.value ->> 'provider_code', t.value ->> 'late_reference',
    t.value ->> 'sent_at',
    t.value ->> 'updated_at'
FROM json_each($2) AS t WHERE true
ON CONFLICT (iso_week, receipt_key) DO UPDATE SET
    run_number = excluded.run_number, part = excluded.part, fingerprint = excluded.fingerprint, state = excluded.state, reason = excluded.reason,
    attempts = excluded.attempts, lease_ends_at = excluded.lease_ends_at,
    first_attempt_at = excluded.first_attempt_at, next_attempt_at = excluded.next_attempt_at,
    ambiguous_since = excluded.ambiguous_since, in_conflict = excluded.in_conflict,
    reconciled = excluded.reconciled, destination_number = excluded.destination_number,
    provider_reference = excluded.provider_reference, provider_code = excluded.provider_code,
    late_reference = excluded.late_reference, sent_at = excluded.sent_at, updated_at = excluded.updated_at";

const LOG: &str = "
INSERT INTO receipt_events (iso_week, receipt_key, run_number, part, kind, at, grant_number, claimed_at, state,
    reason, attempts, fingerprint, presented, first_claimed_at, first_attempt_at, next_attempt_at, ambiguous_since,
    in_conflict, reconciled, destination_number, provider_reference, provider_code, actor, note)
SELECT $1, unhex(t.value ->> 'receipt_key'), t.value ->> 'run_number', t.value ->> 'part', t.value ->> 'kind',
    t.value ->> 'at', t.value ->> 'grant_number',
    t.value ->> 'claimed_at', t.value ->> 'state', t.value ->> 'reason', t.value ->> 'attempts',
    unhex(t.value ->> 'fingerprint'), unhex(t.value ->> 'presented'),
    t.value ->> 'first_claimed_at',
    t.value ->> 'first_attempt_at',
    t.value ->> 'next_attempt_at',
    t.value ->> 'ambiguous_since',
    t.value ->> 'in_conflict', t.value ->> 'reconciled', t.value ->> 'destination_number', t.value ->> 'provider_reference', t.value ->> 'provider_code',
    t.value ->> 'actor', t.value ->> 'note'
FROM json_each($2) AS t";

pub(super) async fn settle(
    ledger: &SqliteLedger,
    run_number: i64,
    week: IsoWeek,
    requests: &[SettleRequest],
) -> Try<Vec<SettleAnswer>> {
    let requests = storable(requests);
    let mut answers: HashMap<ReceiptKey, SettleAnswer> = HashMap::with_capacity(requests.len());
    for (kind, of_kind) in by_kind(&requests) {
        let written = write_ends(ledger, run_number, week, kind, &of_kind).await?;
        answers.extend(settled(&written)?);
    }
    let late: Vec<SettleRequest> =
        requests.iter().filter(|request| !answers.contains_key(&request.key)).cloned().collect();
    if !late.is_empty() {
        answers.extend(settle_late(ledger, week, &late).await?);
    }
    let answer = |request: &SettleRequest| answers.get(&request.key).copied().unwrap_or(SettleAnswer::TooLate);
    Ok(requests.iter().map(answer).collect())
}

async fn write_ends(
    ledger: &SqliteLedger,
    run_number: i64,
    week: IsoWeek,
    kind: EventKind,
    requests: &[&SettleRequest],
) -> Try<Vec<SettledRow>> {
    let given = Value::Array(requests.iter().map(|request| settle_json(request)).collect()).to_string();
    let mut transaction = ledger.write().await?;
    let written: Vec<SettledRow> = rows(SETTLE)
        .bind(week.number())
        .bind(run_number)
        .bind(kind.as_str())
        .bind(ledger.clock())
        .bind(given)
        .fetch_all(&mut *transaction)
        .await?;
    let keys: Vec<String> = written.iter().map(|row| hex_text(&row.receipt_key)).collect();
    statement(LOG_SETTLED)
        .bind(week.number())
        .bind(kind.as_str())
        .bind(json!(keys).to_string())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(written)
}

/// The columns in the order in which [`SETTLE`] reads them.
fn settle_json(request: &SettleRequest) -> Value {
    let settlement = &request.settlement;
    let micros = |at: Option<Timestamp>| at.map(|at| Moment::from(at).micros());
    json!([
        request.key.to_string(),
        request.part,
        request.fingerprint.to_string(),
        settlement.state.as_str(),
        settlement.reason.map(|reason| reason.as_str()),
        settlement.attempts,
        request.grant_number,
        micros(Some(request.claimed_at)),
        micros(Some(request.first_claimed_at)),
        micros(request.first_attempt_at),
        micros(settlement.next_attempt_at),
        micros(settlement.ambiguous_since),
        settlement.reconciled,
        request.destination.0,
        settlement.provider_reference,
        settlement.provider_code,
    ])
}

/// The path of the few that are late or come twice: read under a lock, decide, write back.
async fn settle_late(
    ledger: &SqliteLedger,
    week: IsoWeek,
    requests: &[SettleRequest],
) -> Try<HashMap<ReceiptKey, SettleAnswer>> {
    let mut transaction = ledger.write().await?;
    let sorted = in_key_order(requests, |request| request.key);
    let locked = lock(&mut transaction, week, sorted.iter().map(|request| request.key)).await?;
    let now = ledger.clock();
    let (mut answers, mut changed, mut events) = (HashMap::new(), Vec::new(), Vec::new());
    for request in sorted {
        let Some(row) = locked.get(&request.key) else { continue };
        let history = history(&mut transaction, week, &request.key).await?;
        let late = late_settle(row, &history, request, now);
        answers.insert(request.key, late.answer);
        changed.extend(late.changed);
        events.extend(late.event);
    }
    write_back(&mut transaction, week, &changed, &events).await?;
    transaction.commit().await?;
    Ok(answers)
}

/// Locks the receipts of `keys`, which are in key order.
pub(super) async fn lock(
    connection: &mut SqliteConnection,
    week: IsoWeek,
    keys: impl Iterator<Item = ReceiptKey>,
) -> Try<HashMap<ReceiptKey, Image>> {
    let keys: Vec<String> = keys.map(|key| key.to_string()).collect();
    let locked: Vec<Image> = rows(LOCK).bind(week.number()).bind(json!(keys).to_string()).fetch_all(connection).await?;
    Ok(locked.into_iter().map(|row| Ok((key(&row.receipt_key)?, row))).collect::<crate::ledger::Result<_>>()?)
}

/// Writes what was decided under the lock.
pub(super) async fn write_back(
    connection: &mut SqliteConnection,
    week: IsoWeek,
    changed: &[Image],
    events: &[NewEvent],
) -> Try<()> {
    if !changed.is_empty() {
        let images = images_json(changed);
        statement(REWRITE).bind(week.number()).bind(images).execute(&mut *connection).await?;
    }
    if !events.is_empty() {
        statement(LOG).bind(week.number()).bind(events_json(events)).execute(connection).await?;
    }
    Ok(())
}

/// The events of a receipt, oldest first.
pub(super) async fn history(
    connection: &mut SqliteConnection,
    week: IsoWeek,
    key: &ReceiptKey,
) -> Try<Vec<EventRecord>> {
    let found: Vec<EventRow> =
        rows(EVENTS).bind(week.number()).bind(key.as_bytes().as_slice()).fetch_all(connection).await?;
    Ok(found.into_iter().map(EventRow::event).collect::<Result<_, _>>()?)
}

pub(super) async fn ended_leases(ledger: &SqliteLedger, week: IsoWeek, keys: &[ReceiptKey]) -> Try<Vec<EndedLease>> {
    let mut transaction = ledger.read().await?;
    let keys: Vec<String> = in_key_order(keys, |key| *key).iter().map(|key| key.to_string()).collect();
    let found: Vec<EndedLeaseRow> = rows(ENDED_LEASES)
        .bind(week.number())
        .bind(json!(keys).to_string())
        .bind(ledger.clock())
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(found.iter().map(EndedLeaseRow::ended_lease).collect::<Result<_, _>>()?)
}

pub(super) async fn end_leases(
    ledger: &SqliteLedger,
    run_number: i64,
    week: IsoWeek,
    requests: &[SettleRequest],
) -> Try<u64> {
    let requests = storable(requests);
    let sorted = in_key_order(&requests, |request| request.key);
    let written = write_ends(ledger, run_number, week, EventKind::LeaseEnd, &sorted).await?;
    Ok(u64::try_from(written.len()).unwrap_or(u64::MAX))
}
