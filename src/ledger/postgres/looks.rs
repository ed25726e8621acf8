//! What the looks at a provider have said so far, from the receipts' events.

use super::{PostgresLedger, rows};
use crate::identity::{IsoWeek, ReceiptKey};
use crate::ledger::answers::{in_key_order, looks_of};
use crate::ledger::failure::Try;
use crate::ledger::stored::LookRow;
use crate::receipt::Looks;

/// One range of the events' index for every key, as in the statement that looks at receipts. What neither is a look
/// nor begins their count anew is left out.
pub(in crate::ledger) const LOOKS: &str = "
SELECT s.receipt_key, s.kind, s.reason
FROM unnest($2::bytea[]) AS t(receipt_key)
CROSS JOIN LATERAL (
    SELECT e.event_id, e.receipt_key, e.kind, e.reason
    FROM receipt_events e WHERE e.iso_week = $1 AND e.receipt_key = t.receipt_key
      AND e.kind IN ('lookup', 'settle', 'lease_end', 'late_settle', 'review') OFFSET 0) AS s
ORDER BY s.event_id";

pub(super) async fn looks(ledger: &PostgresLedger, week: IsoWeek, keys: &[ReceiptKey]) -> Try<Vec<Looks>> {
    let sorted: Vec<&[u8]> = in_key_order(keys, |key| *key).into_iter().map(|key| key.as_bytes().as_slice()).collect();
    let mut transaction = ledger.read().await?;
    let found: Vec<LookRow> = rows(LOOKS).bind(week.number()).bind(sorted).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(looks_of(keys, &found)?)
}
