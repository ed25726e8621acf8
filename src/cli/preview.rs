//! `preview`: the message of one customer, rendered and shown; nothing is claimed, recorded or sent.

use std::fmt;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::snapshot::only_type;
use super::values::{content_version, customer_id, digest_type, week};
use super::{Exit, Failure, Session, open};
use crate::digest::Message;
use crate::identity::{ContentVersion, CustomerId, DigestType, WeekSelector};
use crate::run::SnapshotSource;

/// Show the message of one customer; send nothing
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil preview --snapshot export.jsonl --customer customer_8421
  counterfoil preview --snapshot 5a0c3f71b2de --customer customer_8421 --html > page.html
  counterfoil preview --snapshot export.jsonl --customer customer_8421 --content-version v4 --open")]
pub(super) struct PreviewArguments {
    /// The export, or the id of a sealed snapshot
    #[arg(long, value_name = "FILE|ID")]
    snapshot: SnapshotSource,

    /// The customer's id
    // A text here and checked later: a usage error would repeat it.
    #[arg(long, value_name = "ID")]
    customer: String,

    /// The week that the digest is about: last, current, or one such as 2026-W32
    #[arg(long, value_name = "WEEK", default_value = "last", value_parser = week)]
    week: WeekSelector,

    /// The digest's type [default: the only configured one]
    #[arg(long = "type", value_name = "TYPE", value_parser = digest_type)]
    digest_type: Option<DigestType>,

    /// The content version [default: the configured one]
    #[arg(long, value_name = "VERSION", value_parser = content_version)]
    content_version: Option<ContentVersion>,

    #[command(flatten)]
    part: Part,

    /// Open the HTML part in a browser
    #[arg(long, help_heading = "What is shown")]
    open: bool,
}

/// Which part of the message is printed.
#[derive(Debug, Clone, Copy, Default, Args)]
#[group(multiple = false)]
#[command(next_help_heading = "What is shown")]
struct Part {
    /// Only the text part
    #[arg(long)]
    text: bool,

    /// Only the HTML part
    #[arg(long)]
    html: bool,

    /// The message's bytes as they would be sent
    #[arg(long)]
    mime: bool,
}

/// What is to be rendered.
#[derive(Debug)]
pub(super) struct PreviewRequest {
    /// Where the row is.
    pub(super) snapshot: SnapshotSource,
    /// Whose row it is.
    pub(super) customer: CustomerId,
    /// The week.
    pub(super) week: WeekSelector,
    /// The type, of those that are configured.
    pub(super) digest_type: DigestType,
    /// `None` takes the configured version.
    pub(super) content_version: Option<ContentVersion>,
}

/// A rendered message.
#[derive(Debug)]
pub(super) struct Preview {
    /// The message.
    pub(super) message: Message,
    /// Its bytes.
    pub(super) mime: Vec<u8>,
}

#[derive(Serialize)]
struct Shown {
    from: String,
    to: String,
    subject: String,
    message_id: String,
    unsubscribe_url: String,
    text: String,
    html: String,
    images: Vec<String>,
    mime_bytes: usize,
}

impl Shown {
    fn new(preview: &Preview) -> Self {
        let message = &preview.message;
        Self {
            from: message.from.to_string(),
            to: message.to.to_string(),
            subject: message.subject.clone(),
            message_id: message.message_id.clone(),
            unsubscribe_url: message.unsubscribe_url.clone(),
            text: message.text.clone(),
            html: message.html.clone(),
            images: message.images.iter().map(|image| image.content_id.clone()).collect(),
            mime_bytes: preview.mime.len(),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "From:        {}", self.from)?;
        writeln!(f, "To:          {}", self.to)?;
        writeln!(f, "Subject:     {}", self.subject)?;
        writeln!(f, "Message-ID:  {}", self.message_id)?;
        writeln!(f, "Unsubscribe: {}", self.unsubscribe_url)?;
        writeln!(
            f,
            "Size:        {} bytes, {} images; --html, --mime and --open show the rest",
            self.mime_bytes,
            self.images.len()
        )?;
        writeln!(f, "\n{}", self.text.trim_end())
    }
}

/// Renders and shows.
pub(super) async fn preview(session: &Session, arguments: PreviewArguments) -> Result<Exit, Failure> {
    let customer = customer_id(&arguments.customer)?;
    let config = session.load()?;
    let request = PreviewRequest {
        snapshot: arguments.snapshot,
        customer,
        week: arguments.week,
        digest_type: only_type(&config, arguments.digest_type)?,
        content_version: arguments.content_version,
    };
    let preview = open::preview(&config, &request)?;
    match arguments.part {
        Part { text: true, .. } => session.output.text(&preview.message.text)?,
        Part { html: true, .. } => session.output.text(&preview.message.html)?,
        Part { mime: true, .. } => session.output.bytes(&preview.mime)?,
        Part { .. } => session.output.result(&Shown::new(&preview))?,
    }
    if arguments.open {
        show_in_browser(&preview.message.html)?;
    }
    Ok(Exit::Settled)
}

/// Writes the page to a file that only its owner may read and hands that to the desktop.
fn show_in_browser(html: &str) -> Result<(), Failure> {
    let page = tempfile::Builder::new().prefix("counterfoil-preview-").suffix(".html").tempfile();
    let path = page
        .and_then(|mut page| {
            page.write_all(html.as_bytes())?;
            page.keep().map(|(_, path)| path).map_err(std::io::Error::from)
        })
        .context("the page cannot be written to a temporary file")
        .map_err(Failure::could_not_run)?;
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let opened =
        Command::new(program).arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match opened {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failure::could_not_run(anyhow::anyhow!("{program} did not open the page")).with_hint(format!(
            "it is at {}; remove it when you are done, it shows a customer's data",
            path.display()
        ))),
    }
}
