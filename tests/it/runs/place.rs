//! An installation of its own for a test of whole runs: configuration, keyring, templates, exports, and the program
//! as a child process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use counterfoil::rehearsal::Step;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::databases::{Backend, Fresh};

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A maildir whose leases are short, so that what a killed process leaves is soon decided.
pub(super) const MAILDIR: &str = "provider = \"maildir\"\npath = \"outbox\"\nsend_timeout = \"1s\"\nlease = \"3s\"\n\
                                  backoff = { base = \"100ms\", cap = \"1s\" }\n";

/// An SMTP server of the test.
pub(super) fn smtp(port: u16) -> String {
    format!(
        "provider = \"smtp\"\nhost = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\nsend_timeout = \"10s\"\n\
         lease = \"30s\"\nconcurrency = 4\nbackoff = {{ base = \"100ms\", cap = \"1s\" }}\n"
    )
}

/// A gateway of the test, with these settings besides.
pub(super) fn http(port: u16, more: &str) -> String {
    format!(
        "provider = \"http\"\nurl = \"http://127.0.0.1:{port}/send\"\nsend_timeout = \"10s\"\nlease = \"30s\"\n\
         backoff = {{ base = \"100ms\", cap = \"1s\" }}\n{more}\n"
    )
}

/// An installation.
pub(super) struct Place {
    directory: TempDir,
    pub(super) ledger: Fresh,
}

/// How a run ended and what it said.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) summary: Value,
    pub(super) stderr: String,
}

impl Ended {
    /// One outcome of the summary.
    pub(super) fn count(&self, outcome: &str) -> u64 {
        self.summary["outcomes"][outcome].as_u64().unwrap_or_else(|| panic!("no {outcome} in {self:?}"))
    }

    /// Asserts exit code and every outcome: those named have the number, all others are zero, and all add up.
    #[track_caller]
    pub(super) fn assert(&self, code: i32, expected: &[(&str, u64)]) {
        let found: BTreeMap<&str, u64> = self.summary["outcomes"]
            .as_object()
            .unwrap_or_else(|| panic!("no summary: {self:?}"))
            .iter()
            .map(|(name, count)| (name.as_str(), count.as_u64().unwrap()))
            .filter(|(_, count)| *count > 0)
            .collect();
        let expected: BTreeMap<&str, u64> = expected.iter().copied().filter(|(_, count)| *count > 0).collect();
        assert_eq!((self.code, &found), (code, &expected), "{self:?}");
        assert_eq!(self.summary["snapshot"]["rows"].as_u64(), Some(found.values().sum()), "{self:?}");
    }

    /// Asserts a refusal before anything was claimed, and what it says.
    #[track_caller]
    pub(super) fn assert_refused(&self, words: &[&str]) {
        assert_eq!(self.code, 2, "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no `{word}` in {}", self.stderr);
        }
    }
}

