//! ISO 8601 weeks: parsing, order, first and last day, and which one "last week" means.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, ISOWeekDate, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, ZonedDateTime};

/// An ISO week that exists, such as `2026-W32`, of the years 1 to 9998.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IsoWeek {
    year: i16,
    week: i8,
}

/// Why a text names no ISO week.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WeekError {
    /// Not of the form `YYYY-Www`.
    #[error("is not of the form YYYY-Www, for example 2026-W32")]
    Form,
    /// The right form, but the year has no such week.
    #[error("does not exist: {year:04} has weeks W01 to W{last:02}")]
    Absent {
        /// The ISO year.
        year: i16,
        /// Its last week, 52 or 53.
        last: i8,
    },
    /// A year outside 1 to 9998.
    #[error("is outside the years 0001 to 9998")]
    Range,
}

impl IsoWeek {
    /// The week that a civil date lies in.
    ///
    /// # Errors
    /// [`WeekError::Range`] at the far ends of the calendar.
    pub fn of(date: Date) -> Result<Self, WeekError> {
        let iso = date.iso_week_date();
        if (1..=9998).contains(&iso.year()) {
            Ok(Self { year: iso.year(), week: iso.week() })
        } else {
            Err(WeekError::Range)
        }
    }

    /// The week as a number that sorts: `year * 100 + week`. This is what the ledger stores.
    pub fn number(self) -> i32 {
        i32::from(self.year) * 100 + i32::from(self.week)
    }

    /// The week of a number made by [`IsoWeek::number`].
    pub fn from_number(number: i32) -> Option<Self> {
        let year = i16::try_from(number / 100).ok()?;
        let week = i8::try_from(number % 100).ok()?;
        Self::new(year, week).ok()
    }

    fn new(year: i16, week: i8) -> Result<Self, WeekError> {
        if !(1..=9998).contains(&year) {
            return Err(WeekError::Range);
        }
        match ISOWeekDate::new(year, week, Weekday::Monday) {
            Ok(_) => Ok(Self { year, week }),
            Err(_) => Err(WeekError::Absent {
                year,
                last: if ISOWeekDate::new(year, 53, Weekday::Monday).is_ok() { 53 } else { 52 },
            }),
        }
    }

    /// The Monday that the week begins with.
    pub fn first_day(self) -> Date {
        // Both fields were checked when the value was made, and year 9998 leaves room at the end.
        ISOWeekDate::new(self.year, self.week, Weekday::Monday).map_or(Date::MIN, |day| day.date())
    }

    /// The Sunday that the week ends with.
    pub fn last_day(self) -> Date {
        self.first_day().saturating_add(6.days())
    }

    /// The instant at which the week is over: the following Monday's first moment in a time zone.
    ///
    /// # Errors
    /// [`WeekError::Range`] where the zone has no such instant (far ends of the calendar).
    pub fn end(self, zone: &TimeZone) -> Result<Timestamp, WeekError> {
        let monday = self.first_day().saturating_add(7.days());
        let start = zone.to_zoned_datetime(monday.at(0, 0, 0, 0)).map_err(|_| WeekError::Range)?;
        Ok(start.timestamp())
    }

    /// The week before.
    ///
    /// # Errors
    /// [`WeekError::Range`] before year 1.
    pub fn previous(self) -> Result<Self, WeekError> {
        Self::of(self.first_day().saturating_sub(7.days()))
    }

    /// The week after.
    ///
    /// # Errors
    /// [`WeekError::Range`] after year 9998.
    pub fn next(self) -> Result<Self, WeekError> {
        Self::of(self.first_day().saturating_add(7.days()))
    }
}

/// `YYYY-Www`.
impl fmt::Display for IsoWeek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-W{:02}", self.year, self.week)
    }
}

impl FromStr for IsoWeek {
    type Err = WeekError;

    fn from_str(text: &str) -> Result<Self, WeekError> {
        let (year, week) = text.split_once("-W").ok_or(WeekError::Form)?;
        let digits = |part: &str, length: usize| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(year, 4) || !digits(week, 2) {
            return Err(WeekError::Form);
        }
        let year = year.parse().map_err(|_| WeekError::Form)?;
        let week = week.parse().map_err(|_| WeekError::Form)?;
        Self::new(year, week)
    }
}

/// What `--week` takes: a week by name, or one chosen by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeekSelector {
    /// The week that ended most recently.
    Last,
    /// The week that is running.
    Current,
    /// This week.
    Explicit(IsoWeek),
}

impl WeekSelector {
    /// The week meant at `now` in `zone`.
    ///
    /// # Errors
    /// [`WeekError::Range`] at the far ends of the calendar.
    pub fn resolve(self, now: Timestamp, zone: &TimeZone) -> Result<IsoWeek, WeekError> {
        let current = || IsoWeek::of(ZonedDateTime::new(now, zone.clone()).date());
        match self {
            Self::Explicit(week) => Ok(week),
            Self::Current => current(),
            Self::Last => current()?.previous(),
        }
    }
}

impl FromStr for WeekSelector {
    type Err = WeekError;

    fn from_str(text: &str) -> Result<Self, WeekError> {
        match text {
            "last" => Ok(Self::Last),
            "current" => Ok(Self::Current),
            explicit => explicit.parse().map(Self::Explicit),
        }
    }
}
