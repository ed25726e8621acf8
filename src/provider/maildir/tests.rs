//! What a Maildir promises: one file a key, whatever is repeated or killed, and no acceptance without it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::digest::Message;
use crate::ledger::Lease;
use crate::provider::fixtures;

struct Outbox {
    home: tempfile::TempDir,
    provider: Box<dyn Provider>,
}

impl Outbox {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let provider = built(home.path(), "path = 'mail/outbox'").unwrap();
        Self { home, provider }
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.home.path().join("mail/outbox").join(name)
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.directory(directory))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    async fn send(&self, message: &Message) -> Outcome {
        self.send_under(message, &fixtures::long_lease()).await
    }

    async fn send_under(&self, message: &Message, lease: &Lease) -> Outcome {
        self.provider.send(Outgoing { key: &message.key, message, lease }).await
    }
}

fn built(directory: &Path, settings: &str) -> Result<Box<dyn Provider>, ConfigError> {
    build(Build {
        destination: "retail",
        settings: fixtures::settings(settings),
        send_timeout: None,
        directory,
        environment: "production",
    })
}

fn name_of(message: &Message) -> String {
    format!("0.{}.counterfoil", message.key)
}

#[tokio::test]
async fn delivers_one_private_file_named_by_the_key() {
    let outbox = Outbox::new();
    let message = fixtures::message(1);
    assert_eq!(outbox.send(&message).await, Outcome::Accepted { reference: name_of(&message) });
    assert_eq!(outbox.names("new"), [name_of(&message)]);
    assert!(outbox.names("tmp").is_empty());

    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(outbox.directory("new")), 0o700);
    assert_eq!(mode(outbox.directory("cur")), 0o700);
    assert_eq!(mode(outbox.directory("new").join(name_of(&message))), 0o600);
    let file = fs::read_to_string(outbox.directory("new").join(name_of(&message))).unwrap();
    assert_eq!(file, String::from_utf8(message.to_mime()).unwrap().replace("\r\n", "\n"));
}

#[tokio::test]
async fn a_repeated_send_finds_what_stands() {
    let outbox = Outbox::new();
    let message = fixtures::message(1);
    let first = outbox.send(&message).await;
    assert_eq!(outbox.send(&message).await, first);
    assert_eq!(outbox.names("new").len(), 1);
}

#[tokio::test]
async fn a_message_that_was_read_is_not_delivered_again() {
    let outbox = Outbox::new();
    let message = fixtures::message(1);
    let first = outbox.send(&message).await;
    for flags in [":2,", ":2,S", ":2,FRS"] {
        let source = if outbox.names("new").is_empty() {
            outbox.directory("cur").join(outbox.names("cur").remove(0))
        } else {
            outbox.directory("new").join(name_of(&message))
        };
        fs::rename(source, outbox.directory("cur").join(format!("{}{flags}", name_of(&message)))).unwrap();
        assert_eq!(outbox.send(&message).await, first);
        assert!(outbox.names("new").is_empty());
    }
    outbox.send(&fixtures::message(2)).await;
    assert_eq!(outbox.names("new").len(), 1);
}

#[tokio::test]
async fn a_maildir_whose_making_was_cut_off_is_completed() {
    for missing in ["new", "cur", "tmp"] {
        let outbox = Outbox::new();
        let message = fixtures::message(1);
        outbox.provider.check().await.unwrap();
        outbox.send(&fixtures::message(2)).await;
        fs::remove_dir_all(outbox.directory(missing)).unwrap();
        assert!(matches!(outbox.send(&message).await, Outcome::Accepted { .. }), "without {missing}");
        assert!(outbox.names("new").contains(&name_of(&message)), "without {missing}");
    }
}

