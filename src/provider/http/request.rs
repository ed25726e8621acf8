//! The JSON that a gateway gets for one message. Pure, and the same bytes on every attempt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::digest::{InlineImage, Message};
use crate::identity::ReceiptKey;

#[derive(serde::Serialize)]
struct Letter<'a> {
    key: String,
    to: String,
    from: String,
    subject: &'a str,
    text: &'a str,
    html: &'a str,
    headers: Headers,
    /// Only where the HTML part refers to images as `cid:`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<Image<'a>>,
}

/// An object, in the order of the message.
struct Headers([(&'static str, String); 5]);

#[derive(serde::Serialize)]
struct Image<'a> {
    content_id: &'a str,
    media_type: &'a str,
    /// Base64.
    content: String,
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'a> From<&'a InlineImage> for Image<'a> {
    fn from(image: &'a InlineImage) -> Self {
        Self { content_id: &image.content_id, media_type: &image.media_type, content: BASE64.encode(&image.bytes) }
    }
}

/// The body of the request; its last byte closes the object.
pub(super) fn body(key: &ReceiptKey, message: &Message) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Letter {
        key: key.to_string(),
        to: message.to.to_string(),
        from: message.from.to_string(),
        subject: &message.subject,
        text: &message.text,
        html: &message.html,
        headers: Headers(message.headers()),
        images: message.images.iter().map(Image::from).collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::provider::fixtures;

    fn letter(message: &Message) -> Value {
        serde_json::from_slice(&body(&message.key, message).unwrap()).unwrap()
    }

    #[test]
    fn a_message_has_the_members_of_the_exchange() {
        let expected = json!({
            "key": "01".repeat(32),
            "to": "Zoe <zoe@example.test>",
            "from": "Example Bank <digest@example.test>",
            "subject": "Your week",
            "text": "Hello\n.\nbye",
            "html": "<p>Hello</p>",
            "headers": {
                "Date": "Thu, 6 Aug 2026 07:06:40 +0000",
                "Message-ID": "<1@example.test>",
                "List-Unsubscribe": "<https://example.test/u/1>",
                "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
                "Auto-Submitted": "auto-generated",
            },
        });
        assert_eq!(letter(&fixtures::message(1)), expected);
    }

    #[test]
    fn images_travel_beside_the_html_that_shows_them() {
        let image = InlineImage {
            content_id: "logo@example.test".to_owned(),
            media_type: "image/png".to_owned(),
            bytes: vec![0, 255],
        };
        let message = Message { images: [image].into(), ..fixtures::message(1) };
        let expected = json!([{ "content_id": "logo@example.test", "media_type": "image/png", "content": "AP8=" }]);
        assert_eq!(letter(&message)["images"], expected);
    }

    #[test]
    fn the_bytes_are_the_same_every_time_and_end_the_object() {
        let message = fixtures::message(1);
        let first = body(&message.key, &message).unwrap();
        assert_eq!(first, body(&message.key, &message).unwrap());
        assert_eq!(first.last(), Some(&b'}'));
    }
}
