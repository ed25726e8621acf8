//! Which language a row reads, which way it runs, and the formats that go with it.
//!
//! A row's locale picks the nearest language that the bundle has texts in (`de-CH`, then `de`, then the bundle's
//! own). Dates hold words, so they follow the language of the text, with the row's region; numbers follow the row's
//! locale, except where its script runs against the text's.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use icu::locale::{LanguageIdentifier, Locale, LocaleDirectionality};
use jiff::civil::Date;
use minijinja::value::{Object, Value};

use super::currency;
use super::dates::{DatePatterns, DateStyle};
use super::numbers::{MoneyPattern, NumberPattern, PercentPattern};

/// Formatted dates that are remembered for one locale; more are formatted anew each time.
const MAX_REMEMBERED_DATES: usize = 4096;

/// Whether a language runs from right to left.
pub(super) fn is_right_to_left(language: &LanguageIdentifier) -> bool {
    LocaleDirectionality::new_extended().is_right_to_left(language)
}

/// A tag and the tags that stand in for it, the nearest first: `zh-Hant-TW`, `zh-Hant`, `zh`.
pub(super) fn fallbacks(language: &LanguageIdentifier) -> Vec<String> {
    let mut tag = language.to_string();
    let mut chain = vec![tag.clone()];
    while let Some(end) = tag.rfind('-') {
        tag.truncate(end);
        chain.push(tag.clone());
    }
    chain
}

/// What templates know as `locale`, with the formats behind it.
#[derive(Debug)]
pub(super) struct Formats {
    tag: Value,
    language: Value,
    direction: Value,
    number_locale: Locale,
    number: NumberPattern,
    percent: Option<PercentPattern>,
    dates: DatePatterns,
    money: RwLock<HashMap<[u8; 3], Arc<MoneyPattern>>>,
    remembered: RwLock<HashMap<(DateStyle, Date), Value>>,
}

impl Formats {
    /// The formats of a row with `locale` that reads a text in `language`; `None` only without any CLDR data.
    pub(super) fn new(locale: &Locale, language: &LanguageIdentifier) -> Option<Self> {
        let text_locale = if locale.id.language == language.language {
            locale.clone()
        } else {
            let mut id = language.clone();
            id.region = locale.id.region.or(id.region);
            Locale::from(id)
        };
        let rtl = is_right_to_left(language);
        let number_locale = if is_right_to_left(&locale.id) == rtl { locale.clone() } else { text_locale.clone() };
        let number = NumberPattern::learn(&number_locale)?;
        Some(Self {
            tag: Value::from(locale.to_string()),
            language: Value::from(language.to_string()),
            direction: Value::from(if rtl { "rtl" } else { "ltr" }),
            percent: PercentPattern::learn(&number_locale, &number),
            dates: DatePatterns::learn(&text_locale)?,
            number,
            number_locale,
            money: RwLock::default(),
            remembered: RwLock::default(),
        })
    }

    /// The pattern of a currency; `None` for what is no currency.
    pub(super) fn money(&self, code: &str) -> Option<Arc<MoneyPattern>> {
        let key: [u8; 3] = code.as_bytes().try_into().ok()?;
        let found = self.money.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if found.is_some() {
            return found;
        }
        let decimals = currency::decimals(code)?;
        let learned = Arc::new(MoneyPattern::learn(&self.number_locale, &self.number, code, decimals));
        self.money.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&learned));
        Some(learned)
    }

    /// A decimal string as a plain number.
    pub(super) fn number(&self, text: &str) -> Option<String> {
        self.number.number(text)
    }

    /// A decimal string as per cent.
    pub(super) fn percent(&self, text: &str) -> Option<String> {
        self.percent.as_ref()?.format(&self.number, text)
    }

    /// One date.
    pub(super) fn date(&self, date: Date, style: DateStyle) -> Option<Value> {
        let key = (style, date);
        let found = self.remembered.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if found.is_some() {
            return found;
        }
        let shown = Value::from(self.dates.format(date, style)?);
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() < MAX_REMEMBERED_DATES {
            remembered.insert(key, shown.clone());
        }
        Some(shown)
    }

    /// A span of days.
    pub(super) fn span(&self, start: Date, end: Date) -> Option<String> {
        self.dates.span(start, end)
    }
}

impl Object for Formats {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "tag" => Some(self.tag.clone()),
            "language" => Some(self.language.clone()),
            "direction" => Some(self.direction.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use icu::locale::{LanguageIdentifier, Locale};

    use super::{DateStyle, Formats, fallbacks, is_right_to_left};

    fn language(tag: &str) -> LanguageIdentifier {
        tag.parse().expect("a language")
    }

    fn formats(tag: &str, text: &str) -> Formats {
        Formats::new(&tag.parse::<Locale>().expect("a locale"), &language(text)).expect("formats")
    }

    #[test]
    fn fallbacks_go_from_the_nearest_to_the_language() {
        assert_eq!(fallbacks(&language("zh-Hant-TW")), ["zh-Hant-TW", "zh-Hant", "zh"]);
        assert_eq!(fallbacks(&language("de")), ["de"]);
    }

    #[test]
    fn scripts_decide_the_direction() {
        for (tag, expected) in [("ar", true), ("he-IL", true), ("fa", true), ("ur-PK", true), ("az-Arab", true)] {
            assert_eq!(is_right_to_left(&language(tag)), expected, "{tag}");
        }
        for tag in ["en", "de-CH", "ja", "az", "tr"] {
            assert!(!is_right_to_left(&language(tag)), "{tag}");
        }
    }

    #[test]
    fn dates_speak_the_language_of_the_text_and_numbers_that_of_the_row() {
        let formats = formats("fr-FR", "en");
        let date = "2026-08-03".parse().expect("a date");
        assert_eq!(formats.date(date, DateStyle::Long).expect("a date").as_str(), Some("3 August 2026"));
        assert_eq!(formats.number("1234.5").as_deref(), Some("1\u{202f}234,5"));
    }

    #[test]
    fn numbers_never_run_against_the_text() {
        assert_eq!(formats("ar-EG", "en").number("1234.5").as_deref(), Some("1,234.5"));
        assert_eq!(formats("ar-EG", "ar").number("1234.5").as_deref(), Some("١٬٢٣٤٫٥"));
    }
}
