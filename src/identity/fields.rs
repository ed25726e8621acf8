//! The validated fields of an identity. A value of these types is valid by construction.

use std::fmt;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Why a text is not a valid identity field. The message never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// No text at all.
    #[error("is empty")]
    Empty,
    /// More bytes than allowed, after normalisation.
    #[error("is longer than {max} bytes")]
    TooLong {
        /// The greatest allowed length in bytes.
        max: usize,
    },
    /// A character of Unicode's category Cc.
    #[error("holds a control character")]
    Control,
    /// White space at the first or last place.
    #[error("begins or ends with white space")]
    OuterSpace,
    /// Not of the form `[a-z][a-z0-9_]{0,63}`.
    #[error("must be a lower-case letter followed by up to 63 lower-case letters, digits or underscores")]
    DigestType,
    /// Not of the form `[A-Za-z0-9][A-Za-z0-9._-]{0,31}`.
    #[error("must be a letter or digit followed by up to 31 letters, digits, dots, underscores or hyphens")]
    ContentVersion,
}

/// A customer's id in Unicode NFC: 1 to 256 bytes, no control character, no outer white space.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomerId(String);

impl CustomerId {
    /// The greatest length in bytes, after normalisation.
    pub const MAX_BYTES: usize = 256;

    /// Normalises and checks.
    ///
    /// # Errors
    /// The first rule that the text breaks.
    pub fn new(text: &str) -> Result<Self, FieldError> {
        if text.is_empty() {
            return Err(FieldError::Empty);
        }
        let normal: String = match is_nfc_quick(text.chars()) {
            IsNormalized::Yes => text.to_owned(),
            _ => text.nfc().collect(),
        };
        if normal.len() > Self::MAX_BYTES {
            return Err(FieldError::TooLong { max: Self::MAX_BYTES });
        }
        if normal.chars().any(char::is_control) {
            return Err(FieldError::Control);
        }
        if normal.starts_with(char::is_whitespace) || normal.ends_with(char::is_whitespace) {
            return Err(FieldError::OuterSpace);
        }
        Ok(Self(normal))
    }

    /// The id in NFC.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as it stands in canonical text: `\` as `\\` and `|` as `\|`.
    pub fn escaped(&self) -> String {
        let mut out = String::with_capacity(self.0.len() + 2);
        for character in self.0.chars() {
            if matches!(character, '\\' | '|') {
                out.push('\\');
            }
            out.push(character);
        }
        out
    }
}

/// Customer ids do not print themselves, so that no log or error can hold one by accident.
impl fmt::Debug for CustomerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomerId(…)")
    }
}

/// The kind of digest, such as `weekly_activity`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DigestType(String);

impl DigestType {
    /// Checks the form `[a-z][a-z0-9_]{0,63}`.
    ///
    /// # Errors
    /// [`FieldError::DigestType`] for anything else.
    pub fn new(text: &str) -> Result<Self, FieldError> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
        let rest = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if first && rest && text.len() <= 64 { Ok(Self(text.to_owned())) } else { Err(FieldError::DigestType) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DigestType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The version of a digest's content, such as `v1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentVersion(String);

impl ContentVersion {
    /// Checks the form `[A-Za-z0-9][A-Za-z0-9._-]{0,31}`.
    ///
    /// # Errors
    /// [`FieldError::ContentVersion`] for anything else.
    pub fn new(text: &str) -> Result<Self, FieldError> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if first && rest && text.len() <= 32 { Ok(Self(text.to_owned())) } else { Err(FieldError::ContentVersion) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
