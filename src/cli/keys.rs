//! `keys`: makes fresh secrets, and shows which key serves which weeks without showing any secret.

use std::fmt;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use super::values::{exact_week, key_id};
use super::{Exit, Failure, Session, open};
use crate::config::{Config, load_keyring};
use crate::identity::IsoWeek;
use crate::identity::keyring::{Keyring, MIN_SECRET_BYTES, key_entry, stable_entry};
use crate::ledger::KeyPin;

/// Make and inspect the keys that receipts are hashed with
#[derive(Debug, Args)]
pub(super) struct KeysArguments {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    Generate(GenerateArguments),
    List(ListArguments),
}

/// Make a fresh keyring, or one more key for a coming week
///
/// A keyring belongs to its ledger for ever: with other secrets every sent digest looks new. Keep a copy of it where
/// you keep secrets.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil keys generate --out keyring.toml
      a new keyring for a new ledger
  counterfoil keys generate --key-only --from-week 2027-W01 >> keyring.toml
      rotation: one more key, for a coming week; past receipts do not change")]
struct GenerateArguments {
    /// The key's id [default: its first week, such as 2026-W01]
    #[arg(long, value_name = "ID", value_parser = key_id)]
    id: Option<String>,

    /// The first week that the key serves [default: the first one of last year; with --key-only next week]
    #[arg(long, value_name = "WEEK", value_parser = exact_week)]
    from_week: Option<IsoWeek>,

    /// Only one `[[key]]` entry, to append to a keyring that is in use
    #[arg(long)]
    key_only: bool,

    /// Write to a new file of mode 0600 instead of standard output; never overwrites
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Show the keys by week, with check values and what the ledger has pinned
#[derive(Debug, Args)]
struct ListArguments {}

/// Runs a command about keys.
pub(super) async fn keys(session: &Session, arguments: KeysArguments) -> Result<Exit, Failure> {
    match arguments.command {
        KeysCommand::Generate(arguments) => generate(session, &arguments),
        KeysCommand::List(_) => list(session).await,
    }
}

fn generate(session: &Session, arguments: &GenerateArguments) -> Result<Exit, Failure> {
    let from_week = match arguments.from_week {
        Some(week) => week,
        None => default_first_week(session.this_week()?, arguments.key_only).map_err(Failure::refused)?,
    };
    let id = arguments.id.clone().unwrap_or_else(|| from_week.to_string());
    let keyring = fresh_keyring(&id, from_week)?;
    let check = Keyring::parse(&keyring)?.for_week(from_week)?.check_value();
    let text = if arguments.key_only { first_entry(&keyring) } else { keyring };
    let Some(path) = &arguments.out else {
        session.output.text(text.expose_secret())?;
        return Ok(Exit::Settled);
    };
    write_private(path, &text)?;
    let check = crate::identity::hex_text(&check);
    session.output.result(&Generated {
        file: path.display().to_string(),
        id,
        from_week: from_week.to_string(),
        check,
    })?;
    Ok(Exit::Settled)
}

/// A new keyring serves every week that a replay may be about; a rotated key begins with a week that has not.
fn default_first_week(this_week: IsoWeek, rotation: bool) -> anyhow::Result<IsoWeek> {
    if rotation {
        return this_week.next().context("there is no next week");
    }
    let last_year = this_week.number() / 100 - 1;
    IsoWeek::from_number(last_year * 100 + 1).context("there is no last year")
}

/// The text of a keyring with one key and the stable secret, both fresh from the operating system.
pub(super) fn fresh_keyring(id: &str, from_week: IsoWeek) -> Result<SecretString, Failure> {
    let (key, stable) = (key_entry(id, from_week, &fresh_secret()?), stable_entry(&fresh_secret()?));
    Ok(format!("{}\n{}", key.expose_secret(), stable.expose_secret()).into())
}

/// A keyring's first week by default.
pub(super) fn first_week_of_new_keyring(this_week: IsoWeek) -> Result<IsoWeek, Failure> {
    default_first_week(this_week, false).map_err(Failure::refused)
}

fn first_entry(keyring: &SecretString) -> SecretString {
    let text = keyring.expose_secret();
    let entry = text.split_once("\n\n").map_or(text, |(entry, _)| entry);
    format!("{}\n", entry.trim_end()).into()
}

fn fresh_secret() -> Result<[u8; MIN_SECRET_BYTES], Failure> {
    let mut secret = [0; MIN_SECRET_BYTES];
    let filled = getrandom::fill(&mut secret).context("the operating system gives no random bytes");
    filled.map_err(Failure::could_not_run)?;
    Ok(secret)
}

/// Writes a secret to a new file that only its owner may use. The file appears whole or not at all, and is on the
/// disk before anything relies on it.
pub(super) fn write_private(path: &Path, text: &SecretString) -> Result<(), Failure> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(directory).and_then(|mut file| {
        file.write_all(text.expose_secret().as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path)?;
        std::fs::File::open(directory)?.sync_all()
    });
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::refused_because(format!(
            "{} exists and is not overwritten: receipts may depend on the keys in it",
            path.display()
        )),
        _ => Failure::could_not_run(anyhow::Error::new(error).context(format!("{} cannot be written", path.display()))),
    })
}

#[derive(Serialize)]
struct Generated {
    file: String,
    id: String,
    from_week: String,
    check: String,
}

impl fmt::Display for Generated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "wrote {} (mode 0600): key {} from {}, check value {}",
            self.file, self.id, self.from_week, self.check
        )
    }
}

