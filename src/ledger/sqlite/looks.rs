//! What the looks at a provider have said so far, from the receipts' events.

use serde_json::json;

use super::{SqliteLedger, rows};
use crate::identity::{IsoWeek, ReceiptKey};
use crate::ledger::answers::{in_key_order, looks_of};
use crate::ledger::failure::Try;
use crate::ledger::stored::LookRow;
use crate::receipt::Looks;

/// One range of the events' index for every key. What neither is a look nor begins their count anew is left out.
pub(in crate::ledger) const LOOKS: &str = "
SELECT e.receipt_key, e.kind, e.reason
FROM json_each($2) AS t
CROSS JOIN receipt_events e ON e.iso_week = $1 AND e.receipt_key = unhex(t.value)
WHERE e.kind IN ('lookup', 'settle', 'lease_end', 'late_settle', 'review')
ORDER BY e.event_id";

pub(super) async fn looks(ledger: &SqliteLedger, week: IsoWeek, keys: &[ReceiptKey]) -> Try<Vec<Looks>> {
    let sorted: Vec<String> = in_key_order(keys, |key| *key).into_iter().map(ReceiptKey::to_string).collect();
    let mut transaction = ledger.read().await?;
    let found: Vec<LookRow> =
        rows(LOOKS).bind(week.number()).bind(json!(sorted).to_string()).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(looks_of(keys, &found)?)
}
