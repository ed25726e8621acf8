//! Dates in a language's form, in the Gregorian calendar that bank statements are kept in.

use std::fmt::Write as _;

use icu::calendar::{Date, Gregorian};
use icu::datetime::fieldsets::{MD, MDE, YMD};
use icu::datetime::{FixedCalendarDateTimeFormatter, parts};
use icu::locale::Locale;
use writeable::{Part, PartsWrite, Writeable};

/// How much of a date is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DateStyle {
    /// `3 Aug`
    Day,
    /// `Monday 3 August`
    Weekday,
    /// `3 Aug 2026`
    Medium,
    /// `3 August 2026`
    Long,
}

impl DateStyle {
    /// Every style with the word that templates use.
    pub(super) const WORDS: [(&'static str, Self); 4] =
        [("day", Self::Day), ("weekday", Self::Weekday), ("medium", Self::Medium), ("long", Self::Long)];

    pub(super) fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(name, _)| *name == word).map(|(_, style)| *style)
    }
}

/// The date formatters of one locale.
#[derive(Debug)]
pub(super) struct DatePatterns {
    day: FixedCalendarDateTimeFormatter<Gregorian, MD>,
    long_day: FixedCalendarDateTimeFormatter<Gregorian, MD>,
    weekday: FixedCalendarDateTimeFormatter<Gregorian, MDE>,
    medium: FixedCalendarDateTimeFormatter<Gregorian, YMD>,
    long: FixedCalendarDateTimeFormatter<Gregorian, YMD>,
}

impl DatePatterns {
    /// Loads a locale's formatters; `None` where ICU has no data for it.
    pub(super) fn learn(locale: &Locale) -> Option<Self> {
        Some(Self {
            day: FixedCalendarDateTimeFormatter::try_new(locale.into(), MD::medium()).ok()?,
            long_day: FixedCalendarDateTimeFormatter::try_new(locale.into(), MD::long()).ok()?,
            weekday: FixedCalendarDateTimeFormatter::try_new(locale.into(), MDE::long()).ok()?,
            medium: FixedCalendarDateTimeFormatter::try_new(locale.into(), YMD::medium()).ok()?,
            long: FixedCalendarDateTimeFormatter::try_new(locale.into(), YMD::long()).ok()?,
        })
    }

    /// One date.
    pub(super) fn format(&self, date: jiff::civil::Date, style: DateStyle) -> Option<String> {
        let date = gregorian(date)?;
        Some(match style {
            DateStyle::Day => self.day.format(&date).to_string(),
            DateStyle::Weekday => self.weekday.format(&date).to_string(),
            DateStyle::Medium => self.medium.format(&date).to_string(),
            DateStyle::Long => self.long.format(&date).to_string(),
        })
    }

    /// A span of days with no more repeated than the language needs: `3–9 August 2026`, `27 July – 2 August 2026`.
    pub(super) fn span(&self, start: jiff::civil::Date, end: jiff::civil::Date) -> Option<String> {
        let (first, last) = (gregorian(start)?, gregorian(end)?);
        let whole = Pieces::of(&self.long.format(&last));
        if start == end {
            return Some(whole.text);
        }
        if start.year() != end.year() {
            return Some(format!("{} – {}", self.long.format(&first), whole.text));
        }
        if start.month() == end.month() {
            let start = Pieces::of(&self.long.format(&first));
            let day = start.day_text()?;
            return whole.with_day(|last_day| format!("{day}–{last_day}"));
        }
        if whole.year_is_first() {
            return Some(format!("{} – {}", self.long.format(&first), self.long_day.format(&last)));
        }
        Some(format!("{} – {}", self.long_day.format(&first), whole.text))
    }
}

fn gregorian(date: jiff::civil::Date) -> Option<Date<Gregorian>> {
    let month = u8::try_from(date.month()).ok()?;
    Date::try_new_gregorian(i32::from(date.year()), month, u8::try_from(date.day()).ok()?).ok()
}

