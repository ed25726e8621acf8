//! Receipts of another content version that make way.

use std::collections::HashSet;

use super::{PostgresLedger, rows, settles};
use crate::identity::ReceiptKey;
use crate::ledger::Run;
use crate::ledger::answers::in_key_order;
use crate::ledger::failure::Try;
use crate::ledger::versions::{is_superseded, superseding};

/// The lock keeps it so until the end.
const TAKES_NEW: &str = "
SELECT count(*) FROM (
    SELECT 1 FROM runs WHERE run_number = $1 AND closed_at IS NULL AND withdrawn_at IS NULL FOR SHARE) AS run";

pub(super) async fn supersede(ledger: &PostgresLedger, run: &Run, keys: &[ReceiptKey]) -> Try<Vec<bool>> {
    let mut transaction = ledger.write().await?;
    let (takes_new,): (i64,) = rows(TAKES_NEW).bind(run.run_number).fetch_one(&mut *transaction).await?;
    if takes_new == 0 {
        return Ok(vec![false; keys.len()]);
    }
    let week = run.new.iso_week;
    let sorted = in_key_order(keys, |key| *key);
    let locked = settles::lock(&mut transaction, week, sorted.into_iter().copied()).await?;
    let now = ledger.clock(&mut transaction).await?;
    let (mut done, mut changed, mut events) = (HashSet::new(), Vec::new(), Vec::new());
    for (key, row) in &locked {
        if let Some((after, event)) = superseding(row, run, now)? {
            changed.push(after);
            events.push(event);
            done.insert(*key);
        } else if is_superseded(row) {
            done.insert(*key);
        }
    }
    settles::write_back(&mut transaction, week, &changed, &events).await?;
    transaction.commit().await?;
    Ok(keys.iter().map(|key| done.contains(key)).collect())
}
