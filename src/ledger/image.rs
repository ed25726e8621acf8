//! A receipt's whole row, as the paths that read under a lock and write back carry it, and the events they add.
//! Both databases take either as JSON: bytes as hex digits, instants as microseconds since 1970.

use serde_json::{Value, json};

use super::stored::Moment;
use crate::identity::hex_text;
use crate::receipt::EventKind;

/// Every column of a receipt but its week.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Image {
    pub(super) receipt_key: Vec<u8>,
    pub(super) run_number: i64,
    pub(super) part: i32,
    pub(super) fingerprint: Vec<u8>,
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) attempts: i32,
    pub(super) grant_number: i64,
    pub(super) worker: Option<i64>,
    pub(super) claimed_at: Moment,
    pub(super) lease_ends_at: Option<Moment>,
    pub(super) first_claimed_at: Moment,
    pub(super) first_attempt_at: Option<Moment>,
    pub(super) next_attempt_at: Option<Moment>,
    pub(super) ambiguous_since: Option<Moment>,
    pub(super) in_conflict: bool,
    pub(super) reconciled: bool,
    pub(super) destination_number: i32,
    pub(super) provider_reference: Option<String>,
    pub(super) provider_code: Option<String>,
    pub(super) late_reference: Option<String>,
    pub(super) sent_at: Option<Moment>,
    pub(super) updated_at: Moment,
}

/// An event that is not written by the statement that changes its receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewEvent {
    pub(super) kind: EventKind,
    pub(super) at: Moment,
    /// The receipt afterwards.
    pub(super) after: Image,
    /// The run that the event came from, and its part.
    pub(super) run_number: i64,
    pub(super) part: i64,
    pub(super) grant_number: i64,
    pub(super) claimed_at: Option<Moment>,
    pub(super) provider_reference: Option<String>,
    pub(super) provider_code: Option<String>,
    pub(super) presented: Option<[u8; 32]>,
    pub(super) actor: Option<String>,
    pub(super) note: Option<String>,
}

/// A JSON array of receipts, for the statement that writes them back.
pub(super) fn images_json<'a>(images: impl IntoIterator<Item = &'a Image>) -> String {
    Value::Array(images.into_iter().map(image_json).collect()).to_string()
}

/// A JSON array of events, for the statement that adds them.
pub(super) fn events_json(events: &[NewEvent]) -> String {
    Value::Array(events.iter().map(event_json).collect()).to_string()
}

fn micros(moment: Option<Moment>) -> Option<i64> {
    moment.map(Moment::micros)
}

fn image_json(image: &Image) -> Value {
    json!({
        "receipt_key": hex_text(&image.receipt_key),
        "run_number": image.run_number,
        "part": image.part,
        "fingerprint": hex_text(&image.fingerprint),
        "state": image.state,
        "reason": image.reason,
        "attempts": image.attempts,
        "grant_number": image.grant_number,
        "worker": image.worker,
        "claimed_at": image.claimed_at.micros(),
        "lease_ends_at": micros(image.lease_ends_at),
        "first_claimed_at": image.first_claimed_at.micros(),
        "first_attempt_at": micros(image.first_attempt_at),
        "next_attempt_at": micros(image.next_attempt_at),
        "ambiguous_since": micros(image.ambiguous_since),
        "in_conflict": image.in_conflict,
        "reconciled": image.reconciled,
        "destination_number": image.destination_number,
        "provider_reference": image.provider_reference,
        "provider_code": image.provider_code,
        "late_reference": image.late_reference,
        "sent_at": micros(image.sent_at),
        "updated_at": image.updated_at.micros(),
    })
}

fn event_json(event: &NewEvent) -> Value {
    let after = &event.after;
    json!({
        "receipt_key": hex_text(&after.receipt_key),
        "run_number": event.run_number,
        "part": event.part,
        "kind": event.kind.as_str(),
        "at": event.at.micros(),
        "grant_number": event.grant_number,
        "claimed_at": micros(event.claimed_at),
        "state": after.state,
        "reason": after.reason,
        "attempts": after.attempts,
        "fingerprint": hex_text(&after.fingerprint),
        "presented": event.presented.map(|presented| hex_text(&presented)),
        "first_claimed_at": after.first_claimed_at.micros(),
        "first_attempt_at": micros(after.first_attempt_at),
        "next_attempt_at": micros(after.next_attempt_at),
        "ambiguous_since": micros(after.ambiguous_since),
        "in_conflict": after.in_conflict,
        "reconciled": after.reconciled,
        "destination_number": after.destination_number,
        "provider_reference": event.provider_reference,
        "provider_code": event.provider_code,
        "actor": event.actor,
        "note": event.note,
    })
}
