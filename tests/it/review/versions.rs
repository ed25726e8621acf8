//! One digest a week: which runs the ledger lets open beside which, what makes way for another version, and which
//! receipt a person may have sent again.

use counterfoil::ledger::Opening;

use super::*;

fn only_unsent(snapshot: &str, version: &str) -> NewRun {
    NewRun { only_unsent: true, ..new_run(snapshot, version, false) }
}

fn in_week(number: i32, run: NewRun) -> NewRun {
    let iso_week = IsoWeek::from_number(202_600 + number).unwrap();
    NewRun { iso_week, run_id: format!("{number}-{}", run.run_id), ..run }
}

#[tokio::test]
async fn a_run_is_not_opened_beside_an_open_one_of_another_version_and_after_one_only_on_request() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let open = async |run: NewRun| world.ledger.open_run(&run).await.unwrap();
        for run in [new_run("second", "v2", false), new_run("second", "v2", true), only_unsent("second", "v2")] {
            assert_eq!(open(run).await, Opening::OtherVersion(world.run.clone()));
        }
        let again = open(new_run("first", "v1", false)).await;
        assert!(matches!(again, Opening::Joined { run, .. } if run == world.run));
        assert!(matches!(open(new_run("other", "v1", false)).await, Opening::Opened(_)), "the same version");
        assert_eq!(fresh.value("SELECT count(*) FROM run_parts").await, "4", "what is refused leaves nothing");
        for run in ["first", "other"] {
            let run = world.ledger.run(&new_run(run, "v1", false).run_id).await.unwrap().unwrap();
            world.finish(&run).await;
        }
        assert!(matches!(open(new_run("second", "v2", false)).await, Opening::OtherVersion(_)));
        let second = open(only_unsent("second", "v2")).await.run().unwrap();
        assert!(second.new.only_unsent && !second.new.correction);
        assert!(matches!(open(new_run("third", "v1", true)).await, Opening::OtherVersion(other) if other == second));
        let joined = open(new_run("second", "v2", true)).await.run().unwrap();
        assert!(joined.new.only_unsent, "a run goes on as it was begun");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_versions_that_are_opened_at_the_same_instant_one_opens() {
    each_ledger(async |fresh| {
        let ledgers = [fresh.open().await, fresh.open().await, fresh.open().await, fresh.open().await];
        for round in 1..=40 {
            let mut tasks = tokio::task::JoinSet::new();
            for (place, ledger) in ledgers.iter().enumerate() {
                let ledger = Arc::clone(ledger);
                let run = new_run(&format!("s{place}"), ["v1", "v2"][place % 2], place > 1);
                tasks.spawn(async move { ledger.open_run(&in_week(round, run)).await.unwrap() });
            }
            let opened = tasks.join_all().await;
            assert!(opened.iter().any(|opening| matches!(opening, Opening::Opened(_))), "{opened:?}");
        }
        let versions = "SELECT count(*) FROM (SELECT iso_week FROM runs WHERE closed_at IS NULL GROUP BY iso_week \
                        HAVING count(DISTINCT content_version) <> 1) AS t";
        assert_eq!(fresh.value(versions).await, "0");
        assert_eq!(fresh.value("SELECT count(DISTINCT iso_week) FROM runs").await, "40");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_that_opens_a_run_again_and_another_version_that_opens_do_not_both_succeed() {
    each_ledger(async |fresh| {
        for round in 0..12 {
            let world = World::on_run(fresh, &in_week(1 + round, new_run("first", "v1", false))).await;
            let number = u8::try_from(round).unwrap();
            world.bring(number, failed()).await;
            world.finish(&world.run).await;
            let other = fresh.open().await;
            let second = in_week(1 + round, only_unsent("second", "v2"));
            let (answer, opening) = tokio::join!(world.decide(number, resend()), other.open_run(&second));
            let reopened = answer == ReviewAnswer::Recorded(State::Retryable);
            let opened = matches!(opening.unwrap(), Opening::Opened(_));
            assert!(reopened != opened, "{answer:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_certainly_not_sent_makes_way_and_is_never_sent_again() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        world.bring(1, retry(now)).await;
        world.bring(2, failed()).await;
        world.bring(3, sent("r-3")).await;
        world.bring(4, held(now)).await;
        world.bring(5, Settlement { ambiguous_since: Some(now), ..retry(now) }).await;
        world.claim(6).await;
        world.bring(7, settled(State::Suppressed, Some(Reason::OnOurList))).await;
        let keys: Vec<ReceiptKey> = (1..=8).rev().map(key).collect();
        world.close().await;
        let second = world.ledger.open_run(&only_unsent("second", "v2")).await.unwrap().run().unwrap();
        let expected = [false, false, false, false, false, false, true, true];
        for _ in 0..2 {
            assert_eq!(world.ledger.supersede(&second, &keys).await.unwrap(), expected);
        }
        assert_eq!(world.state(1).await, (State::Failed, Some(Reason::Superseded)));
        assert_eq!(world.state(2).await, (State::Failed, Some(Reason::Superseded)));
        let events = world.ledger.events(week(), &key(2)).await.unwrap();
        let last = events.last().unwrap();
        assert_eq!((last.kind, last.reason, events.len()), (EventKind::Review, Some(Reason::Superseded), 2));
        assert_eq!(last.actor, Some(format!("run {:.12}", second.new.run_id)));
        world.finish(&second).await;
        assert_eq!(world.decide(2, resend()).await, ReviewAnswer::Refused(ReviewRefusal::Superseded));
        world.decide(7, Decision::Discard).await;
        assert!(!world.ledger.supersede(&second, &[key(7)]).await.unwrap()[0], "a closed run takes nobody's place");
    })
    .await;
}

#[tokio::test]
async fn beside_a_run_for_the_unsent_only_a_receipt_of_either_version_can_be_sent_again() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(1, failed()).await;
        world.bring(2, sent("r-2")).await;
        world.finish(&world.run).await;
        let second = world.ledger.open_run(&only_unsent("second", "v2")).await.unwrap().run().unwrap();
        assert!(matches!(world.decide(1, resend()).await, ReviewAnswer::Refused(ReviewRefusal::OtherVersion { .. })));
        for (number, settlement) in [(3, failed()), (4, sent("r-4"))] {
            let grant = granted(world.ask_in(&second, number, content(number)).await);
            world.settle(number, &grant, settlement).await;
        }
        world.finish(&second).await;
        assert_eq!(world.decide(3, resend()).await, ReviewAnswer::Recorded(State::Retryable), "the later run's");
        let grant = granted(world.ask_in(&second, 3, content(3)).await);
        world.settle(3, &grant, failed()).await;
        world.finish(&second).await;
        assert_eq!(world.decide(1, resend()).await, ReviewAnswer::Recorded(State::Retryable), "the earlier run's");
    })
    .await;
}
