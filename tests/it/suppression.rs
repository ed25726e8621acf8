//! The suppression list: what the ledger promises about it, and what a run and the command line make of it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use counterfoil::identity::DigestType;
use counterfoil::ledger::{IdentityPin, Suppression, SuppressionReason};
use sqlx::Connection as _;
use tempfile::TempDir;

use crate::databases::{Backend, Fresh, each_ledger};

fn kind(name: &str) -> DigestType {
    DigestType::new(name).unwrap()
}

fn entry(number: u8, digest_type: Option<&str>, reason: &str) -> Suppression {
    Suppression {
        address_hash: [number; 32],
        digest_type: digest_type.map(kind),
        reason: SuppressionReason::new(reason).unwrap(),
    }
}

// --- Ledger ---------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_list_answers_by_address_and_scope_in_the_order_of_the_question() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let entries = [entry(3, None, "bounced"), entry(1, Some("weekly_activity"), "unsubscribed")];
        assert_eq!(ledger.suppress(&entries).await.unwrap(), 2);
        let asked = [[3; 32], [2; 32], [1; 32], [3; 32]];
        assert_eq!(ledger.suppressed(&asked, &kind("weekly_activity")).await.unwrap(), [true, false, true, true]);
        assert_eq!(ledger.suppressed(&asked, &kind("other")).await.unwrap(), [true, false, false, true]);
        assert!(ledger.suppressed(&[], &kind("other")).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn an_entry_that_stands_keeps_its_reason_and_date() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        assert_eq!(ledger.suppress(&[entry(1, None, "first"), entry(1, None, "twin")]).await.unwrap(), 1);
        let before = ledger.suppressions(&[1; 32]).await.unwrap();
        let later = fresh.open_later(jiff::SignedDuration::from_hours(1)).await;
        let entries = [entry(1, None, "second"), entry(1, Some("weekly_activity"), "third")];
        assert_eq!(later.suppress(&entries).await.unwrap(), 1);
        let after = ledger.suppressions(&[1; 32]).await.unwrap();
        assert_eq!(after[0], before[0]);
        assert_eq!(after[1].digest_type, Some(kind("weekly_activity")));
        assert!(after[1].added_at > after[0].added_at);
        assert_eq!(ledger.suppress(&[]).await.unwrap(), 0);
    })
    .await;
}

#[tokio::test]
async fn removing_takes_one_scope_or_all_of_an_address() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let all = [1, 2].map(|number| [entry(number, None, "x"), entry(number, Some("weekly_activity"), "x")]).concat();
        ledger.suppress(&all).await.unwrap();
        assert_eq!(ledger.unsuppress(&[[1; 32], [9; 32]], Some(&kind("weekly_activity"))).await.unwrap(), 1);
        assert_eq!(ledger.suppressions(&[1; 32]).await.unwrap().len(), 1);
        assert_eq!(ledger.unsuppress(&[[1; 32], [1; 32]], None).await.unwrap(), 1);
        assert_eq!(ledger.unsuppress(&[[1; 32]], None).await.unwrap(), 0);
        assert_eq!(ledger.suppressions(&[2; 32]).await.unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn eight_who_add_and_remove_the_same_addresses_do_not_deadlock() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..8_u8 {
            let ledger = ledger.clone();
            tasks.spawn(async move {
                let mut entries: Vec<Suppression> = (0..100).map(|number| entry(number, None, "x")).collect();
                let mut hashes: Vec<[u8; 32]> = (0..100).map(|number| [number; 32]).collect();
                if worker % 2 == 0 {
                    entries.reverse();
                    hashes.reverse();
                }
                ledger.suppress(&entries).await.unwrap() as i64 - ledger.unsuppress(&hashes, None).await.unwrap() as i64
            });
        }
        let left: i64 = tasks.join_all().await.into_iter().sum();
        assert_eq!(fresh.value("SELECT count(*) FROM suppressions").await, left.to_string());
    })
    .await;
}

#[tokio::test]
async fn what_a_ledger_is_for_is_pinned_once() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        assert_eq!(ledger.pinned_identity().await.unwrap(), None);
        let first = IdentityPin { environment: "test".to_owned(), stable: [1; 8] };
        let second = IdentityPin { environment: "other".to_owned(), stable: [2; 8] };
        assert_eq!(ledger.pin_identity(&first).await.unwrap(), first);
        assert_eq!(ledger.pin_identity(&second).await.unwrap(), first);
        assert_eq!(ledger.pinned_identity().await.unwrap(), Some(first));
    })
    .await;
}

