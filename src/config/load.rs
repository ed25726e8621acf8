//! From the file's text and the environment to a validated [`Config`]. The only I/O is reading that one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use secrecy::SecretString;
use toml::Table;

use super::destination::destination;
use super::environment::{self, spelled};
use super::settings::shown;
use super::{
    Config, ConfigError, DestinationConfig, DigestConfig, KeyringSource, LedgerConfig, RetentionConfig, RolloutConfig,
    RunConfig, Settings, Sources, ledger_url, names,
};
use crate::identity::{ContentVersion, DigestType};
use crate::ledger::Mode;
use crate::provider::{KINDS, Kind};
use crate::snapshot::StoreLocation;

type Result<T> = std::result::Result<T, ConfigError>;

impl Config {
    /// Reads the file at `path`, replaces what `environment` overrides, and checks everything that can be checked
    /// without reaching for anything else.
    ///
    /// # Errors
    /// The first thing that is wrong, by file, line and setting, or by environment variable.
    pub fn load(path: &Path, environment: &BTreeMap<String, String>) -> Result<Self> {
        Self::load_with(path, environment, KINDS)
    }

    /// [`Config::load`] with the kinds of provider as an argument.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_with(path: &Path, environment: &BTreeMap<String, String>, kinds: &[Kind]) -> Result<Self> {
        let failed = |reason: String| ConfigError::File { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                failed("there is no such file; `counterfoil init` writes one, `--config FILE` names another".to_owned())
            }
            _ => failed(format!("cannot be read: {error}")),
        })?;
        let absolute = std::path::absolute(path).map_err(|error| failed(format!("has no absolute path: {error}")))?;
        let directory = absolute.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
        let (mut sources, mut table) = Sources::read(path, &text)?;
        refuse_secrets(&table).map_err(|error| sources.locate(error))?;
        environment::apply(&mut table, &mut sources, environment)?;
        let open_to_all = ledger_url::readable_by_everyone(path);
        let world = World { directory, sources, environment, kinds, open_to_all };
        world.config(table).map_err(|error| world.sources.locate(error))
    }
}

/// Everything besides the settings that loading depends on.
struct World<'a> {
    directory: PathBuf,
    sources: Sources,
    environment: &'a BTreeMap<String, String>,
    kinds: &'a [Kind],
    /// Whether everyone on the machine may read the file.
    open_to_all: bool,
}

