//! The queue of a run's parts.

use jiff::{SignedDuration, Timestamp};

use super::{PostgresLedger, micros, rows, statement};
use crate::ledger::failure::Try;
use crate::ledger::stored::{Moment, signed, time};
use crate::ledger::{ForeignCounts, LedgerError, PartEnd, PartGrant};

/// Two workers that ask at once get different parts: who comes second skips the row that the first has locked.
const TAKE_PART: &str = "
UPDATE run_parts SET state = 'leased', worker = $2, due_at = NULL,
    lease_ends_at = now() + ($3 + $4) * interval '1 microsecond'
WHERE run_number = $1 AND part = (
    SELECT p.part FROM run_parts p
    WHERE p.run_number = $1
      AND (SELECT closed_at IS NULL FROM runs WHERE run_number = $1)
      AND (p.state = 'open'
        OR (p.state = 'waiting' AND p.due_at <= now() + $4 * interval '1 microsecond')
        OR (p.state = 'leased' AND p.lease_ends_at <= now() + $4 * interval '1 microsecond'))
    ORDER BY p.part LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING part";

const NEXT_DUE_AT: &str = "
SELECT min(CASE p.state
        WHEN 'waiting' THEN p.due_at
        WHEN 'leased' THEN p.lease_ends_at
        WHEN 'open' THEN now() + $2 * interval '1 microsecond' END) AS due_at
FROM run_parts p
WHERE p.run_number = $1 AND (SELECT closed_at IS NULL FROM runs WHERE run_number = $1)
  AND p.part <> ALL ($3::bigint[])";

const RENEW_PART: &str = "
UPDATE run_parts SET lease_ends_at = now() + ($4 + $5) * interval '1 microsecond'
WHERE run_number = $1 AND part = $2 AND worker = $3 AND state = 'leased'";

const END_PART: &str = "
UPDATE run_parts SET state = $4, due_at = $5, worker = NULL, lease_ends_at = NULL,
    foreign_duplicate = $6, foreign_in_progress = $7, foreign_retryable = $8, foreign_held = $9,
    foreign_failed = $10, foreign_suppressed = $11, foreign_quarantined = $12, foreign_other_version = $13
WHERE run_number = $1 AND part = $2 AND worker = $3 AND state = 'leased'";

pub(super) async fn take_part(
    ledger: &PostgresLedger,
    run_number: i64,
    worker: i64,
    lease: SignedDuration,
) -> Try<PartGrant> {
    let mut transaction = ledger.write().await?;
    let taken: Option<(i32,)> = rows(TAKE_PART)
        .bind(run_number)
        .bind(worker)
        .bind(micros(lease))
        .bind(ledger.offset)
        .fetch_optional(&mut *transaction)
        .await?;
    transaction.commit().await?;
    match taken {
        Some((part,)) => {
            let part = u32::try_from(part).map_err(|_| LedgerError::Corrupt { what: "part" })?;
            Ok(PartGrant::Taken { part })
        }
        None => Ok(PartGrant::None { next_due_at: next_due_at(ledger, run_number, &[]).await? }),
    }
}

pub(super) async fn next_due_at(ledger: &PostgresLedger, run_number: i64, besides: &[u32]) -> Try<Option<Timestamp>> {
    let mut transaction = ledger.read().await?;
    let besides: Vec<i64> = besides.iter().copied().map(i64::from).collect();
    let (due_at,): (Option<Moment>,) =
        rows(NEXT_DUE_AT).bind(run_number).bind(ledger.offset).bind(besides).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(time(due_at)?)
}

pub(super) async fn renew_part(
    ledger: &PostgresLedger,
    run_number: i64,
    part: u32,
    worker: i64,
    lease: SignedDuration,
) -> Try<bool> {
    let mut transaction = ledger.write().await?;
    let renewed = statement(RENEW_PART)
        .bind(run_number)
        .bind(i64::from(part))
        .bind(worker)
        .bind(micros(lease))
        .bind(ledger.offset)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(renewed.rows_affected() == 1)
}

pub(super) async fn end_part(
    ledger: &PostgresLedger,
    run_number: i64,
    part: u32,
    worker: i64,
    end: PartEnd,
    counts: &ForeignCounts,
) -> Try<()> {
    let (state, due_at) = match end {
        PartEnd::Done => ("done", None),
        PartEnd::Waiting { until } => ("waiting", Some(Moment::from(until))),
        PartEnd::Open => ("open", None),
    };
    let mut transaction = ledger.write().await?;
    statement(END_PART)
        .bind(run_number)
        .bind(i64::from(part))
        .bind(worker)
        .bind(state)
        .bind(due_at)
        .bind(signed(counts.duplicate))
        .bind(signed(counts.in_progress))
        .bind(signed(counts.retryable))
        .bind(signed(counts.held))
        .bind(signed(counts.failed))
        .bind(signed(counts.suppressed))
        .bind(signed(counts.quarantined))
        .bind(signed(counts.other_version))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}
