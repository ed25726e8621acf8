//! Opening runs: one digest a week, whichever versions are started at the same instant.

use super::{SqliteLedger, rows, runs, statement, trust};
use crate::ledger::failure::Try;
use crate::ledger::stored::{Moment, RunRow, signed};
use crate::ledger::{DatabaseMark, NewRun, Opening, Run};

/// The write lock alone lets one process decide at a time; the row is kept as the other database keeps it.
const LOCK_WEEK: &str = "
INSERT INTO digest_weeks (iso_week, digest_type, last_decided_at) VALUES ($1, $2, $3)
ON CONFLICT (iso_week, digest_type) DO UPDATE SET last_decided_at = excluded.last_decided_at";

const OPEN_RUN: &str = "
INSERT INTO runs AS r (run_id, iso_week, digest_type, content_version, mode, snapshot_id, rows, parts, repeated,
    rejected, key_id, content_hash, deadline_at, correction, only_unsent, opened_at, database_identity,
    database_timeline, trigger_count, last_triggered_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
    $17, $18, 1, $16
WHERE true
ON CONFLICT (run_id) DO UPDATE SET
    trigger_count = r.trigger_count + 1, last_triggered_at = excluded.last_triggered_at, brake = NULL
RETURNING *";

const OPEN_PARTS: &str = "
INSERT INTO run_parts (run_number, part, rows)
SELECT $1, t.key, t.value FROM json_each($2) AS t WHERE true
ON CONFLICT (run_number, part) DO NOTHING";

/// `in_doubt` says that an earlier try may have been committed.
pub(super) async fn open_run(ledger: &SqliteLedger, run: &NewRun, in_doubt: bool) -> Try<Opening> {
    let database = trust::database(ledger).await?;
    let mut transaction = ledger.write().await?;
    statement(LOCK_WEEK)
        .bind(run.iso_week.number())
        .bind(run.digest_type.as_str())
        .bind(ledger.clock())
        .execute(&mut *transaction)
        .await?;
    let known: Option<RunRow> = rows(runs::RUN).bind(&run.run_id).fetch_optional(&mut *transaction).await?;
    if known.is_none() {
        let same_week: Vec<RunRow> = rows(runs::RUNS_OF_WEEK)
            .bind(run.iso_week.number())
            .bind(run.digest_type.as_str())
            .fetch_all(&mut *transaction)
            .await?;
        let same_week: Vec<Run> = same_week.into_iter().map(RunRow::run).collect::<Result<_, _>>()?;
        if let Some(other) = run.in_the_way(&same_week) {
            return Ok(Opening::OtherVersion(other.clone()));
        }
    }
    let opened = write_run(ledger, &mut transaction, run, database).await?;
    transaction.commit().await?;
    Ok(match known.filter(|_| !in_doubt) {
        Some(known) => Opening::Joined { run: opened, last_triggered_at: known.last_triggered_at()? },
        None => Opening::Opened(opened),
    })
}

async fn write_run(
    ledger: &SqliteLedger,
    connection: &mut sqlx::SqliteConnection,
    run: &NewRun,
    database: DatabaseMark,
) -> Try<Run> {
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
        .bind(run.only_unsent)
        .bind(ledger.clock())
        .bind(database.identity)
        .bind(database.timeline)
        .fetch_one(&mut *connection)
        .await?;
    let part_rows = serde_json::Value::from(run.part_rows.clone()).to_string();
    statement(OPEN_PARTS).bind(opened.run_number).bind(part_rows).execute(connection).await?;
    Ok(opened.run()?)
}
