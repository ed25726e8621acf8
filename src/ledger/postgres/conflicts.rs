//! Recording another content under a key.

use std::collections::HashSet;

use super::{PostgresLedger, rows, settles};
use crate::identity::IsoWeek;
use crate::ledger::ConflictRecord;
use crate::ledger::answers::in_key_order;
use crate::ledger::failure::Try;
use crate::ledger::slow_path::conflict;

/// Answers the conflicts that this run presents for the first time.
const RECORD_CONFLICTS: &str = "
INSERT INTO receipt_conflicts AS c (iso_week, receipt_key, presented, run_number, recorded, part, seen_count,
    first_seen_at, last_seen_at)
SELECT $1, t.receipt_key, t.presented, $2, t.recorded, t.part, 1,
    now() + $3 * interval '1 microsecond', now() + $3 * interval '1 microsecond'
FROM unnest($4::bytea[], $5::bytea[], $6::bytea[], $7::bigint[]) AS t(receipt_key, presented, recorded, part)
ORDER BY t.receipt_key
ON CONFLICT (iso_week, receipt_key, presented, run_number) DO UPDATE SET
    seen_count = c.seen_count + 1, last_seen_at = excluded.last_seen_at
RETURNING c.receipt_key, c.seen_count";

pub(super) async fn record_conflicts(
    ledger: &PostgresLedger,
    run_number: i64,
    week: IsoWeek,
    conflicts: &[ConflictRecord],
) -> Try<()> {
    let sorted = in_key_order(conflicts, |conflict| conflict.key);
    let mut transaction = ledger.write().await?;
    let locked = settles::lock(&mut transaction, week, sorted.iter().map(|conflict| conflict.key)).await?;
    let now = ledger.clock(&mut transaction).await?;
    let mut real = Vec::with_capacity(sorted.len());
    for presented in sorted {
        let row = locked.get(&presented.key);
        // What stands now may be what was presented: then there is no conflict any more.
        real.extend(row.filter(|row| row.fingerprint != presented.presented.as_bytes()).map(|row| (row, presented)));
    }
    let counted: Vec<(Vec<u8>, i64)> = rows(RECORD_CONFLICTS)
        .bind(week.number())
        .bind(run_number)
        .bind(ledger.offset)
        .bind(real.iter().map(|(row, _)| row.receipt_key.as_slice()).collect::<Vec<_>>())
        .bind(real.iter().map(|(_, presented)| presented.presented.as_bytes().as_slice()).collect::<Vec<_>>())
        .bind(real.iter().map(|(row, _)| row.fingerprint.as_slice()).collect::<Vec<_>>())
        .bind(real.iter().map(|(_, presented)| i64::from(presented.part)).collect::<Vec<_>>())
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
