//! `Retry-After` (RFC 9110, 10.2.3): seconds or a date, taken in full. Pure.
//!
//! `RateLimit-Reset` and its kin are not read: some count seconds, some name an instant, and nothing tells which.

use std::str;

use jiff::{SignedDuration, Timestamp};

use crate::receipt::RetryAfter;

/// Reads every `Retry-After` of an answer that came at `now`. Of several the one that ends last counts, one that
/// cannot be read counts for nothing.
pub(in crate::provider) fn retry_after<'a>(values: impl Iterator<Item = &'a [u8]>, now: Timestamp) -> RetryAfter {
    values
        .filter_map(|value| str::from_utf8(value).ok().and_then(read))
        .max_by_key(|found| end(*found, now))
        .unwrap_or(RetryAfter::Unspecified)
}

fn read(value: &str) -> Option<RetryAfter> {
    let value = value.trim_matches([' ', '\t']);
    let date = || httpdate::parse_http_date(value).ok().and_then(|date| Timestamp::try_from(date).ok());
    seconds(value).map(RetryAfter::In).or_else(|| date().map(RetryAfter::At))
}

/// Seconds in digits. A list is what becomes of the header when a proxy joins two of it into one (RFC 9110, 5.3).
/// More seconds than can be counted are the longest span there is.
fn seconds(value: &str) -> Option<SignedDuration> {
    let one = |text: &str| {
        let digits = text.trim_matches([' ', '\t']);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| SignedDuration::from_secs(digits.parse().unwrap_or(i64::MAX)))
    };
    let all: Option<Vec<SignedDuration>> = value.split(',').map(one).collect();
    all?.into_iter().max()
}

fn end(found: RetryAfter, now: Timestamp) -> Timestamp {
    match found {
        RetryAfter::In(span) => now.saturating_add(span).unwrap_or(Timestamp::MAX),
        RetryAfter::At(at) => at,
        RetryAfter::Unspecified => now,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const DATE: i64 = 784_111_777;

    fn at(second: i64) -> RetryAfter {
        RetryAfter::At(Timestamp::from_second(second).unwrap())
    }

    fn within(seconds: i64) -> RetryAfter {
        RetryAfter::In(SignedDuration::from_secs(seconds))
    }

    fn of(values: &[&str]) -> RetryAfter {
        let now = Timestamp::from_second(DATE - 60).unwrap();
        retry_after(values.iter().map(|value| value.as_bytes()), now)
    }

    #[test]
    fn seconds_are_taken_in_full() {
        for (value, seconds) in [
            ("120", 120),
            ("0", 0),
            ("007", 7),
            (" 3\t", 3),
            ("31536000000", 31_536_000_000),
            ("99999999999999999999999999", i64::MAX),
            ("120, 300", 300),
        ] {
            assert_eq!(of(&[value]), within(seconds), "{value}");
        }
    }

    #[test]
    fn dates_are_read_in_all_three_forms() {
        for value in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(of(&[value]), at(DATE), "{value}");
        }
        assert_eq!(of(&["Thu, 01 Jan 1970 00:00:00 GMT"]), at(0));
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        for value in [
            "",
            "soon",
            "-5",
            "+5",
            "1.5",
            "5s",
            "1e3",
            "0x10",
            "1,,2",
            "٣",
            "Sun, 06 Nov 1994",
            "2026-12-01T00:00:00Z",
        ] {
            assert_eq!(of(&[value]), RetryAfter::Unspecified, "{value}");
        }
        assert_eq!(retry_after([&b"\xff"[..]].into_iter(), Timestamp::UNIX_EPOCH), RetryAfter::Unspecified);
        assert_eq!(of(&[]), RetryAfter::Unspecified);
    }

    #[test]
    fn of_two_the_later_end_counts() {
        assert_eq!(of(&["3", "120"]), within(120));
        assert_eq!(of(&["120", "soon"]), within(120));
        assert_eq!(of(&["59", "Sun, 06 Nov 1994 08:49:37 GMT"]), at(DATE));
        assert_eq!(of(&["Sun, 06 Nov 1994 08:49:37 GMT", "61"]), within(61));
        assert_eq!(of(&["99999999999999999999", "Sun, 06 Nov 1994 08:49:37 GMT"]), within(i64::MAX));
    }

    proptest! {
        #[test]
        fn any_header_is_read_without_panic(values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..4)) {
            let _ = retry_after(values.iter().map(Vec::as_slice), Timestamp::MAX);
        }

        #[test]
        fn any_number_of_seconds_is_itself(seconds in 0..=i64::MAX, zeros in 0_usize..5) {
            let value = format!("{}{seconds}", "0".repeat(zeros));
            prop_assert_eq!(of(&[&value]), within(seconds));
        }
    }
}
