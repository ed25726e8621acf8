//! A model of one receipt key, explored in every order of events: two workers that can be stopped or killed between
//! any two steps, a provider whose answers are lost or late, leases that end and windows that close.
//!
//! What happens to a receipt is decided by the product's own functions in `counterfoil::receipt`; the model adds the
//! guards of the ledger's statements and the world around them. Each guard is also taken out, and the model must then
//! find the order of events that it is there for.

mod ledger;
mod properties;
mod provider;
mod world;

use std::collections::{BTreeSet, HashMap};

use counterfoil::receipt::{LOOKS_THAT_FAIL, OnAmbiguous};
use stateright::{Checker as _, HasDiscoveries, Model as _};

use properties::{ACCEPTED_ONCE, ACCEPTED_TWICE, DOUBT_REMEMBERED, HELD, UNSENT_IS_CERTAIN};
use provider::Kind;
use world::{Action, Guard, State, World};

/// More would take longer than a test should; fewer would mean that the model has lost a part.
const STATES: std::ops::Range<usize> = 1_000..2_000_000;

fn hold(provider: Kind) -> World {
    World::new(provider, OnAmbiguous::Hold)
}

fn resend(provider: Kind) -> World {
    World::new(provider, OnAmbiguous::Resend)
}

/// Explores everything; each property must hold and each possibility be found.
fn explore(world: World) {
    let checker = world.checker().spawn_bfs().join();
    checker.assert_properties();
    let states = checker.unique_state_count();
    assert!(STATES.contains(&states), "{states} states");
}

/// Takes a guard out; exactly `property` must be found broken, with the order of events that breaks it.
fn assert_needed(world: World, guard: Guard, property: &'static str) {
    let finish = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = world.without(guard).checker().finish_when(finish).spawn_bfs().join();
    let path = checker.assert_any_discovery(property);
    assert!(path.into_actions().len() > 1, "without {guard:?} even the first state is broken");
}

/// Explores until an order of events is found that shows `possibility`.
fn assert_possible(world: World, possibility: &'static str) {
    let finish = HasDiscoveries::AnyOf(BTreeSet::from([possibility]));
    world.checker().finish_when(finish).spawn_bfs().join().assert_any_discovery(possibility);
}

#[test]
fn where_the_provider_replays_for_ever_a_key_is_accepted_once() {
    explore(hold(Kind::ReplaysAlways));
}

#[test]
fn where_the_provider_replays_for_a_while_a_key_is_accepted_once() {
    explore(hold(Kind::ReplaysForAWhile));
}

#[test]
fn where_the_provider_knows_no_keys_what_is_in_doubt_is_held_and_a_key_is_accepted_once() {
    explore(hold(Kind::KnowsNoKeys));
}

#[test]
fn where_the_provider_only_looks_up_a_key_is_accepted_once_if_every_request_arrives_and_shows_in_time() {
    explore(hold(Kind::LooksUp));
}

#[test]
fn where_the_provider_demands_two_misses_a_key_is_accepted_once() {
    explore(World { free_ends: 0, ..hold(Kind::LooksUpTwice) });
}

#[test]
fn where_the_provider_looks_up_and_replays_a_key_is_accepted_once_however_late_its_bytes_come() {
    explore(World { bytes_may_be_late: true, free_ends: 0, ..hold(Kind::LooksUpAndReplays) });
}

#[test]
fn where_the_provider_only_looks_up_what_arrives_or_shows_later_than_that_may_be_a_second_message() {
    assert_possible(World { bytes_may_be_late: true, ..hold(Kind::LooksUp) }, ACCEPTED_TWICE);
}

#[test]
fn where_no_look_can_tell_a_receipt_is_held() {
    let unknown_looks = u8::try_from(LOOKS_THAT_FAIL).unwrap();
    assert_possible(World { unknown_looks, free_ends: 0, ..hold(Kind::LooksUp) }, HELD);
}

#[test]
fn whoever_chooses_to_resend_may_have_two_accepted() {
    explore(resend(Kind::KnowsNoKeys));
}

#[test]
fn the_choice_to_resend_changes_nothing_where_the_provider_replays() {
    explore(resend(Kind::ReplaysAlways));
}

#[test]
fn bytes_that_come_after_the_replay_window_may_be_accepted_twice() {
    let world = World { bytes_may_be_late: true, ..hold(Kind::ReplaysForAWhile) };
    assert_possible(world, ACCEPTED_TWICE);
}

#[test]
fn another_content_under_the_key_is_never_sent_and_changes_no_promise() {
    explore(World { other_content: true, ..hold(Kind::ReplaysAlways) });
    explore(World { other_content: true, ..hold(Kind::KnowsNoKeys) });
    explore(World { other_content: true, free_ends: 0, unknown_looks: 0, ..hold(Kind::LooksUp) });
}

#[test]
fn without_the_fence_of_a_grant_number_a_late_settle_forgets_a_doubt() {
    assert_needed(hold(Kind::KnowsNoKeys), Guard::SettlesAreFenced, DOUBT_REMEMBERED);
    assert_needed(hold(Kind::KnowsNoKeys), Guard::SettlesAreFenced, ACCEPTED_ONCE);
}

