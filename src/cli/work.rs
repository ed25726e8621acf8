//! `work`: joins the work on runs that another process or host has begun.

use clap::Args;

use super::lookup::{self, RunPrefix};
use super::run::{ModeArgument, WaitChoice, work_request};
use super::values::wait;
use super::{Exit, Failure, Session, open};
use crate::run::LedgerLoss;

/// Join the work on open runs, from another process or host
///
/// Takes parts of every open run, oldest first, until all are closed or can only wait. Begins no run and seals
/// nothing. It needs the same configuration, keyring, templates, ledger and snapshot store as the process that began.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil work                        help with whatever is open
  counterfoil work --run 1f6c0a3b9d2e     with this run only

Exit codes: 0 settled or nothing open, 1 could not run, 2 refused, 3 a person is needed, 4 run again.")]
pub(super) struct WorkArguments {
    /// Only this run, by its id or the beginning of it
    #[arg(long, value_name = "ID")]
    run: Option<RunPrefix>,

    /// How the ledger is used [default: rollout.mode]; observe only names what is open
    #[arg(long, value_name = "MODE", value_enum)]
    mode: Option<ModeArgument>,

    /// How long to wait for what is due later, such as 30m; 0s does not wait [default: run.wait]
    #[arg(long, value_name = "TIME|auto", value_parser = wait)]
    wait: Option<WaitChoice>,
}

/// Works and prints the summaries.
pub(super) async fn work(session: &Session, arguments: WorkArguments) -> Result<Exit, Failure> {
    let config = session.load()?;
    let run = match &arguments.run {
        None => None,
        Some(wanted) => {
            let ledger = open::existing_ledger(&config).await?;
            let run = lookup::run_id(&config, ledger.as_ref(), wanted).await;
            ledger.close().await;
            Some(run?)
        }
    };
    let request = work_request(&config, run, arguments.mode, arguments.wait, LedgerLoss::Detect);
    let report = Box::pin(open::work(session, &config, &request)).await?;
    session.output.result(&report)?;
    Ok(report.exit())
}
