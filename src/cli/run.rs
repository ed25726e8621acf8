//! `run`: its arguments and what they ask for.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use jiff::SignedDuration;

use super::failure::{Exit, Failure};
use super::values::{content_version, digest_type, duration, share, wait, week};
use super::{Session, open};
use crate::identity::{ContentVersion, DigestType, WeekSelector};
use crate::ledger::Mode;

/// What `run` is asked to do. Nothing in here has been looked up yet; what is `None` comes from the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRequest {
    /// What to send; `None` only finishes earlier open runs.
    pub snapshot: Option<SnapshotSource>,
    /// The week that the digests are about.
    pub week: WeekSelector,
    /// `None` takes the only configured type.
    pub digest_type: Option<DigestType>,
    /// `None` takes the type's configured version.
    pub content_version: Option<ContentVersion>,
    /// `None` takes `rollout.mode`.
    pub mode: Option<Mode>,
    /// Share of the customers, 0 to 1; `None` takes `rollout.cohort`.
    pub cohort: Option<f64>,
    /// What bad rows do.
    pub on_bad_row: OnBadRow,
    /// Where bad rows that are set aside are written.
    pub rejects: Option<PathBuf>,
    /// The input must have this many rows.
    pub expect_rows: Option<u64>,
    /// The input must have this SHA-256.
    pub expect_sha256: Option<Sha256Digest>,
    /// The row count may differ from the last run's.
    pub accept_row_count: bool,
    /// The snapshot may have served another week.
    pub reuse_snapshot: bool,
    /// A new deadline, counted from now, for a run that starts too late.
    pub send_within: Option<SignedDuration>,
    /// How long to wait for what is due later; `None` takes `run.wait`.
    pub wait: WaitChoice,
    /// Send although another content version of this week and type was sent.
    pub correction: bool,
}

/// How long a run waits for what is due later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitChoice {
    /// As the configuration says.
    #[default]
    Configured,
    /// The longest lease plus settle time, at least 15 minutes.
    Auto,
    /// This long; zero is not at all.
    AtMost(SignedDuration),
}

/// Where the rows come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotSource {
    /// An export that is sealed first.
    File(PathBuf),
    /// A sealed snapshot: 64 lower-case hex digits, or at least the first 12 of them.
    Id(String),
}

impl FromStr for SnapshotSource {
    type Err = String;

    /// 12 to 64 lower-case hex digits are an id; a file of such a name is written `./NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match text.len() {
            0 => Err("is empty".to_owned()),
            12..=64 if is_hex => Ok(Self::Id(text.to_owned())),
            _ => Ok(Self::File(PathBuf::from(text))),
        }
    }
}

/// The SHA-256 of an input, as `sha256sum` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sha256Digest(pub [u8; 32]);

impl FromStr for Sha256Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = crate::identity::hex_bytes(text);
        bytes.map(Self).ok_or_else(|| "expected 64 hex digits, as `sha256sum FILE` prints them".to_owned())
    }
}

/// What bad rows do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OnBadRow {
    /// Seal nothing and name the rows
    #[default]
    Refuse,
    /// Seal the others and write line and reason of these to the rejects file
    SetAside,
}

/// The modes that the command line offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModeArgument(pub(super) Mode);

impl ValueEnum for ModeArgument {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(Mode::Observe), Self(Mode::Enforce)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            Mode::Observe => "Render every row and look up its receipt; claim and send nothing",
            Mode::Enforce => "Claim, send what is granted, record",
            Mode::Advisory => return None,
        };
        Some(PossibleValue::new(self.0.as_str()).help(help))
    }
}

/// Send the digests of a week, each customer's once
///
/// Seals the export if that has not been done, finishes earlier open runs, then claims, sends and records until
/// everything is settled or can only wait. The summary is of the whole run, whoever worked on it.
#[derive(Debug, Clone, Args)]
pub struct RunArguments {
    /// The export to send (JSON Lines, plain, gzip or zstd), or the id of a sealed snapshot
    ///
    /// Without it, earlier open runs are finished from their own snapshots and nothing new is begun: the form for
    /// retries.
    #[arg(long, value_name = "FILE|ID", help_heading = "Input")]
    pub(super) snapshot: Option<SnapshotSource>,

