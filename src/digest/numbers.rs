//! Numbers and money in a locale's form, exact: digits are placed by pattern, never computed.
//!
//! A pattern is learned once from ICU by formatting known samples; afterwards an amount costs a few string copies.
//! ICU's own currency formatter rounds to CLDR's decimals, which differ from ISO 4217 for some currencies; a
//! pattern takes the decimals that it is told. Where a sample cannot be understood, the form is code and number.

use icu::decimal::DecimalFormatter;
use icu::decimal::input::{Decimal, SignDisplay};
use icu::experimental::dimension::currency::CurrencyType;
use icu::experimental::dimension::currency::formatter::CurrencyFormatter;
use icu::experimental::dimension::percent::formatter::PercentFormatter;
use icu::locale::Locale;

use super::amount::{Amount, split_decimal};

/// Whether a sign is shown on what is positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// Only `-`.
    Negative,
    /// `+` and `-`, nothing on zero.
    Both,
}

/// Digits, separators and groups of a locale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NumberPattern {
    digits: [char; 10],
    point: String,
    group: String,
    /// Digits of the group next to the point; 0 where nothing is grouped.
    primary: usize,
    /// Digits of the other groups.
    secondary: usize,
    /// Digits that must stand before the first separator.
    least_leading: usize,
    minus: Affixes,
    plus: Affixes,
}

/// What stands before and behind the digits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Affixes {
    before: String,
    behind: String,
}

impl Affixes {
    fn around(&self, digits: &str) -> String {
        [self.before.as_str(), digits, self.behind.as_str()].concat()
    }
}

impl NumberPattern {
    /// Learns a locale's plain numbers; `None` where ICU has no data that we understand.
    pub(super) fn learn(locale: &Locale) -> Option<Self> {
        let formatter = DecimalFormatter::try_new(locale.into(), Default::default()).ok()?;
        let shown = |text: &str| text.parse::<Decimal>().ok().map(|number| formatter.format(&number).to_string());
        let mut digits = ['0'; 10];
        for (value, digit) in digits.iter_mut().enumerate() {
            *digit = formatter.format(&Decimal::from(value)).to_string().chars().find(|c| c.is_numeric())?;
        }
        let signed = |text: &str| {
            let number = text.parse::<Decimal>().ok()?.with_sign_display(SignDisplay::Always);
            Sample::read(&formatter.format(&number).to_string(), &digits).map(|sample| sample.affixes)
        };
        let point = Sample::read(&shown("1.1")?, &digits)?.separators.pop()?;
        let (minus, plus) = (signed("-1")?, signed("1")?);
        let plain =
            Self { digits, point, group: String::new(), primary: 0, secondary: 0, least_leading: 1, minus, plus };
        plain.grouped_like(&shown("1234567890.1")?, &shown("1234")?, 1)
    }

    /// The same digits and signs, with the separators of two samples: 1234567890 with `decimals` decimals, and 1234.
    fn grouped_like(mut self, long: &str, short: &str, decimals: usize) -> Option<Self> {
        let sample = Sample::read(long, &self.digits)?;
        let mut separators = sample.separators;
        let mut runs = sample.runs;
        if decimals > 0 {
            (runs.pop()? == decimals).then_some(())?;
            self.point = separators.pop()?;
        }
        self.group = separators.first().cloned().unwrap_or_default();
        separators.iter().all(|separator| *separator == self.group).then_some(())?;
        (runs.iter().sum::<usize>() == 10).then_some(())?;
        (self.primary, self.secondary) = match runs.as_slice() {
            [.., second, last] if runs.len() > 2 => (*last, *second),
            [_, last] => (*last, *last),
            _ => (0, 0),
        };
        let short = Sample::read(short, &self.digits)?;
        let splits_short = short.runs.first().is_some_and(|first| *first < 4);
        self.least_leading = if splits_short { 1 } else { 2 };
        Some(self)
    }

