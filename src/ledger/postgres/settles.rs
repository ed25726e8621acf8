//! Recording how claims end: settles, give-backs, ended leases, and what comes too late.

use std::collections::HashMap;

use sqlx::PgConnection;

use super::{PostgresLedger, rows, statement};
use crate::identity::{IsoWeek, ReceiptKey};
use crate::ledger::answers::{by_kind, in_key_order, settled, storable};
use crate::ledger::failure::Try;
use crate::ledger::image::{Image, NewEvent, events_json, images_json};
use crate::ledger::slow_path::late_settle;
use crate::ledger::stored::{EndedLeaseRow, EventRow, Moment, SettledRow, key};
use crate::ledger::{EndedLease, EventRecord, SettleAnswer, SettleRequest};
use crate::receipt::EventKind;

/// All true values are given, so that a receipt that the database has lost is restored. What is no longer under
/// this very claim is left alone and not returned. The upsert probes the primary key for every row whatever the
/// planner knows, and the events come from what it returns, without a join.
pub(in crate::ledger) const SETTLE: &str = "
WITH written AS (
    INSERT INTO receipts AS r (iso_week, receipt_key, run_number, part, fingerprint, state, reason, attempts,
        grant_number, claimed_at, first_claimed_at, first_attempt_at, next_attempt_at, ambiguous_since, reconciled,
        destination_number, provider_reference, provider_code, sent_at, updated_at)
    SELECT $1, t.receipt_key, $2, t.part, t.fingerprint, t.state, t.reason, t.attempts,
        t.grant_number, t.claimed_at, t.first_claimed_at, t.first_attempt_at, t.next_attempt_at, t.ambiguous_since,
        t.reconciled, t.destination_number, t.provider_reference, t.provider_code,
        CASE WHEN t.state = 'sent' THEN now() + $4 * interval '1 microsecond' END,
        now() + $4 * interval '1 microsecond'
    FROM unnest($5::bytea[], $6::bigint[], $7::bytea[], $8::text[], $9::text[], $10::bigint[], $11::bigint[],
        $12::timestamptz[], $13::timestamptz[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[],
        $17::boolean[], $18::integer[], $19::text[], $20::text[])
        AS t(receipt_key, part, fingerprint, state, reason, attempts, grant_number, claimed_at, first_claimed_at,
            first_attempt_at, next_attempt_at, ambiguous_since, reconciled, destination_number, provider_reference,
            provider_code)
    ORDER BY t.receipt_key
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
        attempts = greatest(r.attempts, excluded.attempts),
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
    RETURNING r.*
), logged AS (
    INSERT INTO receipt_events (iso_week, receipt_key, run_number, part, kind, at, grant_number, worker, claimed_at,
        state, reason, attempts, fingerprint, first_claimed_at, first_attempt_at, next_attempt_at, ambiguous_since,
        in_conflict, reconciled, destination_number, provider_reference, provider_code, note)
    SELECT iso_week, receipt_key, run_number, part, $3, updated_at, grant_number, worker, claimed_at,
        state, reason, attempts, fingerprint, first_claimed_at, first_attempt_at, next_attempt_at, ambiguous_since,
        in_conflict, reconciled, destination_number, provider_reference, provider_code, NULL
    FROM written
    UNION ALL
    SELECT iso_week, receipt_key, run_number, part, 'double_accept', updated_at, grant_number, worker, claimed_at,
        state, reason, attempts, fingerprint, first_claimed_at, first_attempt_at, next_attempt_at, ambiguous_since,
        in_conflict, reconciled, destination_number, provider_reference, provider_code,
        'also accepted as ' || late_reference
    FROM written WHERE late_reference <> provider_reference
)
SELECT receipt_key, state FROM written";

const ENDED_LEASES: &str = "
SELECT s.*
FROM unnest($2::bytea[]) AS t(receipt_key)
CROSS JOIN LATERAL (
    SELECT r.receipt_key, r.fingerprint, r.part, r.destination_number, r.grant_number, r.attempts, r.claimed_at,
           r.first_claimed_at, r.first_attempt_at, r.ambiguous_since,
           coalesce((SELECT d.name FROM destinations d WHERE d.destination_number = r.destination_number), '')
               AS destination_name
    FROM receipts r
    WHERE r.iso_week = $1 AND r.receipt_key = t.receipt_key AND r.state = 'claimed'
      AND r.lease_ends_at <= now() + $3 * interval '1 microsecond' OFFSET 0) AS s";

/// Locks receipts in key order and reads them.
const LOCK: &str = "
SELECT s.*
FROM unnest($2::bytea[]) AS t(receipt_key)
CROSS JOIN LATERAL (
    SELECT r.* FROM receipts r WHERE r.iso_week = $1 AND r.receipt_key = t.receipt_key OFFSET 0 FOR UPDATE) AS s";

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
SELECT $1, decode(t.receipt_key, 'hex'), t.run_number, t.part, decode(t.fingerprint, 'hex'), t.state, t.reason,
    t.attempts, t.grant_number, t.worker,
    timestamptz 'epoch' + t.claimed_at * interval '1 microsecond',
    timestamptz 'epoch' + t.lease_ends_at * interval '1 microsecond',
    timestamptz 'epoch' + t.first_claimed_at * interval '1 microsecond',
    timestamptz 'epoch' + t.first_attempt_at * interval '1 microsecond',
    timestamptz 'epoch' + t.next_attempt_at * interval '1 microsecond',
    timestamptz 'epoch' + t.ambiguous_since * interval '1 microsecond',
    t.in_conflict, t.reconciled, t.destination_number, t.provider_reference, t.provider_code, t.late_reference,
    timestamptz 'epoch' + t.sent_at * interval '1 microsecond',
    timestamptz 'epoch' + t.updated_at * interval '1 microsecond'
FROM jsonb_to_recordset($2::text::jsonb) AS t(receipt_key text, run_number bigint, part integer, fingerprint text,
    state text, reason text, attempts integer, grant_number bigint, worker bigint, claimed_at bigint,
    lease_ends_at bigint, first_claimed_at bigint, first_attempt_at bigint, next_attempt_at bigint,
    ambiguous_since bigint, in_conflict boolean, reconciled boolean, destination_number integer,
    provider_reference text, provider_code text, late_reference text, sent_at bigint, updated_at bigint)
ORDER BY 2
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
SELECT $1, decode(t.receipt_key, 'hex'), t.run_number, t.part, t.kind,
    timestamptz 'epoch' + t.at * interval '1 microsecond', t.grant_number,
    timestamptz 'epoch' + t.claimed_at * interval '1 microsecond', t.state, t.reason, t.attempts,
    decode(t.fingerprint, 'hex'), decode(t.presented, 'hex'),
    timestamptz 'epoch' + t.first_claimed_at * interval '1 microsecond',
    timestamptz 'epoch' + t.first_attempt_at * interval '1 microsecond',
    timestamptz 'epoch' + t.next_attempt_at * interval '1 microsecond',
    timestamptz 'epoch' + t.ambiguous_since * interval '1 microsecond',
    t.in_conflict, t.reconciled, t.destination_number, t.provider_reference, t.provider_code, t.actor, t.note
FROM jsonb_to_recordset($2::text::jsonb) AS t(receipt_key text, run_number bigint, part integer, kind text,
    at bigint, grant_number bigint, claimed_at bigint, state text, reason text, attempts integer, fingerprint text,
    presented text, first_claimed_at bigint, first_attempt_at bigint, next_attempt_at bigint,
    ambiguous_since bigint, in_conflict boolean, reconciled boolean, destination_number integer,
    provider_reference text, provider_code text, actor text, note text)";

pub(super) async fn settle(
    ledger: &PostgresLedger,
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
    ledger: &PostgresLedger,
    run_number: i64,
    week: IsoWeek,
    kind: EventKind,
    requests: &[&SettleRequest],
) -> Try<Vec<SettledRow>> {
    let mut transaction = ledger.write().await?;
    let written: Vec<SettledRow> = rows(SETTLE)
        .bind(week.number())
        .bind(run_number)
        .bind(kind.as_str())
        .bind(ledger.offset)
        .bind(column(requests, |r| r.key.as_bytes().as_slice()))
        .bind(column(requests, |r| i64::from(r.part)))
        .bind(column(requests, |r| r.fingerprint.as_bytes().as_slice()))
        .bind(column(requests, |r| r.settlement.state.as_str()))
        .bind(column(requests, |r| r.settlement.reason.map(|reason| reason.as_str())))
        .bind(column(requests, |r| i64::from(r.settlement.attempts)))
        .bind(column(requests, |r| r.grant_number))
        .bind(column(requests, |r| Moment::from(r.claimed_at)))
        .bind(column(requests, |r| Moment::from(r.first_claimed_at)))
        .bind(column(requests, |r| r.first_attempt_at.map(Moment::from)))
        .bind(column(requests, |r| r.settlement.next_attempt_at.map(Moment::from)))
        .bind(column(requests, |r| r.settlement.ambiguous_since.map(Moment::from)))
        .bind(column(requests, |r| r.settlement.reconciled))
        .bind(column(requests, |r| r.destination.0))
        .bind(column(requests, |r| r.settlement.provider_reference.as_deref()))
        .bind(column(requests, |r| r.settlement.provider_code.as_deref()))
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(written)
}

fn column<'r, T>(requests: &[&'r SettleRequest], of: impl Fn(&'r SettleRequest) -> T) -> Vec<T> {
    requests.iter().map(|request| of(request)).collect()
}