    /// What bad rows do
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "snapshot", help_heading = "Input")]
    pub(super) on_bad_row: OnBadRow,

    /// Where bad rows that are set aside are listed, by line and reason [default: in the store]
    #[arg(long, value_name = "FILE", requires = "snapshot", help_heading = "Input")]
    pub(super) rejects: Option<PathBuf>,

    /// Refuse an input with another number of rows
    #[arg(long, value_name = "N", requires = "snapshot", help_heading = "Input")]
    pub(super) expect_rows: Option<u64>,

    /// Refuse an input with another SHA-256
    #[arg(long, value_name = "HEX", requires = "snapshot", help_heading = "Input")]
    pub(super) expect_sha256: Option<Sha256Digest>,

    /// The week that the digests are about: last, current, or one such as 2026-W32
    ///
    /// `last` is the ISO week that ended most recently in the configured time zone; its dates are printed.
    #[arg(long, value_name = "WEEK", default_value = "last", value_parser = week, help_heading = "What")]
    pub(super) week: WeekSelector,

    /// The digest's type [default: the only configured one]
    #[arg(long = "type", value_name = "TYPE", value_parser = digest_type, help_heading = "What")]
    pub(super) digest_type: Option<DigestType>,

    /// The content version [default: the configured one]
    #[arg(long, value_name = "VERSION", value_parser = content_version, help_heading = "What")]
    pub(super) content_version: Option<ContentVersion>,

    /// How the ledger is used [default: rollout.mode]
    #[arg(long, value_name = "MODE", value_enum, help_heading = "How")]
    pub(super) mode: Option<ModeArgument>,

    /// Share of the customers, such as 5%; the others are observed [default: rollout.cohort]
    #[arg(long, value_name = "PERCENT", value_parser = share, help_heading = "How")]
    pub(super) cohort: Option<f64>,

    /// How long to wait for what is due later, such as 30m; 0s does not wait [default: run.wait]
    #[arg(long, value_name = "TIME|auto", value_parser = wait, help_heading = "How")]
    pub(super) wait: Option<WaitChoice>,

    /// The export really has that many more or fewer rows than last week's
    #[arg(long, requires = "snapshot", help_heading = "Guards")]
    pub(super) accept_row_count: bool,

    /// Use a snapshot that an enforced run used for another week
    #[arg(long, requires = "snapshot", help_heading = "Guards")]
    pub(super) reuse_snapshot: bool,

    /// Begin a run after its deadline and send for this long, such as 12h
    #[arg(long, value_name = "TIME", requires = "snapshot", value_parser = duration, help_heading = "Guards")]
    pub(super) send_within: Option<SignedDuration>,

    /// Send to everyone although another content version of this week was sent
    #[arg(long, requires = "snapshot", help_heading = "Guards")]
    pub(super) correction: bool,
}

impl RunRequest {
    /// Sends a snapshot for a week; everything else as the configuration says.
    pub fn new(snapshot: SnapshotSource, week: WeekSelector) -> Self {
        Self {
            snapshot: Some(snapshot),
            week,
            digest_type: None,
            content_version: None,
            mode: None,
            cohort: None,
            on_bad_row: OnBadRow::default(),
            rejects: None,
            expect_rows: None,
            expect_sha256: None,
            accept_row_count: false,
            reuse_snapshot: false,
            send_within: None,
            wait: WaitChoice::default(),
            correction: false,
        }
    }
}

/// Runs and prints the summary.
pub(super) async fn run(session: &Session, arguments: RunArguments) -> Result<Exit, Failure> {
    let request = arguments.into_request();
    let config = session.load()?;
    let summary = Box::pin(open::run(&config, &request)).await?;
    session.output.result(&summary)?;
    Ok(summary.exit())
}

impl RunArguments {
    /// The request, typed.
    pub fn into_request(self) -> RunRequest {
        RunRequest {
            snapshot: self.snapshot,
            week: self.week,
            digest_type: self.digest_type,
            content_version: self.content_version,
            mode: self.mode.map(|mode| mode.0),
            cohort: self.cohort,
            on_bad_row: self.on_bad_row,
            rejects: self.rejects,
            expect_rows: self.expect_rows,
            expect_sha256: self.expect_sha256,
            accept_row_count: self.accept_row_count,
            reuse_snapshot: self.reuse_snapshot,
            send_within: self.send_within,
            wait: self.wait.unwrap_or_default(),
            correction: self.correction,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_told_from_a_file() {
        let id = "5a".repeat(32);
        assert_eq!(id.parse(), Ok(SnapshotSource::Id(id.clone())));
        assert_eq!("5a5a5a5a5a5a".parse(), Ok(SnapshotSource::Id("5a5a5a5a5a5a".to_owned())));
        for file in ["export.jsonl", "./5a5a5a5a5a5a", "5A5A5A5A5A5A", "5a5a", &"5a".repeat(33)] {
            assert_eq!(file.parse(), Ok(SnapshotSource::File(PathBuf::from(file))), "{file}");
        }
        assert!("".parse::<SnapshotSource>().is_err());
    }

    #[test]
    fn a_sha256_has_64_hex_digits() {
        assert_eq!("00".repeat(32).parse(), Ok(Sha256Digest([0; 32])));
        assert!("00".parse::<Sha256Digest>().is_err());
        assert!("zz".repeat(32).parse::<Sha256Digest>().is_err());
    }
}
