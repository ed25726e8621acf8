//! The template bundle that ships inside the program, as files of a new installation.

/// Path inside the bundle, and text.
const FILES: &[(&str, &str)] = &[];

/// Name relative to a new installation's directory, and text.
pub(super) fn files() -> impl Iterator<Item = (String, &'static str)> {
    FILES.iter().map(|(name, text)| (format!("templates/weekly_activity/v1/{name}"), *text))
}
