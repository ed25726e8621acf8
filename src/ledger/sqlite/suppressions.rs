//! The suppression list: batches of hashes, each one probe of the primary key.

use serde_json::{Value, json};

use super::{SqliteLedger, rows, statement};
use crate::identity::{DigestType, hex_text};
use crate::ledger::failure::Try;
use crate::ledger::stored::IdentityPinRow;
use crate::ledger::suppression::{HashRow, SuppressionRow, among, scope};
use crate::ledger::{AddressHash, IdentityPin, StandingSuppression, Suppression};

const PINNED_IDENTITY: &str = "SELECT environment, stable_check FROM ledger_identity";

const SUPPRESS: &str = "
INSERT INTO suppressions (address_hash, digest_type, reason, added_at)
SELECT unhex(t.value ->> 0), t.value ->> 1, t.value ->> 2, $2
FROM json_each($1) AS t
WHERE true
ON CONFLICT DO NOTHING";

/// $2 is a scope, or nothing for every entry of an address.
const UNSUPPRESS: &str = "
DELETE FROM suppressions
WHERE address_hash IN (SELECT unhex(t.value) FROM json_each($1) AS t) AND ($2 IS NULL OR digest_type = $2)";

/// One probe of the primary key for every hash.
pub(in crate::ledger) const SUPPRESSED: &str = "
SELECT unhex(t.value) AS address_hash
FROM json_each($1) AS t
WHERE EXISTS (SELECT 1 FROM suppressions s WHERE s.address_hash = unhex(t.value) AND s.digest_type IN ('', $2))";

const SUPPRESSIONS: &str = "
SELECT digest_type, reason, added_at FROM suppressions WHERE address_hash = $1 ORDER BY digest_type";

fn hex(hashes: &[AddressHash]) -> String {
    Value::from(hashes.iter().map(|hash| hex_text(hash)).collect::<Vec<_>>()).to_string()
}

pub(super) async fn pinned_identity(ledger: &SqliteLedger) -> Try<Option<IdentityPin>> {
    let mut transaction = ledger.read().await?;
    let found: Option<IdentityPinRow> = rows(PINNED_IDENTITY).fetch_optional(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.map(IdentityPinRow::pin).transpose()?)
}

pub(super) async fn pin_identity(ledger: &SqliteLedger, pin: &IdentityPin) -> Try<IdentityPin> {
    let mut transaction = ledger.write().await?;
    statement(super::pins::PIN_IDENTITY)
        .bind(&pin.environment)
        .bind(pin.stable.as_slice())
        .bind(ledger.clock())
        .execute(&mut *transaction)
        .await?;
    let standing: IdentityPinRow = rows(PINNED_IDENTITY).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(standing.pin()?)
}

pub(super) async fn suppress(ledger: &SqliteLedger, entries: &[Suppression]) -> Try<u64> {
    let entries: Vec<Value> = entries
        .iter()
        .map(|entry| json!([hex_text(&entry.address_hash), scope(entry.digest_type.as_ref()), entry.reason.as_str()]))
        .collect();
    let mut transaction = ledger.write().await?;
    let done = statement(SUPPRESS)
        .bind(Value::Array(entries).to_string())
        .bind(ledger.clock())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(done.rows_affected())
}

pub(super) async fn unsuppress(
    ledger: &SqliteLedger,
    hashes: &[AddressHash],
    digest_type: Option<&DigestType>,
) -> Try<u64> {
    let mut transaction = ledger.write().await?;
    let done = statement(UNSUPPRESS)
        .bind(hex(hashes))
        .bind(digest_type.map(DigestType::as_str))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(done.rows_affected())
}

pub(super) async fn suppressed(
    ledger: &SqliteLedger,
    hashes: &[AddressHash],
    digest_type: &DigestType,
) -> Try<Vec<bool>> {
    let mut transaction = ledger.read().await?;
    let found: Vec<HashRow> =
        rows(SUPPRESSED).bind(hex(hashes)).bind(digest_type.as_str()).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(among(hashes, &found)?)
}

pub(super) async fn suppressions(ledger: &SqliteLedger, hash: &AddressHash) -> Try<Vec<StandingSuppression>> {
    let mut transaction = ledger.read().await?;
    let found: Vec<SuppressionRow> = rows(SUPPRESSIONS).bind(hash.as_slice()).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.into_iter().map(SuppressionRow::standing).collect::<Result<_, _>>()?)
}
