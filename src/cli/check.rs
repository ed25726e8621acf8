//! `check`: is everything in place? Looks at each thing that a run relies on and sends nothing.

use std::fmt;
use std::path::Path;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::layout::count;
use super::{Exit, Failure, Session, open};
use crate::config::quantity::{print_duration, print_rate};
use crate::config::{Config, DestinationConfig, load_keyring};
use crate::identity::keyring::Keyring;
use crate::identity::{DigestType, IsoWeek, WeekSelector, hex_text};
use crate::ledger::{Ledger, LedgerError};
use crate::provider::{Build, kind};
use crate::snapshot::Store;

/// Check configuration, keyring, ledger, templates and destinations; send nothing
///
/// Ends with 0 where a run could begin, 2 where something must be changed first, 1 where the ledger is out of reach.
#[derive(Debug, Args)]
pub(super) struct CheckArguments {}

/// How one finding stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// In order.
    Ok,
    /// Works, but someone should look.
    Warn,
    /// A run would be refused or would fail.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    level: Level,
    subject: String,
    text: String,
}

impl Finding {
    fn new(level: Level, subject: impl Into<String>, text: impl fmt::Display) -> Self {
        Self { level, subject: subject.into(), text: text.to_string() }
    }

    /// In order.
    pub(super) fn ok(subject: impl Into<String>, text: impl fmt::Display) -> Self {
        Self::new(Level::Ok, subject, text)
    }

    /// Someone should look.
    pub(super) fn warn(subject: impl Into<String>, text: impl fmt::Display) -> Self {
        Self::new(Level::Warn, subject, text)
    }

    /// A run would be refused or would fail.
    pub(super) fn fail(subject: impl Into<String>, text: impl fmt::Display) -> Self {
        Self::new(Level::Fail, subject, text)
    }
}

#[derive(Debug, Serialize)]
struct Report {
    findings: Vec<Finding>,
}

impl Report {
    fn number(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
        for Finding { level, subject, text } in &self.findings {
            let word = match level {
                Level::Ok => "ok  ",
                Level::Warn => "warn",
                Level::Fail => "FAIL",
            };
            writeln!(f, "{word}  {subject:width$}  {text}")?;
        }
        match (self.number(Level::Fail), self.number(Level::Warn)) {
            (0, 0) => writeln!(f, "\neverything is in place"),
            (0, warnings) => writeln!(f, "\na run can begin; {warnings} to look at"),
            (failures, _) => writeln!(f, "\n{failures} to change before a run"),
        }
    }
}

/// Looks at everything and reports all of it.
pub(super) async fn check(session: &Session, _: &CheckArguments) -> Result<Exit, Failure> {
    let config = session.load()?;
    let mut findings = vec![configuration(&config)];
    let keyring = load_keyring(&config.keyring);
    match &keyring {
        Ok(keyring) => findings.push(keyring_finding(&config, keyring, session.now()?)),
        Err(error) => findings.push(Finding::fail("keyring", error)),
    }
    let reached = Box::pin(ledger_findings(&config, keyring.as_ref().ok(), session.now()?, &mut findings)).await;
    findings.extend(store(&config));
    findings.extend(open::check_templates(&config).await);
    for destination in config.destinations.values() {
        findings.push(Box::pin(reach(&config, destination)).await);
    }
    let report = Report { findings };
    session.output.result(&report)?;
    Ok(match (reached, report.number(Level::Fail)) {
        (false, _) => Exit::CouldNotRun,
        (true, 0) => Exit::Settled,
        (true, _) => Exit::Refused,
    })
}

fn configuration(config: &Config) -> Finding {
    let digests = config.digests.keys().map(DigestType::as_str).collect::<Vec<_>>().join(", ");
    let zone = config.time_zone.iana_name().unwrap_or("UTC");
    let mode = config.rollout.mode.as_str();
    Finding::ok(
        "configuration",
        format!("environment {}, mode {mode}, {digests}, weeks end in {zone}", config.environment),
    )
}

