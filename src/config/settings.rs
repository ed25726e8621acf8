//! A table of settings on its way to the one who knows them. Unknown names are refused with the nearest known one.

use super::ConfigError;

/// The settings of one table, such as `destination.retail`.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Full name of the table.
    pub section: String,
    /// What stands in it.
    pub table: toml::Table,
}

impl Settings {
    /// Refuses a name that is not in `known`, with the nearest known name.
    ///
    /// # Errors
    /// The first unknown name.
    pub fn refuse_unknown(&self, known: &[&str]) -> Result<(), ConfigError> {
        let Some(unknown) = self.table.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
        let nearest = known
            .iter()
            .map(|name| (strsim::damerau_levenshtein(name, unknown), name))
            .min()
            .filter(|(distance, name)| *distance <= name.len().div_ceil(2))
            .map_or_else(|| format!("known here: {}", known.join(", ")), |(_, name)| format!("did you mean `{name}`?"));
        Err(ConfigError::setting(self.name(unknown), format!("is unknown; {nearest}")))
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
}
