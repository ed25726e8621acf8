//! A table of settings on its way to the one who knows them. Unknown names are refused with the nearest known one.

use std::fmt;
use std::ops::RangeInclusive;

use jiff::SignedDuration;

use super::ConfigError;
use super::quantity::{DURATION_FORM, RATE_FORM, SHARE_FORM, parse_duration, parse_rate, parse_share, parse_weeks};
use crate::ledger::Rate;

/// The settings of one table, such as `destination.retail`.
#[derive(Clone, Default)]
pub struct Settings {
    /// Full name of the table.
    pub section: String,
    /// What stands in it.
    pub table: toml::Table,
}

/// Names only: a value may be a secret that came from the environment.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({}: {})", self.section, self.table.keys().cloned().collect::<Vec<_>>().join(", "))
    }
}

impl Settings {
    /// Refuses a name that is not in `known`, with the nearest known name.
    ///
    /// # Errors
    /// The first unknown name.
    pub fn refuse_unknown(&self, known: &[&str]) -> Result<(), ConfigError> {
        let Some(unknown) = self.table.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
        let advice = match nearest(unknown, known.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None if known.is_empty() => "nothing can be set here; leave it out".to_owned(),
            None => format!("known here: {}", known.join(", ")),
        };
        Err(ConfigError::setting(self.name(unknown), format!("is unknown; {advice}")))
    }

    /// The full name of a setting in this table.
    pub fn name(&self, setting: &str) -> String {
        if self.section.is_empty() { setting.to_owned() } else { format!("{}.{setting}", self.section) }
    }

