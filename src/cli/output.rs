//! A command's result on standard output: text for people or one JSON document. A reader that goes away early
//! (`| head`) is no error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;
use serde::Serialize;

use super::failure::Failure;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Human,
    /// For programs: the result is one JSON document, each line on standard error one JSON object
    Json,
}

/// Standard output with the format that was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Output {
    /// The format.
    pub format: Format,
}

impl Output {
    /// Writes a result in the format that was asked for.
    ///
    /// # Errors
    /// Standard output that cannot be written, for instance a full disk behind it.
    pub fn result<T: Serialize + Display>(self, result: &T) -> Result<(), Failure> {
        match self.format {
            Format::Human => self.text(&result.to_string()),
            Format::Json => {
                let json = serde_json::to_string(result).context("the result cannot be written as JSON");
                self.text(&format!("{}\n", json.map_err(Failure::could_not_run)?))
            }
        }
    }

    /// Writes a text as it is, whatever the format.
    ///
    /// # Errors
    /// As [`Output::result`].
    pub fn text(self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Writes bytes as they are, whatever the format.
    ///
    /// # Errors
    /// As [`Output::result`].
    pub fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::could_not_run(anyhow::Error::new(error).context("standard output cannot be written")))
            }
            _ => Ok(()),
        }
    }
}
