//! Looking and claiming, a batch at a time.

use std::time::Instant;

use super::{PostgresLedger, micros, rows};
use crate::identity::{IsoWeek, ReceiptKey};
use crate::ledger::answers::{self, ReadBack, claim_answers, grants, in_key_order};
use crate::ledger::failure::Try;
use crate::ledger::stored::{GrantRow, StandingRow};
use crate::ledger::{ClaimAnswer, ClaimBatch, Found, Purpose};

/// One probe of the primary key for every key: OFFSET keeps the planner from turning the list into a join,
/// which on a table that it knows nothing about reads the whole week for every key.
pub(in crate::ledger) const LOOK: &str = "
SELECT s.*
FROM unnest($2::bytea[]) AS t(receipt_key)
CROSS JOIN LATERAL (
    SELECT r.receipt_key, r.run_number, r.fingerprint, r.state, r.lease_ends_at, r.next_attempt_at,
           r.ambiguous_since, r.worker, r.grant_number, r.attempts, r.claimed_at, r.first_claimed_at,
           r.first_attempt_at, r.destination_number
    FROM receipts r WHERE r.iso_week = $1 AND r.receipt_key = t.receipt_key OFFSET 0) AS s";

/// Inserts what is new and takes what may be tried again; whatever is not returned was not granted. $8 says
/// whether it is for sending: a reconciliation takes only what exists and is in doubt. A run that a person has
/// closed and a review has opened again takes nothing new.
pub(in crate::ledger) const CLAIM: &str = "
INSERT INTO receipts AS r (iso_week, receipt_key, run_number, part, fingerprint, state, attempts, grant_number,
    worker, claimed_at, lease_ends_at, first_claimed_at, destination_number, updated_at)
SELECT $1, t.receipt_key, o.run_number, t.part, t.fingerprint, 'claimed', 0, 1,
    $6, o.now, o.now + $7 * interval '1 microsecond', o.now, $9, o.now
FROM (SELECT run_number, withdrawn_at, now() + $10 * interval '1 microsecond' AS now
      FROM runs WHERE run_number = $2 AND closed_at IS NULL FOR SHARE) AS o
CROSS JOIN unnest($3::bytea[], $4::bytea[], $5::bigint[]) AS t(receipt_key, fingerprint, part)
WHERE ($8 AND o.withdrawn_at IS NULL) OR (SELECT true FROM receipts e WHERE e.iso_week = $1 AND e.receipt_key = t.receipt_key)
ORDER BY t.receipt_key
ON CONFLICT (iso_week, receipt_key) DO UPDATE SET
    state = 'claimed', reason = NULL, next_attempt_at = NULL, grant_number = r.grant_number + 1,
    worker = excluded.worker, claimed_at = excluded.claimed_at, lease_ends_at = excluded.lease_ends_at,
    destination_number = CASE WHEN $8 THEN excluded.destination_number ELSE r.destination_number END,
    updated_at = excluded.updated_at
WHERE r.fingerprint = excluded.fingerprint AND r.state = 'retryable' AND r.next_attempt_at <= excluded.claimed_at
  AND (r.ambiguous_since IS NULL) = $8
RETURNING r.receipt_key, r.grant_number, r.attempts, r.claimed_at, r.first_claimed_at, r.first_attempt_at,
    r.ambiguous_since, r.destination_number";

const RUN_IS_OPEN: &str = "SELECT count(*), count(withdrawn_at) FROM runs WHERE run_number = $1 AND closed_at IS NULL";

pub(super) async fn look(ledger: &PostgresLedger, week: IsoWeek, keys: &[ReceiptKey]) -> Try<Vec<Option<Found>>> {
    let mut transaction = ledger.read().await?;
    let found = standing_rows(&mut transaction, week, keys.iter()).await?;
    transaction.commit().await?;
    Ok(answers::standings(keys, &found)?)
}

async fn standing_rows(
    connection: &mut sqlx::PgConnection,
    week: IsoWeek,
    keys: impl Iterator<Item = &ReceiptKey>,
) -> Try<Vec<StandingRow>> {
    let mut keys: Vec<&[u8]> = keys.map(|key| key.as_bytes().as_slice()).collect();
    keys.sort_unstable();
    Ok(rows(LOOK).bind(week.number()).bind(keys).fetch_all(connection).await?)
}

/// `in_doubt_since` is when this claim was first asked for, where an earlier try of it may have been committed.
pub(super) async fn claim(
    ledger: &PostgresLedger,
    batch: &ClaimBatch<'_>,
    in_doubt_since: Option<Instant>,
) -> Try<Vec<ClaimAnswer>> {
    let sorted = in_key_order(batch.requests, |request| request.key);
    let mut transaction = ledger.write().await?;
    let granted: Vec<GrantRow> = rows(CLAIM)
        .bind(batch.iso_week.number())
        .bind(batch.run_number)
        .bind(sorted.iter().map(|request| request.key.as_bytes().as_slice()).collect::<Vec<_>>())
        .bind(sorted.iter().map(|request| request.fingerprint.as_bytes().as_slice()).collect::<Vec<_>>())
        .bind(sorted.iter().map(|request| i64::from(request.part)).collect::<Vec<_>>())
        .bind(batch.worker)
        .bind(micros(batch.lease))
        .bind(batch.purpose == Purpose::Send)
        .bind(batch.destination.0)
        .bind(ledger.offset)
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    let granted = grants(&granted)?;
    let back = if granted.len() < batch.requests.len() {
        let refused = batch.requests.iter().map(|request| &request.key).filter(|key| !granted.contains_key(key));
        Some(read_back(ledger, batch, refused, in_doubt_since).await?)
    } else {
        None
    };
    Ok(claim_answers(batch, &granted, back.as_ref())?)
}

async fn read_back(
    ledger: &PostgresLedger,
    batch: &ClaimBatch<'_>,
    keys: impl Iterator<Item = &ReceiptKey>,
    in_doubt_since: Option<Instant>,
) -> Try<ReadBack> {
    let mut transaction = ledger.read().await?;
    // Right behind the transaction's instant: a moment later, an earlier claim would pass for this one.
    let in_doubt_for = in_doubt_since.map(|since| since.elapsed());
    let (open, withdrawn): (i64, i64) = rows(RUN_IS_OPEN).bind(batch.run_number).fetch_one(&mut *transaction).await?;
    let rows = standing_rows(&mut transaction, batch.iso_week, keys).await?;
    let now = ledger.clock(&mut transaction).await?;
    transaction.commit().await?;
    Ok(ReadBack { run_is_open: open == 1, takes_new: withdrawn == 0, now, rows, in_doubt_for })
}
