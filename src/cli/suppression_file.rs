//! Addresses for the suppression list as files bring them: one a line, CSV with a heading, or JSON Lines. Read line
//! by line with a bounded buffer; what is wrong with a line is told by number and reason, never by content.

use std::io::{self, BufRead, Read as _};

use serde::{Deserialize, Serialize};

use crate::identity::DigestType;
use crate::ledger::SuppressionReason;
use crate::snapshot::NormalAddress;

/// The longest line in bytes: an address and two words need far less.
const MAX_LINE_BYTES: usize = 4096;

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Number of the line, from 1.
    pub(super) line: u64,
    /// Whom it is about.
    pub(super) address: NormalAddress,
    /// Why, where the line says so.
    pub(super) reason: Option<SuppressionReason>,
    /// Of which type, where the line says so.
    pub(super) digest_type: Option<DigestType>,
}

/// A line that asks for nothing that can be done.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct BadLine {
    /// Its number, from 1.
    pub(super) line: u64,
    /// What is wrong, without its content.
    pub(super) reason: String,
}

/// Why reading ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The system refuses to read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A heading that names something else.
    #[error("line {line}: the heading may name the columns address, reason and digest_type, each once, and no others")]
    Heading {
        /// Its number.
        line: u64,
    },
}

/// How the lines are written; the first one that is not blank tells.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// One address a line.
    Addresses,
    /// Comma-separated.
    Csv(Columns),
    /// One object a line.
    Json,
}

/// Where the columns of a CSV file are.
#[derive(Debug, Clone, Copy)]
struct Columns {
    address: usize,
    reason: Option<usize>,
    digest_type: Option<usize>,
    count: usize,
}

/// An open list of addresses.
pub(super) struct EntryReader<R> {
    input: R,
    buffer: Vec<u8>,
    line: u64,
    form: Option<Form>,
}

impl<R: BufRead> EntryReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), line: 0, form: None }
    }

    /// The next line that is not blank; `None` at the end.
    pub(super) fn next_entry(&mut self) -> Result<Option<Result<Entry, BadLine>>, ReadError> {
        while let Some(complete) = self.read_line()? {
            let line = self.line;
            let bad = |reason: &str| BadLine { line, reason: reason.to_owned() };
            if !complete {
                return Ok(Some(Err(bad("is longer than 4096 bytes"))));
            }
            let Ok(text) = str::from_utf8(&self.buffer) else {
                return Ok(Some(Err(bad("is not UTF-8"))));
            };
            let text = if line == 1 { text.trim_start_matches('\u{feff}') } else { text };
            if text.trim().is_empty() {
                continue;
            }
            let form = match self.form {
                Some(form) => form,
                None => {
                    let form = form_of(text).ok_or(ReadError::Heading { line })?;
                    self.form = Some(form);
                    if matches!(form, Form::Csv(_)) {
                        continue;
                    }
                    form
                }
            };
            return Ok(Some(entry(form, line, text).map_err(|reason| bad(&reason))));
        }
        Ok(None)
    }

    /// Reads one line into the buffer, without its end; whether it fits there, or `None` at the end of the input.
    fn read_line(&mut self) -> io::Result<Option<bool>> {
        self.buffer.clear();
        let limit = MAX_LINE_BYTES as u64 + 2;
        if (&mut self.input).take(limit).read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if self.buffer.pop_if(|last| *last == b'\n').is_some() {
            self.buffer.pop_if(|last| *last == b'\r');
        } else if self.buffer.len() > MAX_LINE_BYTES {
            self.input.skip_until(b'\n')?;
        }
        Ok(Some(self.buffer.len() <= MAX_LINE_BYTES))
    }
}

/// What the first line says; `None` for a heading with unknown columns.
fn form_of(text: &str) -> Option<Form> {
    if text.trim_start().starts_with('{') {
        return Some(Form::Json);
    }
    let Ok(names) = cells(text) else { return Some(Form::Addresses) };
    let place = |name: &str| names.iter().position(|cell| cell.trim().eq_ignore_ascii_case(name));
    let Some(address) = place("address") else { return Some(Form::Addresses) };
    let columns = Columns { address, reason: place("reason"), digest_type: place("digest_type"), count: names.len() };
    let known = 1 + usize::from(columns.reason.is_some()) + usize::from(columns.digest_type.is_some());
    (known == names.len()).then_some(Form::Csv(columns))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    address: String,
    reason: Option<String>,
    digest_type: Option<String>,
}

fn entry(form: Form, line: u64, text: &str) -> Result<Entry, String> {
    let members = match form {
        Form::Addresses => Members { address: text.to_owned(), reason: None, digest_type: None },
        Form::Csv(columns) => of_columns(columns, text)?,
        // The parser's own words may quote the line.
        Form::Json => serde_json::from_str(text).map_err(|_| {
            "must be a JSON object with the text `address` and, where wanted, `reason` and `digest_type`".to_owned()
        })?,
    };
    let given = |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let address = NormalAddress::parse(&members.address).map_err(|reason| format!("address {reason}"))?;
    let reason = given(members.reason).map(|text| SuppressionReason::new(&text)).transpose();
    let digest_type = given(members.digest_type).map(|text| DigestType::new(&text)).transpose();
    Ok(Entry {
        line,
        address,
        reason: reason.map_err(|reason| format!("reason {reason}"))?,
        digest_type: digest_type.map_err(|_| "digest_type is no type of digest".to_owned())?,
    })
}