#[tokio::test]
async fn a_batch_is_looked_up_by_index_on_a_list_that_nobody_has_analysed() {
    let fresh = Fresh::postgres().await;
    let ledger = fresh.open().await;
    fresh
        .execute(
            "INSERT INTO suppressions SELECT sha256(n::text::bytea), '', 'x', now() FROM generate_series(1, 20000) n",
        )
        .await
        .unwrap();
    ledger.suppressed(&vec![[7; 32]; 1_000], &kind("weekly_activity")).await.unwrap();
    let plan = fresh
        .query(
            "EXPLAIN SELECT s.address_hash FROM unnest(ARRAY[sha256('1'), sha256('2')]) AS t(address_hash) \
             CROSS JOIN LATERAL (SELECT l.address_hash FROM suppressions l WHERE l.address_hash = t.address_hash \
             AND l.digest_type IN ('', 'weekly_activity') LIMIT 1 OFFSET 0) AS s",
        )
        .await;
    let plan = format!("{plan:?}");
    assert!(plan.contains("suppressions_pkey") && !plan.contains("Seq Scan"), "{plan}");
}

#[tokio::test]
async fn every_column_says_what_it_is_and_no_hash_of_another_length_is_taken() {
    each_ledger(async |fresh| {
        let _ledger = fresh.open().await;
        let (short, now) = match fresh.backend {
            Backend::Sqlite => ("x'00'", "0"),
            Backend::Postgres => ("'\\x00'", "now()"),
        };
        let insert = format!("INSERT INTO suppressions VALUES ({short}, '', 'x', {now})");
        assert!(fresh.execute(&insert).await.is_err());
        if fresh.backend == Backend::Postgres {
            let uncommented = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'suppressions'::regclass \
                               AND attnum > 0 AND col_description(attrelid, attnum) IS NULL";
            assert_eq!(fresh.value(uncommented).await, "0");
        }
    })
    .await;
}

// --- Command and run ------------------------------------------------------------------------------------------

