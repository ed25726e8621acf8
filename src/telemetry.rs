//! Logs to standard error. No customer's id, address or content, and no secret, is ever logged: a receipt is
//! named by the first 12 hex digits of its key.
//!
//! Libraries that would print messages, statements or addresses keep quiet whatever is asked for.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verbosity {
    /// Errors only (`-q`).
    Quiet,
    /// Warnings, and what our own program reports.
    #[default]
    Normal,
    /// Our own program's details too (`-v`).
    Verbose,
    /// Everything of our own program, and what libraries report (`-vv`).
    Trace,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people; coloured on a terminal unless `NO_COLOR` is set.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// Libraries whose lower levels hold SQL, addresses or the dialogue with a mail server.
const TALKATIVE: &[&str] =
    &["lettre", "sqlx", "rustls", "tokio_rustls", "reqwest", "hyper", "hyper_util", "hyper_rustls", "h2"];

/// Begins to log. A second call in the same process changes nothing.
pub fn init(verbosity: Verbosity, format: LogFormat) {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match format {
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
        LogFormat::Human => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            layer.with_ansi(colours).with_target(verbosity == Verbosity::Trace).boxed()
        }
    };
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter(verbosity)));
    // Fails only where a subscriber is set already, which then stays.
    let _ = subscriber.try_init();
}

/// Which levels pass.
fn filter(verbosity: Verbosity) -> Targets {
    let (libraries, ours) = match verbosity {
        Verbosity::Quiet => (LevelFilter::ERROR, LevelFilter::ERROR),
        Verbosity::Normal => (LevelFilter::WARN, LevelFilter::INFO),
        Verbosity::Verbose => (LevelFilter::WARN, LevelFilter::DEBUG),
        Verbosity::Trace => (LevelFilter::INFO, LevelFilter::TRACE),
    };
    let talkative = TALKATIVE.iter().map(|target| (*target, libraries.min(LevelFilter::WARN)));
    Targets::new()
        .with_default(libraries)
        .with_target("counterfoil", ours)
        .with_targets(talkative)
        // Statements, even slow ones, are the ledger's business and not the log's.
        .with_target("sqlx::query", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn talkative_libraries_never_say_more_than_warnings() {
        for verbosity in [Verbosity::Quiet, Verbosity::Normal, Verbosity::Verbose, Verbosity::Trace] {
            let filter = filter(verbosity);
            for target in
                ["lettre::transport::smtp", "sqlx::postgres", "rustls::client", "h2::codec", "hyper_util::client"]
            {
                assert!(!filter.would_enable(target, &Level::INFO), "{target} at {verbosity:?}");
            }
            assert!(!filter.would_enable("sqlx::query", &Level::ERROR));
            assert!(filter.would_enable("counterfoil::run", &Level::ERROR));
        }
    }

    #[test]
    fn each_step_says_more_of_our_own_program() {
        let enabled = |verbosity, level| filter(verbosity).would_enable("counterfoil::run", &level);
        assert!(!enabled(Verbosity::Quiet, Level::WARN));
        assert!(enabled(Verbosity::Normal, Level::INFO) && !enabled(Verbosity::Normal, Level::DEBUG));
        assert!(enabled(Verbosity::Verbose, Level::DEBUG) && !enabled(Verbosity::Verbose, Level::TRACE));
        assert!(enabled(Verbosity::Trace, Level::TRACE));
    }
}
