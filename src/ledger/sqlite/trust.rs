//! How far what this ledger does not know may be relied on: marks, doubts, and the database's own words.

use jiff::Timestamp;

use super::{SqliteLedger, rows, statement};
use crate::ledger::failure::Try;
use crate::ledger::stored::{Moment, time};
use crate::ledger::{DatabaseMark, LedgerError, PartTrust, RunTrust};

const RUN: &str = "
SELECT coalesce((SELECT ledger_id FROM ledger_identity), '') AS ledger_id, database_identity, database_timeline,
       withdrawn_at IS NULL AS takes_new, loss_accepted_at, visits
FROM runs WHERE run_number = $1";

const PARTS: &str = "
SELECT part, marked_at IS NOT NULL AS marked, state = 'done' AS done, doubted_at
FROM run_parts WHERE run_number = $1 AND part = coalesce($2, part) ORDER BY part";

const MARK: &str = "
UPDATE run_parts SET marked_at = $3 WHERE run_number = $1 AND part = $2 AND marked_at IS NULL";

/// A part that is done has a receipt, or a count, for every row. The oldest doubt stands.
const DOUBT: &str = "
UPDATE run_parts AS p SET marked_at = coalesce(p.marked_at, t.since),
    doubted_at = CASE WHEN p.doubted_at < t.since THEN p.doubted_at ELSE t.since END
FROM (SELECT value ->> 0 AS part, value ->> 1 AS since FROM json_each($2)) AS t
WHERE p.run_number = $1 AND p.part = t.part AND p.state <> 'done'";

const DOUBT_ENTERED: &str = "UPDATE run_parts SET doubted_at = NULL WHERE run_number = $1 AND part = $2";

/// What was acted upon is known from now on, so that the next difference shows.
const KNOW: &str = "
UPDATE runs SET database_identity = $2, database_timeline = $3, visits = max(visits, $4) WHERE run_number = $1";

const VISIT: &str = "UPDATE runs SET visits = visits + 1 WHERE run_number = $1 RETURNING visits";

const ACCEPT: &str = "UPDATE runs SET loss_accepted_at = $2 WHERE run_number = $1";

const NO_DOUBT: &str = "UPDATE run_parts SET doubted_at = NULL WHERE run_number = $1";

const ALL_MARKED: &str = "
UPDATE run_parts SET marked_at = coalesce(marked_at, $3)
WHERE run_number = $1 AND part IN (SELECT value FROM json_each($2))";

#[derive(sqlx::FromRow)]
struct RunTrustRow {
    ledger_id: String,
    database_identity: Option<String>,
    database_timeline: Option<String>,
    takes_new: bool,
    loss_accepted_at: Option<Moment>,
    visits: i32,
}

#[derive(sqlx::FromRow)]
struct PartTrustRow {
    part: i32,
    marked: bool,
    done: bool,
    doubted_at: Option<Moment>,
}

impl PartTrustRow {
    fn trust(&self) -> Result<PartTrust, LedgerError> {
        Ok(PartTrust {
            part: number(self.part)?,
            marked: self.marked,
            done: self.done,
            doubted_since: time(self.doubted_at)?,
        })
    }
}

fn number(stored: i32) -> Result<u32, LedgerError> {
    u32::try_from(stored).map_err(|_| LedgerError::Corrupt { what: "number of a part or a visit" })
}

pub(super) async fn trust(ledger: &SqliteLedger, run_number: i64, part: Option<u32>) -> Try<RunTrust> {
    let mut transaction = ledger.read().await?;
    let run: RunTrustRow = rows(RUN).bind(run_number).fetch_one(&mut *transaction).await?;
    let parts: Vec<PartTrustRow> =
        rows(PARTS).bind(run_number).bind(part.map(i64::from)).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(RunTrust {
        ledger_id: run.ledger_id,
        known: DatabaseMark { identity: run.database_identity, timeline: run.database_timeline },
        // After the parts: a server that has taken over meanwhile is noticed, not overlooked.
        answering: database(ledger).await?,
        takes_new: run.takes_new,
        loss_accepted_at: time(run.loss_accepted_at)?,
        visits: number(run.visits)?,
        parts: parts.iter().map(PartTrustRow::trust).collect::<Result<_, _>>()?,
    })
}

pub(super) async fn visit(ledger: &SqliteLedger, run_number: i64) -> Try<u32> {
    let mut transaction = ledger.write().await?;
    let (visits,): (i32,) = rows(VISIT).bind(run_number).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(number(visits)?)
}

pub(super) async fn mark_part(ledger: &SqliteLedger, run_number: i64, part: u32) -> Try<()> {
    let mut transaction = ledger.write().await?;
    statement(MARK).bind(run_number).bind(i64::from(part)).bind(ledger.clock()).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

pub(super) async fn doubt_parts(
    ledger: &SqliteLedger,
    run_number: i64,
    doubts: &[(u32, Timestamp)],
    visits: u32,
) -> Try<u64> {
    let now = database(ledger).await?;
    let doubts = doubts.iter().map(|(part, since)| serde_json::json!([part, Moment::from(*since).micros()]));
    let doubts = serde_json::Value::Array(doubts.collect()).to_string();
    let mut transaction = ledger.write().await?;
    let doubted = statement(DOUBT).bind(run_number).bind(doubts).execute(&mut *transaction).await?;
    know(&mut transaction, run_number, &now, visits).await?;
    transaction.commit().await?;
    Ok(doubted.rows_affected())
}

pub(super) async fn doubt_entered(ledger: &SqliteLedger, run_number: i64, part: u32) -> Try<()> {
    let mut transaction = ledger.write().await?;
    statement(DOUBT_ENTERED).bind(run_number).bind(i64::from(part)).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

pub(super) async fn accept_loss(ledger: &SqliteLedger, run_number: i64, begun: &[u32], visits: u32) -> Try<()> {
    let now = database(ledger).await?;
    let begun = serde_json::Value::from(begun.to_vec()).to_string();
    let mut transaction = ledger.write().await?;
    statement(ACCEPT).bind(run_number).bind(ledger.clock()).execute(&mut *transaction).await?;
    statement(NO_DOUBT).bind(run_number).execute(&mut *transaction).await?;
    statement(ALL_MARKED).bind(run_number).bind(begun).bind(ledger.clock()).execute(&mut *transaction).await?;
    know(&mut transaction, run_number, &now, visits).await?;
    transaction.commit().await?;
    Ok(())
}

async fn know(
    connection: &mut sqlx::SqliteConnection,
    run_number: i64,
    database: &DatabaseMark,
    visits: u32,
) -> Try<()> {
    statement(KNOW)
        .bind(run_number)
        .bind(&database.identity)
        .bind(&database.timeline)
        .bind(i64::from(visits))
        .execute(connection)
        .await?;
    Ok(())
}

/// A file has nothing that a copy of it would not have too: here the markers in the snapshot store are the guard.
#[expect(clippy::unused_async, reason = "the same shape as on a database that has to be asked")]
pub(super) async fn database(_ledger: &SqliteLedger) -> Try<DatabaseMark> {
    Ok(DatabaseMark::default())
}
