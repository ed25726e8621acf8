//! Where a recipient ends the digests: the configured pattern, or the row's own URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::identity::{CustomerId, DigestType};

/// Everything but letters, digits and `-._~` (RFC 3986, unreserved).
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The longest URL that fits one header line of 998 bytes behind a fold, with its angle brackets.
pub(super) const MAX_URL_BYTES: usize = 990;

/// Hex digits of a token.
const TOKEN_BYTES: usize = 32;

/// The greatest length of a digest type.
const MAX_TYPE_BYTES: usize = 64;

/// The setting `unsubscribe`: an https URL with `{customer}` and `{token}`, and `{digest_type}` where wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsubscribePattern(String);

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsubscribeError {
    /// Not an https URL.
    #[error("must be an https URL such as https://example.test/u/{{customer}}/{{token}}, in ASCII without spaces")]
    NotHttps,
    /// A required placeholder is missing.
    #[error(
        "lacks {{{0}}}; both {{customer}} and {{token}} are needed to know whom to unsubscribe and that it was asked for"
    )]
    Missing(&'static str),
    /// Braces around something else.
    #[error("has a placeholder that is unknown; known are {{customer}}, {{token}} and {{digest_type}}")]
    Unknown,
    /// A placeholder in the host name, where it would decide which server is called.
    #[error("has a placeholder before the path")]
    BeforePath,
    /// Too long for a header.
    #[error("is longer than 512 bytes")]
    TooLong,
}

impl UnsubscribePattern {
    /// Checks a pattern.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, UnsubscribeError> {
        if text.len() > 512 {
            return Err(UnsubscribeError::TooLong);
        }
        for name in ["customer", "token"] {
            if !text.contains(&format!("{{{name}}}")) {
                return Err(UnsubscribeError::Missing(name));
            }
        }
        let filled = fill(text, "c", "t", "d");
        if filled.contains(['{', '}']) {
            return Err(UnsubscribeError::Unknown);
        }
        if !is_https_url(&filled) {
            return Err(UnsubscribeError::NotHttps);
        }
        // One that moves with the value would stand in the host, user or port.
        let origin = |url: &str| Url::parse(url).map(|url| (url.host_str().map(str::to_owned), url.port())).ok();
        if origin(&filled) != origin(&fill(text, "x1", "x2", "x3")) || authority(text).contains('{') {
            return Err(UnsubscribeError::BeforePath);
        }
        Ok(Self(text.to_owned()))
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL of one customer; the customer's id is percent-encoded.
    pub fn url(&self, customer: &CustomerId, token: &str, digest_type: &DigestType) -> String {
        fill(&self.0, &encoded(customer.as_str()), token, digest_type.as_str())
    }

    /// The greatest length in bytes that the URL of this customer can have.
    pub(super) fn longest(&self, customer: &CustomerId) -> usize {
        fill(&self.0, &encoded(customer.as_str()), &"t".repeat(TOKEN_BYTES), &"d".repeat(MAX_TYPE_BYTES)).len()
    }
}

fn fill(pattern: &str, customer: &str, token: &str, digest_type: &str) -> String {
    // In this order no filled-in value is looked at again: none of them can hold a brace.
    pattern.replace("{customer}", customer).replace("{token}", token).replace("{digest_type}", digest_type)
}

/// Between the scheme and the path.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// A text as a component of a URL.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, COMPONENT).to_string()
}

/// An absolute https URL with a host, printable ASCII, without what would end a header's `<…>` or hide a host.
pub(super) fn is_https_url(text: &str) -> bool {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'<' | b'>' | b'"' | b'\\' | b'`'));
    let scheme = text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
    let host = authority(text);
    // A URL reader mends `https:///x` to the host x and hides a host behind an `@`; neither is meant.
    let plain_host = host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') && !host.contains('@');
    printable && scheme && plain_host && Url::parse(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{UnsubscribeError, UnsubscribePattern, is_https_url};
    use crate::identity::{CustomerId, DigestType};

    #[test]
    fn a_customer_id_is_percent_encoded_wherever_it_stands() {
        let pattern = UnsubscribePattern::parse("https://example.test/u/{customer}?t={token}&k={digest_type}");
        let customer = CustomerId::new("auth0|a/b c?ü{token}").expect("an id");
        let digest_type = DigestType::new("weekly_activity").expect("a type");
        assert_eq!(
            pattern.expect("a pattern").url(&customer, "0f", &digest_type),
            "https://example.test/u/auth0%7Ca%2Fb%20c%3F%C3%BC%7Btoken%7D?t=0f&k=weekly_activity"
        );
    }

    #[test]
    fn a_pattern_that_names_nobody_or_goes_elsewhere_is_refused() {
        for (text, reason) in [
            ("https://example.test/u/{token}", UnsubscribeError::Missing("customer")),
            ("https://example.test/u/{customer}", UnsubscribeError::Missing("token")),
            ("http://example.test/{customer}/{token}", UnsubscribeError::NotHttps),
            ("javascript:{customer}{token}", UnsubscribeError::NotHttps),
            ("/u/{customer}/{token}", UnsubscribeError::NotHttps),
            ("https://example.test/{customer}/{token}/ä", UnsubscribeError::NotHttps),
            ("https://example.test/{customer}/{token}/{x}", UnsubscribeError::Unknown),
            ("https://example.test/{customer}/{token}/}", UnsubscribeError::Unknown),
            ("https://{customer}.example.test/{token}", UnsubscribeError::BeforePath),
            ("https://example.test:{token}/{customer}", UnsubscribeError::NotHttps),
        ] {
            assert_eq!(UnsubscribePattern::parse(text), Err(reason), "{text}");
        }
        assert!(UnsubscribePattern::parse("https://example.test/{customer}/{token}").is_ok());
    }

    #[test]
    fn only_absolute_https_urls_pass() {
        for url in ["https://example.test/a?b=c&d=%20#e", "HTTPS://EXAMPLE.TEST"] {
            assert!(is_https_url(url), "{url}");
        }
        for url in [
            "javascript:alert(1)",
            "http://example.test",
            "//example.test",
            "https://",
            "https:///x",
            "https://a b",
            "https://example.test/\r\nX: y",
            "https://example.test/<",
            "https://example.test@evil.test/",
            "data:,x",
        ] {
            assert!(!is_https_url(url), "{url}");
        }
    }
}
