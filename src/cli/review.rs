//! `review`: a person decides what the program cannot, about one receipt or many. Every decision is recorded with who
//! and why; what it does to a receipt is decided by [`crate::receipt::review()`], inside the ledger's lock.

use clap::{ArgGroup, Args, Subcommand};
use jiff::SignedDuration;

use super::lookup::{self, KeyPrefix, RunPrefix};
use super::receipt_page::List;
use super::receipts::Place;
use super::review_page::Decided;
use super::values::{duration, exact_week, person_text, reason, state};
use super::{Exit, Failure, Session, open};
use crate::config::Config;
use crate::identity::{Fingerprint, IsoWeek};
use crate::ledger::{Ledger, ReceiptFilter, ReceiptRecord, Review, ReviewAnswer};
use crate::receipt::{Decision, Reason, State};

/// Receipts that are read at once.
const PAGE: u32 = 1_000;

/// Decide about receipts that wait for a person
///
/// What is held, quarantined or failed is never sent again by the program itself. Every decision is recorded in the
/// receipt's history with who made it and why.
#[derive(Debug, Args)]
pub(super) struct ReviewArguments {
    #[command(subcommand)]
    command: ReviewCommand,
}

#[derive(Debug, Subcommand)]
enum ReviewCommand {
    List(ListArguments),
    ConfirmSent(ConfirmArguments),
    Resend(ResendArguments),
    Discard(DiscardArguments),
}

/// List what waits for a person, by week and key; all given conditions hold
///
/// Without --state and --reason: what is held, quarantined or in conflict, what failed for another reason than the
/// provider's refusal, and what nobody takes up any more because its run was closed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil review list
  counterfoil review list --week 2026-W32 --state held --format json")]
struct ListArguments {
    /// Of this run, by its id or the beginning of it
    #[arg(long, value_name = "ID")]
    run: Option<RunPrefix>,

    /// Of this week
    #[arg(long, value_name = "WEEK", value_parser = exact_week)]
    week: Option<IsoWeek>,

    /// All in this state, such as held, failed, quarantined or suppressed
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<State>,

    /// All with this reason, such as undecidable or attempts_exhausted
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: Option<Reason>,

    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,

    /// Behind this place, as the end of an earlier list names it
    #[arg(long, value_name = "WEEK:KEY")]
    after: Option<Place>,
}

/// Record that the message was accepted: somebody found it at the provider
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil review confirm-sent 433ae5f22615 --by ops --note \"in the relay's log\" --reference 4bX9zQ2mWz
  counterfoil review confirm-sent --run 1f6c0a3b9d2e --reason undecidable --by ops --note \"relay took all\"")]
struct ConfirmArguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    person: Person,

    /// The provider's reference, such as a queue id
    #[arg(long, value_name = "REF", conflicts_with = "run")]
    reference: Option<String>,
}

/// Let it be sent again, by the next `counterfoil run`
///
/// Opens the receipt's run again, for this receipt alone. Refused while another content version of the week is being
/// sent or was sent, and after the run's deadline unless --send-within says otherwise.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil review resend 433ae5f22615 --by ops --note \"not in the relay's log\" --accept-duplicate
  counterfoil review resend --run 1f6c0a3b9d2e --reason rejected --by ops --note \"sender mended\" --dry-run")]
struct ResendArguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    person: Person,

    /// Of two contents under one key, the one to send, by its 64 hex digits
    #[arg(long, value_name = "HEX", conflicts_with = "run", value_parser = fingerprint)]
    fingerprint: Option<Fingerprint>,

    /// Where an attempt may have been accepted: send all the same, some may get it twice
    #[arg(long)]
    accept_duplicate: bool,

    /// A later deadline of the run, after the week's end, such as "30 days"
    #[arg(long, value_name = "TIME", value_parser = duration)]
    send_within: Option<SignedDuration>,
}

/// Let it not be sent any more, and close its conflict; what is sent stays sent
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil review discard 433ae5f22615 --by ops --note \"account is closed\"
  counterfoil review discard --run 1f6c0a3b9d2e --reason conflict --by ops --note \"wrong export\" --limit 10")]
struct DiscardArguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    person: Person,
}

/// One receipt, or many.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").args(["key", "run"]).required(true)))]
struct Which {
    /// The receipt key, 64 hex digits, or its beginning as log lines show it
    #[arg(value_name = "KEY")]
    key: Option<KeyPrefix>,

    /// Many at once: of this run, by its id or the beginning of it
    #[arg(long, value_name = "ID", requires = "reason")]
    run: Option<RunPrefix>,

    /// Many at once: with this reason
    #[arg(long, value_name = "REASON", requires = "run", value_parser = reason)]
    reason: Option<Reason>,

    /// Many at once: at most this many
    #[arg(long, value_name = "N", requires = "run", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Decide, show what would come of it, record nothing
    #[arg(long)]
    dry_run: bool,
}

/// Who decides, and why; recorded for good.
#[derive(Debug, Args)]
pub(super) struct Person {
    /// Who decides; recorded
    #[arg(long, value_name = "WHO")]
    by: String,

    /// Why; recorded, without customers' names or addresses
    #[arg(long, value_name = "WHY")]
    note: String,
}

