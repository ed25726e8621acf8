//! Looking and claiming, a batch at a time.

use std::time::Instant;

use serde_json::{Value, json};

use super::{SqliteLedger, micros, rows};
use crate::identity::{IsoWeek, ReceiptKey};
use crate::ledger::answers::{self, ReadBack, claim_answers, grants, in_key_order};
use crate::ledger::failure::Try;
use crate::ledger::stored::{GrantRow, StandingRow};
use crate::ledger::{ClaimAnswer, ClaimBatch, Found, Purpose};

/// One probe of the primary key for every key; a CROSS JOIN is never reordered.
pub(in crate::ledger) const LOOK: &str = "
SELECT r.receipt_key, r.run_number, r.fingerprint, r.state, r.lease_ends_at, r.next_attempt_at,
       r.ambiguous_since, r.worker, r.grant_number, r.attempts, r.claimed_at, r.first_claimed_at,
       r.first_attempt_at, r.destination_number
FROM json_each($2) AS t
CROSS JOIN receipts r ON r.iso_week = $1 AND r.receipt_key = unhex(t.value)";

/// Inserts what is new and takes what may be tried again; whatever is not returned was not granted. $6 says
/// whether it is for sending: a reconciliation takes only what exists and is in doubt. A run that a person has
/// closed and a review has opened again takes nothing new.
pub(in crate::ledger) const CLAIM: &str = "
INSERT INTO receipts AS r (iso_week, receipt_key, run_number, part, fingerprint, state, attempts, grant_number,
    worker, claimed_at, lease_ends_at, first_claimed_at, destination_number, updated_at)
SELECT $1, unhex(t.value ->> 0), o.run_number, t.value ->> 2, unhex(t.value ->> 1), 'claimed', 0, 1,
    $4, $8, $8 + $5, $8, $7, $8
FROM (SELECT run_number, withdrawn_at FROM runs WHERE run_number = $2 AND closed_at IS NULL) AS o
CROSS JOIN json_each($3) AS t
WHERE ($6 AND o.withdrawn_at IS NULL) OR EXISTS (SELECT 1 FROM receipts e WHERE e.iso_week = $1 AND e.receipt_key = unhex(t.value ->> 0))
ON CONFLICT (iso_week, receipt_key) DO UPDATE SET
    state = 'claimed', reason = NULL, next_attempt_at = NULL, grant_number = r.grant_number + 1,
    worker = excluded.worker, claimed_at = excluded.claimed_at, lease_ends_at = excluded.lease_ends_at,
    destination_number = CASE WHEN $6 THEN excluded.destination_number ELSE r.destination_number END,
    updated_at = excluded.updated_at
WHERE r.fingerprint = excluded.fingerprint AND r.state = 'retryable' AND r.next_attempt_at <= excluded.claimed_at
  AND (r.ambiguous_since IS NULL) = $6
RETURNING receipt_key, grant_number, attempts, claimed_at, first_claimed_at, first_attempt_at,
    ambiguous_since, destination_number";

const RUN_IS_OPEN: &str = "SELECT count(*), count(withdrawn_at) FROM runs WHERE run_number = $1 AND closed_at IS NULL";

pub(super) async fn look(ledger: &SqliteLedger, week: IsoWeek, keys: &[ReceiptKey]) -> Try<Vec<Option<Found>>> {
    let mut transaction = ledger.read().await?;
    let found = standing_rows(&mut transaction, week, keys.iter()).await?;
    transaction.commit().await?;
    Ok(answers::standings(keys, &found)?)
}

async fn standing_rows(
    connection: &mut sqlx::SqliteConnection,
    week: IsoWeek,
    keys: impl Iterator<Item = &ReceiptKey>,
) -> Try<Vec<StandingRow>> {
    let mut keys: Vec<String> = keys.map(ReceiptKey::to_string).collect();
    keys.sort_unstable();
    Ok(rows(LOOK).bind(week.number()).bind(json!(keys).to_string()).fetch_all(connection).await?)
}

/// `in_doubt_since` is when this claim was first asked for, where an earlier try of it may have been committed.
pub(super) async fn claim(
    ledger: &SqliteLedger,
    batch: &ClaimBatch<'_>,
    in_doubt_since: Option<Instant>,
) -> Try<Vec<ClaimAnswer>> {
    let sorted = in_key_order(batch.requests, |request| request.key);
    let requests: Vec<Value> = sorted
        .iter()
        .map(|request| json!([request.key.to_string(), request.fingerprint.to_string(), request.part]))
        .collect();
    let requests = Value::Array(requests).to_string();
    let mut transaction = ledger.write().await?;
    let granted: Vec<GrantRow> = rows(CLAIM)
        .bind(batch.iso_week.number())
        .bind(batch.run_number)
        .bind(requests)
        .bind(batch.worker)
        .bind(micros(batch.lease))
        .bind(batch.purpose == Purpose::Send)
        .bind(batch.destination.0)
        .bind(ledger.clock())
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
    ledger: &SqliteLedger,
    batch: &ClaimBatch<'_>,
    keys: impl Iterator<Item = &ReceiptKey>,
    in_doubt_since: Option<Instant>,
) -> Try<ReadBack> {
    let mut transaction = ledger.read().await?;
    // Right behind the transaction's instant: a moment later, an earlier claim would pass for this one.
    let (now, in_doubt_for) = (ledger.clock(), in_doubt_since.map(|since| since.elapsed()));
    let (open, withdrawn): (i64, i64) = rows(RUN_IS_OPEN).bind(batch.run_number).fetch_one(&mut *transaction).await?;
    let rows = standing_rows(&mut transaction, batch.iso_week, keys).await?;
    transaction.commit().await?;
    Ok(ReadBack { run_is_open: open == 1, takes_new: withdrawn == 0, now, rows, in_doubt_for })
}
