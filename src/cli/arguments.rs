//! What can be typed: global options, the list of commands, and the texts of `--help`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use super::output::Format;
use super::run_close::RunCommand;
use super::{check, completions, init, keys, migrate, preview, quickstart, receipts, review, snapshot, suppress, work};
use crate::config::environment;
use crate::telemetry::{LogFormat, Verbosity};

const EXIT_CODES: &str = "\
Exit codes:
  0  all settled: sent, duplicate, suppressed, observed; single recipients that the
     provider refuses are counted and are no alarm
  1  could not run: ledger, store, credentials or suppression list out of reach; what was
     settled stays settled
  2  usage, configuration, refused snapshot or guard; nothing was claimed
  3  done, but something waits for a person: held, quarantined, failed for another reason,
     rows set aside, a brake
  4  stopped or timed out with work left: run again
  Schedulers retry 1 and 4. Running again is always safe.

Examples:
  counterfoil quickstart demo                        see it work, with nothing but this program
  counterfoil init /etc/counterfoil                  begin a real installation, in mode observe
  counterfoil check                                  is everything in place? sends nothing
  counterfoil run --snapshot export.jsonl            send last week's digests, each once
  counterfoil run                                    finish what an earlier run left
  counterfoil work                                   help with it from another host
  counterfoil receipts show --customer 8421 --week 2026-W32
  counterfoil review list                            what waits for a person

Any setting can come from the environment: COUNTERFOIL_<SECTION>__<NAME>, such as
COUNTERFOIL_LEDGER__URL. COUNTERFOIL_KEYRING holds the keyring's text in place of its file.";

/// Send weekly digests, each customer's once, and keep a keyed receipt for every one
///
/// Counterfoil sends one message per customer, ISO week, digest type and content version, and keeps one keyed
/// receipt for each in its ledger. Whatever is retried, replayed, raced or killed, a customer gets each digest once,
/// and whoever holds the key can prove afterwards what happened.
#[derive(Debug, Parser)]
#[command(name = "counterfoil", version, after_long_help = EXIT_CODES, max_term_width = 100)]
#[command(arg_required_else_help = true, disable_help_subcommand = true, infer_subcommands = false)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) global: GlobalOptions,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct GlobalOptions {
    /// The configuration file
    #[arg(long, global = true, value_name = "FILE", default_value = "counterfoil.toml")]
    #[arg(env = environment::CONFIG, hide_env_values = true)]
    pub(super) config: PathBuf,

    /// How the result is written
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t)]
    pub(super) format: Format,

    /// Log more; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,

    /// Log errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
}

/// Whether `--format json` stands in arguments that could not be parsed: their refusal is JSON too.
pub(super) fn asks_for_json(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let arguments: Vec<OsString> = arguments.into_iter().take_while(|argument| argument != "--").collect();
    arguments.iter().any(|argument| argument == "--format=json")
        || arguments.windows(2).any(|pair| matches!(pair, [name, value] if name == "--format" && value == "json"))
}

impl GlobalOptions {
    /// How much is logged.
    pub(super) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1) => Verbosity::Verbose,
            (false, _) => Verbosity::Trace,
        }
    }

    /// How log lines look.
    pub(super) fn log_format(&self) -> LogFormat {
        match self.format {
            Format::Human => LogFormat::Human,
            Format::Json => LogFormat::Json,
        }
    }
}

/// The commands, in the order in which one meets them.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Quickstart(quickstart::QuickstartArguments),
    Init(init::InitArguments),
    Check(check::CheckArguments),
    Migrate(migrate::MigrateArguments),
    #[command(after_long_help = RUN_EXAMPLES)]
    Run(Box<RunCommand>),
    Work(work::WorkArguments),
    Preview(preview::PreviewArguments),
    Snapshot(snapshot::SnapshotArguments),
    Receipts(receipts::ReceiptsArguments),
    Review(review::ReviewArguments),
    Suppress(suppress::SuppressArguments),
    Keys(keys::KeysArguments),
    Completions(completions::CompletionsArguments),
}

const RUN_EXAMPLES: &str = "\
Examples:
  counterfoil run --snapshot export.jsonl.zst
      seal the export and send last week's digests
  counterfoil run --snapshot export.jsonl --mode observe
      the same without claiming or sending anything
  counterfoil run --snapshot export.jsonl --expect-rows 1048576
      refuse a truncated export
  counterfoil run
      finish what earlier runs left, from their own snapshots: the form for retries
  counterfoil run --snapshot 5a0c3f71b2de --week 2026-W32
      work on a sealed snapshot, by the beginning of its id

A run is its snapshot, week, type, version and mode. Starting it again joins it: several processes
and hosts may run the same command at the same time, and share the work.

Exit codes: 0 settled, 1 could not run, 2 refused, 3 a person is needed, 4 run again.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_usage_error_is_json_where_json_was_asked_for() {
        let asks = |text: &str| asks_for_json(text.split(' ').map(OsString::from));
        assert!(asks("counterfoil run --bogus --format json"));
        assert!(asks("counterfoil --format=json sned"));
        assert!(!asks("counterfoil run --bogus"));
        assert!(!asks("counterfoil --format human preview -- --format json"));
    }
}