fn of_columns(columns: Columns, text: &str) -> Result<Members, String> {
    let cells = cells(text)?;
    if cells.len() != columns.count {
        return Err(format!("has {} cells, the heading has {}", cells.len(), columns.count));
    }
    let cell = |place: usize| cells.get(place).cloned().unwrap_or_default();
    Ok(Members {
        address: cell(columns.address),
        reason: columns.reason.map(cell),
        digest_type: columns.digest_type.map(cell),
    })
}

/// The cells of one CSV line (RFC 4180); none of ours can hold a line break.
fn cells(text: &str) -> Result<Vec<String>, String> {
    const QUOTES: &str = "has quotes that do not enclose a whole cell";
    let mut cells = Vec::new();
    let mut cell = String::new();
    let mut quoted = false;
    let mut closed = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' if quoted => (quoted, closed) = (false, true),
            '"' if cell.is_empty() && !closed => quoted = true,
            ',' if !quoted => {
                cells.push(std::mem::take(&mut cell));
                closed = false;
            }
            '"' => return Err(QUOTES.to_owned()),
            _ if closed => return Err(QUOTES.to_owned()),
            other => cell.push(other),
        }
    }
    if quoted {
        return Err(QUOTES.to_owned());
    }
    cells.push(cell);
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line as `line address reason type`, or `line: what is wrong`.
    fn read(bytes: &[u8]) -> Vec<String> {
        let mut reader = EntryReader::new(bytes);
        let mut lines = Vec::new();
        while let Some(entry) = reader.next_entry().unwrap() {
            lines.push(match entry {
                Ok(entry) => format!(
                    "{} {} {} {}",
                    entry.line,
                    entry.address.as_str(),
                    entry.reason.as_ref().map_or("-", SuppressionReason::as_str),
                    entry.digest_type.as_ref().map_or("-", DigestType::as_str)
                ),
                Err(bad) => format!("{}: {}", bad.line, bad.reason),
            });
        }
        lines
    }

    #[test]
    fn one_address_a_line_with_blanks_and_either_line_end() {
        assert_eq!(
            read(
                "\u{feff}A@example.test\r\n\n  b@example.test\nnobody\nc@example.test,d@example.test\nc@example.test"
                    .as_bytes()
            ),
            [
                "1 a@example.test - -",
                "3 b@example.test - -",
                "4: address has no @",
                "5: address must be exactly one address, with one @ and no list",
                "6 c@example.test - -"
            ]
        );
    }

    #[test]
    fn csv_takes_its_columns_from_the_heading() {
        let text = "Reason, \"address\" ,digest_type\nbounced,a@example.test,\n,\"b@example.test\",weekly_activity\n\
                    b@example.test,bounced,\nx,c@example.test\n\"x,c@example.test,\nx,c@example.test,Nope\n";
        // White space in front of a quote makes it part of the cell, as RFC 4180 has it.
        assert_eq!(
            read(text.replace(" \"address\" ", "\"address\"").as_bytes()),
            [
                "2 a@example.test bounced -",
                "3 b@example.test - weekly_activity",
                "4: address has no @",
                "5: has 2 cells, the heading has 3",
                "6: has quotes that do not enclose a whole cell",
                "7: digest_type is no type of digest",
            ]
        );
    }

    #[test]
    fn json_lines_are_objects_with_known_members() {
        let text = "{\"address\":\"a@example.test\",\"reason\":\"bounced\"}\n{\"address\":\"b@example.test\",\"typ\":1}\n\
                    {\"reason\":\"x\"}\n{\"address\":\"b@example.test\",\"digest_type\":null}\n\
                    {\"address\":\"b@example.test\",\"reason\":\"a@example.test\"}\n";
        let object = "must be a JSON object with the text `address` and, where wanted, `reason` and `digest_type`";
        assert_eq!(
            read(text.as_bytes()),
            [
                "1 a@example.test bounced -".to_owned(),
                format!("2: {object}"),
                format!("3: {object}"),
                "4 b@example.test - -".to_owned(),
                "5: reason must be one word of lower-case letters, digits and underscores, such as unsubscribed"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn a_long_line_and_bytes_that_are_no_text_are_bad_lines() {
        let mut bytes = vec![b'a'; 3 * MAX_LINE_BYTES];
        bytes.extend_from_slice(b"\n\xff\xfe@example.test\nb@example.test\n");
        assert_eq!(read(&bytes), ["1: is longer than 4096 bytes", "2: is not UTF-8", "3 b@example.test - -"]);
    }

    #[test]
    fn an_unknown_column_is_refused_because_it_may_be_a_misspelt_scope() {
        for heading in ["address,digest_typ", "address,address", "address,zoe@example.test"] {
            let error = EntryReader::new(heading.as_bytes()).next_entry().unwrap_err().to_string();
            assert!(error.starts_with("line 1: the heading may name") && !error.contains("zoe"), "{error}");
        }
    }
}
