//! Destinations that fail, throttle, or are slow: they are left alone, they cost no receipt its attempts, and they keep
//! no other waiting.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::place::{MAILDIR, Place, delivered_in, ended, http, row, smtp, until};
use crate::databases::Backend;
use crate::http::server::{Act as HttpAct, Memory, Server as HttpServer};
use crate::smtp::server::{Act, Point, Seen, Server};

const HOUR: i64 = 3_600;
/// Greater than the time between two probes with the random wait behind it.
const NEXT_PROBE: i64 = 13;
/// Failures that open the breaker, and sends that may be under way by then.
const UNTIL_OPEN: usize = 10 + 4;

/// A server that can be switched off: it then hangs up instead of greeting, so that nothing was certainly accepted.
async fn switched(works: &Arc<AtomicBool>) -> Server {
    let works = Arc::clone(works);
    Server::start(&["8BITMIME"], move |moment| match moment.point {
        Point::Greeting if !works.load(Ordering::SeqCst) => Act::SayAndClose(""),
        _ => Act::Go,
    })
    .await
}

fn messages(server: &mut Server) -> usize {
    server.so_far().iter().filter(|seen| matches!(seen, Seen::Message(_))).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_two_hours_fails_nobody_however_often_the_run_is_started() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let works = Arc::new(AtomicBool::new(false));
        let mut server = switched(&works).await;
        let place = Place::new(backend, &format!("{}max_attempts = 2\n", smtp(server.port))).await;
        place.export("week.jsonl", 0..1_200, |number| number);
        let first = place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await;
        assert_eq!((first.code, first.count("failed")), (4, 0), "{first:?}");
        assert!((10..=UNTIL_OPEN).contains(&server.connections()), "{}", server.connections());
        assert_eq!(first.stderr.matches("The breaker is open").count(), 1, "{}", first.stderr);
        assert!(first.stderr.contains("work is left: destination `retail` is left alone"), "{}", first.stderr);
        for again in 1..=8 {
            let before = server.connections();
            let later = place.run_at(again * HOUR / 4, &["--wait", "0s"]).await;
            assert_eq!((later.code, later.count("failed")), (4, 0), "{later:?}");
            assert_eq!(server.connections() - before, 1, "one probe");
        }
        let spent = place.ledger.value("SELECT sum(attempts) FROM receipts").await;
        assert!(spent.parse::<usize>().unwrap() <= UNTIL_OPEN, "probes spend no attempt: {spent}");
        works.store(true, Ordering::SeqCst);
        for probe in 1..=2 {
            place.run_at(2 * HOUR + probe * NEXT_PROBE, &["--wait", "0s"]).await;
            assert_eq!(messages(&mut server), 1, "an accepted probe");
        }
        let last = place.run_at(2 * HOUR + 3 * NEXT_PROBE, &["--wait", "60s"]).await;
        assert_eq!(last.code, 0, "{last:?}");
        assert!(last.stderr.contains("the breaker is closed"), "{}", last.stderr);
        assert_eq!(place.receipts().await, ["sent 1200"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_past_the_deadline_ends_every_row_and_sends_none_late() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let works = Arc::new(AtomicBool::new(false));
        let mut server = switched(&works).await;
        let place = Place::new(backend, &smtp(server.port)).await;
        place.export("week.jsonl", 0..1_200, |number| number);
        let first = place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await;
        assert_eq!((first.code, first.count("failed")), (4, 0), "{first:?}");
        works.store(true, Ordering::SeqCst);
        let last = place.run_at(31 * 24 * HOUR, &[]).await;
        last.assert(3, &[("failed", 1_200)]);
        assert_eq!(place.receipts().await, ["failed deadline_passed 1200"]);
        assert_eq!(messages(&mut server), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_drops_after_the_final_dot_costs_few_their_certainty() {
    let mut server = Server::start(&["8BITMIME"], |moment| match moment.point {
        Point::Dot => Act::SayAndClose(""),
        _ => Act::Go,
    })
    .await;
    let place = Place::new(Backend::Sqlite, &smtp(server.port)).await;
    place.export("week.jsonl", 0..300, |number| number);
    let ended = place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await;
    assert_eq!(ended.code, 4, "{ended:?}");
    let held = usize::try_from(ended.count("held")).unwrap();
    assert!((10..=UNTIL_OPEN).contains(&held), "{ended:?}");
    let probed = place.run_at(NEXT_PROBE, &["--wait", "0s"]).await;
    assert_eq!(probed.count("held"), held as u64 + 1, "a probe whose answer is lost is held too: {probed:?}");
    assert_eq!(messages(&mut server), held + 1, "none is sent twice");
    let doubts = "SELECT count(*) FROM receipts WHERE state = 'held' AND ambiguous_since IS NOT NULL \
                  AND first_attempt_at IS NOT NULL";
    assert_eq!(place.ledger.value(doubts).await, (held + 1).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_cap_is_exact_on_the_wire() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let mut server = Server::start(&["8BITMIME"], |moment| match moment.point {
            Point::Rcpt => Act::Say("450 4.2.1 come again\r\n"),
            _ => Act::Go,
        })
        .await;
        let place = Place::new(backend, &format!("{}max_attempts = 3\n", smtp(server.port))).await;
        place.export("week.jsonl", 0..20, |number| number);
        place.run(&["--snapshot", "week.jsonl"]).await.assert(3, &[("failed", 20)]);
        assert_eq!(place.receipts().await, ["failed attempts_exhausted 20"]);
        let mut tries = BTreeMap::<String, usize>::new();
        for seen in server.so_far() {
            if let Seen::Command(command) = seen
                && command.starts_with("RCPT")
            {
                *tries.entry(command).or_default() += 1;
            }
        }
        assert_eq!(tries.len(), 20);
        assert!(tries.values().all(|tries| *tries == 3), "{tries:?}");
    }
}

/// More parts of `retail` than are worked on at the same time.
const RETAIL: u32 = 8_000;
const BUSINESS: u32 = 300;

/// Rows of `retail` first, then those of `business`.
fn two_destinations(place: &Place, retail: &str) {
    let business = MAILDIR.replace("outbox", "business");
    place.configure_all(&format!("[destination.retail]\n{retail}[destination.business]\n{business}"), "");
    let rows = (0..RETAIL + BUSINESS).map(|number| {
        let destination = if number < RETAIL { "retail" } else { "business" };
        row(number, number, Some(destination))
    });
    place.export_rows("week.jsonl", rows);
}

fn terminate(child: &std::process::Child) {
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_with_a_low_rate_delays_no_other() {
    let place = Place::new(Backend::Sqlite, MAILDIR).await;
    two_destinations(&place, &format!("{MAILDIR}rate = \"1/min\"\n"));
    let child = place.start(&["--snapshot", "week.jsonl"]);
    until("business has its mail", || delivered_in(&place.path("business")).len() == BUSINESS as usize).await;
    assert!(place.delivered().len() <= 3, "retail has its rate");
    terminate(&child);
    let stopped = ended(child).await;
    assert_eq!(stopped.code, 4, "{stopped:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_hangs_or_is_down_delays_no_other() {
    for act in [Act::Silence, Act::SayAndClose("")] {
        let server = Server::start(&["8BITMIME"], move |moment| match moment.point {
            Point::Greeting => act.clone(),
            _ => Act::Go,
        })
        .await;
        let place = Place::new(Backend::Sqlite, MAILDIR).await;
        two_destinations(&place, &smtp(server.port));
        let child = place.start(&["--snapshot", "week.jsonl"]);
        until("business has its mail", || delivered_in(&place.path("business")).len() == BUSINESS as usize).await;
        terminate(&child);
        let stopped = ended(child).await;
        assert_eq!((stopped.code, stopped.count("failed")), (4, 0), "{stopped:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_late_for_its_place_in_the_rate_does_not_come_in_a_burst() {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let (log, stalls) = (Arc::clone(&starts), AtomicUsize::new(0));
    let server = Server::start(&["8BITMIME"], move |moment| match moment.point {
        Point::Mail => {
            log.lock().unwrap().push(Instant::now());
            Act::Go
        }
        // The first few hold every place among the sends; meanwhile the rate runs on.
        Point::Dot if stalls.fetch_add(1, Ordering::SeqCst) < 4 => Act::Late(Duration::from_secs(5)),
        _ => Act::Go,
    })
    .await;
    let settings = format!("{}rate = \"40/s\"\non_ambiguous = \"resend\"\n", smtp(server.port));
    let place = Place::new(Backend::Sqlite, &settings.replace("concurrency = 4", "concurrency = 40")).await;
    place.export("week.jsonl", 0..300, |number| number);
    place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 300)]);
    let starts = starts.lock().unwrap();
    let busiest = starts
        .iter()
        .enumerate()
        .map(|(first, begin)| {
            starts[first..].iter().take_while(|at| at.duration_since(*begin).as_millis() < 1_000).count()
        })
        .max()
        .unwrap();
    assert!(busiest <= 80 + 8, "{busiest} in a second at 40 a second and a burst of 40");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_hundred_sends_hang_no_database_session_sits_in_a_transaction() {
    let server = Server::start(&["8BITMIME"], |moment| match moment.point {
        Point::Dot => Act::Late(Duration::from_secs(6)),
        _ => Act::Go,
    })
    .await;
    let settings = smtp(server.port).replace("concurrency = 4", "concurrency = 100");
    let place = Place::new(Backend::Postgres, &settings).await;
    place.export("week.jsonl", 0..100, |number| number);
    let child = place.start(&["--snapshot", "week.jsonl"]);
    until("a hundred are under way", || server.connections() >= 100).await;
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND state LIKE 'idle in transaction%' AND now() - state_change > interval '1 second'";
    for _ in 0..20 {
        assert_eq!(place.ledger.value(idle).await, "0");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    ended(child).await.assert(0, &[("sent", 100)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttle_pauses_every_process_in_full_and_costs_no_attempt() {
    let (memory, log) = (Memory::default(), Arc::new(Mutex::new(Vec::<(Instant, String, bool)>::new())));
    let (answers, arrivals) = (memory.clone(), Arc::clone(&log));
    let server = HttpServer::start(move |request| {
        let throttled = request.number < 18 && request.number.is_multiple_of(3);
        let key = request.header("idempotency-key").unwrap().to_owned();
        arrivals.lock().unwrap().push((Instant::now(), key, throttled));
        if throttled { HttpAct::with_headers(429, &[("retry-after", "3")]) } else { answers.answer(request) }
    })
    .await;
    let place = Place::new(Backend::Postgres, &http(server.port, "rate = \"200/s\"")).await;
    place.export("week.jsonl", 0..3_200, |number| number);
    let children: Vec<_> = (0..4).map(|_| place.start(&["--snapshot", "week.jsonl"])).collect();
    for child in children {
        let ended = ended(child).await;
        assert_eq!((ended.code, ended.count("sent") + ended.count("duplicate")), (0, 3_200), "{ended:?}");
    }
    assert_eq!(memory.keys().len(), 3_200);
    assert_eq!(place.receipts().await, ["sent 3200"]);
    assert_eq!(place.ledger.value("SELECT sum(attempts) FROM receipts").await, "3200", "waiting spends none");
    let log = log.lock().unwrap();
    let second = Duration::from_secs(1);
    let in_a_second = |first: usize| log[first..].iter().take_while(|(at, ..)| *at < log[first].0 + second).count();
    let busiest = (0..log.len()).map(in_a_second).max().unwrap();
    assert!(busiest <= 400, "{busiest} in a second at 200 a second and a burst of 200");
    for (throttled_at, throttled_key, _) in log.iter().filter(|(.., throttled)| *throttled) {
        for (at, key, _) in log.iter().filter(|(at, ..)| at > throttled_at) {
            let after = at.duration_since(*throttled_at);
            assert!(key != throttled_key || after >= 3 * second, "the same one comes {after:?} later");
            // The other processes have read of the pause by then.
            assert!(after < 2 * second || after >= 3 * second, "another one comes {after:?} later");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_answers_with_errors_leaves_few_in_doubt_and_none_of_them_twice() {
    for (replay, held) in [("replay_window = \"24h\"", 0_usize), ("", 10)] {
        let (memory, works) = (Memory::default(), Arc::new(AtomicBool::new(false)));
        let (answers, switch) = (memory.clone(), Arc::clone(&works));
        let server = HttpServer::start(move |request| {
            if switch.load(Ordering::SeqCst) { answers.answer(request) } else { HttpAct::answer(500, "") }
        })
        .await;
        let place = Place::new(Backend::Sqlite, &http(server.port, &format!("concurrency = 4\n{replay}"))).await;
        place.export("week.jsonl", 0..1_200, |number| number);
        let first = place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await;
        assert_eq!((first.code, first.count("failed")), (4, 0), "{first:?}");
        let asked = server.requests().len();
        assert!((10..=UNTIL_OPEN).contains(&asked), "{asked}");
        assert_eq!(first.count("held") as usize, if held == 0 { 0 } else { asked }, "{first:?}");
        works.store(true, Ordering::SeqCst);
        for probe in 1..=2 {
            place.run_at(probe * NEXT_PROBE, &["--wait", "0s"]).await;
        }
        let last = place.run_at(3 * NEXT_PROBE, &["--wait", "60s"]).await;
        assert_eq!(last.code, if held == 0 { 0 } else { 3 }, "{last:?}");
        let accepted = if held == 0 { 1_200 } else { 1_200 - asked };
        assert_eq!(memory.keys().len(), accepted, "{last:?}");
        assert_eq!(server.requests().len(), asked + accepted, "none is sent twice");
    }
}
