//! `run close`: a person ends a run that a brake or a mistake left open.

use std::fmt;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::layout::count;
use super::lookup::{self, RunPrefix};
use super::review::Person;
use super::run::RunArguments;
use super::{Exit, Failure, Session, open, run};
use crate::ledger::{Run, RunClosing, RunCounts};

/// Send the digests of a week, each customer's once
///
/// Seals the export if that has not been done, finishes earlier open runs, then claims, sends and records until
/// everything is settled or can only wait. The summary is of the whole run, whoever worked on it.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct RunCommand {
    #[command(flatten)]
    run: RunArguments,
    #[command(subcommand)]
    close: Option<CloseCommand>,
}

#[derive(Debug, Subcommand)]
enum CloseCommand {
    Close(CloseArguments),
}

/// End a run for good: nothing more of it is sent
///
/// Rows that nobody has claimed stay unclaimed, what waits for another attempt is discarded, what may have been
/// accepted is held for `review`. A message that is being handed over right now may still be sent and is recorded.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil run close 1f6c0a3b9d2e --by ops --note \"last week's export under this week's name\"

Exit codes: 0 closed, 2 no such run, 3 closed, and something waits for a person.")]
struct CloseArguments {
    /// The run's id, or the beginning of it as log lines show it
    #[arg(value_name = "ID")]
    run: RunPrefix,

    #[command(flatten)]
    person: Person,
}

/// Runs, or closes a run.
pub(super) async fn command(session: &Session, command: RunCommand) -> Result<Exit, Failure> {
    match command.close {
        Some(CloseCommand::Close(arguments)) => close(session, &arguments).await,
        None => Box::pin(run::run(session, command.run)).await,
    }
}

async fn close(session: &Session, arguments: &CloseArguments) -> Result<Exit, Failure> {
    let (actor, note) = arguments.person.texts()?;
    let config = session.load()?;
    let ledger = open::existing_ledger(&config).await?;
    let run_id = lookup::run_id(&config, ledger.as_ref(), &arguments.run).await?;
    let known = ledger.run(&run_id).await?;
    let run = known.ok_or_else(|| Failure::refused_because(format!("the ledger has no run {run_id}")))?;
    let closing = ledger.close_run(&run, &actor, &note).await?;
    let counts = ledger.run_counts(&run, run.opened_at).await?;
    let closed = Closed::new(&run, closing, &counts);
    session.output.result(&closed)?;
    Ok(if closed.waits_for_person() { Exit::NeedsPerson } else { Exit::Settled })
}

/// A closed run.
#[derive(Debug, Serialize)]
struct Closed {
    run_id: String,
    iso_week: String,
    /// Closed by this command, not before.
    closed_now: bool,
    rows: u64,
    sent: u64,
    discarded_now: u64,
    held_now: u64,
    live: u64,
    held: u64,
    quarantined: u64,
    never_claimed: u64,
}

impl Closed {
    fn new(run: &Run, closing: RunClosing, counts: &RunCounts) -> Self {
        let foreign = &counts.foreign;
        let sent = counts.sent + counts.reconciled + counts.sent_before + foreign.duplicate;
        let quarantined = counts.quarantined + counts.conflicts + foreign.quarantined;
        let held = counts.held + foreign.held;
        let others = counts.in_progress + counts.retryable + counts.failed_rejected + counts.failed_other;
        let elsewhere =
            foreign.in_progress + foreign.retryable + foreign.failed + foreign.suppressed + foreign.other_version;
        let touched = sent + quarantined + held + others + elsewhere + counts.suppressed;
        Self {
            run_id: run.new.run_id.clone(),
            iso_week: run.new.iso_week.to_string(),
            closed_now: closing.was_open,
            rows: run.new.rows,
            sent,
            discarded_now: closing.discarded,
            held_now: closing.held,
            live: closing.live,
            held,
            quarantined,
            never_claimed: run.new.rows.saturating_sub(touched),
        }
    }

    fn waits_for_person(&self) -> bool {
        self.held + self.quarantined + self.live > 0
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.closed_now { "is closed" } else { "was closed already" };
        writeln!(f, "run {} {done}: nothing more of it is sent\n", self.run_id)?;
        let lines = [
            ("sent", self.sent, "accepted by a provider"),
            ("discarded", self.discarded_now, "waited for another attempt, not tried any more"),
            ("held", self.held, "may have been accepted; a person must decide"),
            ("quarantined", self.quarantined, "another content stands under the same key"),
            ("in progress", self.live, "being handed over; recorded when known"),
            ("never claimed", self.never_claimed, "not begun, and never will be"),
        ];
        for (name, number, meaning) in lines.into_iter().filter(|(_, number, _)| *number > 0) {
            writeln!(f, "  {name:13}  {:>11}  {meaning}", count(number))?;
        }
        writeln!(f, "  {:13}  {:>11}", "rows", count(self.rows))?;
        if self.live > 0 {
            writeln!(f, "\n-> when no worker of it is left, close it once more: what was lost is then held")?;
        }
        if self.waits_for_person() {
            writeln!(f, "\n-> counterfoil review list --run {:.12}", self.run_id)?;
        }
        Ok(())
    }
}