    /// Places decimal digits: `whole` and `fraction` are ASCII digits.
    fn place(&self, whole: &str, fraction: &str) -> String {
        let mut out = String::with_capacity(whole.len() * 2 + fraction.len() + 4);
        let grouped = self.primary > 0 && whole.len() >= self.primary + self.least_leading;
        for (index, digit) in whole.bytes().enumerate() {
            let left = whole.len() - index;
            let over = left.checked_sub(self.primary);
            if grouped && index > 0 && over.is_some_and(|over| over.is_multiple_of(self.secondary.max(1))) {
                out.push_str(&self.group);
            }
            out.push(self.digit(digit));
        }
        if !fraction.is_empty() {
            out.push_str(&self.point);
            out.extend(fraction.bytes().map(|digit| self.digit(digit)));
        }
        out
    }

    fn digit(&self, ascii: u8) -> char {
        self.digits.get(usize::from(ascii.wrapping_sub(b'0'))).copied().unwrap_or('0')
    }

    /// A decimal string of any length as a plain number; `None` where it is none.
    pub(super) fn number(&self, text: &str) -> Option<String> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = split_decimal(unsigned)?;
        let placed = self.place(whole, fraction);
        Some(if unsigned.len() == text.len() { placed } else { self.minus.around(&placed) })
    }
}

/// Money of one currency in one locale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MoneyPattern {
    decimals: u8,
    number: NumberPattern,
    positive: Affixes,
    negative: Affixes,
    plus: Affixes,
}

impl MoneyPattern {
    /// Learns how a locale shows a currency with `decimals` decimals.
    pub(super) fn learn(locale: &Locale, number: &NumberPattern, code: &str, decimals: u8) -> Self {
        Self::from_icu(locale, number, code, decimals).unwrap_or_else(|| Self::with_code(number, code, decimals))
    }

    fn from_icu(locale: &Locale, number: &NumberPattern, code: &str, decimals: u8) -> Option<Self> {
        let currency = CurrencyType::try_from_str(code).ok()?;
        let formatter = CurrencyFormatter::try_new_symbol(locale.into(), currency, Default::default()).ok()?;
        let shown = |text: &str| Some(formatter.format_fixed_decimal(&text.parse::<Decimal>().ok()?).to_string());
        let one = Sample::read(&shown("1")?, &number.digits)?;
        // CLDR's decimals, which the samples have.
        let shown_decimals = if one.runs.len() > 1 { *one.runs.last()? } else { 0 };
        let number = number.clone().grouped_like(&shown("1234567890")?, &shown("1234")?, shown_decimals)?;
        let negative = Sample::read(&shown("-1")?, &number.digits)?.affixes;
        let plus = with_plus(&negative, &number)?;
        Some(Self { decimals, number, positive: one.affixes, negative, plus })
    }

    /// `XYZ 1,234.50`, for what CLDR does not know.
    fn with_code(number: &NumberPattern, code: &str, decimals: u8) -> Self {
        let signed =
            |sign: &Affixes| Affixes { before: format!("{}{code}\u{a0}", sign.before), behind: sign.behind.clone() };
        Self {
            decimals,
            number: number.clone(),
            positive: signed(&Affixes::default()),
            negative: signed(&number.minus),
            plus: signed(&number.plus),
        }
    }

    /// The amount with all decimals of its currency.
    pub(super) fn format(&self, amount: Amount, sign: Sign) -> String {
        let digits = amount.digits(self.decimals);
        let (whole, fraction) = digits.split_at(digits.len() - usize::from(self.decimals));
        let affixes = match sign {
            _ if amount.is_negative() => &self.negative,
            Sign::Both if amount.is_positive() => &self.plus,
            _ => &self.positive,
        };
        affixes.around(&self.number.place(whole, fraction))
    }

    /// Decimals of the currency.
    pub(super) fn decimals(&self) -> u8 {
        self.decimals
    }
}

