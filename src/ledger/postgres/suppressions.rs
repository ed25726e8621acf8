//! The suppression list: batches of hashes, each one probe of the primary key.

use super::{PostgresLedger, rows, statement};
use crate::identity::DigestType;
use crate::ledger::failure::Try;
use crate::ledger::stored::IdentityPinRow;
use crate::ledger::suppression::{HashRow, SuppressionRow, among, scope};
use crate::ledger::{AddressHash, IdentityPin, StandingSuppression, Suppression};

const PINNED_IDENTITY: &str = "SELECT environment, stable_check FROM ledger_identity";

/// In the order of the primary key, so that two batches cannot deadlock.
const SUPPRESS: &str = "
INSERT INTO suppressions (address_hash, digest_type, reason, added_at)
SELECT t.address_hash, t.digest_type, t.reason, now() + $4 * interval '1 microsecond'
FROM unnest($1::bytea[], $2::text[], $3::text[]) AS t(address_hash, digest_type, reason)
ORDER BY t.address_hash, t.digest_type
ON CONFLICT DO NOTHING";

/// $2 is a scope, or nothing for every entry of an address. The rows are locked in the order of the primary key
/// before they are removed, so that two batches cannot deadlock.
const UNSUPPRESS: &str = "
DELETE FROM suppressions WHERE (address_hash, digest_type) IN (
    SELECT s.address_hash, s.digest_type FROM suppressions s
    WHERE s.address_hash = ANY($1::bytea[]) AND ($2::text IS NULL OR s.digest_type = $2)
    ORDER BY s.address_hash, s.digest_type FOR UPDATE)";

/// One probe of the primary key for every hash: LIMIT and OFFSET keep the planner from turning the list into a join,
/// which on a table that it knows nothing about reads the whole list for every batch.
pub(in crate::ledger) const SUPPRESSED: &str = "
SELECT s.address_hash
FROM unnest($1::bytea[]) AS t(address_hash)
CROSS JOIN LATERAL (
    SELECT l.address_hash FROM suppressions l
    WHERE l.address_hash = t.address_hash AND l.digest_type IN ('', $2) LIMIT 1 OFFSET 0) AS s";

const SUPPRESSIONS: &str = "
SELECT digest_type, reason, added_at FROM suppressions WHERE address_hash = $1 ORDER BY digest_type";

fn sorted(hashes: &[AddressHash]) -> Vec<&[u8]> {
    let mut sorted: Vec<&[u8]> = hashes.iter().map(<[u8; 32]>::as_slice).collect();
    sorted.sort_unstable();
    sorted
}

pub(super) async fn pinned_identity(ledger: &PostgresLedger) -> Try<Option<IdentityPin>> {
    let mut transaction = ledger.read().await?;
    let found: Option<IdentityPinRow> = rows(PINNED_IDENTITY).fetch_optional(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.map(IdentityPinRow::pin).transpose()?)
}

pub(super) async fn pin_identity(ledger: &PostgresLedger, pin: &IdentityPin) -> Try<IdentityPin> {
    let mut transaction = ledger.write().await?;
    statement(super::pins::PIN_IDENTITY)
        .bind(&pin.environment)
        .bind(pin.stable.as_slice())
        .bind(ledger.offset)
        .execute(&mut *transaction)
        .await?;
    let standing: IdentityPinRow = rows(PINNED_IDENTITY).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(standing.pin()?)
}

pub(super) async fn suppress(ledger: &PostgresLedger, entries: &[Suppression]) -> Try<u64> {
    let mut transaction = ledger.write().await?;
    let done = statement(SUPPRESS)
        .bind(entries.iter().map(|entry| entry.address_hash.as_slice()).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| scope(entry.digest_type.as_ref())).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.reason.as_str()).collect::<Vec<_>>())
        .bind(ledger.offset)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(done.rows_affected())
}

pub(super) async fn unsuppress(
    ledger: &PostgresLedger,
    hashes: &[AddressHash],
    digest_type: Option<&DigestType>,
) -> Try<u64> {
    let mut transaction = ledger.write().await?;
    let done = statement(UNSUPPRESS)
        .bind(sorted(hashes))
        .bind(digest_type.map(DigestType::as_str))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(done.rows_affected())
}

pub(super) async fn suppressed(
    ledger: &PostgresLedger,
    hashes: &[AddressHash],
    digest_type: &DigestType,
) -> Try<Vec<bool>> {
    let mut transaction = ledger.read().await?;
    let found: Vec<HashRow> =
        rows(SUPPRESSED).bind(sorted(hashes)).bind(digest_type.as_str()).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(among(hashes, &found)?)
}

pub(super) async fn suppressions(ledger: &PostgresLedger, hash: &AddressHash) -> Try<Vec<StandingSuppression>> {
    let mut transaction = ledger.read().await?;
    let found: Vec<SuppressionRow> = rows(SUPPRESSIONS).bind(hash.as_slice()).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.into_iter().map(SuppressionRow::standing).collect::<Result<_, _>>()?)
}