impl Person {
    /// Both texts, fit to be recorded.
    ///
    /// # Errors
    /// An empty or overlong text, or one with an address in it.
    pub(super) fn texts(&self) -> Result<(String, String), Failure> {
        Ok((person_text("--by", &self.by, true)?, person_text("--note", &self.note, false)?))
    }
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    Fingerprint::from_hex(text).ok_or_else(|| "expected the 64 hex digits of a fingerprint".to_owned())
}

/// Runs a command about decisions.
pub(super) async fn review(session: &Session, arguments: ReviewArguments) -> Result<Exit, Failure> {
    match arguments.command {
        ReviewCommand::List(arguments) => list(session, arguments).await,
        ReviewCommand::ConfirmSent(arguments) => {
            let named = arguments.reference.as_deref();
            let reference = named.map(|text| person_text("--reference", text, true)).transpose()?;
            let decision = |_: &Config, _| Ok(Decision::ConfirmSent { reference: reference.clone() });
            decide(session, &arguments.which, &arguments.person, "confirmed as sent", decision).await
        }
        ReviewCommand::Resend(arguments) => {
            let decision = |config: &Config, week| arguments.decision(config, week);
            decide(session, &arguments.which, &arguments.person, "to be sent again", decision).await
        }
        ReviewCommand::Discard(arguments) => {
            let decision = |_: &Config, _| Ok(Decision::Discard);
            decide(session, &arguments.which, &arguments.person, "discarded", decision).await
        }
    }
}

impl ResendArguments {
    fn decision(&self, config: &Config, week: IsoWeek) -> Result<Decision, Failure> {
        let end = week.end(&config.time_zone).map_err(Failure::refused)?;
        let send_until = self.send_within.map(|span| end.saturating_add(span).map_err(Failure::refused)).transpose()?;
        Ok(Decision::Resend { content: self.fingerprint, accept_duplicate: self.accept_duplicate, send_until })
    }
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
        waits_for_person: arguments.state.is_none() && arguments.reason.is_none(),
        run_id,
        after: arguments.after.map(|place| (place.0, place.1)),
        limit: arguments.limit,
        ..ReceiptFilter::default()
    };
    session.output.result(&List::page(&ledger.receipts(&filter).await?, filter.limit))?;
    Ok(Exit::Settled)
}

/// Carries one decision out, about every receipt that is meant.
async fn decide(
    session: &Session,
    which: &Which,
    person: &Person,
    done: &'static str,
    decision: impl Fn(&Config, IsoWeek) -> Result<Decision, Failure>,
) -> Result<Exit, Failure> {
    let (actor, note) = person.texts()?;
    let config = session.load()?;
    let ledger = open::existing_ledger(&config).await?;
    let mut decided = Decided::new(done, which.dry_run);
    let one = |record: &ReceiptRecord| -> Result<Review, Failure> {
        Ok(Review {
            key: record.key,
            iso_week: record.iso_week,
            seen_state: record.standing.state,
            seen_grant: record.grant_number,
            decision: decision(&config, record.iso_week)?,
            actor: actor.clone(),
            note: note.clone(),
            dry_run: which.dry_run,
        })
    };
    if let Some(wanted) = &which.key {
        let key = lookup::receipt_key(ledger.as_ref(), wanted).await?;
        let record = ledger.receipt(&key).await?;
        let record = record.ok_or_else(|| Failure::refused_because(format!("there is no receipt {key}")))?;
        let answer = ledger.review(&one(&record)?).await?;
        if let Some(why) = refusal(&answer) {
            return Err(Failure::refused_because(format!("receipt {}: {why}", key.short())));
        }
        decided.count(&key, &answer);
    } else if let (Some(run), Some(reason)) = (&which.run, which.reason) {
        let run_id = lookup::run_id(&config, ledger.as_ref(), run).await?;
        many(ledger.as_ref(), run_id, reason, which.limit.unwrap_or(u64::MAX), one, &mut decided).await?;
    }
    session.output.result(&decided)?;
    Ok(if decided.refused.is_empty() { Exit::Settled } else { Exit::NeedsPerson })
}

/// Decides about a run's receipts with a reason, page by page in key order.
async fn many(
    ledger: &dyn Ledger,
    run_id: String,
    reason: Reason,
    limit: u64,
    one: impl Fn(&ReceiptRecord) -> Result<Review, Failure>,
    decided: &mut Decided,
) -> Result<(), Failure> {
    let iso_week = ledger.run(&run_id).await?.map(|run| run.new.iso_week);
    let mut filter =
        ReceiptFilter { iso_week, reason: Some(reason), run_id: Some(run_id), limit: PAGE, ..ReceiptFilter::default() };
    let mut left = limit;
    while left > 0 {
        let records = ledger.receipts(&filter).await?;
        let Some(last) = records.last() else { break };
        filter.after = Some((last.iso_week, last.key));
        for record in records.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            decided.count(&record.key, &ledger.review(&one(record)?).await?);
        }
        left = left.saturating_sub(records.len() as u64);
    }
    Ok(())
}

/// Why a decision was not carried out.
pub(super) fn refusal(answer: &ReviewAnswer) -> Option<String> {
    match answer {
        ReviewAnswer::Recorded(_) => None,
        ReviewAnswer::Refused(refusal) => Some(refusal.to_string()),
        ReviewAnswer::Changed(state) => {
            Some(format!("it has changed since it was looked at and is {state} now; look again and decide again"))
        }
        ReviewAnswer::Absent => Some("it is gone".to_owned()),
    }
}