/// The affixes of what is negative, with the locale's plus sign in the place of its minus sign.
fn with_plus(negative: &Affixes, number: &NumberPattern) -> Option<Affixes> {
    let minus = [number.minus.before.as_str(), number.minus.behind.as_str()].concat();
    let plus = [number.plus.before.as_str(), number.plus.behind.as_str()].concat();
    if minus.is_empty() {
        return None;
    }
    let found = negative.before.contains(&minus) || negative.behind.contains(&minus);
    found.then(|| Affixes {
        before: negative.before.replacen(&minus, &plus, 1),
        behind: negative.behind.replacen(&minus, &plus, 1),
    })
}

/// Per cent of a locale: `12.5` is 12.5 %.
#[derive(Debug, Clone)]
pub(super) struct PercentPattern {
    positive: Affixes,
    negative: Affixes,
}

impl PercentPattern {
    /// Learns a locale's percentages.
    pub(super) fn learn(locale: &Locale, number: &NumberPattern) -> Option<Self> {
        let formatter = PercentFormatter::try_new(locale.into(), Default::default()).ok()?;
        let affixes = |text: &str| {
            let shown = formatter.format(&text.parse::<Decimal>().ok()?).to_string();
            Sample::read(&shown, &number.digits).map(|sample| sample.affixes)
        };
        Some(Self { positive: affixes("1")?, negative: affixes("-1")? })
    }

    /// A decimal string as per cent; `None` where it is no number.
    pub(super) fn format(&self, number: &NumberPattern, text: &str) -> Option<String> {
        match text.strip_prefix('-') {
            Some(unsigned) => number.number(unsigned).map(|digits| self.negative.around(&digits)),
            None => number.number(text).map(|digits| self.positive.around(&digits)),
        }
    }
}

/// A formatted number taken apart.
struct Sample {
    affixes: Affixes,
    /// Lengths of the runs of digits.
    runs: Vec<usize>,
    /// What stands between them.
    separators: Vec<String>,
}

impl Sample {
    fn read(text: &str, digits: &[char; 10]) -> Option<Self> {
        let is_digit = |c: char| digits.contains(&c);
        let start = text.find(is_digit)?;
        let end = text.char_indices().rev().find(|(_, c)| is_digit(*c)).map(|(at, c)| at + c.len_utf8())?;
        let affixes = Affixes { before: text.get(..start)?.to_owned(), behind: text.get(end..)?.to_owned() };
        let (mut runs, mut separators) = (vec![0], Vec::<String>::new());
        let mut in_separator = false;
        for c in text.get(start..end)?.chars() {
            match (is_digit(c), in_separator) {
                (true, true) => runs.push(1),
                (true, false) => *runs.last_mut()? += 1,
                (false, true) => separators.last_mut()?.push(c),
                (false, false) => separators.push(c.to_string()),
            }
            in_separator = !is_digit(c);
        }
        Some(Self { affixes, runs, separators })
    }
}

#[cfg(test)]
mod tests {
    use icu::decimal::input::Decimal;
    use icu::experimental::dimension::currency::CurrencyType;
    use icu::experimental::dimension::currency::formatter::CurrencyFormatter;
    use icu::locale::Locale;

    use super::{MoneyPattern, NumberPattern, PercentPattern, Sign};
    use crate::digest::amount::Amount;
    use crate::digest::currency;

    fn locale(tag: &str) -> Locale {
        tag.parse().expect("a locale")
    }

    fn money(tag: &str, code: &str, text: &str, sign: Sign) -> String {
        let locale = locale(tag);
        let decimals = currency::decimals(code).expect("a currency");
        let number = NumberPattern::learn(&locale).expect("known numbers");
        let amount = Amount::parse(text, decimals).expect("an amount");
        MoneyPattern::learn(&locale, &number, code, decimals).format(amount, sign)
    }

