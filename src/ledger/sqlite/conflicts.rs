//! Recording another content under a key.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{SqliteLedger, rows, settles};
use crate::identity::{IsoWeek, hex_text};
use crate::ledger::ConflictRecord;
use crate::ledger::answers::in_key_order;
use crate::ledger::failure::Try;
use crate::ledger::slow_path::conflict;

/// Answers the conflicts that this run presents for the first time.
const RECORD_CONFLICTS: &str = "
INSERT INTO receipt_conflicts AS c (iso_week, receipt_key, presented, run_number, recorded, part, seen_count,
    first_seen_at, last_seen_at)
SELECT $1, unhex(t.value ->> 0), unhex(t.value ->> 1), $2, unhex(t.value ->> 2), t.value ->> 3, 1,
    $3, $3
FROM json_each($4) AS t WHERE true
ON CONFLICT (iso_week, receipt_key, presented, run_number) DO UPDATE SET
    seen_count = c.seen_count + 1, last_seen_at = excluded.last_seen_at
RETURNING receipt_key, seen_count";

pub(super) async fn record_conflicts(
    ledger: &SqliteLedger,
    run_number: i64,
    week: IsoWeek,
    conflicts: &[ConflictRecord],
) -> Try<()> {
    let sorted = in_key_order(conflicts, |conflict| conflict.key);
    let mut transaction = ledger.write().await?;
    let locked = settles::lock(&mut transaction, week, sorted.iter().map(|conflict| conflict.key)).await?;
    let now = ledger.clock();
    let mut real = Vec::with_capacity(sorted.len());
    for presented in sorted {
        let row = locked.get(&presented.key);
        // What stands now may be what was presented: then there is no conflict any more.
        real.extend(row.filter(|row| row.fingerprint != presented.presented.as_bytes()).map(|row| (row, presented)));
    }
    let given = real.iter().map(|(row, conflict)| {
        let (key, recorded) = (hex_text(&row.receipt_key), hex_text(&row.fingerprint));
        json!([key, conflict.presented.to_string(), recorded, conflict.part])
    });
    let given = Value::Array(given.collect()).to_string();
    let counted: Vec<(Vec<u8>, i64)> = rows(RECORD_CONFLICTS)
        .bind(week.number())
        .bind(run_number)
        .bind(now)
        .bind(given)
        .fetch_all(&mut *transaction)
        .await?;
    let fresh: HashSet<&[u8]> =
        counted.iter().filter(|(_, count)| *count == 1).map(|(key, _)| key.as_slice()).collect();
    let (changed, events): (Vec<_>, Vec<_>) = real
        .iter()
        .filter(|(row, _)| fresh.contains(row.receipt_key.as_slice()))
        .map(|(row, presented)| conflict(row, presented, run_number, now))
        .unzip();
    settles::write_back(&mut transaction, week, &changed, &events).await?;
    transaction.commit().await?;
    Ok(())
}
