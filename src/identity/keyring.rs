//! The keyring: weekly secrets with the week each begins at, and the one secret that does not change.
//!
//! Pure: takes the keyring's text, never a path. Secrets live only in the keyed hash states made here;
//! nothing in this file prints or returns one.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sha2::Sha256;

use super::{CustomerId, DigestType, Fingerprint, Identity, IsoWeek, ReceiptKey};

/// A proof of which secret was used that does not reveal it: the first 8 bytes of
/// `HMAC(secret, "counterfoil/v1/check")`.
pub type CheckValue = [u8; 8];

/// The shortest secret that is taken, in bytes.
pub const MIN_SECRET_BYTES: usize = 32;

const FINGERPRINT_INFO: &[u8] = b"counterfoil/v1/fingerprint";
const COHORT_INFO: &[u8] = b"counterfoil/v1/cohort";
const SUPPRESSION_INFO: &[u8] = b"counterfoil/v1/suppression";
const UNSUBSCRIBE_INFO: &[u8] = b"counterfoil/v1/unsubscribe";
const CHECK_TEXT: &[u8] = b"counterfoil/v1/check";

/// What is wrong with a keyring. No message holds any part of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// Not TOML, or a member that is unknown, missing or of another type.
    #[error("line {line}: is not a keyring: {reason}")]
    Syntax {
        /// Line of the keyring's text, from 1.
        line: usize,
        /// What the parser expected, without the text that it found.
        reason: String,
    },
    /// There is no `[[key]]`.
    #[error("has no [[key]] entry; `counterfoil keys generate` makes one")]
    Empty,
    /// A key id that is empty, too long, or has other characters than letters, digits, `.`, `_`, `-`.
    #[error("[[key]] number {number}: `id` must be 1 to 64 letters, digits, dots, underscores or hyphens")]
    Id {
        /// Which entry, from 1.
        number: usize,
    },
    /// A `from_week` that is no ISO week.
    #[error("[[key]] `{id}`: `from_week` {reason}")]
    FromWeek {
        /// The entry's id.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A secret that is not base64 or too short.
    #[error("{entry}: `secret` must be base64 of at least {MIN_SECRET_BYTES} random bytes")]
    Secret {
        /// The entry, `[stable]` or `[[key]]` with its id.
        entry: String,
    },
    /// Two entries share an id or a first week.
    #[error("[[key]] `{id}`: another entry has the same `{field}`")]
    Twice {
        /// The second entry's id.
        id: String,
        /// `id` or `from_week`.
        field: &'static str,
    },
    /// No entry begins at or before the week asked for.
    #[error(
        "has no key for week {week}: the first one begins at {first}; add a [[key]] whose `from_week` is not after {week}"
    )]
    NoKeyFor {
        /// The week asked for.
        week: IsoWeek,
        /// The earliest week that any entry serves.
        first: IsoWeek,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKeyring {
    #[serde(default)]
    key: Vec<RawKey>,
    stable: RawStable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKey {
    id: String,
    from_week: String,
    secret: SecretString,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStable {
    secret: SecretString,
}

/// All keys of an installation, ready to hash.
#[derive(Debug, Clone)]
pub struct Keyring {
    /// By `from_week`, ascending; never empty.
    keys: Vec<WeekKey>,
    stable: StableKey,
}

impl Keyring {
    /// Reads a keyring's TOML text.
    ///
    /// # Errors
    /// The first thing that is wrong, by entry and field.
    pub fn parse(text: &SecretString) -> Result<Self, KeyringError> {
        let text = text.expose_secret();
        let raw: RawKeyring = toml::from_str(text).map_err(|error| syntax_error(text, &error))?;
        let stable = StableKey::new(&decode(&raw.stable.secret, || "[stable]".to_owned())?);
        let mut keys: Vec<WeekKey> = Vec::with_capacity(raw.key.len());
        for (index, entry) in raw.key.into_iter().enumerate() {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
            if entry.id.is_empty() || entry.id.len() > 64 || !entry.id.bytes().all(allowed) {
                return Err(KeyringError::Id { number: index + 1 });
            }
            let from_week: IsoWeek = entry.from_week.parse().map_err(|error: super::WeekError| {
                KeyringError::FromWeek { id: entry.id.clone(), reason: error.to_string() }
            })?;
            for other in &keys {
                let field = if other.id == entry.id {
                    "id"
                } else if other.from_week == from_week {
                    "from_week"
                } else {
                    continue;
                };
                return Err(KeyringError::Twice { id: entry.id, field });
            }
            let secret = decode(&entry.secret, || format!("[[key]] `{}`", entry.id))?;
            keys.push(WeekKey::new(entry.id, from_week, &secret));
        }
        if keys.is_empty() {
            return Err(KeyringError::Empty);
        }
        keys.sort_by_key(|key| key.from_week);
        Ok(Self { keys, stable })
    }

    /// The key of a week: the entry with the greatest `from_week` not after it.
    ///
    /// # Errors
    /// [`KeyringError::NoKeyFor`] where every entry begins later.
    pub fn for_week(&self, week: IsoWeek) -> Result<&WeekKey, KeyringError> {
        let first = self.keys.first().map_or(week, |key| key.from_week);
        self.keys.iter().rev().find(|key| key.from_week <= week).ok_or(KeyringError::NoKeyFor { week, first })
    }

    /// The weekly keys by first week, ascending.
    pub fn keys(&self) -> &[WeekKey] {
        &self.keys
    }

    /// The key of what must not change with the week.
    pub fn stable(&self) -> &StableKey {
        &self.stable
    }
}

/// `toml` quotes the text around an error, which may be a secret; keep its line and its words only.
fn syntax_error(text: &str, error: &toml::de::Error) -> KeyringError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let message = error.message();
    // A secret that slipped in front of an equals sign looks like a field's name: only what reads like a word is named.
    let named = message.split('`').nth(1).unwrap_or_default();
    let is_word = named.len() <= 16 && named.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let reason = if is_word && (message.starts_with("unknown field") || message.starts_with("missing field")) {
        message.to_owned()
    } else {
        "expected [[key]] entries with `id`, `from_week` and `secret`, and one [stable] with `secret`".to_owned()
    };
    KeyringError::Syntax { line, reason }
}

fn decode(secret: &SecretString, entry: impl FnOnce() -> String) -> Result<Vec<u8>, KeyringError> {
    match STANDARD.decode(secret.expose_secret().trim()) {
        Ok(bytes) if bytes.len() >= MIN_SECRET_BYTES => Ok(bytes),
        _ => Err(KeyringError::Secret { entry: entry() }),
    }
}

fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length (RFC 2104, section 2)")]
    Hmac::new_from_slice(secret).expect("HMAC takes a key of any length")
}

fn derived(secret: &[u8], info: &[u8]) -> Hmac<Sha256> {
    let mut key = [0; 32];
    #[expect(clippy::expect_used, reason = "32 bytes are below HKDF's limit of 255 blocks (RFC 5869, section 2.3)")]
    Hkdf::<Sha256>::new(None, secret).expand(info, &mut key).expect("32 bytes are below the limit");
    keyed(&key)
}

fn hash(state: &Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    let mut state = state.clone();
    for part in parts {
        state.update(part);
    }
    state.finalize().into_bytes().into()
}

fn check_value(secret: &[u8]) -> CheckValue {
    let [a, b, c, d, e, f, g, h, ..] = hash(&keyed(secret), &[CHECK_TEXT]);
    [a, b, c, d, e, f, g, h]
}

/// The key of a span of weeks.
#[derive(Clone)]
pub struct WeekKey {
    id: String,
    from_week: IsoWeek,
    receipt: Hmac<Sha256>,
    fingerprint: Hmac<Sha256>,
    check: CheckValue,
}

impl WeekKey {
    fn new(id: String, from_week: IsoWeek, secret: &[u8]) -> Self {
        Self {
            id,
            from_week,
            receipt: keyed(secret),
            fingerprint: derived(secret, FINGERPRINT_INFO),
            check: check_value(secret),
        }
    }

    /// The entry's id, as stored with every receipt.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The first week that the entry serves.
    pub fn from_week(&self) -> IsoWeek {
        self.from_week
    }

    /// What the ledger pins.
    pub fn check_value(&self) -> CheckValue {
        self.check
    }

    /// The receipt key of an identity: `HMAC-SHA256(secret, canonical text)`.
    pub fn receipt_key(&self, identity: &Identity<'_>) -> ReceiptKey {
        ReceiptKey::from_bytes(hash(&self.receipt, &[identity.canonical_text().as_bytes()]))
    }

    /// The fingerprint of a row in canonical JSON (RFC 8785, `customer_id` in NFC) under a content hash.
    pub fn fingerprint(&self, canonical_row: &[u8], content_hash: &[u8; 32]) -> Fingerprint {
        Fingerprint::from_bytes(hash(&self.fingerprint, &[canonical_row, b"\n", content_hash]))
    }
}

impl fmt::Debug for WeekKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeekKey({} from {})", self.id, self.from_week)
    }
}

