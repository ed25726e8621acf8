//! Destinations, and the rate and pause that all their workers share.

use jiff::Timestamp;

use super::{SqliteLedger, rows, statement};
use crate::ledger::failure::Try;
use crate::ledger::stored::{Moment, time};
use crate::ledger::{DestinationNumber, Rate, Reservation, answers};

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

const PAUSE: &str = "
INSERT INTO destination_pace AS p (name, paused_until) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET paused_until = max(coalesce(p.paused_until, excluded.paused_until), excluded.paused_until)";

const PAUSED_UNTIL: &str = "
SELECT max(paused_until) FROM destination_pace
WHERE name = $1 AND paused_until > $2";

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

pub(super) async fn paused_until(ledger: &SqliteLedger, name: &str) -> Try<Option<Timestamp>> {
    let mut transaction = ledger.read().await?;
    let (until,): (Option<Moment>,) =
        rows(PAUSED_UNTIL).bind(name).bind(ledger.clock()).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(time(until)?)
}
