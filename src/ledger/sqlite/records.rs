//! Receipts and events as people look at them.

use super::{SqliteLedger, rows, settles};
use crate::identity::{IsoWeek, ReceiptKey};
use crate::ledger::failure::Try;
use crate::ledger::stored::RecordRow;
use crate::ledger::{EventRecord, ReceiptFilter, ReceiptRecord};

/// The key alone has no index: every week that had a run is probed.
const RECEIPT: &str = "
SELECT r.*, u.digest_type, u.content_version, u.key_id, u.run_id, coalesce(d.name, '') AS destination
FROM (SELECT DISTINCT iso_week FROM runs) AS w
CROSS JOIN receipts r ON r.iso_week = w.iso_week AND r.receipt_key = $1
JOIN runs u ON u.run_number = r.run_number
LEFT JOIN destinations d ON d.destination_number = r.destination_number
ORDER BY r.iso_week LIMIT 1";

const RECEIPTS: &str = "
SELECT r.*, u.digest_type, u.content_version, u.key_id, u.run_id, coalesce(d.name, '') AS destination
FROM receipts r
JOIN runs u ON u.run_number = r.run_number
LEFT JOIN destinations d ON d.destination_number = r.destination_number
WHERE (r.iso_week, r.receipt_key) > ($1, $2) AND r.iso_week <= $3
  AND ($4 IS NULL OR r.state = $4)
  AND ($5 IS NULL OR r.reason = $5)
  AND ($6 IS NULL OR u.run_id = $6)
  AND (r.in_conflict OR NOT $7)
  AND (NOT $9 OR r.in_conflict OR r.state IN ('held', 'quarantined')
    OR (r.state = 'failed' AND r.reason NOT IN ('rejected', 'discarded', 'superseded'))
    OR (r.state IN ('claimed', 'retryable') AND u.closed_at IS NOT NULL))
ORDER BY r.iso_week, r.receipt_key LIMIT $8";

pub(super) async fn receipt(ledger: &SqliteLedger, key: &ReceiptKey) -> Try<Option<ReceiptRecord>> {
    let mut transaction = ledger.read().await?;
    let found: Option<RecordRow> =
        rows(RECEIPT).bind(key.as_bytes().as_slice()).fetch_optional(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found.map(RecordRow::record).transpose()?)
}

pub(super) async fn events(ledger: &SqliteLedger, week: IsoWeek, key: &ReceiptKey) -> Try<Vec<EventRecord>> {
    let mut transaction = ledger.read().await?;
    let found = settles::history(&mut transaction, week, key).await?;
    transaction.commit().await?;
    Ok(found)
}

pub(super) async fn receipts(ledger: &SqliteLedger, filter: &ReceiptFilter) -> Try<Vec<ReceiptRecord>> {
    let (week, key) = filter.place();
    let mut transaction = ledger.read().await?;
    let found: Vec<RecordRow> = rows(RECEIPTS)
        .bind(week)
        .bind(key)
        .bind(filter.iso_week.map_or(i32::MAX, IsoWeek::number))
        .bind(filter.state.map(|state| state.as_str()))
        .bind(filter.reason.map(|reason| reason.as_str()))
        .bind(&filter.run_id)
        .bind(filter.in_conflict)
        .bind(i64::from(filter.limit))
        .bind(filter.waits_for_person)
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(found.into_iter().map(RecordRow::record).collect::<Result<_, _>>()?)
}
