//! Destinations, and the rate, pause and breaker that all their workers share.

use jiff::Timestamp;

use super::{SqliteLedger, micros, rows, statement};
use crate::ledger::failure::Try;
use crate::ledger::stored::{Moment, time};
use crate::ledger::{DestinationNumber, Pace, Rate, Reservation, answers};
use crate::receipt::breaker;

const DESTINATION: &str = "SELECT destination_number FROM destinations WHERE name = $1 AND account = $2";

const ADD_DESTINATION: &str = "
INSERT INTO destinations (name, account, first_used_at)
VALUES ($1, $2, $3)
ON CONFLICT (name, account) DO NOTHING";

/// The bucket as the time at which the next send is due in theory; $2 microseconds are taken from it.
const RESERVE: &str = "
INSERT INTO destination_pace AS p (name, arrival_at)
VALUES ($1, $2 + $3)
ON CONFLICT (name) DO UPDATE SET
    arrival_at = max(coalesce(p.arrival_at, $3), $3) + $2
RETURNING arrival_at, $3";

/// What was taken of the bucket for the time of the pause is not used, so it is not owed afterwards.
const PAUSE: &str = "
INSERT INTO destination_pace AS p (name, paused_until) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET
    paused_until = max(coalesce(p.paused_until, excluded.paused_until), excluded.paused_until),
    arrival_at = min(coalesce(p.arrival_at, excluded.paused_until), excluded.paused_until)";

const PACE: &str = "
SELECT CASE WHEN paused_until > $2 THEN paused_until END, breaker_opened_at, probe_at
FROM destination_pace WHERE name = $1";

const OPEN_BREAKER: &str = "
INSERT INTO destination_pace AS p (name, breaker_opened_at, probe_at, probes_accepted)
VALUES ($1, $3, $2 + $3, 0)
ON CONFLICT (name) DO UPDATE SET
    breaker_opened_at = excluded.breaker_opened_at, probe_at = excluded.probe_at, probes_accepted = 0
WHERE p.breaker_opened_at IS NULL";

const TAKE_PROBE: &str = "
UPDATE destination_pace SET probe_at = $2 + $3
WHERE name = $1 AND breaker_opened_at IS NOT NULL AND probe_at <= $3";

const PROBE_ANSWERED: &str = "
UPDATE destination_pace SET probes_accepted = CASE WHEN $3 THEN probes_accepted + 1 ELSE 0 END
WHERE name = $1 AND breaker_opened_at = $2";

const CLOSE_BREAKER: &str = "
UPDATE destination_pace SET breaker_opened_at = NULL, probe_at = NULL, probes_accepted = 0
WHERE name = $1 AND breaker_opened_at = $2 AND probes_accepted >= $3";

pub(super) async fn destination(ledger: &SqliteLedger, name: &str, identity: &[u8; 32]) -> Try<DestinationNumber> {
    let mut transaction = ledger.write().await?;
    let mut found = find(&mut transaction, name, identity).await?;
    if found.is_none() {
        statement(ADD_DESTINATION)
            .bind(name)
            .bind(identity.as_slice())
            .bind(ledger.clock())
            .execute(&mut *transaction)
            .await?;
        found = find(&mut transaction, name, identity).await?;
    }
    transaction.commit().await?;
    Ok(DestinationNumber(found.ok_or(sqlx::Error::RowNotFound)?))
}

async fn find(connection: &mut sqlx::SqliteConnection, name: &str, identity: &[u8; 32]) -> Try<Option<i32>> {
    let found: Option<(i32,)> =
        rows(DESTINATION).bind(name).bind(identity.as_slice()).fetch_optional(connection).await?;
    Ok(found.map(|(number,)| number))
}

pub(super) async fn reserve(ledger: &SqliteLedger, name: &str, count: u32, rate: Rate) -> Try<Reservation> {
    let taken = answers::taken(count, rate);
    let mut transaction = ledger.write().await?;
    let (arrival, now): (Moment, Moment) =
        rows(RESERVE).bind(name).bind(taken).bind(ledger.clock()).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(answers::reservation(arrival, now, taken, rate))
}

pub(super) async fn pause(ledger: &SqliteLedger, name: &str, until: Timestamp) -> Try<()> {
    let mut transaction = ledger.write().await?;
    statement(PAUSE).bind(name).bind(Moment::from(until)).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

pub(super) async fn pace(ledger: &SqliteLedger, name: &str) -> Try<Pace> {
    let mut transaction = ledger.read().await?;
    let found: Option<(Option<Moment>, Option<Moment>, Option<Moment>)> =
        rows(PACE).bind(name).bind(ledger.clock()).fetch_optional(&mut *transaction).await?;
    transaction.commit().await?;
    let (paused_until, opened_at, probe_at) = found.unwrap_or_default();
    Ok(answers::pace(time(paused_until)?, time(opened_at)?, time(probe_at)?))
}

pub(super) async fn open_breaker(ledger: &SqliteLedger, name: &str) -> Try<bool> {
    changed_breaker(ledger, OPEN_BREAKER, name).await
}

pub(super) async fn take_probe(ledger: &SqliteLedger, name: &str) -> Try<bool> {
    changed_breaker(ledger, TAKE_PROBE, name).await
}

async fn changed_breaker(ledger: &SqliteLedger, sql: &'static str, name: &str) -> Try<bool> {
    let mut transaction = ledger.write().await?;
    let changed = statement(sql)
        .bind(name)
        .bind(micros(breaker::PROBE_INTERVAL))
        .bind(ledger.clock())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(changed.rows_affected() == 1)
}

pub(super) async fn probe_answered(
    ledger: &SqliteLedger,
    name: &str,
    opened_at: Timestamp,
    accepted: bool,
) -> Try<bool> {
    let mut transaction = ledger.write().await?;
    let opened_at = Moment::from(opened_at);
    statement(PROBE_ANSWERED).bind(name).bind(opened_at).bind(accepted).execute(&mut *transaction).await?;
    let closed = statement(CLOSE_BREAKER)
        .bind(name)
        .bind(opened_at)
        .bind(i64::from(breaker::PROBES_TO_CLOSE))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(closed.rows_affected() == 1)
}