    /// Wherever ICU does not round, the learned pattern and ICU say the same.
    #[test]
    fn learned_patterns_agree_with_icu() {
        const LOCALES: &str = "en en-GB en-US en-IN en-CH en-ZA de-DE de-CH de-AT fr-FR fr-CH fr-CA es-ES es-MX it-IT \
            pt-PT pt-BR nl-NL pl-PL sv-SE nb-NO da-DK fi-FI hu-HU cs-CZ lt-LT lv-LV et-EE bg-BG uk-UA ja-JP zh-Hans-CN \
            ko-KR hi-IN bn-BD ar-BH ar-EG ar-AE fa-IR he-IL ur-PK tr-TR th-TH vi-VN my-MM ne-NP mr-IN de-u-nu-thai";
        const VALUES: [&str; 9] =
            ["0", "1", "-1", "12.34", "-999.99", "1234.5", "-12345.67", "1234567.89", "-987654321"];
        for tag in LOCALES.split_ascii_whitespace() {
            for code in ["EUR", "USD", "GBP", "CHF", "INR", "PLN", "DEM", "BHD", "SEK"] {
                let locale = locale(tag);
                let currency = CurrencyType::try_from_str(code).expect("a code");
                let icu = CurrencyFormatter::try_new_symbol((&locale).into(), currency, Default::default());
                let icu = icu.expect("a formatter");
                for value in VALUES {
                    let expected = icu.format_fixed_decimal(&value.parse::<Decimal>().expect("a number")).to_string();
                    assert_eq!(money(tag, code, value, Sign::Negative), expected, "{tag} {code} {value}");
                }
            }
        }
    }

    #[test]
    fn decimals_are_iso_4217_even_where_cldr_rounds() {
        assert_eq!(money("en", "ALL", "12.34", Sign::Negative), "ALL\u{a0}12.34");
        assert_eq!(money("en", "HUF", "12.34", Sign::Negative), "HUF\u{a0}12.34");
        assert_eq!(money("en-GB", "JPY", "-1500", Sign::Negative), "-JP¥1,500");
        assert_eq!(money("en-GB", "BHD", "0.005", Sign::Negative), "BHD\u{a0}0.005");
        assert_eq!(money("de-DE", "EUR", "300", Sign::Negative), "300,00\u{a0}€");
    }

    #[test]
    fn money_in_has_a_plus_sign_where_asked_and_zero_has_none() {
        assert_eq!(money("en-GB", "GBP", "12.5", Sign::Both), "+£12.50");
        assert_eq!(money("en-GB", "GBP", "-12.5", Sign::Both), "-£12.50");
        assert_eq!(money("en-GB", "GBP", "0", Sign::Both), "£0.00");
        assert_eq!(money("de-DE", "EUR", "1234.5", Sign::Both), "+1.234,50\u{a0}€");
    }

    #[test]
    fn what_cldr_does_not_know_shows_its_code() {
        let number = NumberPattern::learn(&locale("en")).expect("known numbers");
        let pattern = MoneyPattern::with_code(&number, "QQQ", 2);
        let amount = Amount::parse("-1234.5", 2).expect("an amount");
        assert_eq!(pattern.format(amount, Sign::Negative), "-QQQ\u{a0}1,234.50");
        assert_eq!(MoneyPattern::learn(&locale("en"), &number, "SUR", 2).decimals(), 2);
    }

    #[test]
    fn digits_beyond_any_float_stay_exact() {
        assert_eq!(money("en", "USD", "999999999999999999.99", Sign::Negative), "$999,999,999,999,999,999.99");
        let number = NumberPattern::learn(&locale("en")).expect("known numbers");
        assert_eq!(
            number.number("-123456789012345678901234567890.10").as_deref(),
            Some("-123,456,789,012,345,678,901,234,567,890.10")
        );
        assert_eq!(number.number("1e3"), None);
    }

    #[test]
    fn percentages_follow_the_locale() {
        for (tag, expected) in [("en", "-12.5%"), ("de-DE", "-12,5\u{a0}%"), ("tr-TR", "-%12,5")] {
            let number = NumberPattern::learn(&locale(tag)).expect("known numbers");
            let percent = PercentPattern::learn(&locale(tag), &number).expect("known percentages");
            assert_eq!(percent.format(&number, "-12.5").as_deref(), Some(expected), "{tag}");
        }
    }
}
