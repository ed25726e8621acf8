//! A template bundle: loaded and compiled once, then a pure function from row and receipt to message.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use icu::locale::Locale;
use lettre::message::Mailbox;
use minijinja::Environment;
use minijinja::value::Value;

use super::compile::{self, Language, Languages};
use super::content_hash::content_hash;
use super::context::{Context, data_of, data_with_controls, subject_context};
use super::error::{BundleError, RenderError};
use super::files::{self, SCHEMA};
use super::locale::{Formats, fallbacks};
use super::message::{InlineImage, Message};
use super::plain_text::has_control;
use super::recipient::{MailboxFault, mailbox, recipient};
use super::schema::Schema;
use super::unsubscribe::{MAX_URL_BYTES, UnsubscribePattern, is_https_url};
use super::{RENDER_VERSION, ReceiptFacts, images};
use crate::identity::DigestType;
use crate::identity::keyring::StableKey;
use crate::snapshot::{Row, RowFault};

/// The longest subject, in characters. Mail programs show about a third of it.
const MAX_SUBJECT_CHARS: usize = 200;

/// Locales whose formats are remembered; others are built anew each time. Real exports have a few dozen.
const MAX_REMEMBERED_LOCALES: usize = 512;

/// What shapes every message besides the bundle's files.
#[derive(Debug, Clone)]
pub struct BundleSettings {
    /// The setting `from`.
    pub from: Mailbox,
    /// The setting `unsubscribe`.
    pub unsubscribe: UnsubscribePattern,
}

/// A compiled template bundle.
pub struct Bundle {
    engine: Environment<'static>,
    languages: Languages,
    schema: Option<Schema>,
    images: Arc<[InlineImage]>,
    from: Mailbox,
    sender: Value,
    unsubscribe: UnsubscribePattern,
    content_hash: [u8; 32],
    /// By a row's locale as it is written.
    formats: RwLock<HashMap<String, Value>>,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("languages", &self.languages.others.len()).finish_non_exhaustive()
    }
}

impl Bundle {
    /// Loads and compiles the bundle in `directory` (`<templates>/<digest_type>/<content_version>`).
    ///
    /// # Errors
    /// The first thing that is wrong, by file and line, with what to do.
    pub fn load(directory: &Path, settings: &BundleSettings) -> Result<Self, BundleError> {
        let from = mailbox(settings.from.name.as_deref(), &settings.from.email).map_err(|fault| {
            let (MailboxFault::Address(reason) | MailboxFault::Name(reason)) = fault;
            BundleError::Setting { setting: "from", reason: reason.to_owned() }
        })?;
        let files = files::read(directory)?;
        let (images, ids) = images::collect(directory, &files, from.email.domain())?;
        let mut engine = super::engine::environment(ids);
        let languages = compile::compile(directory, &files, &mut engine)?;
        let schema = match files.get(SCHEMA) {
            Some(bytes) => Some(Schema::parse(&directory.join(SCHEMA), &files::text(directory, SCHEMA, bytes)?)?),
            None => None,
        };
        let pattern = settings.unsubscribe.as_str();
        Ok(Self {
            engine,
            languages,
            schema,
            images: images.into(),
            sender: Value::from(from.name.as_deref().unwrap_or(from.email.domain())),
            content_hash: content_hash(&files, &settings.from, pattern, RENDER_VERSION),
            from,
            unsubscribe: settings.unsubscribe.clone(),
            formats: RwLock::default(),
        })
    }

    /// SHA-256 over the bundle's files, `from`, the unsubscribe pattern and
    /// [`RENDER_VERSION`]: what the ledger pins for the content version.
    pub fn content_hash(&self) -> [u8; 32] {
        self.content_hash
    }

    /// Checks what a row must be for this bundle: `data` against the schema, money and dates in it, address and
    /// name fit for a header, the unsubscribe URL, and a subject of one line.
    ///
    /// # Errors
    /// The first thing that is wrong, by field, without any content.
    pub fn check(&self, row: &Row) -> Result<(), RowFault> {
        recipient(row)?;
        self.check_unsubscribe(row)?;
        if let Some(schema) = &self.schema {
            schema.check(&row.data)?;
        }
        let language = self.language(row);
        self.context(row, language).map(|_| ()).map_err(fault_of)
    }

