//! A person's decision on its way into the ledger. Pure: the rows were read under a lock, what is decided here is
//! written under the same lock; the decision itself is [`crate::receipt::review()`].

use super::image::{Image, NewEvent};
use super::stored::{Moment, fingerprint, standing, state};
use super::{EventRecord, LedgerError, Result};
use crate::identity::{Fingerprint, IsoWeek, ReceiptKey};
use crate::receipt::{self, Decision, EventKind, Reason, ReviewRefusal, State, UnderReview};

/// A decision about one receipt, as it is to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// The receipt.
    pub key: ReceiptKey,
    /// Its week.
    pub iso_week: IsoWeek,
    /// The state that the person saw; another one by now makes the decision void.
    pub seen_state: State,
    /// The grant number that the person saw.
    pub seen_grant: i64,
    /// What is decided.
    pub decision: Decision,
    /// Who.
    pub actor: String,
    /// Why.
    pub note: String,
    /// Decide and answer, record nothing.
    pub dry_run: bool,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewAnswer {
    /// Recorded; the receipt is now in this state.
    Recorded(State),
    /// It cannot be carried out.
    Refused(ReviewRefusal),
    /// The receipt is not as the person saw it any more; it is in this state.
    Changed(State),
    /// There is no receipt under the key.
    Absent,
}

/// What a person's closing of a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunClosing {
    /// It was open until now.
    pub was_open: bool,
    /// Receipts that waited for another attempt: discarded now.
    pub discarded: u64,
    /// Receipts of which an attempt is in doubt: held now.
    pub held: u64,
    /// Claims that are live and may still be settled.
    pub live: u64,
}

/// Another content of a receipt, and where its row is.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct PresentedRow {
    presented: Vec<u8>,
    run_number: i64,
    part: i32,
}

/// A run of the receipt's week and type, locked.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct SiblingRow {
    run_number: i64,
    run_id: String,
    content_version: String,
    correction: bool,
    only_unsent: bool,
    deadline_at: Moment,
    is_open: bool,
    /// Of another version, and somebody may have received it.
    has_sent: bool,
}

/// What is written for a decision.
#[derive(Debug)]
pub(super) struct Reviewing {
    pub(super) after: Image,
    pub(super) event: NewEvent,
    /// The receipt leaves its run for the one that presented the chosen content.
    pub(super) moves: bool,
    /// The new end of its run's time.
    pub(super) send_until: Option<Moment>,
}

/// Whether the receipt still is as the person saw it; `None` says so, else the answer. `history` is asked where an
/// earlier try of the same call may have been committed.
pub(super) fn seen_otherwise(
    row: &Image,
    review: &Review,
    history: Option<&[EventRecord]>,
) -> Result<Option<ReviewAnswer>> {
    let found = state(&row.state)?;
    let ours = history.and_then(<[_]>::last).is_some_and(|event| {
        event.kind == EventKind::Review
            && event.actor.as_deref() == Some(&review.actor)
            && event.note.as_deref() == Some(&review.note)
    });
    if ours {
        return Ok(Some(ReviewAnswer::Recorded(found)));
    }
    let unchanged = found == review.seen_state && row.grant_number == review.seen_grant;
    Ok((!unchanged).then_some(ReviewAnswer::Changed(found)))
}

