//! Identity from outside: published vectors, weeks against an independent calendar, properties of canonical text.

use counterfoil::identity::keyring::{Keyring, KeyringError};
use counterfoil::identity::{
    ContentVersion, CustomerId, DigestType, FieldError, Identity, IsoWeek, WeekError, WeekSelector,
};
use jiff::civil::date;
use jiff::tz::TimeZone;
use proptest::prelude::*;

/// A keyring whose weekly secret is the bytes 00 01 … 1f.
fn vector_keyring() -> Keyring {
    Keyring::parse(
        &"[[key]]\nid = \"k1\"\nfrom_week = \"2020-W01\"\nsecret = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\
          [stable]\nsecret = \"ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=\"\n"
            .into(),
    )
    .unwrap()
}

fn receipt_key(customer: &str, week: &str, digest_type: &str, version: &str) -> String {
    let customer_id = CustomerId::new(customer).unwrap();
    let digest_type = DigestType::new(digest_type).unwrap();
    let content_version = ContentVersion::new(version).unwrap();
    let identity = Identity {
        customer_id: &customer_id,
        iso_week: week.parse().unwrap(),
        digest_type: &digest_type,
        content_version: &content_version,
    };
    let keyring = vector_keyring();
    keyring.for_week(identity.iso_week).unwrap().receipt_key(&identity).to_string()
}

#[test]
fn the_published_vectors_hold() {
    for (customer, week, version, expected) in [
        ("customer_8421", "2026-W32", "v3", "433ae5f2261570208517571d3edbe0f3aeb52fcc4c4f038ec4c55d00f310fa53"),
        ("auth0|507f1f77", "2026-W53", "v3", "7276c18f9fcb55a3021ad89bac2326234a40fef8234f86d0095d74e44268af12"),
        ("a\\|b", "2020-W53", "v1", "fd8a8f83b93c5a8ee2a8c2c37a2081b8d1c80d8e6b39ab49566638f3158e8544"),
        ("Zoë", "2025-W01", "v1", "ca5cdae38ff33710e78b87bfece368576c2e9ad2df279576191e62588afade0c"),
        ("Zoe\u{308}", "2025-W01", "v1", "ca5cdae38ff33710e78b87bfece368576c2e9ad2df279576191e62588afade0c"),
    ] {
        assert_eq!(receipt_key(customer, week, "weekly_activity", version), expected, "{week} {version}");
    }
}

/// ISO week of a day by the Thursday rule, counted from the day of the year: shares nothing with the product.
fn week_by_thursday(year: i32, day_of_year: i32, weekday_from_monday: i32) -> (i32, i32) {
    let leap = |year: i32| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let length = |year: i32| if leap(year) { 366 } else { 365 };
    let thursday = day_of_year - weekday_from_monday + 3;
    if thursday < 1 {
        (year - 1, (thursday + length(year - 1) - 1) / 7 + 1)
    } else if thursday > length(year) {
        (year + 1, 1)
    } else {
        (year, (thursday - 1) / 7 + 1)
    }
}

#[test]
fn every_day_from_1970_to_2100_lies_in_the_week_that_the_thursday_rule_says() {
    let mut weekday = 3; // 1970-01-01 was a Thursday.
    let mut days = 0;
    for year in 1970..=2100 {
        let mut day = date(year, 1, 1);
        let mut day_of_year = 1;
        while day.year() == year {
            let (iso_year, iso_week) = week_by_thursday(i32::from(year), day_of_year, weekday);
            let week = IsoWeek::of(day).unwrap();
            assert_eq!(week.to_string(), format!("{iso_year:04}-W{iso_week:02}"), "{day}");
            assert!(week.first_day() <= day && day <= week.last_day(), "{day}");
            assert_eq!(week.to_string().parse(), Ok(week));
            assert_eq!(IsoWeek::from_number(week.number()), Some(week));
            day = day.tomorrow().unwrap();
            day_of_year += 1;
            weekday = (weekday + 1) % 7;
            days += 1;
        }
    }
    assert_eq!(days, 47_847);
}