    /// A text, where it is set.
    ///
    /// # Errors
    /// A value that is no text.
    pub fn text(&self, setting: &str) -> Result<Option<&str>, ConfigError> {
        match self.table.get(setting) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ConfigError::setting(self.name(setting), "must be a text in quotation marks")),
        }
    }

    /// A text that must be set.
    ///
    /// # Errors
    /// A missing value, or one that is no text.
    pub fn required_text(&self, setting: &str) -> Result<&str, ConfigError> {
        self.text(setting)?.ok_or_else(|| ConfigError::setting(self.name(setting), "is missing"))
    }

    /// A whole number inside `range`, where it is set. It may stand in quotation marks, as every value from the
    /// environment does.
    ///
    /// # Errors
    /// A value that is no whole number, or one outside the range.
    pub fn integer(&self, setting: &str, range: &RangeInclusive<u32>) -> Result<Option<u32>, ConfigError> {
        let number = match self.table.get(setting) {
            None => return Ok(None),
            Some(toml::Value::Integer(number)) => u32::try_from(*number).ok(),
            Some(toml::Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        number.filter(|number| range.contains(number)).map(Some).ok_or_else(|| {
            let reason = format!("expected a whole number from {} to {}", range.start(), range.end());
            ConfigError::setting(self.name(setting), reason)
        })
    }

    /// `true` or `false`, where it is set; may stand in quotation marks.
    ///
    /// # Errors
    /// Any other value.
    pub fn boolean(&self, setting: &str) -> Result<Option<bool>, ConfigError> {
        match self.table.get(setting) {
            None => Ok(None),
            Some(toml::Value::Boolean(value)) => Ok(Some(*value)),
            Some(toml::Value::String(text)) if text == "true" => Ok(Some(true)),
            Some(toml::Value::String(text)) if text == "false" => Ok(Some(false)),
            Some(_) => Err(ConfigError::setting(self.name(setting), "expected true or false")),
        }
    }

    /// A span of time, where it is set; never zero.
    ///
    /// # Errors
    /// A value that is no span, or zero.
    pub fn duration(&self, setting: &str) -> Result<Option<SignedDuration>, ConfigError> {
        self.quantity(setting, DURATION_FORM, |text| parse_duration(text).filter(|span| !span.is_zero()))
    }

    /// A number of whole weeks, where it is set; at least 1.
    ///
    /// # Errors
    /// A value that makes no whole weeks.
    pub fn weeks(&self, setting: &str) -> Result<Option<u32>, ConfigError> {
        self.quantity(setting, "expected whole weeks, such as \"26 weeks\"", parse_weeks)
    }

    /// A share from 0 to 1, written as a percentage, where it is set.
    ///
    /// # Errors
    /// A value that is no percentage from 0 to 100.
    pub fn share(&self, setting: &str) -> Result<Option<f64>, ConfigError> {
        self.quantity(setting, SHARE_FORM, parse_share)
    }

    /// A rate; `None` is unlimited, which is also what an absent setting means.
    ///
    /// # Errors
    /// A value that is no rate.
    pub fn rate(&self, setting: &str) -> Result<Option<Rate>, ConfigError> {
        self.quantity(setting, RATE_FORM, parse_rate).map(Option::flatten)
    }

    /// The table of a name in this one; empty where it is not set.
    ///
    /// # Errors
    /// A value that is no table.
    pub fn section(&self, name: &str) -> Result<Self, ConfigError> {
        let table = match self.table.get(name) {
            None => toml::Table::new(),
            Some(toml::Value::Table(table)) => table.clone(),
            Some(_) => {
                let section = self.name(name);
                let reason = format!("must be a table; write [{section}] and its settings below it");
                return Err(ConfigError::setting(section, reason));
            }
        };
        Ok(Self { section: self.name(name), table })
    }

    /// Each table inside this one with its name, such as the destinations inside `[destination]`.
    ///
    /// # Errors
    /// A member that is no table.
    pub fn sections(&self) -> Result<Vec<(&str, Self)>, ConfigError> {
        self.table.keys().map(|name| Ok((name.as_str(), self.section(name)?))).collect()
    }

    fn quantity<T>(
        &self,
        setting: &str,
        form: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.table.get(setting) {
            None => Ok(None),
            Some(toml::Value::String(text)) => match parse(text) {
                Some(value) => Ok(Some(value)),
                None => Err(ConfigError::setting(self.name(setting), format!("{form}; found {}", shown(text)))),
            },
            Some(_) => Err(ConfigError::setting(self.name(setting), format!("{form}, in quotation marks"))),
        }
    }
}

/// A value as an error repeats it: quoted, escaped, not longer than a line bears.
pub(super) fn shown(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    let ellipsis = if start.len() < text.len() { "…" } else { "" };
    format!("{:?}", format!("{start}{ellipsis}"))
}

/// The name that `unknown` most likely stands for: at most half of it differs.
pub(super) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| (strsim::damerau_levenshtein(name, unknown), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().div_ceil(2))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        Settings { section: "destination.retail".to_owned(), table: text.parse().unwrap() }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_known_one() {
        let error = settings("prot = 25").refuse_unknown(&["host", "port"]).unwrap_err();
        assert_eq!(error.to_string(), "setting `destination.retail.prot`: is unknown; did you mean `port`?");
        let error = settings("xyzzy = 25").refuse_unknown(&["host", "port"]).unwrap_err();
        assert_eq!(error.to_string(), "setting `destination.retail.xyzzy`: is unknown; known here: host, port");
    }

    #[test]
    fn numbers_and_booleans_may_be_quoted_and_must_be_in_range() {
        let found = settings("a = 5\nb = \"5\"\nc = 0\nd = -1\ne = true\nf = \"false\"\ng = 1");
        let range = 1..=9;
        assert_eq!(found.integer("a", &range).unwrap(), Some(5));
        assert_eq!(found.integer("b", &range).unwrap(), Some(5));
        assert_eq!(found.integer("missing", &range).unwrap(), None);
        for name in ["c", "d", "e", "f"] {
            let error = found.integer(name, &range).unwrap_err().to_string();
            assert!(error.ends_with("expected a whole number from 1 to 9"), "{error}");
        }
        assert_eq!(found.boolean("e").unwrap(), Some(true));
        assert_eq!(found.boolean("f").unwrap(), Some(false));
        assert!(found.boolean("g").is_err());
    }

    #[test]
    fn a_value_that_cannot_be_used_is_shown_with_what_is_expected() {
        let error = settings("rate = \"50 per second\"").rate("rate").unwrap_err().to_string();
        assert!(error.contains("\"50/s\"") && error.contains("found \"50 per second\""), "{error}");
        let error = settings("rate = 50").rate("rate").unwrap_err().to_string();
        assert!(error.contains("in quotation marks"), "{error}");
        let long = "x".repeat(5_000);
        let error = settings(&format!("lease = \"{long}\"")).duration("lease").unwrap_err().to_string();
        assert!(error.len() < 300, "{error}");
    }

    #[test]
    fn debug_output_holds_no_value() {
        assert_eq!(format!("{:?}", settings("password = \"canary\"")), "Settings(destination.retail: password)");
    }
}
