//! A message's bytes (RFC 5322, MIME): text and HTML as alternatives, images beside the HTML part.
//!
//! Headers are folded and encoded, bodies are 7bit, quoted-printable or base64, whichever fits, so that no relay
//! has a reason to change a line. Nothing here depends on when or how often it runs: the boundaries come from the
//! receipt key, which nobody can foresee, so no body can hold one.

use jiff::fmt::rfc2822;
use lettre::message::header::{
    ContentDisposition, ContentTransferEncoding, ContentType, From, Header, HeaderName, HeaderValue, Headers,
    MIME_VERSION_1_0, MessageId, Subject, To,
};
use lettre::message::{Body, Mailboxes, MultiPart, SinglePart};

use super::Message;
use super::message::InlineImage;
use crate::identity::ReceiptKey;

/// Longest line that is left as it is; beyond it a body is encoded.
const MAX_PLAIN_LINE_BYTES: usize = 76;

/// Hex digits of the receipt key in a boundary; keeps the header below 78 bytes.
const BOUNDARY_DIGITS: usize = 24;

/// Unsubscribing takes one POST (RFC 8058).
const ONE_CLICK: (&str, &str) = ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click");

/// No vacation notice should answer (RFC 3834).
const AUTOMATIC: (&str, &str) = ("Auto-Submitted", "auto-generated");

/// The whole message.
pub(super) fn write(message: &Message) -> Vec<u8> {
    let headers = folded_addresses(&headers(message).to_string());
    let body = parts(message).formatted();
    [headers.as_bytes(), &body].concat()
}

