//! How a command ends: the documented exit codes, and the one error type at the edge with what to do about it.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use serde_json::json;

use super::output::Format;
use crate::config::{ConfigError, KeyringSourceError};
use crate::identity::keyring::KeyringError;
use crate::ledger::LedgerError;
use crate::run::{Refusal, RunError};
use crate::snapshot::{FindError, InputError, SealError, StoreError};

/// The exit codes that schedulers rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: all is settled.
    Settled,
    /// 1: could not run, something needed is out of reach. Worth trying again.
    CouldNotRun,
    /// 2: usage, configuration, refused snapshot or guard. Nothing was claimed.
    Refused,
    /// 3: done, but something waits for a person.
    NeedsPerson,
    /// 4: stopped or timed out with work left. Run again.
    WorkLeft,
}

impl Exit {
    /// The number that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            Self::Settled => 0,
            Self::CouldNotRun => 1,
            Self::Refused => 2,
            Self::NeedsPerson => 3,
            Self::WorkLeft => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// A command that could not do what was asked.
#[derive(Debug)]
pub struct Failure {
    /// What the process ends with.
    pub exit: Exit,
    /// What went wrong, with its causes.
    pub error: anyhow::Error,
    /// What to do, where that is known and the error does not say it.
    pub hint: Option<String>,
}

impl Failure {
    /// Something needed is out of reach: exit 1.
    pub fn could_not_run(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::CouldNotRun, error: error.into(), hint: None }
    }

    /// Usage, configuration or a guard: exit 2.
    pub fn refused(error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        let hint = hint_of(&error).map(str::to_owned);
        Self { exit: Exit::Refused, error, hint }
    }

    /// Arguments that were not understood: one error, with usage and advice as its hint.
    pub(super) fn usage(error: &clap::Error) -> Self {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        match text.split_once("\n\n") {
            Some((what, advice)) => Self::refused_because(what).with_hint(advice),
            None => Self::refused_because(text),
        }
    }

    /// The same in plain words.
    pub fn refused_because(reason: impl fmt::Display) -> Self {
        Self::refused(anyhow::anyhow!("{reason}"))
    }

    /// Adds what to do.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Writes the error to standard error: as text with `caused by:` and `hint:` lines, or as one JSON object.
    pub fn report(&self, format: Format) {
        // Where standard error is closed nobody can be told.
        let _ = match format {
            Format::Human => write!(std::io::stderr(), "{self}"),
            Format::Json => writeln!(std::io::stderr(), "{}", self.json()),
        };
    }

    /// Causes from near to far; one that the error before it tells already is left out.
    fn causes(&self) -> Vec<String> {
        let mut told = self.error.to_string();
        let mut causes = Vec::new();
        for cause in self.error.chain().skip(1) {
            let cause = cause.to_string();
            if !told.ends_with(&cause) {
                causes.push(cause.clone());
            }
            told = cause;
        }
        causes
    }

    /// The error and its causes in one line.
    pub(super) fn in_one_line(&self) -> String {
        let causes = self.causes();
        std::iter::once(self.error.to_string()).chain(causes).collect::<Vec<_>>().join(": ")
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "error": self.error.to_string(),
            "caused_by": self.causes(),
            "hint": self.hint,
            "exit_code": self.exit.code(),
        })
    }
}

/// What to do about an error that does not say it by itself.
fn hint_of(error: &anyhow::Error) -> Option<&'static str> {
    let input = match (error.downcast_ref::<Refusal>(), error.downcast_ref::<FindError>()) {
        (Some(Refusal::Seal(SealError::Input(input))), _) | (_, Some(FindError::Input(input))) => input,
        _ => return None,
    };
    let InputError::Read { source, .. } = input else { return None };
    (source.kind() == std::io::ErrorKind::NotFound).then_some(
        "give the path of an export, or at least 12 digits of a sealed snapshot's id; \
         `counterfoil snapshot list` shows those",
    )
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.error)?;
        self.causes().iter().try_for_each(|cause| writeln!(f, "  caused by: {cause}"))?;
        match &self.hint {
            Some(hint) => writeln!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::refused(error)
    }
}

impl From<KeyringSourceError> for Failure {
    fn from(error: KeyringSourceError) -> Self {
        Self::refused(error)
    }
}

impl From<KeyringError> for Failure {
    fn from(error: KeyringError) -> Self {
        Self::refused(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { .. } | StoreError::Remote { .. } => Self::could_not_run(error),
            StoreError::Absent { .. } => {
                Self::refused(error).with_hint("`counterfoil snapshot list` shows what is sealed")
            }
            _ => Self::refused(error),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(error: Refusal) -> Self {
        Self::refused(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Refused(refusal) => refusal.into(),
            RunError::Ledger(error) => error.into(),
            RunError::Store(error) => error.into(),
            RunError::Misconfigured { .. } | RunError::NoRandomness | RunError::Internal => Self::could_not_run(error),
            RunError::SuppressionList(_) => Self::could_not_run(error).with_hint(
                "what was settled stays settled; run again once the ledger's table `suppressions` can be read",
            ),
            RunError::SealedRow { .. } => Self::refused(error),
        }
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        let hint = match &error {
            LedgerError::Unreachable(_) => {
                Some("check ledger.url and that the database runs; what was settled stays settled, run again")
            }
            LedgerError::Migration(_) => {
                Some("nothing was changed; a ledger needs a database of its own, and rights to create tables in it")
            }
            LedgerError::Refused { .. } => {
                Some("see to what the database says; what was settled stays settled, run again")
            }
            LedgerError::Corrupt { .. } => Some("restore the ledger from a copy; do not send meanwhile"),
            _ => None,
        };
        let exit = match &error {
            LedgerError::Schema { .. } | LedgerError::Url => Exit::Refused,
            _ => Exit::CouldNotRun,
        };
        Self { exit, error: error.into(), hint: hint.map(str::to_owned) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Failure {
        let cause = std::io::Error::other("no such host");
        let error = anyhow::Error::new(cause).context("the ledger is out of reach");
        Failure { exit: Exit::CouldNotRun, error, hint: Some("check ledger.url".to_owned()) }
    }

    #[test]
    fn a_failure_tells_error_causes_and_what_to_do() {
        insta::assert_snapshot!(failure().to_string(), @r"
        error: the ledger is out of reach
          caused by: no such host

        hint: check ledger.url
        ");
    }

    #[test]
    fn a_failure_is_one_json_object() {
        insta::assert_snapshot!(failure().json(), @r#"{"caused_by":["no such host"],"error":"the ledger is out of reach","exit_code":1,"hint":"check ledger.url"}"#);
    }

    #[test]
    fn a_cause_that_was_told_already_is_not_repeated() {
        let error = anyhow::Error::new(std::io::Error::other("b")).context("a: b");
        let failure = Failure::refused(error);
        assert_eq!((failure.to_string().as_str(), failure.in_one_line().as_str()), ("error: a: b\n", "a: b"));
    }
}
