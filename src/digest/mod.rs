//! A row becomes a message: template bundles, rendering, locale-aware formats, MIME.
//!
//! Pure once a bundle is loaded: a message is a function of row, bundle and receipt. No clock, no randomness, no
//! network, no file but the bundle's own when it is loaded.

mod amount;
mod bundle;
mod columns;
mod compile;
mod content_hash;
mod context;
mod currency;
mod dates;
mod engine;
mod error;
mod files;
mod images;
mod locale;
mod message;
mod mime;
mod numbers;
mod places;
mod places_in_data;
mod plain_text;
mod recipient;
mod scan;
mod schema;
pub mod shipped;
mod strings;
mod unsubscribe;

pub use bundle::{Bundle, BundleSettings};
pub use error::{BundleError, RenderError};
pub use message::{InlineImage, Message};
pub use unsubscribe::{UnsubscribeError, UnsubscribePattern};

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
