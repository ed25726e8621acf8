//! `--only-unsent`: a run that sends to those only whom no other content version of its week has served. Who that is
//! is decided by [`receipt::other_version()`]; here its receipts are found, asked, and set aside.
//!
//! No run of another version is open while this one is, so nobody claims under another version between the look and
//! the claim: what a look has found served, certainly unsent or absent can only be changed by a late proof of
//! acceptance or by a person.

use jiff::Timestamp;

use super::RunError;
use super::engine::Work;
use super::part::{Claimable, KeyedRow, LOOK_AGAIN, Pass, later};
use crate::identity::{CustomerId, Identity, ReceiptKey};
use crate::ledger::Found;
use crate::receipt::{self, OtherVersion};

/// The customer's receipt keys under the other versions that this run must ask; none where it need not.
pub(super) fn keys(work: &Work, customer_id: &CustomerId) -> Vec<ReceiptKey> {
    let run = &work.run.new;
    let key = |content_version| {
        let identity = Identity { customer_id, iso_week: run.iso_week, digest_type: &run.digest_type, content_version };
        work.key.receipt_key(&identity)
    };
    work.other_versions.iter().map(key).collect()
}

/// What the other versions say of one row.
enum Row {
    /// To be claimed once these have made way.
    Goes(Vec<ReceiptKey>),
    Served,
    Undecided(Timestamp),
}

fn asked(others: &[ReceiptKey], found: &[Option<Found>], now: Timestamp) -> Row {
    let mut unsent = Vec::new();
    let mut undecided: Option<Timestamp> = None;
    for (key, found) in others.iter().zip(found) {
        match found.as_ref().map(|found| receipt::other_version(&found.standing, now)) {
            None => {}
            Some(OtherVersion::Served) => return Row::Served,
            Some(OtherVersion::Undecided { until }) => {
                undecided = Some(undecided.map_or(until, |known| known.min(until)));
            }
            Some(OtherVersion::Unsent) => unsent.push(*key),
        }
    }
    undecided.map_or(Row::Goes(unsent), Row::Undecided)
}

/// Leaves out, counted as `other_version`, the rows whose customer another version has served or may have. One that
/// another version's worker still holds is waited for.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn leave_out_served(
    work: &Work,
    claimable: Claimable,
    pass: &mut Pass,
) -> Result<Claimable, RunError> {
    let keys: Vec<ReceiptKey> = claimable.values().flatten().flat_map(|row| row.others.iter().copied()).collect();
    if keys.is_empty() {
        return Ok(claimable);
    }
    let found = work.ledger.look(work.run.new.iso_week, &keys).await?;
    let now = work.clock.now();
    let mut rest = found.as_slice();
    let mut kept = Claimable::new();
    for (to, rows) in claimable {
        for mut row in rows {
            let (of_row, others) = rest.split_at_checked(row.others.len()).unwrap_or_default();
            rest = others;
            match asked(&row.others, of_row, now) {
                Row::Goes(unsent) => {
                    row.others = unsent;
                    kept.entry(to).or_default().push(row);
                }
                Row::Served => pass.counts.other_version += 1,
                Row::Undecided(until) => {
                    pass.counts.in_progress += 1;
                    pass.wait_until(until.min(later(work, LOOK_AGAIN)));
                }
            }
        }
    }
    Ok(kept)
}

/// Sets aside what other versions have not sent of these rows, right before they are claimed; answers those of which
/// everything has made way. The others are looked at again.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn take_place(work: &Work, rows: Vec<KeyedRow>, pass: &mut Pass) -> Result<Vec<KeyedRow>, RunError> {
    let keys: Vec<ReceiptKey> = rows.iter().flat_map(|row| row.others.iter().copied()).collect();
    if keys.is_empty() {
        return Ok(rows);
    }
    let superseded = work.ledger.supersede(&work.run, &keys).await?;
    let count = superseded.iter().filter(|done| **done).count();
    tracing::info!(run = work.run_id(), receipts = count, "receipts of another version that were not sent made way");
    let mut rest = superseded.as_slice();
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        let (of_row, others) = rest.split_at_checked(row.others.len()).unwrap_or_default();
        rest = others;
        match of_row.iter().all(|done| *done) {
            true => kept.push(row),
            false => pass.wait_until(work.clock.now()),
        }
    }
    Ok(kept)
}