async fn list(session: &Session) -> Result<Exit, Failure> {
    let config = session.load()?;
    let keyring = load_keyring(&config.keyring)?;
    let pins = match pins(&config).await {
        Ok(pins) => Some(pins),
        Err(failure) => {
            tracing::warn!("pins are not shown: {}", failure.in_one_line());
            None
        }
    };
    let list = KeyList::new(&keyring, pins.as_deref());
    session.output.result(&list)?;
    Ok(if list.keys.iter().any(|key| key.disagrees > Some(0)) { Exit::Refused } else { Exit::Settled })
}

async fn pins(config: &Config) -> Result<Vec<(IsoWeek, KeyPin)>, Failure> {
    Ok(open::existing_ledger(config).await?.key_pins().await?)
}

#[derive(Serialize)]
struct KeyList {
    keys: Vec<KeyLine>,
    stable_check: String,
    /// Pinned weeks that no key of the keyring serves; absent where the ledger was not reached.
    weeks_without_key: Option<usize>,
}

#[derive(Serialize)]
struct KeyLine {
    id: String,
    from_week: String,
    check: String,
    /// Weeks that the ledger has pinned to this key; absent where the ledger was not reached.
    pinned_weeks: Option<usize>,
    /// Weeks that this key serves by now but that were pinned to another secret.
    disagrees: Option<usize>,
}

impl KeyList {
    fn new(keyring: &Keyring, pins: Option<&[(IsoWeek, KeyPin)]>) -> Self {
        let keys = keyring.keys().iter().map(|key| {
            let served = |week: IsoWeek| keyring.for_week(week).is_ok_and(|found| found.id() == key.id());
            let agrees = |pin: &KeyPin| pin.key_id == key.id() && pin.check == key.check_value();
            let number = |agreeing: bool| {
                pins.map(|pins| pins.iter().filter(|(week, pin)| served(*week) && agrees(pin) == agreeing).count())
            };
            KeyLine {
                id: key.id().to_owned(),
                from_week: key.from_week().to_string(),
                check: crate::identity::hex_text(&key.check_value()),
                pinned_weeks: number(true),
                disagrees: number(false),
            }
        });
        Self {
            keys: keys.collect(),
            stable_check: crate::identity::hex_text(&keyring.stable().check_value()),
            weeks_without_key: pins
                .map(|pins| pins.iter().filter(|(week, _)| keyring.for_week(*week).is_err()).count()),
        }
    }
}

impl fmt::Display for KeyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.keys.iter().map(|key| key.id.len()).max().unwrap_or(0).max("stable".len());
        writeln!(f, "{:width$}  {:8}  {:16}  pinned", "id", "from", "check value")?;
        for key in &self.keys {
            let pinned = match (key.pinned_weeks, key.disagrees) {
                (Some(1), Some(0)) => "1 week".to_owned(),
                (Some(pinned), Some(0)) => format!("{pinned} weeks"),
                (Some(pinned), Some(other)) => format!("{pinned} weeks; {other} WEEKS PINNED TO ANOTHER SECRET"),
                _ => "unknown: the ledger was not reached".to_owned(),
            };
            writeln!(f, "{:width$}  {:8}  {:16}  {pinned}", key.id, key.from_week, key.check)?;
        }
        writeln!(f, "{:width$}  {:8}  {:16}  unsubscribe tokens", "stable", "always", self.stable_check)?;
        match self.weeks_without_key {
            Some(weeks) if weeks > 0 => writeln!(f, "\n{weeks} pinned weeks have no key in this keyring"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_keyring_serves_last_year_and_has_two_secrets() {
        let first = first_week_of_new_keyring("2026-W01".parse().unwrap()).unwrap();
        assert_eq!(first.to_string(), "2025-W01");
        let text = fresh_keyring("k1", first).unwrap();
        let keyring = Keyring::parse(&text).unwrap();
        let key = keyring.for_week("2025-W30".parse().unwrap()).unwrap();
        assert_eq!(key.id(), "k1");
        assert_ne!(key.check_value(), keyring.stable().check_value());
    }

    #[test]
    fn a_rotated_key_is_one_entry_for_next_week() {
        let week = default_first_week("2026-W53".parse().unwrap(), true).unwrap();
        assert_eq!(week.to_string(), "2027-W01");
        let entry = first_entry(&fresh_keyring("k2", week).unwrap());
        let text = entry.expose_secret();
        assert!(
            text.starts_with("[[key]]\nid = \"k2\"\nfrom_week = \"2027-W01\"\nsecret = ") && text.ends_with("\"\n")
        );
        assert!(!text.contains("[stable]"));
    }

    #[test]
    fn pins_are_counted_by_the_key_that_serves_their_week() {
        let text = format!(
            "{}\n{}",
            key_entry("a", "2025-W01".parse().unwrap(), &[1; 32]).expose_secret(),
            stable_entry(&[2; 32]).expose_secret()
        );
        let keyring = Keyring::parse(&text.into()).unwrap();
        let check = keyring.keys()[0].check_value();
        let pin = |week: &str, check| (week.parse().unwrap(), KeyPin { key_id: "a".to_owned(), check });
        let pins = [pin("2025-W02", check), pin("2025-W03", [0; 8]), pin("2024-W03", check)];
        let list = KeyList::new(&keyring, Some(&pins));
        assert_eq!((list.keys[0].pinned_weeks, list.keys[0].disagrees), (Some(1), Some(1)));
        assert_eq!(list.weeks_without_key, Some(1));
        assert_eq!(KeyList::new(&keyring, None).keys[0].pinned_weeks, None);
    }
}
