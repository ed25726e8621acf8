//! The command line: what is typed becomes one library call, what comes back is printed. No SQL, no decisions.
//!
//! Arguments are checked before anything is looked up, so that `--help` and a usage error work when the
//! configuration, the keyring or the ledger do not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::config::{Config, ConfigError, environment};
use crate::identity::{IsoWeek, WeekSelector};
use crate::snapshot::StoreLocation;
use crate::telemetry;

mod arguments;
mod bundled;
mod check;
mod completions;
mod failure;
mod init;
mod keys;
mod layout;
mod lookup;
mod migrate;
mod open;
mod output;
mod preview;
mod quickstart;
mod receipt_page;
mod receipts;
mod review;
mod review_page;
mod run;
mod run_close;
mod sample;
mod snapshot;
mod starter;
mod stop;
mod summary;
mod suppress;
mod suppression_file;
mod values;
mod work;

use arguments::{Arguments, Command};
pub use failure::{Exit, Failure};
pub use output::{Format, Output};
pub use run::{RunArguments, Sha256Digest, WaitChoice};

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version go to standard output and end with 0, usage errors to standard error with 2. A
            // reader that has gone away is no error.
            if error.use_stderr() && arguments::asks_for_json(std::env::args_os()) {
                Failure::usage(&error).report(Format::Json);
            } else {
                let _ = error.print();
            }
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    telemetry::init(arguments.global.verbosity(), arguments.global.log_format());
    let format = arguments.global.format;
    match execute(arguments) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.report(format);
            failure.exit.into()
        }
    }
}

/// What every command works with.
#[derive(Debug)]
pub struct Session {
    /// The configuration file.
    pub config: PathBuf,
    /// Our variables of the environment.
    pub environment: BTreeMap<String, String>,
    /// Where the result goes.
    pub output: Output,
    /// No progress.
    pub quiet: bool,
}

impl Session {
    /// Reads the configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(&self) -> Result<Config, Failure> {
        Ok(Config::load(&self.config, &self.environment)?)
    }

    /// The instant that decides which week it is, before there is a configuration or a ledger to ask.
    ///
    /// # Errors
    /// A test clock's offset that is no number.
    pub fn now(&self) -> Result<Timestamp, Failure> {
        let offset = environment::clock_offset(&self.environment)?.unwrap_or_default();
        Timestamp::now().checked_add(offset).map_err(Failure::refused)
    }

    /// The week that is running, in UTC.
    ///
    /// # Errors
    /// A clock at the far end of the calendar.
    pub fn this_week(&self) -> Result<IsoWeek, Failure> {
        WeekSelector::Current.resolve(self.now()?, &TimeZone::UTC).map_err(Failure::refused)
    }
}

fn execute(arguments: Arguments) -> Result<Exit, Failure> {
    let Arguments { global, command } = arguments;
    let session = Session {
        config: global.config,
        environment: variables()?,
        output: Output { format: global.format },
        quiet: global.quiet,
    };
    runtime()?.block_on(Box::pin(dispatch(&session, command)))
}

async fn dispatch(session: &Session, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Init(arguments) => init::init(session, &arguments),
        Command::Completions(arguments) => completions::completions(session, &arguments),
        Command::Quickstart(arguments) => Box::pin(quickstart::quickstart(session, &arguments)).await,
        Command::Check(arguments) => Box::pin(check::check(session, &arguments)).await,
        Command::Migrate(arguments) => migrate::migrate(session, &arguments).await,
        Command::Run(arguments) => Box::pin(run_close::command(session, *arguments)).await,
        Command::Work(arguments) => Box::pin(work::work(session, arguments)).await,
        Command::Preview(arguments) => preview::preview(session, arguments).await,
        Command::Snapshot(arguments) => snapshot::snapshot(session, arguments).await,
        Command::Receipts(arguments) => receipts::receipts(session, arguments).await,
        Command::Suppress(arguments) => suppress::suppress(session, arguments).await,
        Command::Review(arguments) => review::review(session, arguments).await,
        Command::Keys(arguments) => keys::keys(session, arguments).await,
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::could_not_run)
}

/// Our variables of the environment and those of an object store; one that is not UTF-8 is refused by name.
fn variables() -> Result<BTreeMap<String, String>, Failure> {
    let ours = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let read = [environment::PREFIX, StoreLocation::VARIABLES].iter().any(|prefix| name.starts_with(prefix));
        read.then_some((name, value))
    });
    ours.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(ConfigError::variable(name, "is not UTF-8").into()),
    })
    .collect()
}
