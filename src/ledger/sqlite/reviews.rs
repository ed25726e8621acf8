//! Decisions of people: about one receipt, and about a whole run.

use super::{SqliteLedger, rows, settles, statement};
use crate::ledger::failure::Try;
use crate::ledger::review::{PresentedRow, Reviewing, SiblingRow, reviewing, seen_otherwise};
use crate::ledger::{Review, ReviewAnswer, Run, RunClosing};
use crate::receipt::State;

/// Every run of the receipt's week and type; the write lock keeps each from closing or claiming meanwhile.
const SIBLINGS: &str = "
SELECT u.run_number, u.run_id, u.content_version, u.correction, u.only_unsent, u.deadline_at, u.closed_at IS NULL AS is_open,
       u.content_version <> o.content_version AND EXISTS (
           SELECT 1 FROM receipts s WHERE s.iso_week = $1 AND s.run_number = u.run_number
             AND (s.state IN ('sent', 'claimed', 'held') OR s.ambiguous_since IS NOT NULL)) AS has_sent
FROM receipts r
JOIN runs o ON o.run_number = r.run_number
JOIN runs u ON u.iso_week = o.iso_week AND u.digest_type = o.digest_type AND u.mode <> 'observe'
WHERE r.iso_week = $1 AND r.receipt_key = $2
ORDER BY u.run_number";

/// As `openings` does: a run of another version must not be opened while it is decided whether this one may be again.
const LOCK_WEEK: &str = "
INSERT INTO digest_weeks (iso_week, digest_type, last_decided_at)
SELECT o.iso_week, o.digest_type, $3
FROM receipts r JOIN runs o ON o.run_number = r.run_number
WHERE r.iso_week = $1 AND r.receipt_key = $2
ON CONFLICT (iso_week, digest_type) DO UPDATE SET last_decided_at = excluded.last_decided_at";

const PRESENTED: &str = "
SELECT presented, run_number, part FROM receipt_conflicts WHERE iso_week = $1 AND receipt_key = $2
ORDER BY last_seen_at DESC, run_number DESC";

const CLOSE_CONFLICTS: &str = "
UPDATE receipt_conflicts SET closed_at = $3
WHERE iso_week = $1 AND receipt_key = $2 AND closed_at IS NULL";

/// What the receipt was for until now is remembered as decided: its run presents it again and is not heard again.
const REMEMBER_FORMER: &str = "
INSERT INTO receipt_conflicts AS c (iso_week, receipt_key, presented, run_number, recorded, part, seen_count,
    first_seen_at, last_seen_at, closed_at)
SELECT $1, $2, $3, $4, $5, $6, 1, $7, $7, $7
WHERE true
ON CONFLICT (iso_week, receipt_key, presented, run_number) DO UPDATE SET closed_at = excluded.closed_at";

const REOPEN_RUN: &str = "
UPDATE runs SET closed_at = NULL, closed_by = NULL, close_note = NULL, deadline_at = max(deadline_at, coalesce($2, deadline_at))
WHERE run_number = $1";

const REOPEN_PART: &str = "
UPDATE run_parts SET state = 'open', due_at = NULL
WHERE run_number = $1 AND part = $2 AND state IN ('done', 'waiting')";

