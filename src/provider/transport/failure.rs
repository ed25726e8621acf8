//! What a request without an answer proves. Which side of its last byte the failure fell on is known exactly; the
//! classes only say in one word what a person may look for.

use std::error::Error;
use std::io;

use tokio_rustls::rustls::Error as TlsError;

use super::causes;
use super::decisive::Fate;
use crate::receipt::Outcome;

/// A request without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::provider) enum Unanswered {
    /// Its last byte never went out: nothing can have been accepted. The class of what happened.
    Unsent(String),
    /// Its last byte went out, or may have. The class of what happened.
    Doubtful(String),
    /// Its last byte was held back, because the lease or the time limit would have ended under it.
    NotStarted,
}

impl From<Unanswered> for Outcome {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Unsent(code) => Self::Unavailable { code },
            Unanswered::Doubtful(code) => Self::Ambiguous { code },
            Unanswered::NotStarted => Self::NotStarted,
        }
    }
}

/// A request that failed.
pub(super) fn unanswered(fate: Fate, error: &reqwest::Error) -> Unanswered {
    let class = class(error);
    match fate {
        Fate::TooLate => Unanswered::NotStarted,
        Fate::Kept => Unanswered::Unsent(class.unwrap_or("lost_before_request").to_owned()),
        Fate::Passed => Unanswered::Doubtful("no_answer_after_request".to_owned()),
    }
}

/// A request whose time limit passed.
pub(super) fn timed_out(fate: Fate) -> Unanswered {
    match fate {
        Fate::TooLate => Unanswered::NotStarted,
        Fate::Kept => Unanswered::Unsent("timeout_before_request".to_owned()),
        Fate::Passed => Unanswered::Doubtful("timeout_after_request".to_owned()),
    }
}

/// Why there was no connection; `None` where there was one.
pub(super) fn class(error: &reqwest::Error) -> Option<&'static str> {
    if !error.is_connect() {
        return None;
    }
    let tls = causes(error).find_map(tls_error);
    Some(match tls {
        Some(TlsError::InvalidCertificate(_)) => "tls_certificate",
        Some(_) => "tls",
        None if error.is_dns() => "dns",
        None if error.is_timeout() => "connect_timeout",
        None => "connect",
    })
}

/// rustls speaks through I/O errors, one around another, which hide what they hold from the chain of causes.
fn tls_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a TlsError> {
    let mut held = Some(cause);
    while let Some(error) = held {
        if let Some(found) = error.downcast_ref::<TlsError>() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        held = inner.map(|inner| inner as &(dyn Error + 'static));
    }
    None
}
