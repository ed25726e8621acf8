//! A row becomes a message: template bundles, rendering, locale-aware formats, MIME.
//!
//! Pure once a bundle is loaded: a message is a function of row, bundle and receipt. No clock, no randomness, no
//! network, no file but the bundle's own when it is loaded.

mod message;

pub use message::{InlineImage, Message};

use jiff::Timestamp;

use crate::identity::ReceiptKey;

/// Raised whenever a golden message changes; part of the content hash.
pub const RENDER_VERSION: u32 = 1;

/// What a message takes from its receipt.
#[derive(Debug, Clone, Copy)]
pub struct ReceiptFacts {
    /// Gives Message-ID and MIME boundaries.
    pub key: ReceiptKey,
    /// First claim; gives Date.
    pub first_claimed_at: Timestamp,
}
