//! Finds a run or a receipt by the beginning of its id, as log lines and summaries show it. The ledger has no index
//! over them: a look goes through the weeks that it has pinned a key for, with one short question each.

use std::str::FromStr;

use super::Failure;
use crate::config::Config;
use crate::identity::{IsoWeek, ReceiptKey};
use crate::ledger::{Ledger, ReceiptFilter};

/// Digits of a receipt key and of a run's id.
const KEY_DIGITS: usize = 64;
const RUN_DIGITS: usize = 32;
/// As many as logs, errors and summaries show.
const SHORT_DIGITS: usize = 12;

/// The beginning of a receipt key, or all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyPrefix(String);

impl FromStr for KeyPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        prefix(text, KEY_DIGITS)
            .map(Self)
            .ok_or_else(|| format!("expected the {KEY_DIGITS} hex digits of a receipt key, or at least the first 12"))
    }
}

/// The beginning of a run's id, or all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunPrefix(String);

impl FromStr for RunPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        prefix(text, RUN_DIGITS)
            .map(Self)
            .ok_or_else(|| format!("expected the {RUN_DIGITS} hex digits of a run's id, or at least the first 12"))
    }
}

fn prefix(text: &str, digits: usize) -> Option<String> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    ((SHORT_DIGITS..=digits).contains(&text.len()) && is_hex).then(|| text.to_ascii_lowercase())
}

/// The receipt key that begins like this.
///
/// # Errors
/// None or several, a ledger out of reach. A whole key is an answer even where there is no receipt of it.
pub(super) async fn receipt_key(ledger: &dyn Ledger, wanted: &KeyPrefix) -> Result<ReceiptKey, Failure> {
    if let Some(key) = ReceiptKey::from_hex(&wanted.0) {
        return Ok(key);
    }
    let mut found = Vec::new();
    for week in weeks(ledger).await? {
        let filter = ReceiptFilter {
            iso_week: Some(week),
            after: last_before(&wanted.0).map(|key| (week, key)),
            limit: 2,
            ..ReceiptFilter::default()
        };
        let keys = ledger.receipts(&filter).await?.into_iter().map(|record| record.key);
        found.extend(keys.filter(|key| key.to_string().starts_with(&wanted.0)));
    }
    match found.as_slice() {
        [only] => Ok(*only),
        [] => Err(Failure::refused_because(format!("no receipt's key begins with {}", wanted.0))),
        _ => Err(several("receipt's key", &wanted.0)),
    }
}

/// The id of the run that begins like this.
///
/// # Errors
/// None or several, a ledger out of reach.
pub(super) async fn run_id(config: &Config, ledger: &dyn Ledger, wanted: &RunPrefix) -> Result<String, Failure> {
    let mut found: Vec<String> = ledger.run(&wanted.0).await?.into_iter().map(|run| run.new.run_id).collect();
    if wanted.0.len() < RUN_DIGITS {
        for week in weeks(ledger).await? {
            for digest_type in config.digests.keys() {
                let runs = ledger.runs_of_week(week, digest_type).await?.into_iter().map(|run| run.new.run_id);
                found.extend(runs.filter(|id| id.starts_with(&wanted.0)));
            }
        }
    }
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::refused_because(format!("the ledger has no run {}", wanted.0))
            .with_hint("a run in mode observe has no receipts")),
        _ => Err(several("run", &wanted.0)),
    }
}

fn several(what: &str, prefix: &str) -> Failure {
    Failure::refused_because(format!("more than one {what} begins with {prefix}")).with_hint("give more of its digits")
}

async fn weeks(ledger: &dyn Ledger) -> Result<Vec<IsoWeek>, Failure> {
    Ok(ledger.key_pins().await?.into_iter().map(|(week, _)| week).collect())
}

/// The greatest key before every key that begins like this; `None` where there is no smaller one.
fn last_before(prefix: &str) -> Option<ReceiptKey> {
    let first = ReceiptKey::from_hex(&format!("{prefix:0<KEY_DIGITS$}"))?;
    let mut bytes = *first.as_bytes();
    for byte in bytes.iter_mut().rev() {
        let (less, borrow) = byte.overflowing_sub(1);
        *byte = less;
        if !borrow {
            return Some(ReceiptKey::from_bytes(bytes));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_has_at_least_as_many_digits_as_logs_show() {
        assert_eq!("433AE5F22615".parse(), Ok(KeyPrefix("433ae5f22615".to_owned())));
        assert!("433ae5f2261".parse::<KeyPrefix>().unwrap_err().contains("at least the first 12"));
        assert!("433ae5f2261z".parse::<KeyPrefix>().is_err());
        assert!("0".repeat(64).parse::<KeyPrefix>().is_ok());
        assert!("0".repeat(33).parse::<RunPrefix>().is_err());
        assert!("0".repeat(32).parse::<RunPrefix>().is_ok());
    }

    #[test]
    fn the_key_before_a_beginning_is_the_greatest_smaller_one() {
        let before = last_before("100000000000").unwrap().to_string();
        assert_eq!(before, format!("0{}", "f".repeat(63)));
        assert_eq!(last_before("0000000000a0").unwrap().to_string(), format!("00000000009f{}", "f".repeat(52)));
        assert_eq!(last_before(&"0".repeat(12)), None);
    }
}
