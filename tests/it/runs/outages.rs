//! Ledgers that fail in the middle of a run: killed, cut off, stubborn, pooled. The run ends with a clear line, and
//! the next one ends well: nothing twice, nothing lost.

use secrecy::ExposeSecret as _;

use super::place::{Ended, MAILDIR, Place, assert_one_each, ended, until};
use crate::databases::cluster::Cluster;
use crate::databases::pooler::Pooler;
use crate::databases::{Backend, Fresh, Proxy};

const CUSTOMERS: u32 = 1_500;
const EXPORT: &[&str] = &["--snapshot", "week.jsonl"];

/// An installation whose ledger is at `url`, with an export.
async fn place(url: &str) -> Place {
    // Its own ledger is not used.
    let place = Place::new(Backend::Sqlite, MAILDIR).await;
    place.edit("counterfoil.toml", place.ledger.url.expose_secret(), url);
    place.export("week.jsonl", 0..CUSTOMERS, |number| number);
    place
}

#[track_caller]
fn assert_ended_well(last: &Ended) {
    assert_eq!(last.code, 0, "{last:?}");
    let done = last.count("sent") + last.count("reconciled") + last.count("duplicate");
    assert_eq!(done, u64::from(CUSTOMERS), "{last:?}");
}

async fn assert_all_sent(place: &Place, ledger: &Fresh) {
    assert_one_each(&place.delivered(), CUSTOMERS as usize);
    assert_eq!(ledger.value("SELECT count(*) FROM receipts WHERE state = 'sent'").await, CUSTOMERS.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_server_that_is_killed_in_the_middle_of_a_run_loses_nothing() {
    let cluster = Cluster::start();
    let fresh = cluster.fresh().await;
    let place = place(fresh.url.expose_secret()).await;
    let mut ahead = 0;
    for (goal, comes_back) in [(1, true), (400, true), (900, false)] {
        let child = place.start_at(ahead, EXPORT);
        until("some are delivered", || place.delivered().len() >= goal).await;
        cluster.kill();
        if comes_back {
            cluster.restart().await;
        }
        let ended = ended(child).await;
        assert!(matches!((ended.code, comes_back), (1 | 4, _) | (0, true)), "{ended:?}");
        assert!(ended.code == 0 || ended.stderr.contains("the ledger"), "{ended:?}");
        if !comes_back {
            cluster.restart().await;
        }
        ahead += 60;
    }
    assert_ended_well(&ended(place.start_at(ahead, EXPORT)).await);
    assert_all_sent(&place, &fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_whose_answers_are_dropped_lose_nothing() {
    let fresh = Fresh::postgres().await;
    let proxy = Proxy::cutting_one_in_ten(&fresh).await;
    let place = place(proxy.url.expose_secret()).await;
    let mut last = ended(place.start(EXPORT)).await;
    for round in 1..=5 {
        if last.code == 0 {
            break;
        }
        assert!(matches!(last.code, 1 | 4), "{last:?}");
        last = ended(place.start_at(60 * round, EXPORT)).await;
    }
    assert_ended_well(&last);
    assert!(proxy.cuts() >= 4, "{} commits were cut off", proxy.cuts());
    assert_all_sent(&place, &fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_statement_in_ten_may_fail_to_serialize() {
    let fresh = Fresh::postgres().await;
    fresh.open().await;
    // Sequences do not roll back.
    fresh
        .execute(
            "CREATE SEQUENCE turn;
             CREATE FUNCTION fail_in_turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF nextval('turn') % 10 = 1 THEN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END IF;
                 RETURN NULL; END $$;
             CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON receipts FOR EACH STATEMENT EXECUTE FUNCTION fail_in_turn();
             CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON run_parts FOR EACH STATEMENT EXECUTE FUNCTION fail_in_turn();
             CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON runs FOR EACH STATEMENT EXECUTE FUNCTION fail_in_turn();",
        )
        .await
        .unwrap();
    let place = place(fresh.url.expose_secret()).await;
    let both = [place.start(EXPORT), place.start(EXPORT)];
    for child in both {
        let ended = ended(child).await;
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    let failed = fresh.value("SELECT last_value / 10 FROM turn").await;
    assert!(failed.parse::<u32>().unwrap() >= 2, "{failed} statements failed");
    assert_all_sent(&place, &fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_transaction_mode_changes_nothing() {
    let fresh = Fresh::postgres().await;
    // Commits that do not wait for the disk are the server's default here: the sessions must insist.
    let database = fresh.value("SELECT current_database()").await;
    fresh.execute(&format!("ALTER DATABASE {database} SET synchronous_commit = off")).await.unwrap();
    let pooler = Pooler::before(&fresh).await;
    let place = place(pooler.url.expose_secret()).await;
    let mut dying = place.start_dying(0, counterfoil::rehearsal::Step::AnswerReceived, 100, EXPORT);
    dying.wait().unwrap();
    let both = [place.start_at(60, EXPORT), place.start_at(60, EXPORT)];
    for child in both {
        assert_ended_well(&ended(child).await);
    }
    assert_all_sent(&place, &fresh).await;
}
