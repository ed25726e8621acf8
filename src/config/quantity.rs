//! How spans of time, rates and shares are written: parsing and printing, nothing else. Pure.
//!
//! Each pair is a round trip: what a printer writes, its parser reads as the same value.

use jiff::SignedDuration;

use crate::ledger::Rate;

/// What a span of time should look like.
pub const DURATION_FORM: &str =
    "expected a number and a unit, such as \"500ms\", \"2s\", \"30m\", \"72h\" or \"26 weeks\"";

/// What a rate should look like.
pub const RATE_FORM: &str = "expected \"unlimited\", or a whole number per second, minute or hour, such as \"50/s\", \
                             \"300/min\" or \"1000/h\"";

/// What a share should look like.
pub const SHARE_FORM: &str = "expected a percentage from \"0%\" to \"100%\", such as \"5%\" or \"0.5%\"";

/// The longest span that is read: a hundred years of weeks, far inside what every clock can add.
const MAX_MILLIS: i64 = 5_200 * WEEK;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;

/// Units by falling length: milliseconds, what is printed, what else is read.
const UNITS: &[(i64, &str, &[&str])] = &[
    (WEEK, "weeks", &["week", "w"]),
    (DAY, "d", &["day", "days"]),
    (HOUR, "h", &["hour", "hours"]),
    (MINUTE, "m", &["min", "minute", "minutes"]),
    (SECOND, "s", &["sec", "second", "seconds"]),
    (1, "ms", &["millisecond", "milliseconds"]),
];

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// What a rate may count by: nanoseconds, what is printed, what else is read.
const RATE_UNITS: &[(i64, &str, &[&str])] = &[
    (NANOS_PER_SECOND, "s", &["sec", "second"]),
    (60 * NANOS_PER_SECOND, "min", &["m", "minute"]),
    (3_600 * NANOS_PER_SECOND, "h", &["hour"]),
];

/// The highest rate that is read, per unit: one send a microsecond.
const MAX_RATE: i64 = 1_000_000;

/// Reads a span of time; `None` for anything that is not a whole number followed by a unit, and for more than
/// a hundred years.
pub fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (number, unit) = split_number(text)?;
    let millis = unit_length(UNITS, unit)?.checked_mul(number)?;
    (millis <= MAX_MILLIS).then(|| SignedDuration::from_millis(millis))
}

/// Writes a span of whole milliseconds in the longest unit that leaves no remainder.
pub fn print_duration(duration: SignedDuration) -> String {
    let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    let (length, unit) = UNITS
        .iter()
        .map(|(length, unit, _)| (*length, *unit))
        .find(|(length, _)| millis != 0 && millis % length == 0)
        .unwrap_or((SECOND, "s"));
    let space = if unit == "weeks" { " " } else { "" };
    match millis / length {
        1 if unit == "weeks" => "1 week".to_owned(),
        count => format!("{count}{space}{unit}"),
    }
}

/// Reads a number of whole weeks, in any unit that makes whole weeks, from 1 to 5,200.
pub fn parse_weeks(text: &str) -> Option<u32> {
    let millis = i64::try_from(parse_duration(text)?.as_millis()).ok()?;
    (millis > 0 && millis % WEEK == 0).then(|| u32::try_from(millis / WEEK).ok()).flatten()
}

/// Reads a rate; the outer `None` is a text that is none, the inner one is `unlimited`.
///
/// The burst is one second's worth, at least 1: after a pause a destination gets at most that many at once.
pub fn parse_rate(text: &str) -> Option<Option<Rate>> {
    if text == "unlimited" {
        return Some(None);
    }
    let (count, unit) = text.split_once('/')?;
    let (count, rest) = split_number(count)?;
    let unit = unit_length(RATE_UNITS, unit.trim())?;
    if !rest.is_empty() || !(1..=MAX_RATE).contains(&count) {
        return None;
    }
    let interval = (unit / count).max(1_000);
    let burst = u32::try_from(NANOS_PER_SECOND / interval).unwrap_or(u32::MAX).max(1);
    Some(Some(Rate { interval: SignedDuration::from_nanos(interval), burst }))
}

/// Writes a rate that [`parse_rate`] read, by the shortest unit that gives it back exactly.
pub fn print_rate(rate: Option<Rate>) -> String {
    let Some(rate) = rate else { return "unlimited".to_owned() };
    let interval = i64::try_from(rate.interval.as_nanos()).unwrap_or(i64::MAX).max(1);
    RATE_UNITS
        .iter()
        .map(|(length, unit, _)| (length / interval, length, unit))
        .find(|(count, length, _)| *count > 0 && *length / count == interval)
        .map_or_else(|| format!("one every {:?}", rate.interval), |(count, _, unit)| format!("{count}/{unit}"))
}