/// Decides what is written.
pub(super) fn reviewing(
    row: &Image,
    presented: &[PresentedRow],
    siblings: &[SiblingRow],
    review: &Review,
    now: Moment,
) -> Result<std::result::Result<Reviewing, ReviewRefusal>> {
    let (run_number, part) = home(row, presented, &review.decision);
    let run = siblings.iter().find(|run| run.run_number == run_number);
    let run = run.ok_or(LedgerError::Corrupt { what: "run of a receipt" })?;
    let standing = standing(row)?;
    let contents: Vec<Fingerprint> = presented.iter().map(|row| fingerprint(&row.presented)).collect::<Result<_>>()?;
    let accepted_late = standing.state == State::Claimed && row.late_reference.is_some();
    let under_review = UnderReview {
        standing: &standing,
        reason: row.reason.as_deref().and_then(Reason::from_word),
        in_conflict: row.in_conflict,
        presented: &contents,
        reference: row.late_reference.as_deref().filter(|_| accepted_late).or(row.provider_reference.as_deref()),
        accepted_late,
        deadline_at: run.deadline_at.timestamp()?,
    };
    let reviewed = match receipt::review(&under_review, &review.decision, now.timestamp()?) {
        Ok(reviewed) => reviewed,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(refusal) = other_version(run, siblings).filter(|_| reviewed.state == State::Retryable) {
        return Ok(Err(refusal));
    }
    let after = Image { run_number, part, ..after(row, &reviewed, now) };
    let send_until = match review.decision {
        Decision::Resend { send_until, .. } => send_until.map(Moment::from),
        _ => None,
    };
    Ok(Ok(Reviewing {
        event: event(&after, review, now),
        moves: row.fingerprint != after.fingerprint,
        after,
        send_until,
    }))
}

/// The run and part whose snapshot holds the content that is chosen.
fn home(row: &Image, presented: &[PresentedRow], decision: &Decision) -> (i64, i32) {
    let chosen = match decision {
        Decision::Resend { content: Some(content), .. } if content.as_bytes().as_slice() != row.fingerprint => content,
        _ => return (row.run_number, row.part),
    };
    let found = presented.iter().find(|other| other.presented == chosen.as_bytes());
    found.map_or((row.run_number, row.part), |other| (other.run_number, other.part))
}

/// One digest a week: a run of another version that is open, or that has sent where this run is no correction of it.
/// Of two runs of which the later one left out whom the earlier one had served, or may have, neither has sent to a
/// customer of the other's.
fn other_version(run: &SiblingRow, siblings: &[SiblingRow]) -> Option<ReviewRefusal> {
    let others = siblings.iter().filter(|other| other.content_version != run.content_version);
    let apart =
        |other: &SiblingRow| if other.run_number > run.run_number { other.only_unsent } else { run.only_unsent };
    let other =
        others.into_iter().find(|other| other.is_open || (other.has_sent && !run.correction && !apart(other)))?;
    let run = other.run_id.get(..12).unwrap_or(&other.run_id).to_owned();
    Some(ReviewRefusal::OtherVersion { version: other.content_version.clone(), run })
}

fn after(row: &Image, reviewed: &receipt::Reviewed, now: Moment) -> Image {
    // A claim whose lease has ended was an attempt, as far as anyone knows.
    let lost = row.state == State::Claimed.as_str();
    let in_doubt = lost || row.ambiguous_since.is_some();
    let is_sent = reviewed.state == State::Sent;
    Image {
        fingerprint: reviewed.fingerprint.as_bytes().to_vec(),
        state: reviewed.state.as_str().to_owned(),
        reason: reviewed.reason.map(|reason| reason.as_str().to_owned()),
        attempts: row.attempts.saturating_add(i32::from(lost)),
        lease_ends_at: None,
        first_attempt_at: row.first_attempt_at.or(lost.then_some(row.claimed_at)),
        next_attempt_at: reviewed.next_attempt_at.map(Moment::from),
        ambiguous_since: None,
        in_conflict: false,
        reconciled: row.reconciled || (is_sent && in_doubt),
        provider_reference: reviewed.reference.clone(),
        sent_at: row.sent_at.or(is_sent.then_some(now)),
        updated_at: now,
        ..row.clone()
    }
}

fn event(after: &Image, review: &Review, now: Moment) -> NewEvent {
    NewEvent {
        kind: EventKind::Review,
        at: now,
        after: after.clone(),
        run_number: after.run_number,
        part: i64::from(after.part),
        grant_number: after.grant_number,
        claimed_at: None,
        provider_reference: after.provider_reference.clone(),
        provider_code: None,
        presented: None,
        actor: Some(review.actor.clone()),
        note: Some(review.note.clone()),
    }
}