/// `in_doubt` says that an earlier try may have been committed.
pub(super) async fn review(ledger: &SqliteLedger, review: &Review, in_doubt: bool) -> Try<ReviewAnswer> {
    let (week, key) = (review.iso_week.number(), review.key.as_bytes().as_slice());
    let mut transaction = ledger.write().await?;
    statement(LOCK_WEEK).bind(week).bind(key).bind(ledger.clock()).execute(&mut *transaction).await?;
    let siblings: Vec<SiblingRow> = rows(SIBLINGS).bind(week).bind(key).fetch_all(&mut *transaction).await?;
    let mut locked = settles::lock(&mut transaction, review.iso_week, std::iter::once(review.key)).await?;
    let Some(row) = locked.remove(&review.key) else { return Ok(ReviewAnswer::Absent) };
    let history = match in_doubt {
        true => Some(settles::history(&mut transaction, review.iso_week, &review.key).await?),
        false => None,
    };
    if let Some(answer) = seen_otherwise(&row, review, history.as_deref())? {
        return Ok(answer);
    }
    let presented: Vec<PresentedRow> = rows(PRESENTED).bind(week).bind(key).fetch_all(&mut *transaction).await?;
    let now = ledger.clock();
    let decided = match reviewing(&row, &presented, &siblings, review, now)? {
        Ok(decided) => decided,
        Err(refusal) => return Ok(ReviewAnswer::Refused(refusal)),
    };
    let Reviewing { after, event, moves, send_until } = decided;
    let (run_number, part) = (after.run_number, after.part);
    let requested = after.state == State::Retryable.as_str();
    let answer = ReviewAnswer::Recorded(crate::ledger::stored::state(&after.state)?);
    if review.dry_run {
        return Ok(answer);
    }
    statement(CLOSE_CONFLICTS).bind(week).bind(key).bind(now).execute(&mut *transaction).await?;
    if moves {
        statement(REMEMBER_FORMER)
            .bind(week)
            .bind(key)
            .bind(&row.fingerprint)
            .bind(row.run_number)
            .bind(&after.fingerprint)
            .bind(row.part)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
    }
    settles::write_back(&mut transaction, review.iso_week, &[after], &[event]).await?;
    if requested {
        statement(REOPEN_RUN).bind(run_number).bind(send_until).execute(&mut *transaction).await?;
        statement(REOPEN_PART).bind(run_number).bind(part).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(answer)
}

const WITHDRAW: &str = "
UPDATE runs SET closed_at = $4, closed_by = $2, close_note = $3,
    withdrawn_at = coalesce(withdrawn_at, $4), withdrawn_by = coalesce(withdrawn_by, $2),
    withdrawn_note = coalesce(withdrawn_note, $3)
WHERE run_number = $1 AND closed_at IS NULL";

const IS_WITHDRAWN: &str = "SELECT withdrawn_at IS NOT NULL FROM runs WHERE run_number = $1";

const END_PARTS: &str = "
UPDATE run_parts SET state = 'done', worker = NULL, lease_ends_at = NULL, due_at = NULL
WHERE run_number = $1 AND state <> 'done'";

/// What waits for another attempt is discarded, what is in doubt is held; a live claim is left to its worker.
const END_WAITING: &str = "
UPDATE receipts SET
    state = CASE WHEN state = 'retryable' AND ambiguous_since IS NULL THEN 'failed' ELSE 'held' END,
    reason = CASE WHEN state = 'retryable' AND ambiguous_since IS NULL THEN 'discarded' ELSE 'out_of_tries' END,
    attempts = attempts + CASE WHEN state = 'claimed' THEN 1 ELSE 0 END,
    first_attempt_at = coalesce(first_attempt_at, CASE WHEN state = 'claimed' THEN claimed_at END),
    ambiguous_since = coalesce(ambiguous_since, CASE WHEN state = 'claimed' THEN claimed_at END),
    next_attempt_at = NULL, lease_ends_at = NULL, updated_at = $3
WHERE iso_week = $2 AND run_number = $1
  AND (state = 'retryable' OR (state = 'claimed' AND late_reference IS NULL AND lease_ends_at <= $3))
RETURNING lower(hex(receipt_key)) AS receipt_key, state";

/// The events of what was just ended.
const LOG_ENDED: &str = "
INSERT INTO receipt_events (iso_week, receipt_key, run_number, part, kind, at, grant_number, state, reason,
    attempts, fingerprint, first_claimed_at, first_attempt_at, next_attempt_at, ambiguous_since, in_conflict,
    reconciled, destination_number, provider_reference, actor, note)
SELECT r.iso_week, r.receipt_key, r.run_number, r.part, 'review', r.updated_at, r.grant_number, r.state, r.reason,
    r.attempts, r.fingerprint, r.first_claimed_at, r.first_attempt_at, r.next_attempt_at, r.ambiguous_since,
    r.in_conflict, r.reconciled, r.destination_number, r.provider_reference, $3, $4
FROM json_each($2) AS t
CROSS JOIN receipts r ON r.iso_week = $1 AND r.receipt_key = unhex(t.value)";

/// Also what a worker has settled since as to be tried again.
const LIVE: &str = "
SELECT count(*) FROM receipts WHERE iso_week = $2 AND run_number = $1 AND state IN ('claimed', 'retryable')";

pub(super) async fn close_run(ledger: &SqliteLedger, run: &Run, actor: &str, note: &str) -> Try<RunClosing> {
    let (number, week) = (run.run_number, run.new.iso_week.number());
    let mut transaction = ledger.write().await?;
    let now = ledger.clock();
    let withdrawn =
        statement(WITHDRAW).bind(number).bind(actor).bind(note).bind(now).execute(&mut *transaction).await?;
    let mut closing = RunClosing { was_open: withdrawn.rows_affected() == 1, ..RunClosing::default() };
    let (is_withdrawn,): (bool,) = rows(IS_WITHDRAWN).bind(number).fetch_one(&mut *transaction).await?;
    if is_withdrawn {
        statement(END_PARTS).bind(number).execute(&mut *transaction).await?;
        let ended: Vec<(String, String)> =
            rows(END_WAITING).bind(number).bind(week).bind(now).fetch_all(&mut *transaction).await?;
        let keys: Vec<&str> = ended.iter().map(|(key, _)| key.as_str()).collect();
        let keys = serde_json::json!(keys).to_string();
        statement(LOG_ENDED).bind(week).bind(keys).bind(actor).bind(note).execute(&mut *transaction).await?;
        let (live,): (i64,) = rows(LIVE).bind(number).bind(week).fetch_one(&mut *transaction).await?;
        let held = ended.iter().filter(|(_, state)| state == State::Held.as_str()).count() as u64;
        let discarded = (ended.len() as u64).saturating_sub(held);
        closing = RunClosing { discarded, held, live: live.unsigned_abs(), ..closing };
    }
    transaction.commit().await?;
    Ok(closing)
}
