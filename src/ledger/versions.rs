//! Receipts of another content version that make way for a run's own. Pure: the rows were read under a lock, what is
//! decided here is written under the same lock; the decision itself is [`crate::receipt::other_version()`].

use super::image::{Image, NewEvent};
use super::stored::{Moment, standing};
use super::{Result, Run};
use crate::receipt::{self, EventKind, OtherVersion, Reason, State};

/// Whether the receipt has made way already.
pub(super) fn is_superseded(row: &Image) -> bool {
    row.state == State::Failed.as_str() && row.reason.as_deref() == Some(Reason::Superseded.as_str())
}

/// What is written where the receipt makes way now for a receipt of `run`; `None` where it does not, or has already.
pub(super) fn superseding(row: &Image, run: &Run, now: Moment) -> Result<Option<(Image, NewEvent)>> {
    let found = receipt::other_version(&standing(row)?, now.timestamp()?);
    if found != OtherVersion::Unsent || is_superseded(row) {
        return Ok(None);
    }
    let after = Image {
        state: State::Failed.as_str().to_owned(),
        reason: Some(Reason::Superseded.as_str().to_owned()),
        next_attempt_at: None,
        updated_at: now,
        ..row.clone()
    };
    let event = NewEvent {
        kind: EventKind::Review,
        at: now,
        after: after.clone(),
        run_number: after.run_number,
        part: i64::from(after.part),
        grant_number: after.grant_number,
        claimed_at: None,
        provider_reference: None,
        provider_code: None,
        presented: None,
        actor: Some(format!("run {:.12}", run.new.run_id)),
        note: Some(format!("version {} takes its place (--only-unsent)", run.new.content_version)),
    };
    Ok(Some((after, event)))
}
