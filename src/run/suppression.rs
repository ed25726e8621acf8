//! The suppression list, read right before a batch is sent: who stands on it gets nothing, and where it cannot be
//! read nobody does.

use std::sync::Arc;

use super::RunError;
use super::attempt::{Ended, Granted, Rendered};
use super::destination::Destination;
use super::engine::Work;
use crate::ledger::{AddressHash, SettleRequest};
use crate::receipt::{self, Attempt, Outcome, Settlement};
use crate::snapshot::NormalAddress;

/// Parts a rendered batch into what may be sent and what ends here without an attempt: recipients on the list, or
/// everyone where the list could not be read, which also stops the run. A row that could not be rendered passes: it
/// is not sent anyway.
pub(super) async fn screen(
    work: &Arc<Work>,
    destination: &Destination,
    part: u32,
    rendered: Vec<(Granted, Rendered)>,
) -> (Vec<(Granted, Rendered)>, Vec<Ended>) {
    let stable = work.keyring.stable();
    let hashes: Vec<AddressHash> = rendered
        .iter()
        .filter_map(|(_, message)| message.as_ref().ok())
        .map(|message| stable.suppression(NormalAddress::of(&message.to.email).as_str()))
        .collect();
    if hashes.is_empty() {
        return (rendered, Vec::new());
    }
    let listed = match work.ledger.suppressed(&hashes, &work.run.new.digest_type).await {
        Ok(listed) => listed,
        Err(error) => {
            work.fail(RunError::SuppressionList(error));
            let given_back =
                rendered.into_iter().map(|(granted, _)| ended(work, destination, part, granted, &give_back));
            return (Vec::new(), given_back.collect());
        }
    };
    let mut listed = listed.into_iter();
    let mut pass = Vec::with_capacity(rendered.len());
    let mut withheld = Vec::new();
    for (granted, message) in rendered {
        // The answers are those of the rendered rows, in their order; one that is missing must not let a row pass.
        if message.is_ok() && listed.next().unwrap_or(true) {
            tracing::debug!(receipt = granted.claim.key.short(), run = work.run_id(), "on the suppression list");
            withheld.push(ended(work, destination, part, granted, &receipt::listed));
        } else {
            pass.push((granted, message));
        }
    }
    (pass, withheld)
}

/// Decides about a claim of which no attempt was made.
type Decision<'a> = &'a dyn Fn(&Attempt, &receipt::Policy, jiff::Timestamp) -> Settlement;

fn give_back(attempt: &Attempt, policy: &receipt::Policy, now: jiff::Timestamp) -> Settlement {
    receipt::settlement(attempt, &Outcome::NotStarted, policy, now, 0.0)
}

fn ended(work: &Work, destination: &Destination, part: u32, granted: Granted, decide: Decision<'_>) -> Ended {
    let Granted { claim, fingerprint, .. } = granted;
    let now = work.clock.now();
    let attempt = claim.grant.attempt(now);
    let settlement = decide(&attempt, &destination.policy(work.run.new.deadline_at), now);
    let request = SettleRequest {
        key: claim.key,
        fingerprint,
        part,
        grant_number: claim.grant.grant_number,
        claimed_at: claim.grant.claimed_at,
        first_claimed_at: claim.grant.first_claimed_at,
        first_attempt_at: claim.grant.first_attempt_at,
        destination: destination.number,
        settlement,
    };
    Ended { request, spent: false }
}