fn keyring_finding(config: &Config, keyring: &Keyring, now: Timestamp) -> Finding {
    let last = WeekSelector::Last.resolve(now, &config.time_zone);
    match last.map(|week| (week, keyring.for_week(week))) {
        Ok((week, Ok(key))) => {
            let check = hex_text(&key.check_value());
            Finding::ok("keyring", format!("key {} serves last week, {week}; check value {check}", key.id()))
        }
        Ok((_, Err(error))) => Finding::fail("keyring", error),
        Err(error) => Finding::fail("keyring", format!("last week {error}")),
    }
}

/// Answers whether the ledger is within reach. One that is not there yet is, where a run would make it.
async fn ledger_findings(
    config: &Config,
    keyring: Option<&Keyring>,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) -> bool {
    if let Some(file) = config.ledger.file().filter(|file| !file.exists()) {
        if let Err(problem) = can_make(file) {
            findings.push(Finding::fail("ledger", format!("{} cannot be made: {problem}", file.display())));
            return false;
        }
        findings.push(schema_to_come(config, format!("{} will be made at first use", file.display())));
        return true;
    }
    match ask(config, keyring, now).await {
        Ok(found) => {
            findings.extend(found);
            true
        }
        Err(failure) => {
            let place = config.ledger.place();
            findings.push(Finding::fail("ledger", format!("{place}: {}", failure.in_one_line())));
            failure.exit != Exit::CouldNotRun
        }
    }
}

async fn ask(config: &Config, keyring: Option<&Keyring>, now: Timestamp) -> Result<Vec<Finding>, Failure> {
    let ledger = open::ledger(config).await?;
    match ledger.check_schema().await {
        Err(LedgerError::Schema { found, needed, .. }) if found < needed => {
            let text = format!("its schema is at version {found} and will be brought to {needed} by the next run");
            return Ok(vec![schema_to_come(config, text)]);
        }
        checked => checked?,
    }
    let mut findings = vec![clock(ledger.now().await?, now)];
    if let Some(keyring) = keyring {
        findings.extend(pins(config, ledger.as_ref(), keyring, now).await?);
    }
    Ok(findings)
}

/// What a run mends by itself, unless it may not.
fn schema_to_come(config: &Config, text: String) -> Finding {
    if config.ledger.auto_migrate {
        return Finding::ok("ledger", text);
    }
    Finding::fail("ledger", "its schema is not up to date and auto_migrate is false; run `counterfoil migrate`")
}

/// Leases are counted on the database's clock, so a difference is no danger; it confuses people.
fn clock(theirs: Timestamp, ours: Timestamp) -> Finding {
    let difference = theirs.duration_since(ours).abs();
    if difference > SignedDuration::from_secs(30) {
        let seconds = difference.as_secs();
        return Finding::warn(
            "ledger",
            format!("its clock and this host's differ by {seconds} s; the ledger's decides"),
        );
    }
    Finding::ok("ledger", "reached, schema up to date")
}

async fn pins(
    config: &Config,
    ledger: &dyn Ledger,
    keyring: &Keyring,
    now: Timestamp,
) -> Result<Vec<Finding>, Failure> {
    let pinned = ledger.key_pins().await?;
    let disagrees = |(week, pin): &&(IsoWeek, crate::ledger::KeyPin)| {
        keyring.for_week(*week).map_or(true, |key| key.id() != pin.key_id || key.check_value() != pin.check)
    };
    let mut findings = Vec::new();
    findings.push(match pinned.iter().find(disagrees) {
        Some((week, pin)) => {
            let text = format!("the keyring does not hold key {} as it was pinned for week {week}", pin.key_id);
            Finding::fail("pins", format!("{text}; bring that key back"))
        }
        None if pinned.len() == 1 => Finding::ok("pins", "the keyring agrees with the one week that is pinned"),
        None => Finding::ok("pins", format!("the keyring agrees in {} weeks", count(as_u64(pinned.len())))),
    });
    let week = WeekSelector::Last.resolve(now, &config.time_zone).map_err(Failure::refused)?;
    if let Some((digest_type, digest)) = config.digests.first_key_value() {
        let standing = ledger.pins(week, digest_type, &digest.content_version).await?;
        match standing.environment {
            Some(pinned) if pinned != config.environment => {
                let ours = &config.environment;
                findings.push(Finding::fail("pins", format!(
                    "the ledger is of environment {pinned}, this is {ours}: a copy of a ledger must not send; correct \
                     ledger.url or environment"
                )));
            }
            _ => {}
        }
        if standing.stable.is_some_and(|pinned| pinned != keyring.stable().check_value()) {
            let text =
                "[stable] is another secret than the pinned one: unsubscribe links would all change; bring it back";
            findings.push(Finding::fail("pins", text));
        }
    }
    Ok(findings)
}

