//! `COUNTERFOIL_<SECTION>__<NAME>`: values from the environment take the place of the file's.
//!
//! Names of digests and destinations are matched without regard to case, a hyphen as an underscore. A variable
//! with our prefix that means nothing is refused: a misspelt override must not look like one that works.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use toml::{Table, Value};

use super::names;
use super::settings::nearest;
use super::{ConfigError, Sources};
use crate::rehearsal::{Death, Step};

/// What every one of our variables begins with.
pub const PREFIX: &str = "COUNTERFOIL_";
/// The keyring's text, in place of `keyring.path`.
pub const KEYRING: &str = "COUNTERFOIL_KEYRING";
/// Seconds added to every clock that decides something; tests only.
pub const CLOCK_OFFSET: &str = "COUNTERFOIL_TEST_CLOCK_OFFSET";
/// The step at which the process ends itself as a crash would, such as `after_claim:2`; exercises and tests only.
pub const DIE_AT: &str = "COUNTERFOIL_TEST_DIE_AT";
/// The configuration file, in place of `--config`.
pub const CONFIG: &str = "COUNTERFOIL_CONFIG";

/// Variables that are not the name of a setting.
const RESERVED: &[&str] = &[KEYRING, CLOCK_OFFSET, DIE_AT, CONFIG];

/// Replaces settings of the file by what the environment says.
///
/// # Errors
/// A variable with our prefix that is no setting's name.
pub(super) fn apply(
    table: &mut Table,
    sources: &mut Sources,
    environment: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    let targets = targets(table);
    for (variable, text) in environment {
        let Some(name) = variable.strip_prefix(PREFIX) else { continue };
        if RESERVED.contains(&variable.as_str()) {
            continue;
        }
        let path = find(&targets, name).ok_or_else(|| unknown(variable, &targets))?;
        let secret = path.setting.last().is_some_and(|name| names::SECRETS.contains(&name.as_str()));
        let value = if path.own && !secret { own_value(text) } else { Value::String(text.clone()) };
        sources.override_with(&path.setting.join("."), variable);
        set(table, &path.setting, value);
    }
    Ok(())
}

/// A hundred years: enough for every test, and no clock overflows.
const MAX_OFFSET_SECONDS: u64 = 100 * 366 * 86_400;

/// What is added to every clock that decides something; `None` where the variable is not set.
///
/// # Errors
/// A value that is no whole number of seconds.
pub fn clock_offset(environment: &BTreeMap<String, String>) -> Result<Option<SignedDuration>, ConfigError> {
    let Some(text) = environment.get(CLOCK_OFFSET) else { return Ok(None) };
    let seconds = text.parse::<i64>().ok().filter(|seconds| seconds.unsigned_abs() <= MAX_OFFSET_SECONDS);
    let wrong = || ConfigError::variable(CLOCK_OFFSET, "expected a whole number of seconds");
    seconds.map(SignedDuration::from_secs).map(Some).ok_or_else(wrong)
}

/// Where the process ends itself; `None` where the variable is not set.
///
/// # Errors
/// A value that names no step.
pub(super) fn death(environment: &BTreeMap<String, String>) -> Result<Option<Death>, ConfigError> {
    let Some(text) = environment.get(DIE_AT) else { return Ok(None) };
    let wrong = || {
        let steps: Vec<&str> = Step::ALL.iter().map(|step| step.as_str()).collect();
        ConfigError::variable(DIE_AT, format!("expected a step, or `step:2` for the second time; {}", steps.join(", ")))
    };
    Death::parse(text).map(Some).ok_or_else(wrong)
}

/// A setting that a variable can mean.
struct Target {
    /// Behind the prefix; for `own` the part before the setting's name.
    variable: String,
    setting: Vec<String>,
    /// Any further name is a setting of the provider kind.
    own: bool,
}

/// A setting that a variable does mean.
struct Found {
    setting: Vec<String>,
    own: bool,
}

/// Every setting that exists in general or because the file names its digest or destination.
fn targets(table: &Table) -> Vec<Target> {
    let exact = |path: &[&str]| Target {
        variable: path.iter().map(|part| spelled(part)).collect::<Vec<_>>().join("__"),
        setting: path.iter().map(|part| (*part).to_owned()).collect(),
        own: false,
    };
    let mut targets: Vec<Target> = Vec::new();
    let is_section = |name: &&str| names::SECTIONS.iter().any(|(section, _)| section == name);
    let is_group = |name: &&str| matches!(*name, "digest" | "destination");
    targets.extend(names::ROOT.iter().filter(|name| !is_section(name) && !is_group(name)).map(|name| exact(&[name])));
    for (section, settings) in names::SECTIONS {
        targets.extend(settings.iter().map(|name| exact(&[section, name])));
    }
    for digest in members(table, "digest") {
        targets.extend(names::DIGEST.iter().map(|name| exact(&["digest", digest, name])));
    }
    for destination in members(table, "destination") {
        let common = names::DESTINATION.iter().filter(|name| **name != "backoff");
        targets.extend(common.map(|name| exact(&["destination", destination, name])));
        targets.extend(names::BACKOFF.iter().map(|name| exact(&["destination", destination, "backoff", name])));
        let own = exact(&["destination", destination]);
        targets.push(Target { variable: format!("{}__", own.variable), own: true, ..own });
    }
    targets
}

fn members<'a>(table: &'a Table, group: &str) -> impl Iterator<Item = &'a String> {
    table.get(group).and_then(Value::as_table).into_iter().flat_map(Table::keys)
}

