//! `suppress`: who gets nothing. Addresses come in, only their keyed hashes go on; nothing here repeats one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::suppression_file::{BadLine, Entry, EntryReader, ReadError};
use super::{Exit, Failure, Session, open};
use crate::config::{Config, load_keyring};
use crate::identity::DigestType;
use crate::identity::keyring::Keyring;
use crate::ledger::{AddressHash, IdentityPin, Ledger, Suppression, SuppressionReason};
use crate::run;
use crate::snapshot::NormalAddress;

/// Entries that one transaction takes, so that a list of any length needs the same memory.
const BATCH: usize = 1_000;

/// Bad lines that are named; the others are counted.
const NAMED_BAD_LINES: usize = 20;

/// The reason of an entry for which none is given.
const NO_REASON: &str = "unspecified";

/// Keep the list of addresses that get nothing
///
/// The ledger holds keyed hashes of the addresses, made with the keyring's `[stable]` secret; no address can be read from
/// it. Spellings of one address are one: capitals, white space around it, an international domain. A run reads the
/// list right before each batch is sent.
#[derive(Debug, Args)]
pub(super) struct SuppressArguments {
    #[command(subcommand)]
    command: SuppressCommand,
}

#[derive(Debug, Subcommand)]
enum SuppressCommand {
    Add(AddArguments),
    Remove(RemoveArguments),
    Import(ImportArguments),
    Check(CheckArguments),
    /// Anything else, taken here because the parser's refusal would repeat it, and it may be an address.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// Put addresses on the list
#[derive(Debug, Args)]
#[command(after_long_help = "\
Arguments can be seen by other users of the machine while the command runs; `-` reads the addresses
from standard input, in any form that `suppress import` takes.

Examples:
  counterfoil suppress add - --reason unsubscribed < addresses.txt
  counterfoil suppress add zoe@example.test --type weekly_activity")]
struct AddArguments {
    /// The addresses, or - for standard input
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<String>,

    #[command(flatten)]
    entry: EntryArguments,
}

/// Take addresses off the list
///
/// A digest that ended as `suppressed` stays so until a person reviews it; what is sent later, goes out again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
`-` reads the addresses from standard input, in any form that `suppress import` takes; a line's own
digest_type goes before --type.")]
struct RemoveArguments {
    /// The addresses, or - for standard input
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<String>,

    /// Only the entry for this type [default: every entry of the address]
    // A text here and checked later, as every value of `suppress`: a usage error would repeat it.
    #[arg(long = "type", value_name = "TYPE")]
    digest_type: Option<String>,
}

/// Put the addresses of a file on the list
///
/// The file has one address a line; or CSV with a heading, or JSON Lines, with `address` and, where wanted, `reason`
/// and `digest_type`. Bad lines are named by number, the others are taken: then the command ends with 3. Importing
/// again is safe.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil suppress import unsubscribed.csv --reason unsubscribed
  zstdcat bounces.jsonl.zst | counterfoil suppress import -")]
struct ImportArguments {
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    entry: EntryArguments,
}

/// Say whether an address is on the list, why and since when
#[derive(Debug, Args)]
struct CheckArguments {
    /// The address, or - for standard input
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<String>,

    /// Whether it gets this type [default: any]
    #[arg(long = "type", value_name = "TYPE")]
    digest_type: Option<String>,
}

/// What an entry says where its line does not.
#[derive(Debug, Args)]
struct EntryArguments {
    /// Why: one word, such as unsubscribed or bounced [default: unspecified]
    #[arg(long, value_name = "WORD")]
    reason: Option<String>,