#[test]
fn if_the_end_of_a_lease_were_no_doubt_a_killed_worker_s_message_would_go_twice() {
    assert_needed(hold(Kind::KnowsNoKeys), Guard::LeaseEndIsDoubt, ACCEPTED_ONCE);
    assert_needed(hold(Kind::ReplaysAlways), Guard::LeaseEndIsDoubt, UNSENT_IS_CERTAIN);
}

#[test]
fn if_a_throttle_ended_a_doubt_the_window_would_be_ignored() {
    assert_needed(hold(Kind::ReplaysAlways), Guard::DoubtOutlivesRefusals, DOUBT_REMEMBERED);
    assert_needed(hold(Kind::ReplaysForAWhile), Guard::DoubtOutlivesRefusals, ACCEPTED_ONCE);
}

#[test]
fn if_a_doubt_were_granted_as_new_the_window_would_be_ignored() {
    assert_needed(hold(Kind::ReplaysAlways), Guard::DoubtIsNotGrantedAsNew, DOUBT_REMEMBERED);
    assert_needed(hold(Kind::ReplaysForAWhile), Guard::DoubtIsNotGrantedAsNew, ACCEPTED_ONCE);
}

#[test]
fn if_a_claim_took_what_another_worker_holds_both_would_send() {
    assert_needed(hold(Kind::KnowsNoKeys), Guard::OnlyWhatIsDueIsGranted, ACCEPTED_ONCE);
}

#[test]
fn if_the_window_were_only_asked_when_a_replay_is_planned_a_late_one_would_be_a_second_message() {
    assert_needed(hold(Kind::ReplaysForAWhile), Guard::AskedWhenItBegins, ACCEPTED_ONCE);
}

#[test]
fn a_provider_that_does_not_replay_as_it_says_accepts_twice() {
    assert_needed(hold(Kind::ReplaysAlways), Guard::ProviderReplays, ACCEPTED_ONCE);
    assert_needed(hold(Kind::ReplaysForAWhile), Guard::ProviderReplays, ACCEPTED_ONCE);
}

#[test]
fn if_a_look_did_not_wait_for_the_settle_time_what_does_not_show_yet_would_be_sent_again() {
    assert_needed(hold(Kind::LooksUp), Guard::LooksWaitToSettle, ACCEPTED_ONCE);
}

#[test]
fn if_one_miss_were_enough_where_the_provider_demands_two_a_stale_one_would_be_believed() {
    assert_needed(hold(Kind::LooksUpTwice), Guard::EveryMissIsDemanded, ACCEPTED_ONCE);
}

#[test]
fn if_a_look_that_cannot_tell_were_an_absence_an_outage_would_send_twice() {
    assert_needed(hold(Kind::LooksUp), Guard::UnknownIsNotAbsent, ACCEPTED_ONCE);
}

#[test]
fn if_a_doubt_were_sent_again_without_a_look_it_would_be_a_second_message() {
    assert_needed(hold(Kind::LooksUp), Guard::LooksComeFirst, ACCEPTED_ONCE);
}

/// Every reachable state, and from which of them one worker alone, with time, brings the receipt to an end.
struct Graph {
    states: Vec<State>,
    ends: Vec<bool>,
}

impl Graph {
    fn of(world: &World, carries_on: fn(Action) -> bool) -> Self {
        let mut states = world.init_states();
        let mut numbers: HashMap<State, usize> = states.iter().cloned().zip(0..).collect();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); states.len()];
        let mut explored = 0;
        while explored < states.len() {
            for (action, next) in world.next_steps(&states[explored]) {
                let number = numbers.get(&next).copied().unwrap_or_else(|| {
                    numbers.insert(next.clone(), states.len());
                    states.push(next);
                    before.push(Vec::new());
                    states.len() - 1
                });
                if carries_on(action) {
                    before[number].push(explored);
                }
            }
            explored += 1;
        }
        let mut ends: Vec<bool> = states.iter().map(State::has_ended).collect();
        let mut reached: Vec<usize> = (0..states.len()).filter(|number| ends[*number]).collect();
        while let Some(number) = reached.pop() {
            for earlier in &before[number] {
                if !std::mem::replace(&mut ends[*earlier], true) {
                    reached.push(*earlier);
                }
            }
        }
        Self { states, ends }
    }
}

#[test]
fn every_receipt_ends_whatever_the_other_worker_does() {
    let worlds = [Kind::ReplaysAlways, Kind::ReplaysForAWhile, Kind::KnowsNoKeys].map(hold);
    let others = [resend(Kind::KnowsNoKeys), hold(Kind::LooksUp)];
    for world in worlds.into_iter().chain(others) {
        // Throttles and give-backs end nothing; where arrivals multiply the states, they are left out.
        let free_ends = u8::from(!world.provider.arrival_matters());
        let world = World { workers_differ: true, free_ends, ..world };
        let graph =
            Graph::of(&world, |action| matches!(action, Action::TimePasses | Action::LeaseEnds | Action::By(0, _)));
        let stuck = graph.states.iter().zip(&graph.ends).find(|(_, ends)| !**ends);
        assert!(stuck.is_none(), "{world:?}: {stuck:?}");
    }
}
