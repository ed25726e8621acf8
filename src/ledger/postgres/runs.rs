//! Runs: opening, finding, counting and closing them.

use jiff::Timestamp;

use super::{PostgresLedger, rows, statement, trust};
use crate::identity::{DigestType, IsoWeek};
use crate::ledger::failure::Try;
use crate::ledger::stored::{CountsRow, Moment, RunRow, signed};
use crate::ledger::{NewRun, Run, RunCounts};

const OPEN_RUN: &str = "
INSERT INTO runs AS r (run_id, iso_week, digest_type, content_version, mode, snapshot_id, rows, parts, repeated,
    rejected, key_id, content_hash, deadline_at, correction, opened_at, database_identity, database_timeline,
    trigger_count, last_triggered_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, clock.now,
    $16, $17, 1, clock.now
FROM (SELECT now() + $15 * interval '1 microsecond' AS now) AS clock
ON CONFLICT (run_id) DO UPDATE SET
    trigger_count = r.trigger_count + 1, last_triggered_at = excluded.last_triggered_at, brake = NULL
RETURNING *";

const OPEN_PARTS: &str = "
INSERT INTO run_parts (run_number, part, rows)
SELECT $1, t.part - 1, t.rows FROM unnest($2::bigint[]) WITH ORDINALITY AS t(rows, part)
ON CONFLICT (run_number, part) DO NOTHING";

const RUN: &str = "SELECT * FROM runs WHERE run_id = $1";

const OPEN_RUNS: &str =
    "SELECT * FROM runs WHERE closed_at IS NULL AND mode <> 'observe' ORDER BY opened_at, run_number";

const RUNS_OF_WEEK: &str = "
SELECT * FROM runs WHERE iso_week = $1 AND digest_type = $2 AND mode <> 'observe' ORDER BY opened_at, run_number";

const LAST_ENFORCED_RUN: &str = "
SELECT * FROM runs WHERE digest_type = $1 AND mode = 'enforce' ORDER BY opened_at DESC, run_number DESC LIMIT 1";

const RUNS_OF_SNAPSHOT: &str =
    "SELECT * FROM runs WHERE snapshot_id = $1 AND mode = 'enforce' ORDER BY opened_at, run_number";

const SET_BRAKE: &str = "UPDATE runs SET brake = $2 WHERE run_number = $1";

/// Holds off claims while it is decided whether the run is finished.
const LOCK_RUN: &str = "SELECT closed_at IS NOT NULL FROM runs WHERE run_number = $1 FOR UPDATE";

const UNFINISHED_PARTS: &str = "SELECT count(*) FROM run_parts WHERE run_number = $1 AND state <> 'done'";

const REOPEN_PARTS: &str = "
UPDATE run_parts SET state = 'open'
WHERE run_number = $1 AND state = 'done' AND part IN (
    SELECT part FROM receipts WHERE iso_week = $2 AND run_number = $1 AND state IN ('claimed', 'retryable'))";

/// A receipt that waits although no part of the run has its number would never be found by reopening one.
const WAITING_RECEIPTS: &str = "
SELECT count(*) FROM receipts WHERE iso_week = $2 AND run_number = $1 AND state IN ('claimed', 'retryable')";

const CLOSE_RUN: &str = "
UPDATE runs SET closed_at = now() + $2 * interval '1 microsecond' WHERE run_number = $1 AND closed_at IS NULL";

/// A row whose conflict a person has decided counts by its receipt's state, as any row whose receipt is another run's.
const RUN_COUNTS: &str = "
SELECT r.sent, r.reconciled, r.sent_before, r.in_progress, r.retryable, r.held,
       r.failed_rejected + c.discarded AS failed_rejected, r.failed_other, r.quarantined, r.suppressed, r.attempts,
       c.conflicts,
       p.foreign_duplicate + c.sent AS foreign_duplicate,
       p.foreign_in_progress + c.in_progress AS foreign_in_progress,
       p.foreign_retryable + c.retryable AS foreign_retryable,
       p.foreign_held + c.held AS foreign_held,
       p.foreign_failed + c.failed AS foreign_failed,
       p.foreign_suppressed + c.suppressed AS foreign_suppressed,
       p.foreign_quarantined + c.quarantined AS foreign_quarantined
FROM (
    SELECT count(*) FILTER (WHERE state = 'sent' AND sent_at >= $3 AND NOT reconciled) AS sent,
           count(*) FILTER (WHERE state = 'sent' AND sent_at >= $3 AND reconciled) AS reconciled,
           count(*) FILTER (WHERE state = 'sent' AND sent_at < $3) AS sent_before,
           count(*) FILTER (WHERE state = 'claimed' OR (state = 'retryable' AND ambiguous_since IS NOT NULL)) AS in_progress,
           count(*) FILTER (WHERE state = 'retryable' AND ambiguous_since IS NULL) AS retryable,
           count(*) FILTER (WHERE state = 'held') AS held,
           count(*) FILTER (WHERE state = 'failed' AND reason IN ('rejected', 'discarded', 'superseded')) AS failed_rejected,
           count(*) FILTER (WHERE state = 'failed' AND reason NOT IN ('rejected', 'discarded', 'superseded')) AS failed_other,
           count(*) FILTER (WHERE state = 'quarantined') AS quarantined,
           count(*) FILTER (WHERE state = 'suppressed') AS suppressed,
           CAST(coalesce(sum(attempts), 0) AS bigint) AS attempts
    FROM receipts WHERE iso_week = $2 AND run_number = $1
) AS r
CROSS JOIN (
    SELECT count(*) FILTER (WHERE g.open) AS conflicts,
           count(*) FILTER (WHERE NOT g.open AND o.state = 'sent') AS sent,
           count(*) FILTER (WHERE NOT g.open AND (o.state = 'claimed' OR (o.state = 'retryable' AND o.ambiguous_since IS NOT NULL))) AS in_progress,
           count(*) FILTER (WHERE NOT g.open AND o.state = 'retryable' AND o.ambiguous_since IS NULL) AS retryable,
           count(*) FILTER (WHERE NOT g.open AND o.state = 'held') AS held,
           count(*) FILTER (WHERE NOT g.open AND o.state = 'failed' AND o.reason IN ('rejected', 'discarded', 'superseded')) AS discarded,
           count(*) FILTER (WHERE NOT g.open AND o.state = 'failed' AND o.reason NOT IN ('rejected', 'discarded', 'superseded')) AS failed,
           count(*) FILTER (WHERE NOT g.open AND o.state = 'suppressed') AS suppressed,
           count(*) FILTER (WHERE NOT g.open AND o.state = 'quarantined') AS quarantined
    FROM (SELECT receipt_key, bool_or(closed_at IS NULL) AS open FROM receipt_conflicts
          WHERE iso_week = $2 AND run_number = $1 GROUP BY receipt_key) AS g
    LEFT JOIN receipts o ON o.iso_week = $2 AND o.receipt_key = g.receipt_key
    WHERE o.run_number IS DISTINCT FROM $1
) AS c
CROSS JOIN (
    SELECT CAST(coalesce(sum(foreign_duplicate), 0) AS bigint) AS foreign_duplicate,
           CAST(coalesce(sum(foreign_in_progress), 0) AS bigint) AS foreign_in_progress,
           CAST(coalesce(sum(foreign_retryable), 0) AS bigint) AS foreign_retryable,
           CAST(coalesce(sum(foreign_held), 0) AS bigint) AS foreign_held,
           CAST(coalesce(sum(foreign_failed), 0) AS bigint) AS foreign_failed,
           CAST(coalesce(sum(foreign_suppressed), 0) AS bigint) AS foreign_suppressed,
           CAST(coalesce(sum(foreign_quarantined), 0) AS bigint) AS foreign_quarantined
    FROM run_parts WHERE run_number = $1
) AS p";

pub(super) async fn open_run(ledger: &PostgresLedger, run: &NewRun) -> Try<Run> {
    let database = trust::database(ledger).await?;
    let mut transaction = ledger.write().await?;
    let opened: RunRow = rows(OPEN_RUN)
        .bind(&run.run_id)
        .bind(run.iso_week.number())
        .bind(run.digest_type.as_str())
        .bind(run.content_version.as_str())
        .bind(run.mode.as_str())
        .bind(&run.snapshot_id)
        .bind(signed(run.rows))
        .bind(i32::try_from(run.part_rows.len()).unwrap_or(i32::MAX))
        .bind(signed(run.repeated))
        .bind(signed(run.rejected))
        .bind(&run.key_id)
        .bind(run.content_hash.as_slice())
        .bind(Moment::from(run.deadline_at))
        .bind(run.correction)
        .bind(ledger.offset)
        .bind(database.identity)
        .bind(database.timeline)
        .fetch_one(&mut *transaction)
        .await?;
    let part_rows: Vec<i64> = run.part_rows.iter().copied().map(i64::from).collect();
    statement(OPEN_PARTS).bind(opened.run_number).bind(part_rows).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(opened.run()?)
}

pub(super) async fn run(ledger: &PostgresLedger, run_id: &str) -> Try<Option<Run>> {
    let mut transaction = ledger.read().await?;
    let found: Option<RunRow> = rows(RUN).bind(run_id).fetch_optional(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.map(RunRow::run).transpose()?)
}

pub(super) async fn open_runs(ledger: &PostgresLedger) -> Try<Vec<Run>> {
    let mut transaction = ledger.read().await?;
    let found: Vec<RunRow> = rows(OPEN_RUNS).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.into_iter().map(RunRow::run).collect::<Result<_, _>>()?)
}