    /// Only this type of digest [default: every type]
    #[arg(long = "type", value_name = "TYPE")]
    digest_type: Option<String>,
}

/// Runs a command about the suppression list.
pub(super) async fn suppress(session: &Session, arguments: SuppressArguments) -> Result<Exit, Failure> {
    match arguments.command {
        SuppressCommand::Add(arguments) => {
            let entries = Entries::named(arguments.addresses)?;
            add(session, entries, arguments.entry).await
        }
        SuppressCommand::Import(arguments) => {
            let entries = Entries::of_file(&arguments.file)?;
            add(session, entries, arguments.entry).await
        }
        SuppressCommand::Remove(arguments) => remove(session, arguments).await,
        SuppressCommand::Check(arguments) => check(session, arguments).await,
        SuppressCommand::Other(words) => Err(unknown(&words)),
    }
}

/// What was typed in place of a command, without repeating it.
fn unknown(words: &[OsString]) -> Failure {
    let failure = Failure::refused_because("suppress: expected add, remove, import or check");
    if words.iter().any(|word| word.to_string_lossy().contains('@')) {
        return failure.with_hint("`counterfoil suppress add` puts an address on the list");
    }
    failure.with_hint("`counterfoil suppress --help` shows what each takes")
}

/// Where entries come from.
enum Entries {
    Named(std::vec::IntoIter<Entry>),
    Lines(EntryReader<Box<dyn BufRead>>, String),
}

impl Entries {
    /// The addresses of the command line, all good or none taken.
    fn named(addresses: Vec<String>) -> Result<Self, Failure> {
        if addresses == ["-"] {
            return Ok(Self::Lines(EntryReader::new(Box::new(BufReader::new(io::stdin()))), stdin_name()));
        }
        let read = |(index, text): (usize, String)| {
            let address = NormalAddress::parse(&text)
                .map_err(|reason| Failure::refused_because(format!("address {} {reason}", index + 1)))?;
            Ok(Entry { line: 0, address, reason: None, digest_type: None })
        };
        let entries = addresses.into_iter().enumerate().map(read).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Self::Named(entries.into_iter()))
    }

    fn of_file(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Self::named(vec!["-".to_owned()]);
        }
        let name = path.display().to_string();
        // The name may be an address that was meant for `add`.
        let shown = if name.contains('@') { "the file".to_owned() } else { name };
        let file = File::open(path).with_context(|| format!("cannot read {shown}")).map_err(Failure::refused)?;
        Ok(Self::Lines(EntryReader::new(Box::new(BufReader::new(file))), shown))
    }

    fn next(&mut self) -> Result<Option<Result<Entry, BadLine>>, Failure> {
        match self {
            Self::Named(entries) => Ok(entries.next().map(Ok)),
            Self::Lines(reader, name) => reader.next_entry().map_err(|error| match error {
                ReadError::Io(error) => {
                    Failure::could_not_run(anyhow::Error::new(error).context(format!("cannot read {name}")))
                }
                ReadError::Heading { .. } => Failure::refused_because(format!("{name}: {error}")),
            }),
        }
    }

    /// The next entries, as many as one transaction takes; empty at the end.
    fn next_batch(&mut self, types: &Types<'_>, bad: &mut Bad) -> Result<Vec<Entry>, Failure> {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            match self.next()? {
                None => break,
                Some(Err(line)) => bad.note(line),
                Some(Ok(entry)) if !types.knows(entry.digest_type.as_ref()) => {
                    bad.note(BadLine { line: entry.line, reason: "digest_type is not configured".to_owned() });
                }
                Some(Ok(entry)) => batch.push(entry),
            }
        }
        Ok(batch)
    }
}

fn stdin_name() -> String {
    "standard input".to_owned()
}

/// Which types an entry may be for.
enum Types<'a> {
    /// Those of the configuration: an entry for a misspelt one would keep nobody from anything.
    Configured(&'a Config),
    /// Any: what is taken off may be of a type that is not configured any more.
    Any,
}

