//! A rendered message and its bytes. The same message gives the same bytes on every attempt.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use lettre::Address;
use lettre::message::Mailbox;

use crate::identity::ReceiptKey;

/// An image that travels inside a message, referred to as `cid:` and its content id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineImage {
    /// Content id without angle brackets.
    pub content_id: String,
    /// Such as `image/png`.
    pub media_type: String,
    /// The image.
    pub bytes: Vec<u8>,
}

/// A message for one recipient, ready for any provider. Its `Debug` form names the receipt and nothing of the
/// customer.
#[derive(Clone)]
pub struct Message {
    /// Names the boundaries.
    pub key: ReceiptKey,
    /// With angle brackets; derived from the receipt key.
    pub message_id: String,
    /// First claim of the receipt.
    pub date: Timestamp,
    /// The sender.
    pub from: Mailbox,
    /// The one recipient.
    pub to: Mailbox,
    /// Unencoded.
    pub subject: String,
    /// Plain text part.
    pub text: String,
    /// HTML part.
    pub html: String,
    /// URL of `List-Unsubscribe`, https.
    pub unsubscribe_url: String,
    /// Images that the HTML part refers to.
    pub images: Arc<[InlineImage]>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Message {
    /// The Message-ID of a receipt: the first 32 hex digits of its key at the sender's domain, in angle brackets.
    pub(super) fn id_of(key: &ReceiptKey, domain: &str) -> String {
        let mut digits = key.to_string();
        digits.truncate(32);
        format!("<{digits}@{domain}>")
    }

    /// The envelope's sender (SMTP `MAIL FROM`).
    pub fn envelope_from(&self) -> &Address {
        &self.from.email
    }

    /// The envelope's recipient (SMTP `RCPT TO`).
    pub fn envelope_to(&self) -> &Address {
        &self.to.email
    }

    /// The headers that a provider cannot derive from sender, recipient, subject and content, unfolded. The same on
    /// every call.
    pub fn headers(&self) -> [(&'static str, String); 5] {
        super::mime::own_headers(self)
    }

    /// The message as RFC 5322 bytes: lines end in CRLF and have at most 998 bytes, everything is ASCII. The same
    /// on every call.
    pub fn to_mime(&self) -> Vec<u8> {
        super::mime::write(self)
    }
}
