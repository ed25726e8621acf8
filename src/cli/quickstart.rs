//! `quickstart`: a directory with everything in it, a run into a Maildir, and the same run again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::layout::program;
use super::snapshot::only_type;
use super::starter::{Starter, fill};
use super::{Exit, Failure, Session, open};
use crate::config::{environment, shell_word};
use crate::identity::WeekSelector;
use crate::ledger::Mode;
use crate::run::{RunReport, RunRequest, SnapshotSource};

/// See it work: make a directory, send a sample into a Maildir, send it again
///
/// Needs nothing but this program and sends nothing over a network. Settings from the environment are left out, so
/// that it touches no other ledger. Running it again in the same directory sends nothing twice either.
#[derive(Debug, Args)]
pub(super) struct QuickstartArguments {
    /// The directory; made where it does not exist
    #[arg(value_name = "DIR", default_value = "counterfoil-quickstart")]
    directory: PathBuf,
}

#[derive(Serialize)]
struct Report {
    directory: String,
    first: RunReport,
    second: RunReport,
    #[serde(skip)]
    look: Vec<(String, &'static str)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# first run\n\n{}", self.first)?;
        writeln!(f, "# the same run again: nothing is sent twice\n\n{}", self.second)?;
        writeln!(f, "# where to look\n")?;
        let width = self.look.iter().map(|(what, _)| what.len()).max().unwrap_or(0);
        self.look.iter().try_for_each(|(what, meaning)| writeln!(f, "  {what:width$}  {meaning}"))
    }
}

/// Fills the directory and runs twice.
pub(super) async fn quickstart(session: &Session, arguments: &QuickstartArguments) -> Result<Exit, Failure> {
    let starter = fill(&arguments.directory, Mode::Enforce, session.this_week()?)?;
    let clock = session.environment.get_key_value(environment::CLOCK_OFFSET);
    let environment: BTreeMap<String, String> =
        clock.map(|(name, value)| (name.clone(), value.clone())).into_iter().collect();
    let demo = Session { config: starter.configuration(), environment, output: session.output, quiet: true };
    let config = demo.load()?;
    let digest_type = only_type(&config, None)?;
    let request =
        RunRequest::new(SnapshotSource::File(starter.export()), WeekSelector::Explicit(starter.week), digest_type);
    let first = Box::pin(open::run(&demo, &config, &request)).await?;
    let second = Box::pin(open::run(&demo, &config, &request)).await?;
    let exit = second.exit();
    let directory = starter.directory.display().to_string();
    session.output.result(&Report { directory, first, second, look: places(&starter) })?;
    Ok(exit)
}

fn places(starter: &Starter) -> Vec<(String, &'static str)> {
    let within = |name: &str| shell_word(&starter.directory.join(name));
    let config = shell_word(&starter.configuration());
    vec![
        (within("outbox"), "the messages, one file each; open one in a mail program"),
        (format!("{} --config {config} receipts list", program()), "a receipt for each"),
        (
            format!("sqlite3 {} 'SELECT * FROM receipt_overview'", within("counterfoil.db")),
            "the same, as auditors see it",
        ),
        (config, "every setting with its default"),
        (within("templates"), "the template; change it under a new version"),
    ]
}
