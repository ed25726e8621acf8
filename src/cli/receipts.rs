//! `receipts`: what the ledger knows of one digest, or of many by filter. Never shows a customer.

use std::fmt;
use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand};
use serde::Serialize;

use super::lookup::{self, KeyPrefix, RunPrefix};
use super::receipt_page::{Detail, List};
use super::snapshot::only_type;
use super::values::{content_version, customer_id, digest_type, exact_week, reason, state, week};
use super::{Exit, Failure, Session, open};
use crate::config::{Config, load_keyring};
use crate::identity::{ContentVersion, DigestType, Identity, IsoWeek, ReceiptKey, WeekSelector};
use crate::ledger::ReceiptFilter;
use crate::receipt::{Reason, State};

/// Look at receipts
#[derive(Debug, Args)]
pub(super) struct ReceiptsArguments {
    #[command(subcommand)]
    command: ReceiptsCommand,
}

#[derive(Debug, Subcommand)]
enum ReceiptsCommand {
    Show(ShowArguments),
    List(ListArguments),
}

/// Show one receipt with everything that happened to it
///
/// The ledger holds no customer id: it is hashed with the week's key from the keyring to find the receipt.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil receipts show --customer customer_8421 --week 2026-W32
  counterfoil receipts show --key 433ae5f22615")]
#[command(group(ArgGroup::new("which").args(["key", "customer"]).required(true)))]
struct ShowArguments {
    /// The receipt key, 64 hex digits, or its beginning as log lines show it
    #[arg(long, value_name = "HEX")]
    #[arg(conflicts_with_all = ["customer", "week", "digest_type", "content_version"])]
    key: Option<KeyPrefix>,

    /// The customer's id
    // A text here and checked later: a usage error would repeat it.
    #[arg(long, value_name = "ID")]
    customer: Option<String>,

    /// The week: last, current, or one such as 2026-W32 [default: last]
    #[arg(long, value_name = "WEEK", value_parser = week)]
    week: Option<WeekSelector>,

    /// The digest's type [default: the only configured one]
    #[arg(long = "type", value_name = "TYPE", value_parser = digest_type)]
    digest_type: Option<DigestType>,

    /// The content version [default: the configured one]
    #[arg(long, value_name = "VERSION", value_parser = content_version)]
    content_version: Option<ContentVersion>,
}

/// List receipts by week and key; all given conditions hold
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil receipts list --week 2026-W32 --state held
  counterfoil receipts list --run 1f6c0a3b9d2e --state failed --reason rejected --format json")]
struct ListArguments {
    /// Of this week
    #[arg(long, value_name = "WEEK", value_parser = exact_week)]
    week: Option<IsoWeek>,

    /// In this state: claimed, sent, retryable, held, failed, quarantined, suppressed
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<State>,

    /// With this reason, such as rejected or render_error
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: Option<Reason>,

    /// Only those under whose key another content was presented: a sent one stays sent
    #[arg(long)]
    in_conflict: bool,

    /// Of this run, by its id or the beginning of it
    #[arg(long, value_name = "ID")]
    run: Option<RunPrefix>,

    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,

    /// Behind this place, as the end of an earlier list names it
    #[arg(long, value_name = "WEEK:KEY")]
    after: Option<Place>,
}

/// A place in the order (week, key).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(pub(super) IsoWeek, pub(super) ReceiptKey);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "expected a week, a colon and a receipt key, as the end of an earlier list names them".to_owned();
        let (week, key) = text.split_once(':').ok_or_else(form)?;
        Ok(Self(week.parse().map_err(|_| form())?, ReceiptKey::from_hex(key).ok_or_else(form)?))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

/// Runs a command about receipts.
pub(super) async fn receipts(session: &Session, arguments: ReceiptsArguments) -> Result<Exit, Failure> {
    match arguments.command {
        ReceiptsCommand::Show(arguments) => show(session, arguments).await,
        ReceiptsCommand::List(arguments) => list(session, arguments).await,
    }
}

/// One receipt, or that there is none: both are answers.
#[derive(Serialize)]
struct Answer {
    receipt_key: String,
    receipt: Option<Detail>,
    /// Which digest was asked for, where it was by customer.
    #[serde(skip)]
    asked_for: Option<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.receipt {
            Some(detail) => write!(f, "{detail}"),
            None => {
                let asked_for = self.asked_for.iter().map(|digest| format!(" ({digest})")).collect::<String>();
                writeln!(f, "there is no receipt {}{asked_for}", self.receipt_key)?;
                writeln!(f, "nothing was sent under it, as far as this ledger knows")
            }
        }
    }
}

async fn show(session: &Session, arguments: ShowArguments) -> Result<Exit, Failure> {
    let customer = arguments.customer.as_deref().map(customer_id).transpose()?;
    let config = session.load()?;
    let ledger = open::existing_ledger(&config).await?;
    let mut asked_for = None;
    let key = match (&arguments.key, customer) {
        (Some(wanted), _) => lookup::receipt_key(ledger.as_ref(), wanted).await?,
        (None, Some(customer_id)) => {
            let selector = arguments.week.unwrap_or(WeekSelector::Last);
            let week = selector.resolve(ledger.now().await?, &config.time_zone).map_err(Failure::refused)?;
            let digest_type = only_type(&config, arguments.digest_type)?;
            let content_version = version(&config, &digest_type, arguments.content_version)?;
            let (digest_type, content_version) = (&digest_type, &content_version);
            let identity = Identity { customer_id: &customer_id, iso_week: week, digest_type, content_version };
            asked_for = Some(format!("{digest_type} {content_version}, week {week}"));
            load_keyring(&config.keyring)?.for_week(week)?.receipt_key(&identity)
        }
        (None, None) => return Err(Failure::refused_because("give --key or --customer")),
    };
    let receipt = match ledger.receipt(&key).await? {
        Some(record) => Some(Detail::new(&record, &ledger.events(record.iso_week, &key).await?)),
        None => None,
    };
    session.output.result(&Answer { receipt_key: key.to_string(), receipt, asked_for })?;
    Ok(Exit::Settled)
}

/// The version that is meant: the one that was named, or the configured one of a type.
pub(super) fn version(
    config: &Config,
    digest_type: &DigestType,
    named: Option<ContentVersion>,
) -> Result<ContentVersion, Failure> {
    let configured = || config.digests.get(digest_type).map(|digest| digest.content_version.clone());
    named.or_else(configured).ok_or_else(|| Failure::refused_because(format!("there is no [digest.{digest_type}]")))
}

async fn list(session: &Session, arguments: ListArguments) -> Result<Exit, Failure> {
    let config = session.load()?;
    let ledger = open::existing_ledger(&config).await?;
    let run_id = match &arguments.run {
        Some(wanted) => Some(lookup::run_id(&config, ledger.as_ref(), wanted).await?),
        None => None,
    };
    let filter = ReceiptFilter {
        iso_week: arguments.week,
        state: arguments.state,
        reason: arguments.reason,
        in_conflict: arguments.in_conflict,
        waits_for_person: false,
        run_id,
        after: arguments.after.map(|place| (place.0, place.1)),
        limit: arguments.limit,
    };
    session.output.result(&List::page(&ledger.receipts(&filter).await?, filter.limit))?;
    Ok(Exit::Settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_as_it_is_printed() {
        let place = Place("2026-W32".parse().unwrap(), ReceiptKey::from_bytes([0x43; 32]));
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in ["", "2026-W32", "2026-W32:43", "2025-W53:43"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