    /// Renders the message of a row. The same row, receipt, type and key give the same message, always.
    ///
    /// # Errors
    /// A row that [`check`](Self::check) would refuse, or a template that meets something it cannot show.
    pub fn render(
        &self,
        row: &Row,
        receipt: &ReceiptFacts,
        digest_type: &DigestType,
        stable: &StableKey,
    ) -> Result<Message, RenderError> {
        let to = recipient(row).map_err(refused)?;
        self.check_unsubscribe(row).map_err(refused)?;
        let unsubscribe_url = row.unsubscribe_url.clone().unwrap_or_else(|| {
            let token = stable.unsubscribe_token(&row.customer_id, digest_type);
            self.unsubscribe.url(&row.customer_id, &token, digest_type)
        });
        let language = self.language(row);
        let (subject, context) = self.context(row, language)?;
        let body = context
            .with("digest_type", Value::from(digest_type.as_str()))
            .with("unsubscribe_url", Value::from(unsubscribe_url.as_str()))
            .into_value();
        Ok(Message {
            key: receipt.key,
            message_id: Message::id_of(&receipt.key, self.from.email.domain()),
            date: receipt.first_claimed_at,
            from: self.from.clone(),
            to,
            subject,
            text: self.engine.get_template(&language.text)?.render(body.clone())?,
            html: self.engine.get_template(&language.html)?.render(body)?,
            unsubscribe_url,
            images: Arc::clone(&self.images),
        })
    }

    fn check_unsubscribe(&self, row: &Row) -> Result<(), RowFault> {
        let reason = match &row.unsubscribe_url {
            Some(url) if url.len() > MAX_URL_BYTES => "is longer than 990 bytes, which a header cannot hold",
            Some(url) if !is_https_url(url) => "must be an https URL in ASCII without spaces",
            None if self.unsubscribe.longest(&row.customer_id) > MAX_URL_BYTES => {
                "is needed: the pattern makes a URL of more than 990 bytes of this customer's id"
            }
            _ => return Ok(()),
        };
        Err(RowFault { field: "unsubscribe_url".to_owned(), reason: reason.to_owned() })
    }

    /// The language that a row reads.
    fn language(&self, row: &Row) -> &Language {
        let locale = row_locale(row, &self.languages.own);
        let chain = fallbacks(&locale.id);
        chain.iter().find_map(|tag| self.languages.others.get(tag)).unwrap_or(&self.languages.own)
    }

    /// The subject and what it was made from. A control character that would reach the subject is found in it; any
    /// other is a space by then.
    fn context(&self, row: &Row, language: &Language) -> Result<(String, Context), RenderError> {
        let locale = self.formats(row, language)?;
        let (data, met_control) = data_of(&row.data);
        let context = |data| {
            let (strings, sender) = (language.strings.clone(), self.sender.clone());
            subject_context(data, row.name.as_deref(), locale.clone(), strings, sender)
        };
        let clean = context(data);
        let for_subject = if met_control { context(data_with_controls(&row.data)) } else { clean.clone() };
        Ok((self.subject(language, for_subject)?, clean))
    }

    /// The formats of a row, which are costly to build and the same for every row of a locale.
    fn formats(&self, row: &Row, language: &Language) -> Result<Value, RenderError> {
        let written = row.locale.as_deref().unwrap_or_default();
        let known = self.formats.read().unwrap_or_else(PoisonError::into_inner).get(written).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let formats = Formats::new(&row_locale(row, &self.languages.own), &language.id).ok_or_else(|| {
            RenderError::Row { field: "locale".to_owned(), reason: "has no formats for numbers and dates".to_owned() }
        })?;
        let formats = Value::from_object(formats);
        let mut all = self.formats.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MAX_REMEMBERED_LOCALES {
            all.insert(written.to_owned(), formats.clone());
        }
        Ok(formats)
    }

    /// One line, not empty, of bounded length.
    fn subject(&self, language: &Language, context: Context) -> Result<String, RenderError> {
        let rendered = self.engine.get_template(&language.subject)?.render(context.into_value())?;
        let subject = rendered.trim();
        let reason = if subject.is_empty() {
            "is empty"
        } else if has_control(subject) {
            "would have more than one line"
        } else if subject.chars().count() > MAX_SUBJECT_CHARS {
            "would be longer than 200 characters"
        } else {
            return Ok(subject.to_owned());
        };
        Err(RenderError::Row { field: "subject".to_owned(), reason: reason.to_owned() })
    }
}

/// The row's locale; without one, or with one that is none, the bundle's own language.
fn row_locale(row: &Row, own: &Language) -> Locale {
    let written = row.locale.as_deref().and_then(|tag| tag.parse::<Locale>().ok());
    written.filter(|locale| !locale.id.language.is_unknown()).unwrap_or_else(|| Locale::from(own.id.clone()))
}

fn refused(fault: RowFault) -> RenderError {
    RenderError::Row { field: fault.field, reason: fault.reason }
}

fn fault_of(error: RenderError) -> RowFault {
    match error {
        RenderError::Row { field, reason } => RowFault { field, reason },
        RenderError::Template { .. } => {
            RowFault { field: "data".to_owned(), reason: format!("cannot be shown: {error}") }
        }
    }
}