impl Types<'_> {
    fn knows(&self, digest_type: Option<&DigestType>) -> bool {
        match (self, digest_type) {
            (Self::Configured(config), Some(digest_type)) => config.digests.contains_key(digest_type),
            _ => true,
        }
    }

    /// Reads `--type`.
    fn named(&self, text: Option<&str>) -> Result<Option<DigestType>, Failure> {
        let digest_type = text
            .map(DigestType::new)
            .transpose()
            .map_err(|error| Failure::refused_because(format!("--type {error}")))?;
        match self {
            Self::Configured(config) if !self.knows(digest_type.as_ref()) => {
                let known: Vec<&str> = config.digests.keys().map(DigestType::as_str).collect();
                let known = known.join(", ");
                Err(Failure::refused_because(format!("--type names no configured type; configured: {known}")))
            }
            _ => Ok(digest_type),
        }
    }
}

/// Bad lines: the first ones by number and reason, the others by count.
#[derive(Debug, Default)]
struct Bad {
    count: u64,
    named: Vec<BadLine>,
}

impl Bad {
    fn note(&mut self, line: BadLine) {
        self.count += 1;
        if self.named.len() < NAMED_BAD_LINES {
            self.named.push(line);
        }
    }

    fn exit(&self) -> Exit {
        if self.count == 0 { Exit::Settled } else { Exit::NeedsPerson }
    }
}

/// What must agree with the ledger before a hash of ours means anything in it.
fn identity(config: &Config, keyring: &Keyring) -> IdentityPin {
    IdentityPin { environment: config.environment.clone(), stable: keyring.stable().check_value() }
}

/// The ledger as it is, with a list that our keyring can read.
async fn readable_list(config: &Config, keyring: &Keyring) -> Result<Arc<dyn Ledger>, Failure> {
    let ledger = open::existing_ledger(config).await?;
    if let Some(standing) = ledger.pinned_identity().await? {
        run::same_identity(&standing, &identity(config, keyring))?;
    }
    Ok(ledger)
}

fn hash(keyring: &Keyring, address: &NormalAddress) -> AddressHash {
    keyring.stable().suppression(address.as_str())
}

/// What adding did.
#[derive(Debug, Serialize)]
struct Added {
    added: u64,
    already_there: u64,
    bad: u64,
    bad_lines: Vec<BadLine>,
}

impl fmt::Display for Added {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} added, {} already there, {} bad", self.added, self.already_there, self.bad)?;
        bad_lines(f, &self.bad_lines, self.bad)
    }
}

fn bad_lines(f: &mut fmt::Formatter<'_>, named: &[BadLine], count: u64) -> fmt::Result {
    named.iter().try_for_each(|bad| writeln!(f, "  line {}: {}", bad.line, bad.reason))?;
    match count.saturating_sub(named.len() as u64) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more"),
    }
}

async fn add(session: &Session, mut entries: Entries, arguments: EntryArguments) -> Result<Exit, Failure> {
    let reason = SuppressionReason::new(arguments.reason.as_deref().unwrap_or(NO_REASON))
        .map_err(|reason| Failure::refused_because(format!("--reason {reason}")))?;
    let config = session.load()?;
    let types = Types::Configured(&config);
    let scope = types.named(arguments.digest_type.as_deref())?;
    let keyring = load_keyring(&config.keyring)?;
    let ledger = open::migrated_ledger(&config).await?;
    // Before the first hash is stored: under another secret the list would silently be empty.
    let ours = identity(&config, &keyring);
    run::same_identity(&ledger.pin_identity(&ours).await?, &ours)?;
    let mut bad = Bad::default();
    let (mut asked, mut added) = (0, 0);
    loop {
        let batch = entries.next_batch(&types, &mut bad)?;
        if batch.is_empty() {
            break;
        }
        let batch: Vec<Suppression> = batch
            .into_iter()
            .map(|entry| Suppression {
                address_hash: hash(&keyring, &entry.address),
                digest_type: entry.digest_type.or_else(|| scope.clone()),
                reason: entry.reason.unwrap_or_else(|| reason.clone()),
            })
            .collect();
        asked += batch.len() as u64;
        added += ledger.suppress(&batch).await?;
    }
    let exit = bad.exit();
    let done = Added { added, already_there: asked.saturating_sub(added), bad: bad.count, bad_lines: bad.named };
    session.output.result(&done)?;
    Ok(exit)
}