/// Reads a percentage from 0 to 100 as a share from 0 to 1.
pub fn parse_share(text: &str) -> Option<f64> {
    let number = text.strip_suffix('%')?.trim_end();
    let plain =
        number.bytes().all(|b| b.is_ascii_digit() || b == b'.') && number.starts_with(|c: char| c.is_ascii_digit());
    let percent = plain.then(|| number.parse::<f64>().ok()).flatten()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// Writes a share as a percentage with up to six decimals.
pub fn print_share(share: f64) -> String {
    let number = format!("{:.6}", share * 100.0);
    format!("{}%", number.trim_end_matches('0').trim_end_matches('.'))
}

/// A whole number and what stands behind it.
fn split_number(text: &str) -> Option<(i64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, rest.trim()))
}

fn unit_length(units: &[(i64, &str, &[&str])], word: &str) -> Option<i64> {
    units.iter().find(|(_, name, others)| *name == word || others.contains(&word)).map(|(length, _, _)| *length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(text: &str) -> Option<i128> {
        parse_duration(text).map(|duration| duration.as_millis())
    }

    #[test]
    fn durations_are_read_in_every_unit() {
        for (text, expected) in [
            ("500ms", 500),
            ("2s", 2_000),
            ("30m", 1_800_000),
            ("10 min", 600_000),
            ("72h", 259_200_000),
            ("1d", 86_400_000),
            ("26 weeks", 15_724_800_000),
            ("1 week", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "72",
            "h",
            "-2s",
            "1.5h",
            "2 fortnights",
            "1h30m",
            "5201 weeks",
            "99999999999999999999s",
            "２s",
            "auto",
        ] {
            assert_eq!(millis(text), None, "{text}");
        }
    }

    #[test]
    fn weeks_must_be_whole() {
        assert_eq!(parse_weeks("26 weeks"), Some(26));
        assert_eq!(parse_weeks("14d"), Some(2));
        assert_eq!(parse_weeks("13d"), None);
        assert_eq!(parse_weeks("0 weeks"), None);
    }

    #[test]
    fn a_rate_is_an_interval_with_a_burst_of_one_second() {
        let rate = |text| parse_rate(text).flatten().map(|rate| (rate.interval.as_millis(), rate.burst));
        assert_eq!(rate("50/s"), Some((20, 50)));
        assert_eq!(rate("300/min"), Some((200, 5)));
        assert_eq!(rate("1000/h"), Some((3_600, 1)));
        assert_eq!(parse_rate("unlimited"), Some(None));
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "0/s", "50", "50/day", "50 s", "5.5/s", "-1/s", "Unlimited", "1000001/s", "1x/s"] {
            assert_eq!(parse_rate(text), None, "{text}");
        }
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(parse_share("50%"), Some(0.5));
        assert_eq!(parse_share("0.5 %"), Some(0.005));
        assert_eq!(parse_share("100%"), Some(1.0));
        for text in ["", "50", "101%", "-1%", "NaN%", "inf%", "1e1%", ".5%", "%", "1.2.3%"] {
            assert_eq!(parse_share(text), None, "{text}");
        }
        assert_eq!(print_share(0.005), "0.5%");
        assert_eq!(print_share(1.0), "100%");
        assert_eq!(print_share(0.0), "0%");
    }

    proptest! {
        #[test]
        fn a_printed_duration_reads_as_itself(millis in 0..=MAX_MILLIS) {
            let duration = SignedDuration::from_millis(millis);
            prop_assert_eq!(parse_duration(&print_duration(duration)), Some(duration));
        }

        #[test]
        fn a_printed_rate_reads_as_itself(count in 1..=MAX_RATE, unit in 0..3_usize) {
            let rate = parse_rate(&format!("{count}/{}", RATE_UNITS[unit].1)).unwrap();
            prop_assert_eq!(parse_rate(&print_rate(rate)), Some(rate));
        }

        #[test]
        fn a_printed_share_reads_as_nearly_itself(share in 0.0..=1.0_f64) {
            let read = parse_share(&print_share(share)).unwrap();
            prop_assert!((read - share).abs() < 1e-8);
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC*") {
            let _ = (parse_duration(&text), parse_rate(&text), parse_share(&text), parse_weeks(&text));
        }

        #[test]
        fn no_nearly_right_text_makes_a_parser_panic(text in "[0-9]{0,22}[ .]?(ms|s|m|h|d|w|weeks|%|/s|/min|/h)?") {
            let _ = (parse_duration(&text), parse_rate(&text), parse_share(&text), parse_weeks(&text));
        }
    }
}
