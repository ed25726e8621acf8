//! What must hold in every state, and what must be possible in some.

use counterfoil::receipt::{LOOKS_THAT_FAIL, OnAmbiguous, State as ReceiptState};
use stateright::Property;

use super::provider::Kind;
use super::world::{MAX_ATTEMPTS, State, Worker, World};

pub(super) const ACCEPTED_ONCE: &str = "under one key the provider accepts at most one message";
pub(super) const ACCEPTED_TWICE: &str = "under one key the provider may accept two messages";
pub(super) const DOUBT_REMEMBERED: &str =
    "a doubt stands, with its first instant, until acceptance is proven or absence certain";
pub(super) const UNSENT_IS_CERTAIN: &str = "what is neither sent nor in doubt was never accepted";
pub(super) const SENT_IS_TRUE: &str = "what is sent was accepted";
pub(super) const ATTEMPTS_CAPPED: &str = "no more attempts are spent than the destination allows";
pub(super) const ONE_WORKER_A_GRANT: &str = "no two workers hold the same grant";
const SENT: &str = "a receipt can become sent";
pub(super) const HELD: &str = "a receipt can become held";
const FAILED: &str = "a receipt can become failed";
const ABSENT: &str = "an attempt can be found to be absent";
const QUARANTINED: &str = "a receipt can become quarantined";
const ZOMBIE: &str = "a worker can be past its last check when a newer grant exists or its lease is over";

/// The properties of a world; whether a second message is impossible or possible depends on it.
pub(super) fn of(world: &World) -> Vec<Property<World>> {
    let owner_accepts_two = world.provider == Kind::KnowsNoKeys && world.on_ambiguous == OnAmbiguous::Resend;
    let replays_for_ever = matches!(world.provider, Kind::ReplaysAlways | Kind::LooksUpAndReplays);
    let accepted = if owner_accepts_two || (world.bytes_may_be_late && !replays_for_ever) {
        Property::sometimes(ACCEPTED_TWICE, |_, state: &State| state.account.accepted > 1)
    } else {
        Property::always(ACCEPTED_ONCE, |_, state: &State| state.account.accepted <= 1)
    };
    let mut properties = vec![
        accepted,
        Property::always(DOUBT_REMEMBERED, |_, state| doubt_remembered(state)),
        Property::always(SENT_IS_TRUE, |_, state: &State| !state.is(ReceiptState::Sent) || state.account.accepted > 0),
        Property::always(ATTEMPTS_CAPPED, |_, state: &State| {
            state.row.as_ref().is_none_or(|row| row.attempts <= MAX_ATTEMPTS)
        }),
        Property::always(ONE_WORKER_A_GRANT, |_, state: &State| {
            match [&state.workers[0], &state.workers[1]].map(held) {
                [Some(one), Some(other)] => one != other,
                _ => true,
            }
        }),
        Property::sometimes(SENT, |_, state: &State| state.is(ReceiptState::Sent)),
        Property::sometimes(FAILED, |_, state: &State| state.is(ReceiptState::Failed)),
        Property::sometimes(ZOMBIE, |_, state: &State| state.workers.iter().any(|worker| is_zombie(worker, state))),
    ];
    // An absence is as certain as the bound that the provider's lookup rests on.
    if !(world.bytes_may_be_late && world.provider.looks_up()) {
        properties.push(Property::always(UNSENT_IS_CERTAIN, |_, state| unsent_is_certain(state)));
    }
    if !world.provider.looks_up() || u32::from(world.unknown_looks) >= LOOKS_THAT_FAIL {
        properties.push(Property::sometimes(HELD, |_, state: &State| state.is(ReceiptState::Held)));
    }
    if world.provider.looks_up() {
        properties.push(Property::sometimes(ABSENT, |_, state: &State| {
            let retryable = state.row.as_ref().filter(|row| row.state == ReceiptState::Retryable);
            retryable.is_some_and(|row| row.ambiguous_since.is_none() && row.looks().misses == 0 && row.attempts > 0)
        }));
    }
    if world.other_content {
        properties.push(Property::sometimes(QUARANTINED, |_, state: &State| state.is(ReceiptState::Quarantined)));
    }
    properties
}

fn doubt_remembered(state: &State) -> bool {
    let Some(since) = state.doubt else { return true };
    state.row.as_ref().is_some_and(|row| row.state == ReceiptState::Sent || row.ambiguous_since == Some(since))
}

/// A claimed receipt is under a worker's hands: its own attempt is not in doubt before its lease ends.
fn unsent_is_certain(state: &State) -> bool {
    state.row.as_ref().is_none_or(|row| {
        matches!(row.state, ReceiptState::Sent | ReceiptState::Claimed)
            || row.ambiguous_since.is_some()
            || state.account.accepted == 0
    })
}

fn held(worker: &Worker) -> Option<u8> {
    match worker {
        Worker::Granted(grant) | Worker::Checked(grant, _) => Some(grant.grant_number),
        Worker::Idle | Worker::Looked(_) | Worker::Ending(_) => None,
    }
}

fn is_zombie(worker: &Worker, state: &State) -> bool {
    let Worker::Checked(grant, _) = worker else { return false };
    state
        .row
        .as_ref()
        .is_some_and(|row| row.grant_number > grant.grant_number || row.lease.is_none_or(|lease| !lease.live))
}