#[test]
fn only_weeks_that_exist_are_taken() {
    assert!("2026-W53".parse::<IsoWeek>().is_ok());
    assert_eq!("2025-W53".parse::<IsoWeek>(), Err(WeekError::Absent { year: 2025, last: 52 }));
    for text in ["2026-W54", "2026-W00"] {
        assert_eq!(text.parse::<IsoWeek>(), Err(WeekError::Absent { year: 2026, last: 53 }), "{text}");
    }
    for text in [
        "",
        "2026-W5",
        "2026W53",
        "2026-w53",
        "26-W01",
        "2026-W053",
        "+026-W01",
        " 2026-W01",
        "2026-W01 ",
        "２０２６-W01",
    ] {
        assert_eq!(text.parse::<IsoWeek>(), Err(WeekError::Form), "{text}");
    }
    assert_eq!("0000-W01".parse::<IsoWeek>(), Err(WeekError::Range));
}

#[test]
fn last_week_is_the_one_that_ended_most_recently_where_the_bank_is() {
    let zone = |name| TimeZone::get(name).unwrap();
    let resolve = |selector: &str, now: &str, name| -> String {
        selector.parse::<WeekSelector>().unwrap().resolve(now.parse().unwrap(), &zone(name)).unwrap().to_string()
    };
    // Sunday 23:30 UTC is already Monday in Berlin and still Sunday in New York.
    let now = "2026-08-09T23:30:00Z";
    assert_eq!(resolve("last", now, "UTC"), "2026-W31");
    assert_eq!(resolve("last", now, "Europe/Berlin"), "2026-W32");
    assert_eq!(resolve("last", now, "America/New_York"), "2026-W31");
    assert_eq!(resolve("current", now, "Europe/Berlin"), "2026-W33");
    assert_eq!(resolve("2020-W53", now, "Europe/Berlin"), "2020-W53");
    assert_eq!(resolve("last", "2021-01-04T00:00:00Z", "UTC"), "2020-W53");
    assert_eq!(resolve("last", "2027-01-04T00:00:00Z", "UTC"), "2026-W53");
}

#[test]
fn a_week_ends_with_its_local_sunday() {
    let end =
        |week: &str, zone| week.parse::<IsoWeek>().unwrap().end(&TimeZone::get(zone).unwrap()).unwrap().to_string();
    assert_eq!(end("2026-W32", "UTC"), "2026-08-10T00:00:00Z");
    assert_eq!(end("2026-W32", "Europe/Berlin"), "2026-08-09T22:00:00Z");
    // The clocks went forward on the Sunday of this week.
    assert_eq!(end("2026-W13", "Europe/Berlin"), "2026-03-29T22:00:00Z");
}

#[test]
fn identity_fields_keep_their_rules() {
    assert_eq!(CustomerId::new(""), Err(FieldError::Empty));
    assert_eq!(CustomerId::new(&"x".repeat(257)), Err(FieldError::TooLong { max: 256 }));
    assert!(CustomerId::new(&"x".repeat(256)).is_ok());
    for text in ["a\u{0}b", "a\nb", "a\u{7f}b", "a\u{85}b"] {
        assert_eq!(CustomerId::new(text), Err(FieldError::Control));
    }
    for text in [" a", "a ", "\u{a0}a", "a\u{3000}"] {
        assert_eq!(CustomerId::new(text), Err(FieldError::OuterSpace));
    }
    assert!(CustomerId::new("a b").is_ok());
    for text in ["", "Weekly", "1week", "weekly-activity", "wöchentlich", &"a".repeat(65)] {
        assert_eq!(DigestType::new(text), Err(FieldError::DigestType), "{text}");
    }
    for text in ["", ".v1", "v 1", "v1|x", &"a".repeat(33)] {
        assert_eq!(ContentVersion::new(text), Err(FieldError::ContentVersion), "{text}");
    }
    assert!(ContentVersion::new("2026.08-a_B").is_ok());
}

