//! How numbers, spans and dates look to people.

use std::path::PathBuf;

use crate::config::shell_word;
use crate::identity::IsoWeek;

/// A count with separators: `1,000,000`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A span of seconds: tenths below two minutes, else hours, minutes and seconds.
pub(super) fn seconds(elapsed: f64) -> String {
    if elapsed < 120.0 {
        return format!("{elapsed:.1} s");
    }
    let whole = std::time::Duration::try_from_secs_f64(elapsed.round()).unwrap_or(std::time::Duration::MAX).as_secs();
    let (hours, minutes, rest) = (whole / 3_600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours} h {minutes} min") } else { format!("{minutes} min {rest} s") }
}

/// First and last day of a week: `3 Aug to 9 Aug 2026`.
pub(super) fn week_dates(week: IsoWeek) -> String {
    let (first, last) = (week.first_day(), week.last_day());
    let year = if first.year() == last.year() { "" } else { " %Y" };
    let first = jiff::fmt::strtime::format(format!("%-d %b{year}"), first).unwrap_or_default();
    let last = jiff::fmt::strtime::format("%-d %b %Y", last).unwrap_or_default();
    format!("{first} to {last}")
}

/// How this program was called, for commands that are to be copied: its path, or its name where `PATH` finds it.
pub(super) fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    called
        .filter(|path| path.components().count() > 1)
        .map_or_else(|| "counterfoil".to_owned(), |path| shell_word(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators() {
        let shown = [0, 7, 999, 1_000, 12_345, 1_000_000].map(count);
        assert_eq!(shown, ["0", "7", "999", "1,000", "12,345", "1,000,000"]);
    }

    #[test]
    fn spans_are_short() {
        assert_eq!([0.04, 119.9, 120.0, 3_725.0].map(seconds), ["0.0 s", "119.9 s", "2 min 0 s", "1 h 2 min"]);
        assert!(!seconds(f64::MAX).is_empty());
    }

    #[test]
    fn weeks_name_both_years_where_they_differ() {
        assert_eq!(week_dates("2026-W32".parse().unwrap()), "3 Aug to 9 Aug 2026");
        assert_eq!(week_dates("2026-W53".parse().unwrap()), "28 Dec 2026 to 3 Jan 2027");
    }
}
