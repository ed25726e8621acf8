//! `snapshot`: seal an export without running, and look at what is sealed. Never shows a row.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::layout::count;
use super::run::Sha256Digest;
use super::values::digest_type;
use super::{Exit, Failure, Session, open};
use crate::config::Config;
use crate::identity::DigestType;
use crate::snapshot::{Manifest, OnBadRow, Sealed};

/// Seal an export without running it, and look at what is sealed
#[derive(Debug, Args)]
pub(super) struct SnapshotArguments {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    Seal(SealArguments),
    Show(ShowArguments),
    List(ListArguments),
}

/// Check every row of an export and seal it into the store
///
/// Sealing the same content again finds the same snapshot. `run --snapshot FILE` does this by itself.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil snapshot seal export.jsonl.gz --expect-rows 1048576
  counterfoil snapshot seal export.jsonl --on-bad-row set-aside --rejects bad.jsonl")]
struct SealArguments {
    /// The export: JSON Lines, plain, gzip or zstd
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The digest's type, whose template says what `data` must look like [default: the only configured one]
    #[arg(long = "type", value_name = "TYPE", value_parser = digest_type)]
    digest_type: Option<DigestType>,

    /// What bad rows do
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    on_bad_row: OnBadRow,

    /// Where bad rows that are set aside are listed, by line and reason [default: in the store]
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,

    /// Refuse an input with another number of rows
    #[arg(long, value_name = "N")]
    expect_rows: Option<u64>,

    /// Refuse an input with another SHA-256
    #[arg(long, value_name = "HEX")]
    expect_sha256: Option<Sha256Digest>,
}

/// What is to be sealed.
#[derive(Debug, Clone)]
pub(super) struct SealRequest {
    /// The export.
    pub(super) file: PathBuf,
    /// The type, of those that are configured.
    pub(super) digest_type: DigestType,
    /// What bad rows do.
    pub(super) on_bad_row: OnBadRow,
    /// Where set-aside rows are written.
    pub(super) rejects: Option<PathBuf>,
    /// The input must have this many rows.
    pub(super) expect_rows: Option<u64>,
    /// The input must have this SHA-256.
    pub(super) expect_sha256: Option<Sha256Digest>,
}

/// Show one sealed snapshot: rows, parts, checksums
#[derive(Debug, Args)]
struct ShowArguments {
    /// The id, or its beginning
    #[arg(value_name = "ID")]
    id: String,
}

/// List the sealed snapshots, newest first
#[derive(Debug, Args)]
struct ListArguments {}

/// Runs a command about snapshots.
pub(super) async fn snapshot(session: &Session, arguments: SnapshotArguments) -> Result<Exit, Failure> {
    match arguments.command {
        SnapshotCommand::Seal(arguments) => seal(session, arguments).await,
        SnapshotCommand::Show(arguments) => show(session, &arguments),
        SnapshotCommand::List(_) => list(session),
    }
}

async fn seal(session: &Session, arguments: SealArguments) -> Result<Exit, Failure> {
    let config = session.load()?;
    let request = SealRequest {
        file: arguments.file,
        digest_type: only_type(&config, arguments.digest_type)?,
        on_bad_row: arguments.on_bad_row,
        rejects: arguments.rejects,
        expect_rows: arguments.expect_rows,
        expect_sha256: arguments.expect_sha256,
    };
    let sealed = open::seal(&config, &request).await?;
    session.output.result(&SealReport::new(&sealed))?;
    Ok(if sealed.rejected > 0 { Exit::NeedsPerson } else { Exit::Settled })
}

#[derive(Debug, Serialize)]
struct SealReport {
    #[serde(flatten)]
    line: Line,
    found: bool,
    rejects: Option<String>,
}

impl SealReport {
    fn new(sealed: &Sealed) -> Self {
        Self {
            line: Line { repeated: sealed.repeated, rejected: sealed.rejected, ..Line::new(&sealed.manifest) },
            found: sealed.found,
            rejects: sealed.rejects.as_ref().map(|path| path.display().to_string()),
        }
    }
}

impl fmt::Display for SealReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.line)?;
        if self.found {
            writeln!(f, "the same content had been sealed before")?;
        }
        match &self.rejects {
            Some(path) => writeln!(f, "rows that were set aside are listed in {path}"),
            None => Ok(()),
        }
    }
}

/// The type that is meant: the one that was named, if it is configured, or the only one there is.
///
/// # Errors
/// A type that is not configured; several to choose from.
pub(super) fn only_type(config: &Config, named: Option<DigestType>) -> Result<DigestType, Failure> {
    let known = || config.digests.keys().map(DigestType::as_str).collect::<Vec<_>>().join(", ");
    match (named, config.digests.keys().collect::<Vec<_>>().as_slice()) {
        (Some(named), _) if config.digests.contains_key(&named) => Ok(named),
        (Some(named), _) => Err(Failure::refused_because(format!(
            "there is no [digest.{named}] in the configuration; there is: {}",
            known()
        ))),
        (None, [only]) => Ok((*only).clone()),
        (None, _) => Err(Failure::refused_because("several digest types are configured")
            .with_hint(format!("add --type with one of: {}", known()))),
    }
}

