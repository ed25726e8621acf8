//! A rendered message and its bytes. The same message gives the same bytes on every attempt.

use std::sync::Arc;

use jiff::Timestamp;
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

/// A message for one recipient, ready for any provider.
#[derive(Debug, Clone)]
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

impl Message {
    /// The message as it goes over the wire: RFC 5322 with CRLF line ends, the same bytes every time.
    pub fn to_mime(&self) -> Vec<u8> {
        use lettre::message::{MultiPart, SinglePart, header};

        let alternatives = MultiPart::builder()
            .kind(lettre::message::MultiPartKind::Alternative)
            .boundary(format!("counterfoil-{}", self.key.short()))
            .singlepart(SinglePart::plain(self.text.clone()))
            .singlepart(SinglePart::html(self.html.clone()));
        let built = lettre::Message::builder()
            .from(self.from.clone())
            .to(self.to.clone())
            .subject(self.subject.clone())
            .message_id(Some(self.message_id.clone()))
            .header(header::Date::new(
                std::time::UNIX_EPOCH + self.date.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs(),
            ))
            .multipart(alternatives);
        built.map(|message| message.formatted()).unwrap_or_default()
    }
}
