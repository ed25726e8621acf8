//! The clock, and what is pinned at first use.

use jiff::Timestamp;

use super::{PostgresLedger, rows, statement};
use crate::identity::{ContentVersion, DigestType, IsoWeek};
use crate::ledger::failure::Try;
use crate::ledger::stored::{KeyPinRow, PinsRow};
use crate::ledger::{KeyPin, Pins, StandingPins};

const PINS: &str = "
SELECT (SELECT environment FROM ledger_identity) AS environment,
       (SELECT stable_check FROM ledger_identity) AS stable_check,
       (SELECT key_id FROM key_pins WHERE iso_week = $1) AS key_id,
       (SELECT key_check FROM key_pins WHERE iso_week = $1) AS key_check,
       (SELECT content_hash FROM content_pins WHERE digest_type = $2 AND content_version = $3) AS content_hash";

pub(super) const PIN_IDENTITY: &str = "
INSERT INTO ledger_identity (environment, stable_check, created_at)
VALUES ($1, $2, now() + $3 * interval '1 microsecond')
ON CONFLICT DO NOTHING";

const PIN_KEY: &str = "
INSERT INTO key_pins (iso_week, key_id, key_check, pinned_at)
VALUES ($1, $2, $3, now() + $4 * interval '1 microsecond')
ON CONFLICT DO NOTHING";

const PIN_CONTENT: &str = "
INSERT INTO content_pins (digest_type, content_version, content_hash, pinned_at)
VALUES ($1, $2, $3, now() + $4 * interval '1 microsecond')
ON CONFLICT DO NOTHING";

const KEY_PINS: &str = "SELECT iso_week, key_id, key_check FROM key_pins ORDER BY iso_week DESC";

pub(super) async fn now(ledger: &PostgresLedger) -> Try<Timestamp> {
    let mut transaction = ledger.read().await?;
    let now = ledger.clock(&mut transaction).await?;
    transaction.commit().await?;
    Ok(now.timestamp()?)
}

pub(super) async fn pins(
    ledger: &PostgresLedger,
    week: IsoWeek,
    digest_type: &DigestType,
    content_version: &ContentVersion,
) -> Try<StandingPins> {
    let mut transaction = ledger.read().await?;
    let found: PinsRow = rows(PINS)
        .bind(week.number())
        .bind(digest_type.as_str())
        .bind(content_version.as_str())
        .fetch_one(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(found.pins()?)
}

pub(super) async fn pin(ledger: &PostgresLedger, pins: &Pins) -> Try<StandingPins> {
    let mut transaction = ledger.write().await?;
    statement(PIN_IDENTITY)
        .bind(&pins.environment)
        .bind(pins.stable.as_slice())
        .bind(ledger.offset)
        .execute(&mut *transaction)
        .await?;
    statement(PIN_KEY)
        .bind(pins.iso_week.number())
        .bind(&pins.week_key.key_id)
        .bind(pins.week_key.check.as_slice())
        .bind(ledger.offset)
        .execute(&mut *transaction)
        .await?;
    statement(PIN_CONTENT)
        .bind(pins.digest_type.as_str())
        .bind(pins.content_version.as_str())
        .bind(pins.content_hash.as_slice())
        .bind(ledger.offset)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    self::pins(ledger, pins.iso_week, &pins.digest_type, &pins.content_version).await
}

pub(super) async fn key_pins(ledger: &PostgresLedger) -> Try<Vec<(IsoWeek, KeyPin)>> {
    let mut transaction = ledger.read().await?;
    let found: Vec<KeyPinRow> = rows(KEY_PINS).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.into_iter().map(KeyPinRow::key_pin).collect::<Result<_, _>>()?)
}