#[tokio::test]
async fn a_file_that_a_killed_attempt_left_in_tmp_changes_nothing() {
    let outbox = Outbox::new();
    let message = fixtures::message(1);
    outbox.provider.check().await.unwrap();
    fs::write(outbox.directory("tmp").join(format!("{}.aB3xYz", name_of(&message))), "half a mess").unwrap();
    outbox.send(&message).await;
    assert_eq!(outbox.names("new"), [name_of(&message)]);
    let file = fs::read(outbox.directory("new").join(name_of(&message))).unwrap();
    assert!(file.ends_with(b"--\n"), "the whole message stands there");
}

#[tokio::test]
async fn an_attempt_killed_after_the_file_got_its_name_is_found() {
    let outbox = Outbox::new();
    let message = fixtures::message(1);
    outbox.provider.check().await.unwrap();
    fs::write(outbox.directory("new").join(name_of(&message)), "whole").unwrap();
    assert_eq!(outbox.send(&message).await, Outcome::Accepted { reference: name_of(&message) });
    assert_eq!(fs::read(outbox.directory("new").join(name_of(&message))).unwrap(), b"whole");
}

#[tokio::test]
async fn the_lease_is_asked_last_and_its_refusal_leaves_nothing() {
    let outbox = Outbox::new();
    let message = fixtures::message(1);
    let short = fixtures::lease_of(Duration::from_secs(10));
    assert_eq!(outbox.send_under(&message, &short).await, Outcome::NotStarted);

    let folder = Folder::new(outbox.home.path().join("mail/outbox"));
    assert_eq!(folder.deliver(&message.key, b"x", || false).unwrap(), Delivery::NotStarted);
    assert!(outbox.names("new").is_empty());
    assert!(outbox.names("tmp").is_empty());
}

#[tokio::test]
async fn a_path_that_is_a_file_is_a_mistake_in_the_settings() {
    let outbox = Outbox::new();
    fs::write(outbox.home.path().join("mail"), "a file").unwrap();
    let outcome = outbox.send(&fixtures::message(1)).await;
    let Outcome::Misconfigured { problem } = outcome else { panic!("{outcome:?}") };
    assert!(problem.starts_with("setting `destination.retail.path`: cannot write to "), "{problem}");
    assert!(outbox.provider.check().await.is_err());
}

#[tokio::test]
async fn a_full_disk_is_certainly_not_accepted() {
    let maildir = Maildir {
        setting: "destination.retail.path".to_owned(),
        folder: Arc::new(Folder::new(PathBuf::from("/nowhere"))),
        send_timeout: SEND_TIMEOUT,
    };
    let outcome = |step, kind: ErrorKind| maildir.outcome(&Trouble { step, error: Error::from(kind) });
    let full = Outcome::Unavailable { code: "disk_full".to_owned() };
    assert_eq!(outcome(Step::BeforeName, ErrorKind::StorageFull), full);
    let doubt = Outcome::Ambiguous { code: "directory_sync".to_owned() };
    assert_eq!(outcome(Step::DirectorySync, ErrorKind::StorageFull), doubt);
    let denied = outcome(Step::BeforeName, ErrorKind::PermissionDenied);
    assert!(matches!(denied, Outcome::Misconfigured { .. }));
}

#[test]
fn settings_are_checked() {
    let home = tempfile::tempdir().unwrap();
    let error = |text: &str| built(home.path(), text).err().unwrap().to_string();
    assert_eq!(error(""), "setting `destination.retail.path`: is missing");
    assert!(error("path = ''").contains("is empty"));
    assert!(error("path = 'a'\npaht = 'b'").contains("did you mean `path`?"));
    let account = built(home.path(), "path = 'outbox'").unwrap().account();
    assert_eq!(account, format!("maildir {}", home.path().join("outbox").display()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_all_stand() {
    let outbox = Arc::new(Outbox::new());
    let mut sends = tokio::task::JoinSet::new();
    for byte in 0..64 {
        let outbox = Arc::clone(&outbox);
        sends.spawn(async move { outbox.send(&fixtures::message(byte)).await });
    }
    while let Some(outcome) = sends.join_next().await {
        assert!(matches!(outcome.unwrap(), Outcome::Accepted { .. }));
    }
    assert_eq!(outbox.names("new").len(), 64);
}
