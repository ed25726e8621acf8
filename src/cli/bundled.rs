//! The template bundle that ships inside the program, as files of a new installation.

use crate::digest::shipped::WEEKLY_ACTIVITY_V1;

/// Name relative to a new installation's directory, and text.
pub(super) fn files() -> impl Iterator<Item = (String, &'static str)> {
    WEEKLY_ACTIVITY_V1.iter().map(|(name, text)| (format!("templates/weekly_activity/v1/{name}"), *text))
}
