//! Whole runs into a gateway over HTTP.

use super::place::{Place, http, until};
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

/// The last byte is held back until `connected` is behind us, and `request_written` comes after it has gone out.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_around_the_last_byte_has_handed_over_all_or_nothing() {
    for (step, handed_over) in [("connected", 0), ("request_written", 1)] {
        let memory = Memory::default();
        let script = memory.clone();
        let server = Server::start(move |request| script.answer(request)).await;
        let place = Place::new(Backend::Sqlite, &http(server.port, "concurrency = 1")).await;
        place.export("week.jsonl", 0..3, |number| number);
        let mut command = place.command(&["run", "--mode", "enforce", "--snapshot", "week.jsonl"]);
        let died = command.env("COUNTERFOIL_TEST_DIE_AT", step).output().unwrap();
        assert_eq!(died.status.code(), None, "{died:?}");
        // The server notices the end of a connection after everything that came before it.
        until("the connection is over", || server.requests().len() + server.broken().len() == 1).await;
        assert_eq!((server.requests().len(), memory.keys().len()), (handed_over, handed_over), "{step}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_asks_the_gateway_with_the_headers_from_the_environment() {
    let memory = Memory::default();
    let server = Server::start(move |request| memory.answer(request)).await;
    let lookup = format!("lookup_url = \"http://127.0.0.1:{}/sent/{{key}}\"", server.port);
    let place = Place::new(Backend::Sqlite, &http(server.port, &lookup)).await;
    let mut command = place.command(&["check"]);
    command.env("COUNTERFOIL_DESTINATION__RETAIL__HEADERS", "{ X-Api-Key = 'canary' }");
    let checked = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = format!("{checked:?}");
    assert!(said.contains("answers and looks up by key") && !said.contains("canary"), "{said}");
    let requests = server.requests();
    assert_eq!((requests.len(), requests[0].header("x-api-key")), (1, Some("canary")));
}