/// What removing did.
#[derive(Debug, Serialize)]
struct Removed {
    removed: u64,
    still_suppressed: u64,
    bad: u64,
    bad_lines: Vec<BadLine>,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = if self.removed == 1 { "entry" } else { "entries" };
        writeln!(f, "{} {entries} removed, {} bad", self.removed, self.bad)?;
        if self.still_suppressed > 0 {
            writeln!(
                f,
                "{} of the addresses still get nothing: an entry for every type stands",
                self.still_suppressed
            )?;
        }
        bad_lines(f, &self.bad_lines, self.bad)
    }
}

async fn remove(session: &Session, arguments: RemoveArguments) -> Result<Exit, Failure> {
    let mut entries = Entries::named(arguments.addresses)?;
    let scope = Types::Any.named(arguments.digest_type.as_deref())?;
    let config = session.load()?;
    let keyring = load_keyring(&config.keyring)?;
    let ledger = readable_list(&config, &keyring).await?;
    let mut bad = Bad::default();
    let (mut removed, mut still_suppressed) = (0, 0);
    loop {
        let batch = entries.next_batch(&Types::Any, &mut bad)?;
        if batch.is_empty() {
            break;
        }
        let mut by_scope: BTreeMap<Option<DigestType>, Vec<AddressHash>> = BTreeMap::new();
        for entry in batch {
            let scope = entry.digest_type.or_else(|| scope.clone());
            by_scope.entry(scope).or_default().push(hash(&keyring, &entry.address));
        }
        for (scope, hashes) in by_scope {
            removed += ledger.unsuppress(&hashes, scope.as_ref()).await?;
            if let Some(digest_type) = scope {
                let standing = ledger.suppressed(&hashes, &digest_type).await?;
                still_suppressed += standing.into_iter().filter(|standing| *standing).count() as u64;
            }
        }
    }
    let exit = bad.exit();
    session.output.result(&Removed { removed, still_suppressed, bad: bad.count, bad_lines: bad.named })?;
    Ok(exit)
}

/// What the list says about one address.
#[derive(Debug, Serialize)]
struct Standing {
    suppressed: bool,
    entries: Vec<StandingEntry>,
}

#[derive(Debug, Serialize)]
struct StandingEntry {
    digest_type: Option<String>,
    reason: String,
    added_at: String,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.suppressed {
            return writeln!(f, "not on the list");
        }
        self.entries.iter().try_for_each(|entry| {
            let scope = entry.digest_type.as_deref().unwrap_or("every type");
            writeln!(f, "on the list for {scope}: {}, since {}", entry.reason, entry.added_at)
        })
    }
}

async fn check(session: &Session, arguments: CheckArguments) -> Result<Exit, Failure> {
    let one = || Failure::refused_because("give one address");
    if arguments.addresses.len() != 1 {
        return Err(one());
    }
    let mut entries = Entries::named(arguments.addresses)?;
    let entry = entries.next()?.ok_or_else(one)?;
    let entry = entry.map_err(|bad| Failure::refused_because(format!("line {}: {}", bad.line, bad.reason)))?;
    if entries.next()?.is_some() {
        return Err(one());
    }
    let config = session.load()?;
    let scope = Types::Any.named(arguments.digest_type.as_deref())?;
    let keyring = load_keyring(&config.keyring)?;
    let ledger = readable_list(&config, &keyring).await?;
    let mut found = ledger.suppressions(&hash(&keyring, &entry.address)).await?;
    if scope.is_some() {
        found.retain(|entry| entry.digest_type.is_none() || entry.digest_type == scope);
    }
    let entries: Vec<StandingEntry> = found
        .into_iter()
        .map(|entry| StandingEntry {
            digest_type: entry.digest_type.map(|digest_type| digest_type.as_str().to_owned()),
            reason: entry.reason.as_str().to_owned(),
            added_at: entry.added_at.to_string(),
        })
        .collect();
    session.output.result(&Standing { suppressed: !entries.is_empty(), entries })?;
    Ok(Exit::Settled)
}
