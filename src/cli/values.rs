//! How single arguments are read. Each refusal says what is expected.

use jiff::SignedDuration;

use super::failure::Failure;
use super::run::WaitChoice;
use crate::config::quantity::{DURATION_FORM, parse_duration};
use crate::identity::{ContentVersion, CustomerId, DigestType, IsoWeek, WeekSelector};
use crate::receipt::{Reason, State};

/// `last`, `current` or a week.
pub(super) fn week(text: &str) -> Result<WeekSelector, String> {
    text.parse().map_err(|error: crate::identity::WeekError| format!("{error}; or last, or current"))
}

/// A week by name.
pub(super) fn exact_week(text: &str) -> Result<IsoWeek, String> {
    text.parse().map_err(|error: crate::identity::WeekError| error.to_string())
}

/// A digest's type.
pub(super) fn digest_type(text: &str) -> Result<DigestType, String> {
    DigestType::new(text).map_err(|error| error.to_string())
}

/// A content version.
pub(super) fn content_version(text: &str) -> Result<ContentVersion, String> {
    ContentVersion::new(text).map_err(|error| error.to_string())
}

/// The id of a key in the keyring.
pub(super) fn key_id(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let good = (1..=64).contains(&text.len()) && text.bytes().all(plain);
    good.then(|| text.to_owned()).ok_or_else(|| "expected 1 to 64 letters, digits, dots, underscores or hyphens".into())
}

/// A customer's id. Read after the arguments were, because a usage error would repeat it.
pub(super) fn customer_id(text: &str) -> Result<CustomerId, Failure> {
    CustomerId::new(text).map_err(|error| Failure::refused_because(format!("--customer {error}")))
}

/// A text that a person has recorded, such as a note. Read after the arguments were, because a usage error would
/// repeat it. `address` says whether an address may stand in it: the ledger holds none of a customer.
pub(super) fn person_text(option: &str, text: &str, address: bool) -> Result<String, Failure> {
    let text = text.trim();
    let problem = if text.is_empty() {
        "is empty"
    } else if text.len() > 500 {
        "is longer than 500 bytes"
    } else if text.chars().any(char::is_control) {
        "has a line break or another control character"
    } else if !address && text.contains('@') {
        "must not hold an address: it is kept for good, and the ledger holds nothing of a customer"
    } else {
        return Ok(text.to_owned());
    };
    Err(Failure::refused_because(format!("{option} {problem}")))
}

/// A receipt's state.
pub(super) fn state(text: &str) -> Result<State, String> {
    let known = || State::ALL.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", ");
    State::from_word(text).ok_or_else(|| format!("expected one of: {}", known()))
}

/// A receipt's reason.
pub(super) fn reason(text: &str) -> Result<Reason, String> {
    let known = || Reason::ALL.iter().map(|reason| reason.as_str()).collect::<Vec<_>>().join(", ");
    Reason::from_word(text).ok_or_else(|| format!("expected one of: {}", known()))
}

/// A span of time that is not zero.
pub(super) fn duration(text: &str) -> Result<SignedDuration, String> {
    parse_duration(text).filter(|span| !span.is_zero()).ok_or_else(|| DURATION_FORM.to_owned())
}

/// A span of time, zero included, or `auto`.
pub(super) fn wait(text: &str) -> Result<WaitChoice, String> {
    if text == "auto" {
        return Ok(WaitChoice::Auto);
    }
    parse_duration(text).map(WaitChoice::AtMost).ok_or_else(|| format!("{DURATION_FORM}; or auto"))
}