fn show(session: &Session, arguments: &ShowArguments) -> Result<Exit, Failure> {
    let config = session.load()?;
    let manifests = open::manifests(&config)?;
    let found = by_prefix(&manifests, &arguments.id)?;
    session.output.result(&Detail::new(found))?;
    Ok(Exit::Settled)
}

/// The one snapshot whose id begins like this.
///
/// # Errors
/// None, or more than one.
pub(super) fn by_prefix<'a>(manifests: &'a [Manifest], prefix: &str) -> Result<&'a Manifest, Failure> {
    let mut found = manifests.iter().filter(|manifest| manifest.id.starts_with(prefix));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Failure::refused_because(format!("there is no sealed snapshot {prefix}"))
            .with_hint("`counterfoil snapshot list` shows what is sealed")),
        (Some(_), Some(_)) => Err(Failure::refused_because(format!("more than one snapshot begins with {prefix}"))
            .with_hint("give more of its digits")),
    }
}

fn list(session: &Session) -> Result<Exit, Failure> {
    let config = session.load()?;
    let mut manifests = open::manifests(&config)?;
    manifests.sort_by(|a, b| b.sealed_at.cmp(&a.sealed_at).then_with(|| a.id.cmp(&b.id)));
    session.output.result(&List { snapshots: manifests.iter().map(Line::new).collect() })?;
    Ok(Exit::Settled)
}

#[derive(Debug, Serialize)]
struct Line {
    id: String,
    rows: u64,
    parts: usize,
    repeated: u64,
    rejected: u64,
    sealed_at: String,
}

impl Line {
    fn new(manifest: &Manifest) -> Self {
        Self {
            id: manifest.id.clone(),
            rows: manifest.rows,
            parts: manifest.part_rows.len(),
            repeated: manifest.repeated,
            rejected: manifest.rejected,
            sealed_at: format!("{:.0}", manifest.sealed_at),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {:>12} rows  sealed {}", self.id, count(self.rows), self.sealed_at)?;
        if self.repeated > 0 {
            write!(f, "  {} repeated", count(self.repeated))?;
        }
        if self.rejected > 0 {
            write!(f, "  {} set aside", count(self.rejected))?;
        }
        writeln!(f)
    }
}

#[derive(Serialize)]
struct List {
    snapshots: Vec<Line>,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.snapshots.is_empty() {
            return writeln!(f, "no snapshot is sealed");
        }
        self.snapshots.iter().try_for_each(|line| write!(f, "{line}"))
    }
}

#[derive(Serialize)]
struct Detail {
    #[serde(flatten)]
    line: Line,
    part_rows: Vec<u32>,
    part_sha256: Vec<String>,
}

impl Detail {
    fn new(manifest: &Manifest) -> Self {
        Self {
            line: Line::new(manifest),
            part_rows: manifest.part_rows.clone(),
            part_sha256: manifest.part_sha256.clone(),
        }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.line)?;
        let parts = self.part_rows.iter().zip(&self.part_sha256).enumerate();
        parts
            .into_iter()
            .try_for_each(|(number, (rows, sha256))| writeln!(f, "  part {number:>5}  {rows:>5} rows  {sha256}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(id: &str, rejected: u64) -> Manifest {
        Manifest {
            id: id.repeat(32),
            rows: 1_500,
            part_rows: vec![1_000, 500],
            part_sha256: vec!["aa".repeat(32), "bb".repeat(32)],
            repeated: 2,
            rejected,
            sealed_at: "2026-08-10T06:00:00.5Z".parse().unwrap(),
        }
    }

    #[test]
    fn a_snapshot_is_found_by_the_beginning_of_its_id() {
        let manifests = [manifest("5a", 0), manifest("5b", 0)];
        assert_eq!(by_prefix(&manifests, "5a5a").unwrap().id, "5a".repeat(32));
        assert!(by_prefix(&manifests, "5").unwrap_err().error.to_string().contains("more than one"));
        assert!(by_prefix(&manifests, "6").unwrap_err().error.to_string().contains("no sealed snapshot 6"));
    }

    #[test]
    fn sealing_tells_what_was_found_and_where_bad_rows_are_listed() {
        let rejects = Some(PathBuf::from("bad.jsonl"));
        let sealed = Sealed {
            manifest: manifest("5a", 0),
            found: true,
            input_rows: 1_501,
            input_sha256: String::new(),
            repeated: 0,
            rejected: 1,
            first_rejected: Vec::new(),
            rejects,
        };
        insta::assert_snapshot!(SealReport::new(&sealed).to_string(), @r"
        5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a         1,500 rows  sealed 2026-08-10T06:00:00Z  1 set aside
        the same content had been sealed before
        rows that were set aside are listed in bad.jsonl
        ");
    }

    #[test]
    fn a_snapshot_is_shown_with_its_parts() {
        insta::assert_snapshot!(Detail::new(&manifest("5a", 3)).to_string(), @r"
        5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a         1,500 rows  sealed 2026-08-10T06:00:00Z  2 repeated  3 set aside
          part     0   1000 rows  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
          part     1    500 rows  bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
        ");
    }
}