impl World<'_> {
    fn config(&self, table: Table) -> Result<Config> {
        let root = Settings { section: String::new(), table };
        root.refuse_unknown(names::ROOT)?;
        for (section, known) in names::SECTIONS {
            root.section(section)?.refuse_unknown(known)?;
        }
        let environment = environment_name(&root)?;
        let time_zone = time_zone(&root)?;
        let templates = self.directory.join(root.text("templates")?.unwrap_or("templates"));
        let ledger = self.ledger(&root.section("ledger")?)?;
        let keyring = self.keyring(&root.section("keyring")?)?;
        let store = self.store(&root.section("store")?)?;
        let run = run(&root.section("run")?)?;
        let rollout = rollout(&root.section("rollout")?)?;
        let retention = retention(&root.section("retention")?)?;
        let clock_offset =
            self.outside_production(&environment, environment::CLOCK_OFFSET, environment::clock_offset)?;
        let die_at = self.outside_production(&environment, environment::DIE_AT, environment::death)?;
        let destinations = self.destinations(&root.section("destination")?)?;
        let digests = digests(&root.section("digest")?, &destinations)?;
        let (directory, sources) = (self.directory.clone(), self.sources.clone());
        Ok(Config {
            directory,
            environment,
            time_zone,
            templates,
            ledger,
            keyring,
            store,
            digests,
            destinations,
            run,
            rollout,
            retention,
            clock_offset: clock_offset.unwrap_or_default(),
            die_at,
            sources,
        })
    }

    fn ledger(&self, settings: &Settings) -> Result<LedgerConfig> {
        let url = settings.text("url")?.unwrap_or("sqlite://counterfoil.db");
        let in_file = self.sources.in_file("ledger.url");
        let url = ledger_url::checked(url, &self.directory, in_file && self.open_to_all)
            .map_err(|reason| ConfigError::setting("ledger.url", reason))?;
        Ok(LedgerConfig { url, auto_migrate: settings.boolean("auto_migrate")?.unwrap_or(true) })
    }

    fn keyring(&self, settings: &Settings) -> Result<KeyringSource> {
        let path = self.directory.join(settings.text("path")?.unwrap_or("keyring.toml"));
        let text = self.environment.get(environment::KEYRING);
        Ok(text.map_or(KeyringSource::File(path), |text| KeyringSource::Environment(SecretString::from(text.as_str()))))
    }

    fn store(&self, settings: &Settings) -> Result<StoreLocation> {
        let url = settings.text("url")?.unwrap_or("snapshots");
        StoreLocation::parse(url, &self.directory, self.environment)
            .map_err(|reason| ConfigError::setting("store.url", reason))
    }

    fn destinations(&self, group: &Settings) -> Result<BTreeMap<String, DestinationConfig>> {
        let mut found: BTreeMap<String, DestinationConfig> = BTreeMap::new();
        for (name, settings) in group.sections()? {
            if let Some(other) = found.keys().find(|other| spelled(other) == spelled(name)) {
                let reason = format!("differs from `{other}` only in case or hyphens; give it another name");
                return Err(ConfigError::setting(settings.section, reason));
            }
            found.insert(name.to_owned(), destination(name, settings, self.kinds)?);
        }
        if found.is_empty() {
            return Err(ConfigError::setting("destination", "is missing; add [destination.NAME] with its `provider`"));
        }
        Ok(found)
    }

    /// What a variable says that is for tests.
    fn outside_production<T>(
        &self,
        environment: &str,
        variable: &str,
        read: fn(&BTreeMap<String, String>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let found = read(self.environment)?;
        if found.is_some() && environment == "production" {
            let reason = "is for tests and refused where `environment` is \"production\"; unset it";
            return Err(ConfigError::variable(variable, reason));
        }
        Ok(found)
    }
}

/// A secret in the file would end in a repository or a backup that others read.
fn refuse_secrets(table: &Table) -> Result<()> {
    let destinations = table.get("destination").and_then(toml::Value::as_table).into_iter().flatten();
    for (name, settings) in destinations {
        let secret = settings.as_table().and_then(|t| names::SECRETS.iter().find(|name| t.contains_key(**name)));
        if let Some(secret) = secret {
            let reason = format!(
                "secrets do not stand in the configuration file; put it into a file of its own, mode 0600, and name \
                 that file in `{secret}_file`"
            );
            return Err(ConfigError::setting(format!("destination.{name}.{secret}"), reason));
        }
    }
    Ok(())
}

fn environment_name(root: &Settings) -> Result<String> {
    let name = root.text("environment")?.unwrap_or("development");
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(allowed) {
        let reason = format!(
            "expected 1 to 64 lower-case letters, digits, hyphens or underscores, such as \"production\"; found {}",
            shown(name)
        );
        return Err(ConfigError::setting("environment", reason));
    }
    Ok(name.to_owned())
}

fn time_zone(root: &Settings) -> Result<TimeZone> {
    let name = root.text("time_zone")?.unwrap_or("UTC");
    TimeZone::get(name).map_err(|_| {
        let reason = format!("expected an IANA time zone, such as \"Europe/Berlin\"; found {}", shown(name));
        ConfigError::setting("time_zone", reason)
    })
}

