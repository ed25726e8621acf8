//! What the unit tests of every provider start from: settings, a message, leases. Nothing of it is in the program.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::config::Settings;
use crate::digest::Message;
use crate::identity::ReceiptKey;
use crate::ledger::Lease;

/// The settings of `destination.retail`, from TOML text.
pub(super) fn settings(text: &str) -> Settings {
    Settings { section: "destination.retail".to_owned(), table: text.parse().unwrap() }
}

/// A message whose key is `byte` repeated.
pub(super) fn message(byte: u8) -> Message {
    Message {
        key: ReceiptKey::from_bytes([byte; 32]),
        message_id: format!("<{byte}@example.test>"),
        date: Timestamp::from_second(1_786_000_000).unwrap(),
        from: "Example Bank <digest@example.test>".parse().unwrap(),
        to: "Zoe <zoe@example.test>".parse().unwrap(),
        subject: "Your week".to_owned(),
        text: "Hello\n.\nbye".to_owned(),
        html: "<p>Hello</p>".to_owned(),
        unsubscribe_url: "https://example.test/u/1".to_owned(),
        images: [].into(),
    }
}

/// A lease that ends this long from now.
pub(super) fn lease_of(length: Duration) -> Lease {
    Lease::counted_from(Instant::now(), SignedDuration::try_from(length).unwrap())
}

/// A lease that covers any time-out.
pub(super) fn long_lease() -> Lease {
    lease_of(Duration::from_secs(86_400))
}