impl Place {
    /// An installation on a fresh ledger with this destination.
    pub(super) async fn new(backend: Backend, destination: &str) -> Self {
        let ledger = match backend {
            Backend::Sqlite => Fresh::sqlite(),
            Backend::Postgres => Fresh::postgres().await,
        };
        let place = Self { directory: tempfile::tempdir().unwrap(), ledger };
        let made = place.command(&["init"]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        place.configure(destination, "");
        place
    }

    /// Writes the configuration anew; `digest` is added to the digest's section.
    pub(super) fn configure(&self, destination: &str, digest: &str) {
        self.configure_all(&format!("[destination.retail]\n{destination}"), digest);
    }

    /// The same with sections of destinations.
    pub(super) fn configure_all(&self, destinations: &str, digest: &str) {
        let url = self.ledger.url.expose_secret();
        let version = if digest.contains("content_version") { "" } else { "content_version = \"v1\"\n" };
        let send_within = if digest.contains("send_within") { "" } else { "send_within = \"30 days\"\n" };
        let text = format!(
            "environment = \"test\"\n[ledger]\nurl = \"{url}\"\n[digest.weekly_activity]\n{version}{send_within}\
             destination = \"retail\"\nfrom = \"Example Bank <digest@example.test>\"\n\
             unsubscribe = \"https://example.test/u/{{customer}}/{{token}}\"\n{digest}\n{destinations}"
        );
        fs::write(self.path("counterfoil.toml"), text).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces a text in a file, which must stand in it.
    pub(super) fn edit(&self, name: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.path(name)).unwrap();
        assert!(text.contains(old), "{name} has no {old}");
        fs::write(self.path(name), text.replace(old, new)).unwrap();
    }

    /// Writes an export of customers with these numbers, each with a balance that `amount` gives.
    pub(super) fn export(&self, name: &str, customers: std::ops::Range<u32>, amount: impl Fn(u32) -> u32) {
        let rows = customers.map(|number| row(number, amount(number), None).to_string() + "\n");
        fs::write(self.path(name), rows.collect::<String>()).unwrap();
    }

    /// Writes an export of these rows.
    pub(super) fn export_rows(&self, name: &str, rows: impl IntoIterator<Item = Value>) {
        let rows = rows.into_iter().map(|row| row.to_string() + "\n");
        fs::write(self.path(name), rows.collect::<String>()).unwrap();
    }

    /// The program in the installation's directory, with no variables of ours.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COUNTERFOIL_")) {
            command.env_remove(name);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts an enforced run of last week.
    pub(super) fn start(&self, arguments: &[&str]) -> Child {
        self.start_at(0, arguments)
    }

    /// Starts an enforced run that will be killed and whose words nobody reads.
    pub(super) fn start_unheard(&self, arguments: &[&str]) -> Child {
        self.enforced(0, arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Starts an enforced run that dies when it comes to a step for the `visit`th time.
    pub(super) fn start_dying(&self, seconds: i64, step: Step, visit: u32, arguments: &[&str]) -> Child {
        let mut command = self.enforced(seconds, arguments);
        command.env("COUNTERFOIL_TEST_DIE_AT", format!("{}:{visit}", step.as_str()));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Starts an enforced run whose clocks are ahead by `seconds`.
    pub(super) fn start_at(&self, seconds: i64, arguments: &[&str]) -> Child {
        self.enforced(seconds, arguments).spawn().unwrap()
    }

    /// Starts a process that joins open runs.
    pub(super) fn start_work(&self, arguments: &[&str]) -> Child {
        self.enforcing("work", 0, arguments).spawn().unwrap()
    }

    fn enforced(&self, seconds: i64, arguments: &[&str]) -> Command {
        self.enforcing("run", seconds, arguments)
    }

    fn enforcing(&self, verb: &str, seconds: i64, arguments: &[&str]) -> Command {
        let all: Vec<&str> = ["--format", "json", verb].iter().chain(arguments).copied().collect();
        let mut command = self.command(&all);
        command.env("COUNTERFOIL_TEST_CLOCK_OFFSET", seconds.to_string());
        if !arguments.contains(&"--mode") {
            command.args(["--mode", "enforce"]);
        }
        command
    }

    /// Runs to the end.
    pub(super) async fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.start(arguments)).await
    }

    /// Runs to the end with clocks that are ahead.
    pub(super) async fn run_at(&self, seconds: i64, arguments: &[&str]) -> Ended {
        ended(self.start_at(seconds, arguments)).await
    }

    /// The receipt keys that the names of the delivered files carry, in order; one for each file.
    pub(super) fn delivered(&self) -> Vec<String> {
        delivered_in(&self.path("outbox"))
    }

    /// A copy of the first version's templates under another version.
    pub(super) fn add_version(&self, version: &str) {
        let templates = self.path("templates/weekly_activity");
        copy(&templates.join("v1"), &templates.join(version));
    }

    /// To whom the delivered files are addressed, in order; one for each file.
    pub(super) fn recipients(&self) -> Vec<String> {
        let files = fs::read_dir(self.path("outbox").join("new")).unwrap();
        let mut found: Vec<String> = files
            .map(|file| {
                let text = String::from_utf8_lossy(&fs::read(file.unwrap().path()).unwrap()).into_owned();
                text.lines().find_map(|line| line.strip_prefix("To: ").map(str::to_owned)).unwrap()
            })
            .collect();
        found.sort();
        found
    }

    /// Receipts by version, state and reason.
    pub(super) async fn receipts_by_version(&self) -> Vec<String> {
        let rows = self
            .ledger
            .query(
                "SELECT content_version || ' ' || state || coalesce(' ' || reason, '') || ' ' || \
                 CAST(count(*) AS text) FROM receipt_overview GROUP BY content_version, state, reason ORDER BY 1",
            )
            .await;
        rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
    }

    /// Receipts by state and reason.
    pub(super) async fn receipts(&self) -> Vec<String> {
        let rows = self
            .ledger
            .query(
                "SELECT state || coalesce(' ' || reason, '') || ' ' || CAST(count(*) AS text) FROM receipts \
                 GROUP BY state, reason ORDER BY 1",
            )
            .await;
        rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Asks a process to stop.
pub(super) fn terminate(child: &Child) {
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The keys of the files in a maildir.
pub(super) fn delivered_in(maildir: &Path) -> Vec<String> {
    let Ok(files) = fs::read_dir(maildir.join("new")) else { return Vec::new() };
    let name = |file: std::io::Result<fs::DirEntry>| file.unwrap().file_name().into_string().unwrap();
    let mut keys: Vec<String> = files.map(|file| name(file).split('.').nth(1).unwrap().to_owned()).collect();
    keys.sort();
    keys
}

/// Asserts that this many different customers have exactly one file.
#[track_caller]
pub(super) fn assert_one_each(keys: &[String], customers: usize) {
    let different: std::collections::BTreeSet<&String> = keys.iter().collect();
    assert_eq!((keys.len(), different.len()), (customers, customers));
}

/// A row of an export.
pub(super) fn row(number: u32, amount: u32, destination: Option<&str>) -> Value {
    let mut row = json!({
        "customer_id": format!("customer_{number}"),
        "email": format!("c{number}@example.test"),
        "data": {
            "period_start": "2026-11-23", "period_end": "2026-11-29", "currency": "EUR",
            "opening_balance": format!("{amount}.00"), "closing_balance": format!("{amount}.00"),
            "transactions": [],
        },
    });
    if let Some(destination) = destination {
        row["destination"] = json!(destination);
    }
    row
}

/// Waits for a child without keeping the test's own servers from answering; one that hangs is killed and fails.
pub(super) async fn ended(mut child: Child) -> Ended {
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |source: &mut dyn std::io::Read| {
        let mut text = String::new();
        source.read_to_string(&mut text).unwrap();
        text
    };
    let out = tokio::task::spawn_blocking(move || read(&mut stdout));
    let err = tokio::task::spawn_blocking(move || read(&mut stderr));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let (stdout, stderr) = (out.await.unwrap(), err.await.unwrap());
    let code = status.unwrap_or_else(|| panic!("hangs: {stderr}")).code().unwrap_or(-1);
    Ended { code, summary: serde_json::from_str(&stdout).unwrap_or(Value::Null), stderr }
}

/// Waits until something is so.
pub(super) async fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