/// A name as a variable spells it.
pub(super) fn spelled(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

fn find(targets: &[Target], name: &str) -> Option<Found> {
    let name = name.to_ascii_uppercase();
    if let Some(target) = targets.iter().find(|target| !target.own && target.variable == name) {
        return Some(Found { setting: target.setting.clone(), own: false });
    }
    // The longest name wins where one destination's name begins with another's.
    let mut own: Vec<&Target> = targets.iter().filter(|target| target.own).collect();
    own.sort_by_key(|target| std::cmp::Reverse(target.variable.len()));
    own.into_iter().find_map(|target| {
        let setting = name.strip_prefix(&target.variable)?.to_ascii_lowercase();
        let is_name = !setting.is_empty() && !setting.contains("__") && setting != "backoff";
        is_name.then(|| Found { setting: [target.setting.clone(), vec![setting]].concat(), own: true })
    })
}

fn unknown(variable: &str, targets: &[Target]) -> ConfigError {
    let known: Vec<String> = targets
        .iter()
        .filter(|target| !target.own)
        .map(|target| format!("{PREFIX}{}", target.variable))
        .chain(RESERVED.iter().map(|name| (*name).to_owned()))
        .collect();
    let advice = nearest(variable, known.iter().map(String::as_str))
        .map_or_else(|| "it has".to_owned(), |name| format!("did you mean {name}? It has"));
    let rule = format!("{advice} to be {PREFIX}<SECTION>__<NAME>, of a digest or destination that the file names");
    ConfigError::variable(variable, format!("is no setting of this configuration; {rule}"))
}

/// A provider kind's own setting may be of any type: a whole number, `true`, `false`, a quoted text, an array or an
/// inline table is read as in the file, anything else is a text.
fn own_value(text: &str) -> Value {
    let typed = text.parse::<Value>().ok().filter(|value| !matches!(value, Value::Float(_) | Value::Datetime(_)));
    typed.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn set(table: &mut Table, path: &[String], value: Value) {
    match path {
        [] => {}
        [name] => drop(table.insert(name.clone(), value)),
        [name, rest @ ..] => {
            let inner = table.entry(name.clone()).or_insert_with(|| Value::Table(Table::new()));
            // A member that should be a table and is none is refused by the loader, in its own words.
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "[digest.weekly_activity]\n[destination.Retail-EU]\nport = 25\n[destination.a]\n[destination.a__b]\n";

    fn applied(variables: &[(&str, &str)]) -> Result<Table, ConfigError> {
        let mut table: Table = FILE.parse().unwrap();
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        apply(&mut table, &mut Sources::default(), &environment)?;
        Ok(table)
    }

    #[test]
    fn a_variable_replaces_a_setting_of_any_depth() {
        let table = applied(&[
            ("COUNTERFOIL_ENVIRONMENT", "staging"),
            ("COUNTERFOIL_LEDGER__URL", "postgres://db/x"),
            ("COUNTERFOIL_DIGEST__WEEKLY_ACTIVITY__CONTENT_VERSION", "2026"),
            ("COUNTERFOIL_DESTINATION__RETAIL_EU__BACKOFF__BASE", "5s"),
            ("COUNTERFOIL_DESTINATION__RETAIL_EU__PORT", "2525"),
            ("COUNTERFOIL_DESTINATION__RETAIL_EU__USERNAME", "\"12345\""),
            ("COUNTERFOIL_DESTINATION__RETAIL_EU__PASSWORD", "12345"),
            ("COUNTERFOIL_DESTINATION__A__B__HOST", "x"),
            ("PATH", "/bin"),
        ])
        .unwrap();
        assert_eq!(table["environment"].as_str(), Some("staging"));
        assert_eq!(table["ledger"]["url"].as_str(), Some("postgres://db/x"));
        assert_eq!(table["digest"]["weekly_activity"]["content_version"].as_str(), Some("2026"));
        let retail = &table["destination"]["Retail-EU"];
        assert_eq!(retail["backoff"]["base"].as_str(), Some("5s"));
        assert_eq!(retail["port"].as_integer(), Some(2525));
        assert_eq!(retail["username"].as_str(), Some("12345"));
        assert_eq!(retail["password"].as_str(), Some("12345"));
        assert_eq!(table["destination"]["a__b"]["host"].as_str(), Some("x"));
    }

    #[test]
    fn a_variable_that_means_nothing_is_refused_with_the_nearest_name() {
        let error = applied(&[("COUNTERFOIL_LEDGER_URL", "x")]).unwrap_err().to_string();
        assert!(error.contains("did you mean COUNTERFOIL_LEDGER__URL?"), "{error}");
        let error = applied(&[("COUNTERFOIL_DESTINATION__RETIAL_EU__RATE", "1/s")]).unwrap_err().to_string();
        assert!(error.contains("did you mean COUNTERFOIL_DESTINATION__RETAIL_EU__RATE?"), "{error}");
        for name in ["COUNTERFOIL_DESTINATION__RETAIL_EU__", "COUNTERFOIL_DESTINATION__RETAIL_EU__X__Y", "COUNTERFOIL_"]
        {
            assert!(applied(&[(name, "x")]).is_err(), "{name}");
        }
    }

    #[test]
    fn an_error_never_repeats_a_value() {
        let error = applied(&[("COUNTERFOIL_KEYRNIG", "canary")]).unwrap_err().to_string();
        assert!(!error.contains("canary") && error.contains("COUNTERFOIL_KEYRING"), "{error}");
    }

    #[test]
    fn reserved_names_are_no_settings() {
        assert!(applied(&[(KEYRING, "x"), (CLOCK_OFFSET, "1"), (CONFIG, "x")]).is_ok());
    }
}
