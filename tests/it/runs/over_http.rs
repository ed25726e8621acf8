//! Whole runs into a gateway over HTTP.

use super::place::{Place, http};
use crate::databases::Backend;
use crate::http::server::{Act, Memory, Server};

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_gets_each_digest_once_and_a_second_run_sends_nothing() {
    let memory = Memory::default();
    let script = memory.clone();
    let server = Server::start(move |request| script.answer(request)).await;
    let place = Place::new(Backend::Sqlite, &http(server.port, "")).await;
    place.export("week.jsonl", 0..500, |number| number);
    place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 500)]);
    assert_eq!((memory.keys().len(), server.requests().len()), (500, 500));
    assert_eq!(place.receipts().await, ["sent 500"]);
    place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("duplicate", 500)]);
    assert_eq!(server.requests().len(), 500);
}

/// A third of the first answers are lost on the way, after the gateway has accepted.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_replays_recognises_what_is_sent_again_after_a_lost_answer() {
    let memory = Memory::default();
    let script = memory.clone();
    let server = Server::start(move |request| {
        let answer = script.answer(request);
        if request.number < 60 && request.number % 3 == 0 { Act::Drop } else { answer }
    })
    .await;
    let place = Place::new(Backend::Sqlite, &http(server.port, "replay_window = \"24h\"")).await;
    place.export("week.jsonl", 0..60, |number| number);
    let ended = place.run(&["--snapshot", "week.jsonl"]).await;
    assert_eq!((ended.code, ended.count("sent") + ended.count("reconciled")), (0, 60), "{ended:?}");
    assert_eq!(memory.keys().len(), 60);
    assert!(server.requests().len() >= 80, "{}", server.requests().len());
    assert_eq!(place.receipts().await, ["sent 60"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_does_not_know_us_stops_the_run_and_charges_nobody() {
    let server = Server::start(|_| Act::answer(401, "")).await;
    let place = Place::new(Backend::Sqlite, &http(server.port, "")).await;
    place.export("week.jsonl", 0..200, |number| number);
    let ended = place.run(&["--snapshot", "week.jsonl"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("destination.retail.token_file"), "{}", ended.stderr);
    assert!(server.requests().len() <= 200);
    let spent = place.ledger.query("SELECT CAST(coalesce(sum(attempts), 0) AS text) FROM receipts").await;
    assert_eq!(spent[0][0].as_deref(), Some("0"));
}
