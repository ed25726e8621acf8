//! The syntax of a recipient's address: exactly one bare mailbox that common servers take. No network is asked
//! whether it exists. And its one normal form.

use std::fmt;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use lettre::Address;

/// The greatest length of an address in bytes (RFC 5321 with its erratum 1690).
const MAX_ADDRESS: usize = 254;
/// The greatest length of the part before the `@` in bytes (RFC 5321, section 4.5.3.1.1).
const MAX_LOCAL_PART: usize = 64;

const DOMAIN: &str = "has a domain that cannot exist; expected at least two labels of letters, digits and hyphens";

/// Reads an address; an international domain becomes A-labels. Quoted local parts and local parts beyond ASCII are
/// refused: both are legal, hardly any provider delivers them, and they would fail one by one while sending.
///
/// # Errors
/// The first rule that the text breaks, in words that do not repeat it.
pub(super) fn parse(text: &str) -> Result<Address, &'static str> {
    refuse_foreign_characters(text)?;
    let Some((local, domain)) = text.rsplit_once('@') else { return Err("has no @") };
    check_local_part(local)?;
    let domain = ascii_domain(domain)?;
    if local.len() + 1 + domain.len() > MAX_ADDRESS {
        return Err("is longer than 254 bytes");
    }
    Address::new(local, domain).map_err(|_| "is not an address; expected one such as name@example.test")
}

/// An address in the one form under which it stands on the suppression list: trimmed, in lower case, its domain in
/// A-labels. Two spellings that reach the same mailbox nearly everywhere are one; dots and tags in the local part
/// are kept, since what they mean is each provider's own matter.
#[derive(Clone, PartialEq, Eq)]
pub struct NormalAddress(String);

impl NormalAddress {
    /// Reads an address as a person or another system writes it.
    ///
    /// # Errors
    /// The first rule that the text breaks, in words that do not repeat it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        parse(text.trim()).map(|address| Self::of(&address))
    }

    /// The form of an address that was read before.
    pub fn of(address: &Address) -> Self {
        let text: &str = address.as_ref();
        Self(text.to_ascii_lowercase())
    }

    /// The text, which is hashed and goes nowhere else.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Addresses do not print themselves, so that no log or error can hold one by accident.
impl fmt::Debug for NormalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NormalAddress(…)")
    }
}

/// What stands nowhere in a bare address, so that the reason can say what was meant.
fn refuse_foreign_characters(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    // Before anything walks through it character by character.
    if text.len() > 4 * MAX_ADDRESS {
        return Err("is longer than 254 bytes");
    }
    if text.chars().any(char::is_control) {
        return Err("holds a control character or a line break");
    }
    if text.contains(['<', '>']) {
        return Err("must be the bare address, without a name and angle brackets");
    }
    if text.contains('"') {
        return Err("has a quoted local part, which hardly any provider delivers to");
    }
    if text.contains([',', ';']) || text.matches('@').count() > 1 {
        return Err("must be exactly one address, with one @ and no list");
    }
    if text.chars().any(char::is_whitespace) {
        return Err("holds white space");
    }
    let invisible = |c: char| matches!(c, '\u{ad}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    if text.contains(invisible) {
        return Err("holds an invisible character");
    }
    Ok(())
}

/// A dot-atom (RFC 5322, section 3.2.3).
fn check_local_part(local: &str) -> Result<(), &'static str> {
    if local.is_empty() {
        return Err("has nothing before the @");
    }
    if !local.is_ascii() {
        return Err("has a local part beyond ASCII, which hardly any provider delivers to");
    }
    if local.len() > MAX_LOCAL_PART {
        return Err("has more than 64 bytes before the @");
    }
    if local.split('.').any(str::is_empty) {
        return Err("has a dot at an end of the local part, or two in a row");
    }
    let atext = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&byte);
    if local.bytes().all(atext) { Ok(()) } else { Err("has a character in its local part that must not stand there") }
}