fn digests(
    group: &Settings,
    destinations: &BTreeMap<String, DestinationConfig>,
) -> Result<BTreeMap<DigestType, DigestConfig>> {
    let mut found = BTreeMap::new();
    for (name, settings) in group.sections()? {
        let digest_type = DigestType::new(name)
            .map_err(|error| ConfigError::setting(group.name(name), format!("the type {error}")))?;
        found.insert(digest_type, digest(&settings, destinations)?);
    }
    if found.is_empty() {
        return Err(ConfigError::setting("digest", "is missing; add [digest.TYPE], such as [digest.weekly_activity]"));
    }
    Ok(found)
}

fn digest(settings: &Settings, destinations: &BTreeMap<String, DestinationConfig>) -> Result<DigestConfig> {
    settings.refuse_unknown(names::DIGEST)?;
    let wrong = |name: &str, reason: String| ConfigError::setting(settings.name(name), reason);
    let version = settings.text("content_version")?.unwrap_or("v1");
    let from = settings.required_text("from")?;
    let destination = settings.required_text("destination")?;
    if !destinations.contains_key(destination) {
        let known = destinations.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let reason = format!("there is no [destination.{destination}]; there is: {known}");
        return Err(wrong("destination", reason));
    }
    Ok(DigestConfig {
        content_version: ContentVersion::new(version).map_err(|e| wrong("content_version", e.to_string()))?,
        destination: destination.to_owned(),
        from: from.parse().map_err(|_| {
            let form = "expected an address, such as \"Example Bank <digest@example.test>\"";
            wrong("from", format!("{form}; found {}", shown(from)))
        })?,
        unsubscribe: settings.required_text("unsubscribe")?.to_owned(),
        send_within: settings.duration("send_within")?.unwrap_or(SignedDuration::from_hours(72)),
        max_row_change: settings.share("max_row_change")?.unwrap_or(0.5),
        max_conflicts: settings.share("max_conflicts")?.unwrap_or(0.01),
        max_rejected: settings.share("max_rejected")?.unwrap_or(0.05),
    })
}

fn run(settings: &Settings) -> Result<RunConfig> {
    let wait = match settings.text("wait")? {
        None | Some("auto") => None,
        Some(_) => settings.duration("wait")?,
    };
    let max_in_flight = settings.integer("max_in_flight", &(1..=100_000))?.unwrap_or(1_000);
    Ok(RunConfig { max_in_flight: usize::try_from(max_in_flight).unwrap_or(usize::MAX), wait })
}

fn rollout(settings: &Settings) -> Result<RolloutConfig> {
    let mode = match settings.text("mode")? {
        None | Some("observe") => Mode::Observe,
        Some("enforce") => Mode::Enforce,
        Some(other) => {
            let reason = format!("expected \"observe\" or \"enforce\"; found {}", shown(other));
            return Err(ConfigError::setting("rollout.mode", reason));
        }
    };
    let cohort = settings.share("cohort")?.unwrap_or(1.0);
    if cohort < 1.0 {
        // A limit that nothing keeps would be the worst of surprises.
        let reason = "this version sends to every customer of a snapshot and cannot keep to a share; expected \"100%\". \
                      To begin small, run an export of few customers";
        return Err(ConfigError::setting("rollout.cohort", reason));
    }
    Ok(RolloutConfig { mode, cohort })
}

fn retention(settings: &Settings) -> Result<RetentionConfig> {
    let replay_horizon_weeks = settings.weeks("replay_horizon")?.unwrap_or(26);
    let receipts_weeks = settings.weeks("receipts")?.unwrap_or(104);
    if receipts_weeks < replay_horizon_weeks {
        let reason = format!(
            "must not be shorter than retention.replay_horizon ({replay_horizon_weeks} weeks): a replay would not find \
             the receipts that keep it from sending twice"
        );
        return Err(ConfigError::setting("retention.receipts", reason));
    }
    Ok(RetentionConfig {
        replay_horizon_weeks,
        receipts_weeks,
        snapshots_weeks: settings.weeks("snapshots")?.unwrap_or(8),
    })
}
