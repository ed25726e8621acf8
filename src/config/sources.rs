//! Where each setting was found, so that an error can name file and line, or the environment variable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// The configuration file's tables and where everything in it stands.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    file: PathBuf,
    /// Line, from 1, by full name of a setting or table.
    lines: BTreeMap<String, usize>,
    /// Environment variable by full name of the setting that it overrides.
    variables: BTreeMap<String, String>,
}

impl Sources {
    /// Reads a file's text as TOML and remembers the lines.
    ///
    /// # Errors
    /// A text that is no TOML, by line, without quoting it: a line may hold a password.
    pub(super) fn read(file: &Path, text: &str) -> Result<(Self, toml::Table), ConfigError> {
        let syntax = |error: &toml::de::Error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let path = PathBuf::from(format!("{}:{line}", file.display()));
            ConfigError::File { path, reason: format!("is not TOML: {}", error.message()) }
        };
        let spanned = DeTable::parse(text).map_err(|error| syntax(&error))?;
        let table: toml::Table = text.parse().map_err(|error| syntax(&error))?;
        let mut sources = Self { file: file.to_owned(), ..Self::default() };
        sources.remember(text, "", spanned.get_ref());
        Ok((sources, table))
    }

    /// Notes that a setting's value comes from an environment variable.
    pub(super) fn override_with(&mut self, setting: &str, variable: &str) {
        self.variables.insert(setting.to_owned(), variable.to_owned());
    }

    /// Whether a setting's value stands in the file itself.
    pub(super) fn in_file(&self, setting: &str) -> bool {
        self.lines.contains_key(setting) && !self.variables.contains_key(setting)
    }

    /// Adds the place to an error about a setting; where the setting stands nowhere, the table it belongs into.
    #[must_use]
    pub fn locate(&self, error: ConfigError) -> ConfigError {
        let ConfigError::Setting { setting, reason } = error else { return error };
        let place = self.place(&setting);
        ConfigError::Located { place, setting, reason }
    }

    fn place(&self, setting: &str) -> String {
        if let Some(variable) = self.variables.get(setting) {
            return format!("environment variable {variable}");
        }
        let mut name = setting;
        loop {
            if let Some(line) = self.lines.get(name) {
                return format!("{}:{line}", self.file.display());
            }
            match name.rsplit_once('.') {
                Some((table, _)) => name = table,
                None => return self.file.display().to_string(),
            }
        }
    }

    fn remember(&mut self, text: &str, section: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name =
                if section.is_empty() { key.get_ref().to_string() } else { format!("{section}.{}", key.get_ref()) };
            self.lines.insert(name.clone(), line_of(text, key.span().start));
            if let DeValue::Table(inner) = value.get_ref() {
                self.remember(text, &name, inner);
            }
        }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.get(..offset).unwrap_or(text).bytes().filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "environment = \"x\"\n\n[destination.retail]\nrate = \"1/s\"\nbackoff = { base = \"2s\" }\n";

    #[test]
    fn errors_name_the_line_or_the_table_or_the_variable() {
        let (mut sources, _) = Sources::read(Path::new("counterfoil.toml"), TEXT).unwrap();
        let located = |sources: &Sources, name: &str| sources.locate(ConfigError::setting(name, "!")).to_string();
        assert_eq!(
            located(&sources, "destination.retail.rate"),
            "counterfoil.toml:4: setting `destination.retail.rate`: !"
        );
        assert_eq!(
            located(&sources, "destination.retail.backoff.base"),
            "counterfoil.toml:5: setting `destination.retail.backoff.base`: !"
        );
        assert_eq!(
            located(&sources, "destination.retail.host"),
            "counterfoil.toml:3: setting `destination.retail.host`: !"
        );
        assert_eq!(located(&sources, "ledger.url"), "counterfoil.toml: setting `ledger.url`: !");
        sources.override_with("destination.retail.rate", "COUNTERFOIL_DESTINATION__RETAIL__RATE");
        assert_eq!(
            located(&sources, "destination.retail.rate"),
            "environment variable COUNTERFOIL_DESTINATION__RETAIL__RATE: setting `destination.retail.rate`: !"
        );
    }

    #[test]
    fn a_syntax_error_names_the_line_and_quotes_nothing() {
        for text in [
            "[ledger]\nurl = \"postgres://u:canary@h/d",
            "[ledger]\nurl = canary",
            "[ledger]\nurl = \"a\" canary",
            "[ledger]\nurl canary",
        ] {
            let error = Sources::read(Path::new("counterfoil.toml"), text).unwrap_err().to_string();
            assert!(error.starts_with("counterfoil.toml:2: is not TOML: "), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