/// The domain in A-labels and lower case.
fn ascii_domain(domain: &str) -> Result<String, &'static str> {
    if domain.is_empty() {
        return Err("has nothing behind the @");
    }
    if domain.starts_with('[') {
        return Err("has an IP address as its domain; expected a name");
    }
    let ascii = Uts46::new()
        .to_ascii(domain.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify)
        .map_err(|_| DOMAIN)?;
    match ascii.rsplit_once('.') {
        // No top-level domain is a number, so this one is an IP address or a slip.
        Some((_, top)) if !top.bytes().all(|b| b.is_ascii_digit()) => Ok(ascii.into_owned()),
        _ => Err(DOMAIN),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{NormalAddress, parse};

    #[test]
    fn plain_and_international_addresses_are_taken() {
        for (text, expected) in [
            ("c1@example.test", "c1@example.test"),
            ("First.Last+tag@Sub.Example.TEST", "First.Last+tag@sub.example.test"),
            ("o'neill_{x}|y@example.test", "o'neill_{x}|y@example.test"),
            ("zoe@münchen.example", "zoe@xn--mnchen-3ya.example"),
            ("a@例え.テスト", "a@xn--r8jz45g.xn--zckzah"),
            ("a@r3---x.example.test", "a@r3---x.example.test"),
            ("a@123.example", "a@123.example"),
        ] {
            assert_eq!(parse(text).map(|address| address.to_string()).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn lengths_are_limited_at_the_documented_bytes() {
        let domain = |length: usize| {
            let labels = [63, 63, length - 133].map(|n| "d".repeat(n));
            format!("{}.test", labels.join("."))
        };
        assert!(parse(&format!("{}@example.test", "a".repeat(64))).is_ok());
        assert!(parse(&format!("{}@example.test", "a".repeat(65))).is_err());
        assert!(parse(&format!("{}@{}", "a".repeat(64), domain(189))).is_ok());
        assert_eq!(parse(&format!("{}@{}", "a".repeat(64), domain(190))), Err("is longer than 254 bytes"));
        assert!(parse(&format!("a@{}.test", "d".repeat(64))).is_err());
    }

    fn normal(text: &str) -> Result<String, &'static str> {
        NormalAddress::parse(text).map(|address| address.as_str().to_owned())
    }

    #[test]
    fn spellings_of_one_address_have_one_normal_form() {
        for (text, expected) in [
            ("c1@example.test", "c1@example.test"),
            ("  C1@EXAMPLE.Test\r\n", "c1@example.test"),
            ("\u{a0}First.Last+Tag@Example.Test ", "first.last+tag@example.test"),
            ("Zoe@MÜNCHEN.example", "zoe@xn--mnchen-3ya.example"),
            ("zoe@mu\u{308}nchen.example", "zoe@xn--mnchen-3ya.example"),
            ("zoe@XN--MNCHEN-3YA.example", "zoe@xn--mnchen-3ya.example"),
            ("a@例え。テスト", "a@xn--r8jz45g.xn--zckzah"),
        ] {
            assert_eq!(normal(text).as_deref(), Ok(expected));
        }
        assert_ne!(normal("a.b@example.test"), normal("ab@example.test"));
        assert_ne!(normal("a+b@example.test"), normal("a@example.test"));
        for bad in ["", " ", "zoe", "zoe@", "zöe@example.test", "a b@example.test", "Zoe <zoe@example.test>"] {
            assert!(normal(bad).is_err());
        }
        assert_eq!(format!("{:?}", NormalAddress::parse("zoe@example.test")), "Ok(NormalAddress(…))");
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(text in "[A-Za-z0-9.+]{1,12}@[A-Za-zÄÖäöéß-]{1,10}\\.[A-Za-z]{2,6}") {
            if let Ok(once) = normal(&text) {
                prop_assert_eq!(normal(&once), Ok(once.clone()));
                prop_assert_eq!(normal(&format!(" {text}\n")), Ok(once.clone()));
                prop_assert_eq!(normal(&text.to_ascii_uppercase()), Ok(once.clone()));
                prop_assert!(once.is_ascii() && !once.bytes().any(|byte| byte.is_ascii_uppercase()));
            }
        }

        #[test]
        fn no_text_breaks_normalising_or_is_repeated_by_its_error(text in "\\PC{0,40}") {
            if let Err(reason) = normal(&text) {
                prop_assert!(text.trim().len() < 8 || !reason.contains(text.trim()));
            }
        }
    }
}
