//! The two keyed hashes of a digest and how they are shown. Who computes them is `keyring`.

use std::fmt;

macro_rules! keyed_hash {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Takes 32 bytes as they stand, for instance as read from a ledger.
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The 32 raw bytes, as they stand in the ledger.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// Reads 64 hex digits of either case; anything else is `None`.
            pub fn from_hex(text: &str) -> Option<Self> {
                crate::identity::hex_bytes(text).map(Self)
            }

            /// The first 12 hex digits: what logs and errors may show.
            pub fn short(&self) -> String {
                let mut text = self.to_string();
                text.truncate(12);
                text
            }
        }

        /// 64 lower-case hex digits.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.short())
            }
        }
    };
}

keyed_hash! {
    /// The keyed hash of an identity: what a digest is known by, everywhere and for ever.
    ReceiptKey
}

keyed_hash! {
    /// The keyed hash of what would be sent. Two fingerprints under one key are a conflict.
    Fingerprint
}