/// The path of the few that are late or come twice: read under a lock, decide, write back.
async fn settle_late(
    ledger: &PostgresLedger,
    week: IsoWeek,
    requests: &[SettleRequest],
) -> Try<HashMap<ReceiptKey, SettleAnswer>> {
    let mut transaction = ledger.write().await?;
    let sorted = in_key_order(requests, |request| request.key);
    let locked = lock(&mut transaction, week, sorted.iter().map(|request| request.key)).await?;
    let now = ledger.clock(&mut transaction).await?;
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
    connection: &mut PgConnection,
    week: IsoWeek,
    keys: impl Iterator<Item = ReceiptKey>,
) -> Try<HashMap<ReceiptKey, Image>> {
    let keys: Vec<[u8; 32]> = keys.map(|key| *key.as_bytes()).collect();
    let locked: Vec<Image> = rows(LOCK).bind(week.number()).bind(keys).fetch_all(connection).await?;
    Ok(locked.into_iter().map(|row| Ok((key(&row.receipt_key)?, row))).collect::<crate::ledger::Result<_>>()?)
}

/// Writes what was decided under the lock.
pub(super) async fn write_back(
    connection: &mut PgConnection,
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
pub(super) async fn history(connection: &mut PgConnection, week: IsoWeek, key: &ReceiptKey) -> Try<Vec<EventRecord>> {
    let found: Vec<EventRow> =
        rows(EVENTS).bind(week.number()).bind(key.as_bytes().as_slice()).fetch_all(connection).await?;
    Ok(found.into_iter().map(EventRow::event).collect::<Result<_, _>>()?)
}

pub(super) async fn ended_leases(ledger: &PostgresLedger, week: IsoWeek, keys: &[ReceiptKey]) -> Try<Vec<EndedLease>> {
    let mut transaction = ledger.read().await?;
    let keys: Vec<&[u8]> = in_key_order(keys, |key| *key).iter().map(|key| key.as_bytes().as_slice()).collect();
    let found: Vec<EndedLeaseRow> =
        rows(ENDED_LEASES).bind(week.number()).bind(keys).bind(ledger.offset).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.iter().map(EndedLeaseRow::ended_lease).collect::<Result<_, _>>()?)
}

pub(super) async fn end_leases(
    ledger: &PostgresLedger,
    run_number: i64,
    week: IsoWeek,
    requests: &[SettleRequest],
) -> Try<u64> {
    let requests = storable(requests);
    let sorted = in_key_order(&requests, |request| request.key);
    let written = write_ends(ledger, run_number, week, EventKind::LeaseEnd, &sorted).await?;
    Ok(u64::try_from(written.len()).unwrap_or(u64::MAX))
}