/// An installation in mode enforce with an export of four customers.
struct Place {
    directory: TempDir,
}

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{}{}", self.stdout, self.stderr))
    }

    fn outcome(&self, name: &str) -> u64 {
        self.json()["outcomes"][name].as_u64().unwrap()
    }
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        assert_eq!(place.run(&["init"]).code, 0);
        let path = place.file("counterfoil.toml");
        let text = fs::read_to_string(&path).unwrap().replace("mode   = \"observe\"", "mode   = \"enforce\"");
        fs::write(path, text).unwrap();
        let rows: String = ["a", "b", "c", "d"].map(row).concat();
        fs::write(place.file("export.jsonl"), rows).unwrap();
        place
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        self.feed(arguments, b"")
    }

    /// Runs the program with a text on its standard input; nothing that it says or keeps may hold an address.
    fn feed(&self, arguments: &[&str], input: &[u8]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(arguments).current_dir(self.directory.path());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COUNTERFOIL_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The program may end without reading it.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        let ended = Ended {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        let said = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
        assert!(!said.contains("canary"), "{arguments:?}: {said}");
        ended
    }

    fn weekly(&self) -> Ended {
        self.run(&["-vv", "--format", "json", "run", "--snapshot", "export.jsonl"])
    }

    /// Who was sent something, by the local part of the address.
    fn recipients(&self) -> Vec<String> {
        let Ok(folder) = fs::read_dir(self.file("outbox/new")) else { return Vec::new() };
        let to = |text: String| {
            let line = text.lines().find(|line| line.starts_with("To: ")).unwrap().to_owned();
            line.split('<').next_back().unwrap().trim_start_matches("To: ")[..1].to_owned()
        };
        let mut found: Vec<String> = folder.map(|file| to(fs::read_to_string(file.unwrap().path()).unwrap())).collect();
        found.sort();
        found
    }

    async fn execute(&self, sql: &'static str) {
        let url = format!("sqlite://{}", self.file("counterfoil.db").display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    fn ledger_holds_no_address(&self) {
        for file in ["counterfoil.db", "counterfoil.db-wal"].map(|name| self.file(name)) {
            let bytes = fs::read(&file).unwrap_or_default().to_ascii_lowercase();
            assert!(!bytes.windows(6).any(|window| window == b"canary"), "{}", file.display());
        }
    }
}

fn row(id: &str) -> String {
    format!(
        "{{\"customer_id\":\"{id}_canary\",\"email\":\"{id}.canary@example.test\",\"data\":{{\
         \"period_start\":\"2026-08-03\",\"period_end\":\"2026-08-09\",\"currency\":\"EUR\",\
         \"opening_balance\":\"1\",\"closing_balance\":\"1\",\"transactions\":[]}}}}\n"
    )
}

#[test]
fn a_suppressed_address_gets_nothing_in_any_spelling() {
    let place = Place::new();
    assert_eq!(place.run(&["snapshot", "seal", "export.jsonl"]).code, 0);
    let added = place.run(&["suppress", "add", " A.Canary@EXAMPLE.Test ", "b.canary@example.test"]);
    assert_eq!((added.code, added.stdout.as_str()), (0, "2 added, 0 already there, 0 bad\n"), "{}", added.stderr);
    let ended = place.weekly();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!((ended.outcome("sent"), ended.outcome("suppressed")), (2, 2));
    assert_eq!(place.recipients(), ["c", "d"]);
    let listed = place.run(&["--format", "json", "receipts", "list", "--state", "suppressed"]).json();
    for receipt in listed["receipts"].as_array().unwrap() {
        assert_eq!((&receipt["reason"], &receipt["attempts"]), (&"on_our_list".into(), &0.into()), "{receipt}");
    }
    place.ledger_holds_no_address();
}

#[test]
fn a_receipt_that_ended_as_suppressed_is_not_brought_back_by_removing_the_address() {
    let place = Place::new();
    place.run(&["suppress", "add", "a.canary@example.test"]);
    assert_eq!(place.weekly().outcome("suppressed"), 1);
    let removed = place.run(&["suppress", "remove", "A.canary@example.test"]);
    assert_eq!((removed.code, removed.stdout.as_str()), (0, "1 entry removed, 0 bad\n"));
    let again = place.weekly();
    assert_eq!((again.code, again.outcome("duplicate"), again.outcome("suppressed")), (0, 3, 1));
    assert_eq!(place.recipients(), ["b", "c", "d"]);
}

#[test]
fn an_entry_for_another_type_or_one_that_was_removed_keeps_nobody_from_anything() {
    let place = Place::new();
    let config = place.file("counterfoil.toml");
    let text = fs::read_to_string(&config).unwrap();
    let other = "[digest.other]\ncontent_version = \"v1\"\ndestination = \"retail\"\nfrom = \"x@example.test\"\n\
                 unsubscribe = \"https://example.test/u/{customer}/{token}\"\n";
    fs::write(config, format!("{text}\n{other}")).unwrap();
    let scoped = ["suppress", "add", "--type", "other", "a.canary@example.test", "b.canary@example.test"];
    assert_eq!(place.run(&scoped).code, 0);
    assert_eq!(place.run(&["suppress", "add", "--type", "weekly_activity", "b.canary@example.test"]).code, 0);
    assert_eq!(place.run(&["suppress", "add", "c.canary@example.test"]).code, 0);
    let removed = place.run(&["suppress", "remove", "c.canary@example.test", "--type", "other"]);
    assert!(removed.stdout.contains("1 of the addresses still get nothing"), "{}", removed.stdout);
    assert_eq!(place.run(&["suppress", "remove", "c.canary@example.test"]).code, 0);
    let arguments = ["--format", "json", "run", "--type", "weekly_activity", "--snapshot", "export.jsonl"];
    let ended = place.run(&arguments);
    assert_eq!((ended.code, ended.outcome("suppressed")), (0, 1), "{}", ended.stderr);
    assert_eq!(place.recipients(), ["a", "c", "d"]);
}

#[tokio::test]
async fn where_the_list_cannot_be_read_nothing_is_sent_and_the_next_run_sends() {
    let place = Place::new();
    assert_eq!(place.run(&["suppress", "add", "a.canary@example.test"]).code, 0);
    place.execute("ALTER TABLE suppressions RENAME TO elsewhere").await;
    let ended = place.weekly();
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("the suppression list cannot be read"), "{}", ended.stderr);
    assert!(place.recipients().is_empty());
    let listed = place.run(&["--format", "json", "receipts", "list"]).json();
    let receipts = listed["receipts"].as_array().unwrap();
    assert_eq!(receipts.len(), 4);
    for receipt in receipts {
        let facts = (&receipt["state"], &receipt["reason"], &receipt["attempts"]);
        assert_eq!(facts, (&"retryable".into(), &"given_back".into(), &0.into()), "{receipt}");
    }
    place.execute("ALTER TABLE elsewhere RENAME TO suppressions").await;
    let ended = place.weekly();
    assert_eq!((ended.code, ended.outcome("sent"), ended.outcome("suppressed")), (0, 3, 1), "{}", ended.stderr);
    assert_eq!(place.recipients(), ["b", "c", "d"]);
}

#[test]
fn a_file_is_imported_and_its_bad_lines_are_named_by_number() {
    let place = Place::new();
    let lines = "address,reason,digest_type\nA.canary@example.test,unsubscribed,\ncanary,x,\n\
                 b.canary@example.test,b.canary@example.test,\nb.canary@example.test,,weekly_canary\n\
                 c.canary@example.test,,weekly_activity\na.canary@example.test,again,\n";
    fs::write(place.file("list.csv"), lines).unwrap();
    let ended = place.run(&["suppress", "import", "list.csv", "--reason", "moved_over"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    insta::assert_snapshot!(ended.stdout, @r"
    2 added, 1 already there, 3 bad
      line 3: address has no @
      line 4: reason must be one word of lower-case letters, digits and underscores, such as unsubscribed
      line 5: digest_type is not configured
    ");
    let again = place.feed(&["--format", "json", "suppress", "add", "-"], lines.as_bytes()).json();
    assert_eq!((&again["added"], &again["already_there"], &again["bad"]), (&0.into(), &3.into(), &3.into()));
    let check = |address: &str| place.run(&["--format", "json", "suppress", "check", address]).json();
    assert_eq!(check("a.CANARY@example.test")["entries"][0]["reason"], "unsubscribed");
    assert_eq!(check("c.canary@example.test")["entries"][0]["reason"], "moved_over");
    assert_eq!(check("b.canary@example.test")["suppressed"], false);
    let fed = place.feed(&["suppress", "check", "-"], b"c.canary@example.test\n");
    assert!(fed.stdout.starts_with("on the list for weekly_activity: moved_over, since 20"), "{}", fed.stdout);
    let removed = place.feed(&["suppress", "remove", "-"], b"a.canary@example.test\n{\nc.canary@example.test");
    assert_eq!((removed.code, removed.stdout.lines().next()), (3, Some("2 entries removed, 1 bad")));
    place.ledger_holds_no_address();
}

#[test]
fn more_addresses_than_one_transaction_takes_are_all_taken() {
    let place = Place::new();
    let lines: String = (0..2_500).map(|number| format!("c{number}.canary@example.test\n")).collect();
    let ended = place.feed(&["--format", "json", "suppress", "import", "-"], lines.as_bytes());
    assert_eq!(ended.json()["added"], 2_500);
    let ended = place.feed(&["--format", "json", "suppress", "remove", "-"], lines.as_bytes());
    assert_eq!(ended.json()["removed"], 2_500);
}

#[test]
fn another_stable_secret_is_refused_before_a_hash_is_stored_or_compared() {
    let place = Place::new();
    assert_eq!(place.run(&["suppress", "add", "a.canary@example.test"]).code, 0);
    let keyring = place.file("keyring.toml");
    let text = fs::read_to_string(&keyring).unwrap();
    let (keys, _) = text.split_once("[stable]").unwrap();
    let other = format!("{keys}[stable]\nsecret = \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"\n");
    fs::write(&keyring, other).unwrap();
    for verb in ["add", "remove", "check"] {
        let ended = place.run(&["suppress", verb, "b.canary@example.test"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{verb}: {}", ended.stderr);
    }
    assert_eq!(place.weekly().code, 2);
    fs::write(&keyring, text).unwrap();
    assert!(place.run(&["suppress", "check", "b.canary@example.test"]).stdout.starts_with("not on the list"));
}

#[test]
fn no_address_is_repeated_by_a_refusal() {
    let place = Place::new();
    for (arguments, expected) in [
        (&["suppress", "add", "a.canary@example.test", "canary"][..], "address 2 has no @"),
        (&["suppress", "add", "a.canary@example.test,b.canary@example.test"], "address 1 must be exactly one"),
        (&["suppress", "a.canary@example.test"], "expected add, remove, import or check"),
        (&["suppress", "add", "a@example.test", "--reason", "canary@example.test"], "--reason must be one word"),
        (&["suppress", "add", "a@example.test", "--type", "canary@example.test"], "--type"),
        (&["suppress", "add", "a@example.test", "--type", "weekly_canary"], "configured: weekly_activity"),
        (&["suppress", "check", "a.canary@example.test", "b.canary@example.test"], "give one address"),
        (&["suppress", "import", "canary@example.test"], "cannot read the file"),
        (&["suppress", "add"], "<ADDRESS>"),
    ] {
        let ended = place.run(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    }
    let ended = place.feed(&["suppress", "import", "-"], b"address,canary@example.test\n");
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("standard input: line 1: the heading"), "{}", ended.stderr);
}