/// What no one else than us can know of a message, unfolded: for providers that write the message themselves.
pub(super) fn own_headers(message: &Message) -> [(&'static str, String); 5] {
    [
        ("Date", date(message)),
        ("Message-ID", message.message_id.clone()),
        ("List-Unsubscribe", format!("<{}>", message.unsubscribe_url)),
        (ONE_CLICK.0, ONE_CLICK.1.to_owned()),
        (AUTOMATIC.0, AUTOMATIC.1.to_owned()),
    ]
}

fn headers(message: &Message) -> Headers {
    let mut headers = Headers::with_capacity(9);
    headers.insert_raw(encoded("Date", date(message)));
    headers.set(From::from(Mailboxes::from(message.from.clone())));
    headers.set(To::from(Mailboxes::from(message.to.clone())));
    headers.set(Subject::from(message.subject.clone()));
    headers.set(MessageId::from(message.message_id.clone()));
    headers.insert_raw(encoded("List-Unsubscribe", folded(&message.unsubscribe_url)));
    headers.insert_raw(encoded(ONE_CLICK.0, ONE_CLICK.1.to_owned()));
    headers.insert_raw(encoded(AUTOMATIC.0, AUTOMATIC.1.to_owned()));
    headers.set(MIME_VERSION_1_0);
    headers
}

/// Folds in front of an address where a line would pass the 76 bytes that a line with encoded words may have
/// (RFC 2047, section 2). Unfolding gives the same value, whatever the header.
fn folded_addresses(headers: &str) -> String {
    let fold = |line: &str| match line.rfind(" <") {
        Some(at) if at > 0 && line.len() > MAX_PLAIN_LINE_BYTES => {
            let (name, address) = line.split_at(at);
            format!("{name}\r\n{address}\r\n")
        }
        _ => format!("{line}\r\n"),
    };
    headers.split_terminator("\r\n").map(fold).collect()
}

/// A value that is ASCII and folded already.
fn encoded(name: &'static str, value: String) -> HeaderValue {
    HeaderValue::dangerous_new_pre_encoded(HeaderName::new_from_ascii_str(name), value.clone(), value)
}

fn date(message: &Message) -> String {
    let utc = message.date.to_zoned_datetime(jiff::tz::TimeZone::UTC);
    // Fails only before year 0, which no clock of a claim shows.
    rfc2822::to_string(&utc).unwrap_or_else(|_| "Thu, 1 Jan 1970 00:00:00 +0000".to_owned())
}

/// A URL has no place to fold at, so a long one has a line of its own.
fn folded(url: &str) -> String {
    if url.len() > 58 { format!("\r\n <{url}>") } else { format!("<{url}>") }
}

fn parts(message: &Message) -> MultiPart {
    let alternative = MultiPart::alternative().boundary(boundary('a', &message.key));
    let alternative = alternative.singlepart(text_part(ContentType::TEXT_PLAIN, &message.text));
    let html = text_part(ContentType::TEXT_HTML, &message.html);
    if message.images.is_empty() {
        return alternative.singlepart(html);
    }
    let related = MultiPart::related().boundary(boundary('r', &message.key)).singlepart(html);
    alternative.multipart(message.images.iter().fold(related, |related, image| related.singlepart(image_part(image))))
}

/// `=_` cannot stand in a quoted-printable body.
fn boundary(level: char, key: &ReceiptKey) -> String {
    let mut digits = key.to_string();
    digits.truncate(BOUNDARY_DIGITS);
    format!("=_{level}{digits}")
}

fn text_part(content_type: ContentType, text: &str) -> SinglePart {
    SinglePart::builder().header(content_type).body(text_body(text))
}

/// 7bit where every line is short ASCII, otherwise quoted-printable or base64.
fn text_body(text: &str) -> Body {
    let short_lines = text.lines().all(|line| line.len() <= MAX_PLAIN_LINE_BYTES);
    let plain = text.is_ascii() && short_lines && !text.contains('\r');
    if plain {
        let bytes = with_crlf(text).into_bytes();
        return Body::dangerous_pre_encoded(bytes, ContentTransferEncoding::SevenBit);
    }
    let text = with_crlf(text);
    let body = Body::new(text.clone());
    match body.encoding() {
        ContentTransferEncoding::SevenBit => {
            // Never an error: quoted-printable takes every text.
            Body::new_with_encoding(text, ContentTransferEncoding::QuotedPrintable).unwrap_or(body)
        }
        _ => body,
    }
}

/// Every line ends in CRLF, in one pass: lettre inserts each missing CR by itself and moves all that follows, which
/// grows with the square of a message's length.
fn with_crlf(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let mut lines = text.split('\n').peekable();
    while let Some(line) = lines.next() {
        match lines.peek() {
            None => out.push_str(line),
            Some(_) => out.extend([line.strip_suffix('\r').unwrap_or(line), "\r\n"]),
        }
    }
    out
}

fn image_part(image: &InlineImage) -> SinglePart {
    let builder = SinglePart::builder();
    let part = match ContentType::parse(&image.media_type) {
        Ok(content_type) => builder.header(content_type),
        Err(_) => builder,
    };
    let name = image.content_id.split('@').next().unwrap_or_default();
    part.header(ContentDisposition::inline_with_name(name))
        .header(ContentId(format!("<{}>", image.content_id)))
        .body(image.bytes.clone())
}

#[derive(Clone)]
struct ContentId(String);

impl Header for ContentId {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("Content-ID")
    }

    fn parse(text: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self(text.to_owned()))
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_break_becomes_crlf_once() {
        for (text, expected) in [
            ("", ""),
            ("a", "a"),
            ("\n", "\r\n"),
            ("a\nb\r\nc\n\n", "a\r\nb\r\nc\r\n\r\n"),
            ("a\rb\n", "a\rb\r\n"),
            ("ä\r\r\n", "ä\r\r\n"),
        ] {
            assert_eq!(with_crlf(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_body_is_what_the_library_makes_of_the_text_as_it_is() {
        for text in
            ["Grüße\n".repeat(40), "x".repeat(100) + "\n\r\nä", "寿司 🍣\n".repeat(30), "a =  \nß\t\n".to_owned()]
        {
            let (ours, theirs) = (text_body(&text), Body::new(text.clone()));
            assert_eq!(ours.encoding(), theirs.encoding(), "{text:?}");
            assert_eq!(ours.into_vec(), theirs.into_vec(), "{text:?}");
        }
    }
}