pub(super) async fn runs_of_week(ledger: &PostgresLedger, week: IsoWeek, digest_type: &DigestType) -> Try<Vec<Run>> {
    let mut transaction = ledger.read().await?;
    let found: Vec<RunRow> =
        rows(RUNS_OF_WEEK).bind(week.number()).bind(digest_type.as_str()).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.into_iter().map(RunRow::run).collect::<Result<_, _>>()?)
}

pub(super) async fn last_enforced_run(ledger: &PostgresLedger, digest_type: &DigestType) -> Try<Option<Run>> {
    let mut transaction = ledger.read().await?;
    let found: Option<RunRow> =
        rows(LAST_ENFORCED_RUN).bind(digest_type.as_str()).fetch_optional(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.map(RunRow::run).transpose()?)
}

pub(super) async fn runs_of_snapshot(ledger: &PostgresLedger, snapshot_id: &str) -> Try<Vec<Run>> {
    let mut transaction = ledger.read().await?;
    let found: Vec<RunRow> = rows(RUNS_OF_SNAPSHOT).bind(snapshot_id).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.into_iter().map(RunRow::run).collect::<Result<_, _>>()?)
}

pub(super) async fn set_brake(ledger: &PostgresLedger, run_number: i64, brake: Option<&str>) -> Try<()> {
    let mut transaction = ledger.write().await?;
    statement(SET_BRAKE).bind(run_number).bind(brake).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

pub(super) async fn close_finished_run(ledger: &PostgresLedger, run: &Run) -> Try<bool> {
    let mut transaction = ledger.write().await?;
    let locked: Option<(bool,)> = rows(LOCK_RUN).bind(run.run_number).fetch_optional(&mut *transaction).await?;
    let (unfinished,): (i64,) = rows(UNFINISHED_PARTS).bind(run.run_number).fetch_one(&mut *transaction).await?;
    let closed = match locked {
        Some((true,)) => true,
        Some((false,)) if unfinished == 0 => {
            let week = run.new.iso_week.number();
            statement(REOPEN_PARTS).bind(run.run_number).bind(week).execute(&mut *transaction).await?;
            let (waiting,): (i64,) =
                rows(WAITING_RECEIPTS).bind(run.run_number).bind(week).fetch_one(&mut *transaction).await?;
            if waiting == 0 {
                statement(CLOSE_RUN).bind(run.run_number).bind(ledger.offset).execute(&mut *transaction).await?;
            }
            waiting == 0
        }
        _ => false,
    };
    transaction.commit().await?;
    Ok(closed)
}

pub(super) async fn run_counts(ledger: &PostgresLedger, run: &Run, since: Timestamp) -> Try<RunCounts> {
    let mut transaction = ledger.read().await?;
    let found: CountsRow = rows(RUN_COUNTS)
        .bind(run.run_number)
        .bind(run.new.iso_week.number())
        .bind(Moment::from(since))
        .fetch_one(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(found.counts()?)
}