/// A formatted date and where its day and year stand.
#[derive(Default)]
struct Pieces {
    text: String,
    day: Option<(usize, usize)>,
    year: Option<usize>,
}

impl Pieces {
    fn of(date: &impl Writeable) -> Self {
        let mut pieces = Self::default();
        // Writing to a String cannot fail.
        let _ = date.write_to_parts(&mut pieces);
        pieces.take_in_day_mark();
        pieces
    }

    /// What belongs to a day's number without being a digit: `3.`, `3日`, `3일`.
    fn take_in_day_mark(&mut self) {
        if let Some((_, end)) = &mut self.day {
            let mark = self.text.get(*end..).and_then(|rest| rest.chars().next());
            *end += mark.filter(|c| matches!(c, '.' | '日' | '일')).map_or(0, char::len_utf8);
        }
    }

    fn day_text(&self) -> Option<&str> {
        self.day.and_then(|(start, end)| self.text.get(start..end))
    }

    fn with_day(&self, change: impl FnOnce(&str) -> String) -> Option<String> {
        let (start, end) = self.day?;
        Some([self.text.get(..start)?, &change(self.day_text()?), self.text.get(end..)?].concat())
    }

    fn year_is_first(&self) -> bool {
        matches!((self.year, self.day), (Some(year), Some((day, _))) if year < day)
    }
}

impl std::fmt::Write for Pieces {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}

impl PartsWrite for Pieces {
    type SubPartsWrite = Self;

    fn with_part(
        &mut self,
        part: Part,
        mut write: impl FnMut(&mut Self::SubPartsWrite) -> std::fmt::Result,
    ) -> std::fmt::Result {
        let start = self.text.len();
        write(self)?;
        if part == parts::DAY {
            self.day = Some((start, self.text.len()));
        } else if part == parts::YEAR {
            self.year = Some(start);
        }
        self.write_str("")
    }
}

#[cfg(test)]
mod tests {
    use super::{DatePatterns, DateStyle};

    fn span(tag: &str, start: &str, end: &str) -> String {
        let patterns = DatePatterns::learn(&tag.parse().expect("a locale")).expect("dates");
        patterns.span(start.parse().expect("a date"), end.parse().expect("a date")).expect("a span")
    }

    #[test]
    fn a_span_repeats_only_what_differs() {
        for (tag, start, end, expected) in [
            ("en-GB", "2026-08-03", "2026-08-09", "3–9 August 2026"),
            ("en-US", "2026-08-03", "2026-08-09", "August 3–9, 2026"),
            ("de-DE", "2026-08-03", "2026-08-09", "3.–9. August 2026"),
            ("ja-JP", "2026-08-03", "2026-08-09", "2026年8月3日–9日"),
            ("en-GB", "2026-07-27", "2026-08-02", "27 July – 2 August 2026"),
            ("en-US", "2026-07-27", "2026-08-02", "July 27 – August 2, 2026"),
            ("ja-JP", "2026-07-27", "2026-08-02", "2026年7月27日 – 8月2日"),
            ("en-GB", "2026-12-28", "2027-01-03", "28 December 2026 – 3 January 2027"),
            ("en-GB", "2026-08-03", "2026-08-03", "3 August 2026"),
        ] {
            assert_eq!(span(tag, start, end), expected, "{tag}");
        }
    }

    #[test]
    fn each_style_has_its_form() {
        let patterns = DatePatterns::learn(&"en-GB".parse().expect("a locale")).expect("dates");
        let shown = DateStyle::WORDS
            .map(|(_, style)| patterns.format("2026-08-03".parse().expect("a date"), style).expect("a date"));
        assert_eq!(shown, ["3 Aug", "Monday 3 August", "3 Aug 2026", "3 August 2026"]);
    }

    #[test]
    fn statements_are_dated_in_the_gregorian_calendar_everywhere() {
        for tag in ["th-TH", "fa-IR-u-nu-latn", "ar-SA-u-nu-latn", "ja-JP-u-ca-japanese"] {
            assert!(span(tag, "2026-08-03", "2026-08-09").contains("2026"), "{tag}");
        }
    }
}