fn as_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Whether a file or directory can be made: its directory must be there and take a file, which leaves no trace.
fn can_make(path: &Path) -> Result<(), String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match tempfile::tempfile_in(parent) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("there is no directory {}", parent.display()))
        }
        Err(error) => Err(format!("{} cannot be written to ({})", parent.display(), error.kind())),
    }
}

/// The store is made at first use; what stands there must be a directory of ours alone.
fn store(config: &Config) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(directory) = config.store.directory() else { return Some(bucket(config)) };
    let path = directory.display();
    match std::fs::metadata(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let above = directory.ancestors().skip(1).find(|directory| directory.exists());
            match above.map(|directory| can_make(&directory.join("snapshots"))) {
                Some(Err(problem)) => Some(Finding::fail("store", format!("{path} cannot be made: {problem}"))),
                _ => Some(Finding::ok("store", format!("{path} will be made at first use"))),
            }
        }
        Err(error) => Some(Finding::fail("store", format!("{path}: {error}"))),
        Ok(found) if !found.is_dir() => Some(Finding::fail("store", format!("{path} is not a directory"))),
        Ok(_) if can_make(&directory.join("snapshot")).is_err() => {
            Some(Finding::fail("store", format!("{path} cannot be written to; make it this user's own")))
        }
        Ok(found) if found.permissions().mode() & 0o077 != 0 => Some(Finding::warn(
            "store",
            format!("others may read {path}, which holds customer data; type: chmod 700 {path}"),
        )),
        Ok(_) => Some(Finding::ok("store", format!("{path}"))),
    }
}

/// A bucket is asked for its list, which needs credentials, bucket and network.
fn bucket(config: &Config) -> Finding {
    match Store::at(&config.store).and_then(|store| store.list()) {
        Ok(sealed) => Finding::ok("store", format!("{}, {} sealed", config.store, sealed.len())),
        Err(error) => Finding::fail("store", error),
    }
}

async fn reach(config: &Config, destination: &DestinationConfig) -> Finding {
    let subject = format!("destination {}", destination.name);
    let Some(kind) = kind(&destination.provider) else {
        return Finding::fail(subject, format!("there is no provider {}", destination.provider));
    };
    let build = Build {
        destination: &destination.name,
        settings: destination.settings.clone(),
        send_timeout: Some(destination.send_timeout),
        directory: &config.directory,
        environment: &config.environment,
    };
    match (kind.build)(build) {
        Err(error) => Finding::fail(subject, config.sources.locate(error)),
        Ok(provider) => match provider.check().await {
            Ok(found) => Finding::ok(subject, format!("{found}; {}", limits(destination))),
            Err(problem) => Finding::fail(subject, problem),
        },
    }
}

fn limits(destination: &DestinationConfig) -> String {
    format!(
        "rate {}, {} at a time, lease {}",
        print_rate(destination.rate),
        destination.concurrency,
        print_duration(destination.lease)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_one_line_each_and_end_with_a_verdict() {
        let mut report = Report {
            findings: vec![
                Finding::ok("configuration", "environment development"),
                Finding::warn("store", "others may read it"),
            ],
        };
        insta::assert_snapshot!(report.to_string(), @r"
        ok    configuration  environment development
        warn  store          others may read it

        a run can begin; 1 to look at
        ");
        report.findings.push(Finding::fail("keyring", "is missing"));
        assert!(report.to_string().ends_with("FAIL  keyring        is missing\n\n1 to change before a run\n"));
        let json = serde_json::to_string(&report).unwrap();
        assert!(json.contains(r#"{"level":"fail","subject":"keyring","text":"is missing"}"#), "{json}");
    }

    #[test]
    fn clocks_that_differ_are_told() {
        let now: Timestamp = "2026-08-10T06:00:00Z".parse().unwrap();
        assert_eq!(clock(now, now).level, Level::Ok);
        assert_eq!(clock(now - SignedDuration::from_mins(2), now).level, Level::Warn);
    }
}