#[test]
fn the_key_of_a_week_is_the_latest_that_is_not_after_it() {
    let secret = |byte: u8| base64_of([byte; 32]);
    let text = format!(
        "[[key]]\nid = \"new\"\nfrom_week = \"2026-W30\"\nsecret = \"{}\"\n[[key]]\nid = \"old\"\nfrom_week = \"2025-W01\"\nsecret = \"{}\"\n[stable]\nsecret = \"{}\"\n",
        secret(1),
        secret(2),
        secret(3)
    );
    let keyring = Keyring::parse(&text.into()).unwrap();
    let id = |week: &str| keyring.for_week(week.parse().unwrap()).map(|key| key.id().to_owned());
    assert_eq!(id("2026-W29").as_deref(), Ok("old"));
    assert_eq!(id("2026-W30").as_deref(), Ok("new"));
    assert_eq!(id("2030-W01").as_deref(), Ok("new"));
    assert!(matches!(id("2024-W52"), Err(KeyringError::NoKeyFor { .. })));
}

#[test]
fn a_broken_keyring_is_named_without_its_secret() {
    let canary = "Q0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZ";
    let stable = format!("[stable]\nsecret = \"{canary}AAAAAAAAAAAA\"\n");
    let good = format!("[[key]]\nid = \"k1\"\nfrom_week = \"2026-W01\"\nsecret = \"{canary}AAAAAAAAAAAA\"\n");
    let cases = [
        (stable.clone(), "has no [[key]]"),
        (good.clone(), "line 1: "),
        (format!("{good}{good}{stable}"), "same `id`"),
        (format!("{}{stable}", good.replace("2026-W01", "2025-W53")), "`from_week` does not exist"),
        (format!("{}{stable}", good.replace("AAAAAAAAAAAA", "")), "at least 32"),
        (format!("{}{stable}", good.replace("secret", "secert")), "secert"),
        (format!("{}{stable}", good.replace("\"k1\"", "\"k 1\"")), "number 1"),
        (format!("{}{stable}", good.replace("\"\n", "\n")), "line 2"),
        (format!("{}{stable}", good.replace(&format!("\"{canary}AAAAAAAAAAAA\""), canary)), "line 4"),
    ];
    for (text, expected) in cases {
        let error = Keyring::parse(&text.into()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("CANARY") && !error.contains(canary), "{error}");
    }
    assert!(!format!("{:?}", vector_keyring()).contains("AAECAwQ"));
}

fn base64_of(bytes: [u8; 32]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

proptest! {
    #[test]
    fn no_two_identities_share_a_canonical_text(a in "[a-z|\\\\]{1,8}", b in "[a-z|\\\\]{1,8}", week_a in 1_i32..53, week_b in 1_i32..53) {
        let text = |customer: &str, week: i32| {
            let customer_id = CustomerId::new(customer).unwrap();
            let digest_type = DigestType::new("t").unwrap();
            let content_version = ContentVersion::new("v").unwrap();
            let iso_week = IsoWeek::from_number(202_600 + week).unwrap();
            Identity { customer_id: &customer_id, iso_week, digest_type: &digest_type, content_version: &content_version }.canonical_text()
        };
        prop_assert_eq!(text(&a, week_a) == text(&b, week_b), a == b && week_a == week_b);
    }

    #[test]
    fn weeks_follow_each_other_without_gap(days in 0_i64..700_000) {
        use jiff::ToSpan as _;
        let day = date(100, 1, 1).checked_add(days.days()).unwrap();
        let week = IsoWeek::of(day).unwrap();
        prop_assert_eq!(week.next().unwrap().previous().unwrap(), week);
        prop_assert!(week < week.next().unwrap());
        prop_assert!(week.number() < week.next().unwrap().number());
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "\\PC{0,40}") {
        let _ = text.parse::<IsoWeek>();
        let _ = CustomerId::new(&text);
        let _ = DigestType::new(&text);
        let _ = ContentVersion::new(&text);
        let _ = Keyring::parse(&text.into());
    }
}