/// The key of what must not change with the week: cohort membership, suppression, unsubscribe tokens.
#[derive(Clone)]
pub struct StableKey {
    cohort: Hmac<Sha256>,
    suppression: Hmac<Sha256>,
    unsubscribe: Hmac<Sha256>,
    check: CheckValue,
}

impl StableKey {
    fn new(secret: &[u8]) -> Self {
        Self {
            cohort: derived(secret, COHORT_INFO),
            suppression: derived(secret, SUPPRESSION_INFO),
            unsubscribe: derived(secret, UNSUBSCRIBE_INFO),
            check: check_value(secret),
        }
    }

    /// What the ledger pins: another secret would silently empty the suppression list.
    pub fn check_value(&self) -> CheckValue {
        self.check
    }

    /// The hash that decides cohort membership of a customer.
    pub fn cohort(&self, customer_id: &CustomerId) -> [u8; 32] {
        hash(&self.cohort, &[customer_id.as_str().as_bytes()])
    }

    /// The hash under which a normalised address stands on the suppression list.
    pub fn suppression(&self, normalised_address: &str) -> [u8; 32] {
        hash(&self.suppression, &[normalised_address.as_bytes()])
    }

    /// The unsubscribe token of a customer for a type of digest: the first 16 bytes of the hash over
    /// `customer_id|digest_type` (customer id escaped as in canonical text), as 32 hex digits.
    pub fn unsubscribe_token(&self, customer_id: &CustomerId, digest_type: &DigestType) -> String {
        let text = format!("{}|{digest_type}", customer_id.escaped());
        let bytes = hash(&self.unsubscribe, &[text.as_bytes()]);
        let mut token = super::hex_text(&bytes);
        token.truncate(32);
        token
    }
}

impl fmt::Debug for StableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StableKey(…)")
    }
}

/// The text of one fresh `[[key]]` entry.
pub fn key_entry(id: &str, from_week: IsoWeek, secret: &[u8; MIN_SECRET_BYTES]) -> SecretString {
    format!("[[key]]\nid = \"{id}\"\nfrom_week = \"{from_week}\"\nsecret = \"{}\"\n", STANDARD.encode(secret)).into()
}

/// The text of a fresh `[stable]` entry.
pub fn stable_entry(secret: &[u8; MIN_SECRET_BYTES]) -> SecretString {
    format!("[stable]\nsecret = \"{}\"\n", STANDARD.encode(secret)).into()
}
