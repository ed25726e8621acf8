//! What happens to a receipt when something comes that its current claim does not cover: a settle that came too
//! late or twice, and another content under its key. Pure: the row was read under a lock, the answer is written
//! under the same lock.

use super::image::{Image, NewEvent};
use super::stored::Moment;
use super::{ConflictRecord, EventRecord, SettleAnswer, SettleRequest};
use crate::receipt::{CONFIRMED, EventKind, Reason, State};

/// A settle that the current claim did not take.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Late {
    /// What its sender is told.
    pub(super) answer: SettleAnswer,
    /// The receipt, where it changes.
    pub(super) changed: Option<Image>,
    /// What is remembered; nothing where the same was recorded before.
    pub(super) event: Option<NewEvent>,
}

/// Decides about a settle that is not the end of the receipt's current claim. `history` is the receipt's events.
pub(super) fn late_settle(row: &Image, history: &[EventRecord], request: &SettleRequest, now: Moment) -> Late {
    let of_this_grant = || history.iter().filter(|event| is_end_of(event, request));
    if let Some(event) = of_this_grant().find(|event| event.kind == request.settlement.event) {
        // A settle without a reference may have been recorded with that of an acceptance that came late.
        let reference = &request.settlement.provider_reference;
        let same = event.provider_code == request.settlement.provider_code
            && (reference.is_none() || event.provider_reference == *reference);
        if same {
            return Late { answer: SettleAnswer::Recorded(event.state), changed: None, event: None };
        }
    }
    let remembered = of_this_grant().any(|event| {
        matches!(event.kind, EventKind::LateSettle | EventKind::DoubleAccept)
            && event.provider_reference == request.settlement.provider_reference
            && event.provider_code == request.settlement.provider_code
    });
    let mut late = if request.settlement.state == State::Sent {
        late_acceptance(row, request, now)
    } else {
        Late { answer: SettleAnswer::TooLate, changed: None, event: Some(late_event(row, request, now)) }
    };
    if remembered {
        late.event = None;
    }
    late
}

fn is_end_of(event: &EventRecord, request: &SettleRequest) -> bool {
    event.grant_number == request.grant_number
        && event.claimed_at.map(Moment::from) == Some(Moment::from(request.claimed_at))
}

/// Proof of acceptance turns any state into sent; a live newer claim is told when it ends.
fn late_acceptance(row: &Image, request: &SettleRequest, now: Moment) -> Late {
    let reference = request.settlement.provider_reference.as_deref();
    let answer = if row.grant_number == request.grant_number {
        SettleAnswer::Recorded(State::Sent)
    } else {
        SettleAnswer::TooLate
    };
    let twice = |known: Option<&str>| known.is_some() && known != reference;
    let (answer, changed, kind) = match State::from_word(&row.state) {
        // A person's word for it had no reference; now there is one.
        Some(State::Sent) if row.provider_reference.as_deref() == Some(CONFIRMED) => {
            let proven = Image { sent_at: row.sent_at, ..accepted(row, request, now) };
            (SettleAnswer::Recorded(State::Sent), Some(proven), EventKind::LateSettle)
        }
        // Where the provider replays by key, both acceptances are the same one and carry the same reference.
        Some(State::Sent) if twice(row.provider_reference.as_deref()) => (answer, None, EventKind::DoubleAccept),
        Some(State::Sent) => (answer, None, EventKind::LateSettle),
        Some(State::Claimed) if twice(row.late_reference.as_deref()) => {
            (SettleAnswer::TooLate, None, EventKind::DoubleAccept)
        }
        Some(State::Claimed) => {
            let noted = Image { late_reference: reference.map(str::to_owned), updated_at: now, ..row.clone() };
            (SettleAnswer::TooLate, Some(noted), EventKind::LateSettle)
        }
        _ => (SettleAnswer::Recorded(State::Sent), Some(accepted(row, request, now)), EventKind::LateSettle),
    };
    let event = NewEvent { kind, ..late_event(changed.as_ref().unwrap_or(row), request, now) };
    Late { answer, changed, event: Some(event) }
}

fn accepted(row: &Image, request: &SettleRequest, now: Moment) -> Image {
    let settlement = &request.settlement;
    Image {
        // What was sent, should a person have chosen another content since.
        fingerprint: request.fingerprint.as_bytes().to_vec(),
        state: State::Sent.as_str().to_owned(),
        reason: None,
        attempts: row.attempts.max(i32::try_from(settlement.attempts).unwrap_or(i32::MAX)),
        first_attempt_at: row.first_attempt_at.or(request.first_attempt_at.map(Moment::from)),
        next_attempt_at: None,
        ambiguous_since: None,
        reconciled: true,
        destination_number: request.destination.0,
        provider_reference: settlement.provider_reference.clone(),
        provider_code: settlement.provider_code.clone(),
        sent_at: Some(now),
        updated_at: now,
        ..row.clone()
    }
}

fn late_event(after: &Image, request: &SettleRequest, now: Moment) -> NewEvent {
    let settlement = &request.settlement;
    let reported = match settlement.reason {
        Some(reason) => format!("reported {}: {reason}", settlement.state),
        None => format!("reported {}", settlement.state),
    };
    NewEvent {
        kind: EventKind::LateSettle,
        at: now,
        after: after.clone(),
        run_number: after.run_number,
        part: i64::from(after.part),
        grant_number: request.grant_number,
        claimed_at: Some(request.claimed_at.into()),
        provider_reference: settlement.provider_reference.clone(),
        provider_code: settlement.provider_code.clone(),
        presented: None,
        actor: None,
        note: Some(reported),
    }
}

/// The receipt after another content was presented for the first time by `run_number`, and the event of it.
pub(super) fn conflict(row: &Image, presented: &ConflictRecord, run_number: i64, now: Moment) -> (Image, NewEvent) {
    let in_doubt = row.ambiguous_since.is_some();
    let after = match State::from_word(&row.state) {
        // Decided when the claim or the doubt ends; what is sent stays sent.
        Some(State::Sent | State::Claimed) => noted(row, now),
        _ if in_doubt => noted(row, now),
        _ => Image {
            state: State::Quarantined.as_str().to_owned(),
            reason: Some(Reason::Conflict.as_str().to_owned()),
            next_attempt_at: None,
            ..noted(row, now)
        },
    };
    let event = NewEvent {
        kind: EventKind::Conflict,
        at: now,
        after: after.clone(),
        run_number,
        part: i64::from(presented.part),
        grant_number: row.grant_number,
        claimed_at: None,
        provider_reference: None,
        provider_code: None,
        presented: Some(*presented.presented.as_bytes()),
        actor: None,
        note: None,
    };
    (after, event)
}

fn noted(row: &Image, now: Moment) -> Image {
    Image { in_conflict: true, updated_at: now, ..row.clone() }
}
