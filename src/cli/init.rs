//! `init`: the files of a new installation in mode observe; nothing is run.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::layout::program;
use super::starter::{Starter, fill};
use super::{Exit, Failure, Session};
use crate::config::shell_word;
use crate::ledger::Mode;

/// Write the files of a new installation: configuration, keyring, template, sample export
///
/// The configuration is complete and says `observe`: nothing is sent until you change that. Files that exist are
/// never overwritten.
#[derive(Debug, Args)]
pub(super) struct InitArguments {
    /// The directory; made where it does not exist
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
}

#[derive(Serialize)]
struct Report {
    directory: String,
    written: Vec<String>,
    kept: Vec<String>,
    #[serde(skip)]
    next: Vec<String>,
}

impl Report {
    fn new(starter: &Starter) -> Self {
        let quoted = shell_word;
        let (program, config) = (program(), quoted(&starter.configuration()));
        Self {
            directory: starter.directory.display().to_string(),
            written: starter.written.clone(),
            kept: starter.kept.clone(),
            next: vec![
                format!("{program} --config {config} check"),
                format!("{program} --config {config} run --snapshot {}", quoted(&starter.export())),
            ],
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.directory)?;
        self.written.iter().try_for_each(|name| writeln!(f, "  wrote  {name}"))?;
        self.kept.iter().try_for_each(|name| writeln!(f, "  kept   {name}"))?;
        writeln!(f, "\nnext, nothing of which sends anything:")?;
        self.next.iter().try_for_each(|command| writeln!(f, "  {command}"))?;
        writeln!(f, "then set rollout.mode to \"enforce\", and keep a copy of keyring.toml where you keep secrets")
    }
}

/// Fills the directory.
pub(super) fn init(session: &Session, arguments: &InitArguments) -> Result<Exit, Failure> {
    let starter = fill(&arguments.directory, Mode::Observe, session.this_week()?)?;
    session.output.result(&Report::new(&starter))?;
    Ok(Exit::Settled)
}
