//! `run`: its arguments and what they ask for.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use jiff::SignedDuration;

use super::failure::{Exit, Failure};
use super::snapshot::only_type;
use super::values::{content_version, digest_type, duration, wait, week};
use super::{Session, open};
use crate::config::Config;
use crate::identity::{ContentVersion, DigestType, WeekSelector};
use crate::ledger::Mode;
use crate::run::{LedgerLoss, RunRequest, SnapshotSource, WorkRequest};
use crate::snapshot::OnBadRow;

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

impl ValueEnum for OnBadRow {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Refuse, Self::SetAside]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Refuse => "Seal nothing and name the rows",
            Self::SetAside => "Seal the others and write line and reason of these to the rejects file",
        };
        Some(PossibleValue::new(self.as_str()).help(help))
    }
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
    #[arg(long, value_name = "WEEK", default_value = "last", value_parser = week)]
    #[arg(requires = "snapshot", help_heading = "What")]
    pub(super) week: WeekSelector,

    /// The digest's type [default: the only configured one]
    #[arg(long = "type", value_name = "TYPE", value_parser = digest_type)]
    #[arg(requires = "snapshot", help_heading = "What")]
    pub(super) digest_type: Option<DigestType>,

    /// The content version [default: the configured one]
    #[arg(long, value_name = "VERSION", value_parser = content_version)]
    #[arg(requires = "snapshot", help_heading = "What")]
    pub(super) content_version: Option<ContentVersion>,

    /// How the ledger is used [default: rollout.mode]
    #[arg(long, value_name = "MODE", value_enum, help_heading = "How")]
    pub(super) mode: Option<ModeArgument>,

    /// How long to wait for what is due later, such as 30m; 0s does not wait [default: run.wait]
    #[arg(long, value_name = "TIME|auto", value_parser = wait, help_heading = "How")]
    pub(super) wait: Option<WaitChoice>,

    /// The export really has that many more or fewer rows than last week's
    #[arg(long, requires = "snapshot", help_heading = "Guards")]
    pub(super) accept_row_count: bool,

    /// Use a snapshot that an enforced run used for another week
    #[arg(long, requires = "snapshot", help_heading = "Guards")]
    pub(super) reuse_snapshot: bool,

    /// Another deadline than the configured one, after the week's end; lets a run begin that would be too late
    #[arg(long, value_name = "TIME", requires = "snapshot", value_parser = duration, help_heading = "Guards")]
    pub(super) send_within: Option<SignedDuration>,

    /// Send to those only whom no other content version of this week has reached
    ///
    /// Customers whose other receipt is sent, held, quarantined, suppressed or in doubt are left out; one that was
    /// certainly not sent can never be sent again. An open run of the other version is finished or waited for first.
    #[arg(long, requires = "snapshot", help_heading = "Guards")]
    pub(super) only_unsent: bool,

    /// Send to everyone although another content version of this week was sent
    #[arg(long, requires = "snapshot", conflicts_with = "only_unsent", help_heading = "Guards")]
    pub(super) correction: bool,

    /// The ledger was restored from an older copy: what it does not know may have been sent
    ///
    /// Only needed where nothing shows it. Rows without a receipt in parts that are not done are then looked up or
    /// repeated under their key where the destination can do that, else held.
    #[arg(long, conflicts_with = "accept_ledger_loss", help_heading = "Guards")]
    pub(super) distrust_ledger: bool,

    /// Send what a restored or failed-over ledger does not know, as if it had never been sent
    #[arg(long, help_heading = "Guards")]
    pub(super) accept_ledger_loss: bool,
}

/// Runs and prints the summary.
pub(super) async fn run(session: &Session, arguments: RunArguments) -> Result<Exit, Failure> {
    let config = session.load()?;
    let report = match arguments.snapshot.clone() {
        Some(snapshot) => {
            let request = arguments.into_request(snapshot, &config)?;
            Box::pin(open::run(session, &config, &request)).await?
        }
        None => {
            let request = work_request(&config, None, arguments.mode, arguments.wait, arguments.ledger_loss());
            Box::pin(open::work(session, &config, &request)).await?
        }
    };
    session.output.result(&report)?;
    Ok(report.exit())
}

/// Work on open runs, with what the configuration adds to it.
pub(super) fn work_request(
    config: &Config,
    run: Option<String>,
    mode: Option<ModeArgument>,
    wait: Option<WaitChoice>,
    ledger_loss: LedgerLoss,
) -> WorkRequest {
    let mode = mode.map_or(config.rollout.mode, |mode| mode.0);
    WorkRequest { run, mode, wait: wait_of(config, wait), ledger_loss }
}

fn wait_of(config: &Config, wait: Option<WaitChoice>) -> Option<SignedDuration> {
    match wait.unwrap_or_default() {
        WaitChoice::Configured => config.run.wait,
        WaitChoice::Auto => None,
        WaitChoice::AtMost(wait) => Some(wait),
    }
}

impl RunArguments {
    /// What the ledger's owner says about a loss.
    fn ledger_loss(&self) -> LedgerLoss {
        match (self.distrust_ledger, self.accept_ledger_loss) {
            (_, true) => LedgerLoss::Accept,
            (true, false) => LedgerLoss::Distrust,
            (false, false) => LedgerLoss::Detect,
        }
    }

    /// The request, with what the configuration adds to it.
    fn into_request(self, snapshot: SnapshotSource, config: &Config) -> Result<RunRequest, Failure> {
        let ledger_loss = self.ledger_loss();
        Ok(RunRequest {
            snapshot: Some(snapshot),
            week: self.week,
            digest_type: only_type(config, self.digest_type)?,
            content_version: self.content_version,
            mode: self.mode.map_or(config.rollout.mode, |mode| mode.0),
            on_bad_row: self.on_bad_row,
            rejects: self.rejects,
            expect_rows: self.expect_rows,
            expect_sha256: self.expect_sha256.map(|digest| digest.0),
            accept_row_count: self.accept_row_count,
            reuse_snapshot: self.reuse_snapshot,
            send_within: self.send_within,
            wait: wait_of(config, self.wait),
            correction: self.correction,
            only_unsent: self.only_unsent,
            ledger_loss,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sha256_has_64_hex_digits() {
        assert_eq!("00".repeat(32).parse(), Ok(Sha256Digest([0; 32])));
        assert!("00".parse::<Sha256Digest>().is_err());
        assert!("zz".repeat(32).parse::<Sha256Digest>().is_err());
    }
}
