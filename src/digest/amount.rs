//! Exact amounts of money: decimal strings to whole minor units and back. No binary fraction anywhere.

/// Digits before the point that an amount may have. Sums of a million such amounts still fit.
const MAX_WHOLE_DIGITS: usize = 18;

/// An amount in the smallest unit of its currency, such as cents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amount(i128);

/// Why a text is not an amount. Never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum AmountError {
    /// Not of the form `-?(0|[1-9][0-9]*)(\.[0-9]+)?`.
    #[error(
        "must be a decimal number such as -12.50: digits, at most one point, no spaces, no plus sign, no leading zeros"
    )]
    Form,
    /// More than 18 digits before the point.
    #[error("has more than 18 digits before the point")]
    TooLong,
    /// More decimals than the currency has.
    #[error("has more decimals than its currency")]
    Decimals,
    /// A sum that cannot be held.
    #[error("adds up to more than can be counted")]
    Overflow,
}

impl Amount {
    pub(super) const ZERO: Self = Self(0);

    /// Reads a decimal string of a currency with `decimals` decimals.
    pub(super) fn parse(text: &str, decimals: u8) -> Result<Self, AmountError> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = split_decimal(unsigned).ok_or(AmountError::Form)?;
        if whole.len() > MAX_WHOLE_DIGITS {
            return Err(AmountError::TooLong);
        }
        if fraction.len() > usize::from(decimals) {
            return Err(AmountError::Decimals);
        }
        let padding = std::iter::repeat_n(b'0', usize::from(decimals) - fraction.len());
        let digits = whole.bytes().chain(fraction.bytes()).chain(padding);
        let units = digits.fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        Ok(Self(if unsigned.len() == text.len() { units } else { -units }))
    }

    /// The decimal string with exactly `decimals` decimals, `-` for money out.
    pub(super) fn to_text(self, decimals: u8) -> String {
        let digits = self.digits(decimals);
        let (whole, fraction) = digits.split_at(digits.len() - usize::from(decimals));
        let sign = if self.is_negative() { "-" } else { "" };
        if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
    }

    /// Its digits without sign and point, at least one before the point.
    pub(super) fn digits(self, decimals: u8) -> String {
        format!("{:0width$}", self.0.unsigned_abs(), width = usize::from(decimals) + 1)
    }

    pub(super) const fn is_negative(self) -> bool {
        self.0 < 0
    }

    pub(super) const fn is_positive(self) -> bool {
        self.0 > 0
    }

    pub(super) fn plus(self, other: Self) -> Result<Self, AmountError> {
        self.0.checked_add(other.0).map(Self).ok_or(AmountError::Overflow)
    }

    pub(super) fn minus(self, other: Self) -> Result<Self, AmountError> {
        self.0.checked_sub(other.0).map(Self).ok_or(AmountError::Overflow)
    }
}

/// Digits before and after the point of an unsigned decimal number, if it is one.
pub(super) fn split_decimal(unsigned: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = match unsigned.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (unsigned, ""),
    };
    let only_digits = whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit());
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    (only_digits && !whole.is_empty() && !leading_zero).then_some((whole, fraction))
}

#[cfg(test)]
mod tests {
    use super::{Amount, AmountError};

    #[test]
    fn an_amount_comes_back_with_all_decimals_of_its_currency() {
        for (text, decimals, shown) in [
            ("50.05", 2, "50.05"),
            ("300", 2, "300.00"),
            ("0.5", 2, "0.50"),
            ("-0.05", 2, "-0.05"),
            ("-0.00", 2, "0.00"),
            ("12", 0, "12"),
            ("-0.001", 3, "-0.001"),
            ("999999999999999999.99", 2, "999999999999999999.99"),
        ] {
            assert_eq!(Amount::parse(text, decimals).map(|a| a.to_text(decimals)).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_plain_decimal_number_is_refused() {
        for text in
            ["", "-", "+1", "1.", ".5", "1,5", " 1", "1 ", "1e3", "0x1", "--1", "01", "1.2.3", "١", "NaN", "1_0"]
        {
            assert_eq!(Amount::parse(text, 2), Err(AmountError::Form), "{text}");
        }
        assert_eq!(Amount::parse("1.005", 2), Err(AmountError::Decimals));
        assert_eq!(Amount::parse("1.0", 0), Err(AmountError::Decimals));
        assert_eq!(Amount::parse("1000000000000000000", 2), Err(AmountError::TooLong));
    }

    #[test]
    fn sums_that_binary_fractions_get_wrong_are_exact() {
        let sum = ["0.1", "0.2", "-0.3"]
            .iter()
            .try_fold(Amount::ZERO, |sum, text| sum.plus(Amount::parse(text, 2).expect("an amount")));
        assert_eq!(sum, Ok(Amount::ZERO));
    }
}
