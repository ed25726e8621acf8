//! An export as it comes: a file of JSON Lines, plain, gzip or zstd, cut into numbered lines with a bounded buffer,
//! and hashed as it stands on disk. What a line means is decided in `checks`.
//!
//! Accepted: one UTF-8 byte order mark at the very start, CRLF, a last line without line feed. Lines of white space
//! only are no rows: they are skipped and not counted, but keep their line number.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

/// The longest line that is taken as a row, in bytes without its line end.
pub const MAX_LINE_BYTES: usize = 1 << 20;

const BUFFER: usize = 64 << 10;
/// A chunk is full at so many bytes, or at so many lines.
const CHUNK_BYTES: usize = 128 << 10;
const CHUNK_LINES: usize = 256;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why an export cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The system refuses to open or read it.
    #[error("cannot read {path}")]
    Read {
        /// The export.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The compressed data stop before their end.
    #[error("{path} ends in the middle of its {format} data: the export is cut off; write or copy it again")]
    Truncated {
        /// The export.
        path: PathBuf,
        /// `gzip` or `zstd`.
        format: &'static str,
    },
    /// The compressed data are not what was compressed.
    #[error("{path} holds damaged {format} data; write or copy it again")]
    Damaged {
        /// The export.
        path: PathBuf,
        /// `gzip` or `zstd`.
        format: &'static str,
        /// The decoder's error.
        #[source]
        source: io::Error,
    },
    /// Not JSON Lines in UTF-8.
    #[error("{path} is {found}; expected JSON Lines in UTF-8, plain or compressed with gzip or zstd")]
    Foreign {
        /// The export.
        path: PathBuf,
        /// What it seems to be.
        found: &'static str,
    },
    /// More lines than are counted.
    #[error("{path} has more than 4294967295 lines; seal it in smaller exports")]
    TooManyLines {
        /// The export.
        path: PathBuf,
    },
}

/// A run of lines of an export.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    lines: Vec<(u32, Option<Range<usize>>)>,
}

impl Chunk {
    /// The lines that may be rows, each with its number from 1; `None` for one that is too long.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u32, Option<&[u8]>)> {
        self.lines.iter().map(|(number, range)| (*number, range.clone().and_then(|range| self.bytes.get(range))))
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK_BYTES || self.lines.len() >= CHUNK_LINES
    }
}

/// The file below its decoder: hashed, with the first bytes put back after the look at them.
type Source = BufReader<Chain<Cursor<Vec<u8>>, Hashing>>;

struct Hashing {
    file: File,
    hash: Sha256,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.hash.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

enum Decoder {
    Plain(Source),
    Gzip(Box<MultiGzDecoder<Source>>),
    Zstd(zstd::stream::read::Decoder<'static, Source>),
}

impl Decoder {
    fn new(source: Source, start: &[u8]) -> io::Result<Self> {
        match compression(start) {
            Some("gzip") => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(source)))),
            Some(_) => zstd::stream::read::Decoder::with_buffer(source).map(Self::Zstd),
            None => Ok(Self::Plain(source)),
        }
    }

    fn format(&self) -> &'static str {
        match self {
            Self::Plain(_) => "plain",
            Self::Gzip(_) => "gzip",
            Self::Zstd(_) => "zstd",
        }
    }

    fn source(&mut self) -> &mut Source {
        match self {
            Self::Plain(source) => source,
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Zstd(decoder) => decoder.get_mut(),
        }
    }
}

impl Read for Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// An open export.
pub(super) struct Export {
    path: PathBuf,
    reader: BufReader<Decoder>,
    /// Lines read so far.
    lines: u32,
}

impl Export {
    /// Opens an export and finds out how it is compressed, by its first bytes.
    pub(super) fn open(path: &Path) -> Result<Self, InputError> {
        let unreadable = |source| InputError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let mut hashing = Hashing { file, hash: Sha256::new() };
        let mut start = Vec::new();
        (&mut hashing).take(16).read_to_end(&mut start).map_err(unreadable)?;
        if let Some(found) = foreign_format(&start) {
            return Err(InputError::Foreign { path: path.to_owned(), found });
        }
        let source = BufReader::with_capacity(BUFFER, Cursor::new(start.clone()).chain(hashing));
        let decoder = Decoder::new(source, &start).map_err(unreadable)?;
        Ok(Self { path: path.to_owned(), reader: BufReader::with_capacity(BUFFER, decoder), lines: 0 })
    }

    /// The next lines, in order; `None` at the end.
    pub(super) fn next_chunk(&mut self) -> Result<Option<Chunk>, InputError> {
        let mut chunk = Chunk::default();
        while !chunk.is_full() && self.read_line(&mut chunk)? {}
        Ok((!chunk.lines.is_empty()).then_some(chunk))
    }

    /// Reads the rest of the file, whatever it holds, and returns the SHA-256 of all its bytes as they stand on disk.
    pub(super) fn sha256(mut self) -> Result<[u8; 32], InputError> {
        let source = self.reader.get_mut().source();
        let rest = io::copy(source, &mut io::sink());
        let hash = source.get_ref().get_ref().1.hash.clone();
        match rest {
            Ok(_) => Ok(hash.finalize().into()),
            Err(source) => Err(InputError::Read { path: self.path, source }),
        }
    }

    /// Reads one line into the chunk, unless it is blank; `false` at the end of the export.
    fn read_line(&mut self, chunk: &mut Chunk) -> Result<bool, InputError> {
        let start = chunk.bytes.len();
        // One byte more than the longest line with CRLF, which tells a line that is too long.
        let limit = MAX_LINE_BYTES as u64 + 3;
        let count = match (&mut self.reader).take(limit).read_until(b'\n', &mut chunk.bytes) {
            Ok(0) => return Ok(false),
            Ok(count) => count as u64,
            Err(error) => return Err(self.failure(error)),
        };
        let Some(number) = self.lines.checked_add(1) else {
            return Err(InputError::TooManyLines { path: self.path.clone() });
        };
        self.lines = number;
        let ended = chunk.bytes.last() == Some(&b'\n');
        if count == limit && !ended {
            self.reader.skip_until(b'\n').map_err(|error| self.failure(error))?;
        }
        let line = chunk.bytes.get(start..).unwrap_or_default();
        let line = line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
        let skipped = if number == 1 { self.look_at_first_line(line)? } else { 0 };
        let range = start + skipped..start + line.len();
        if line.len() > MAX_LINE_BYTES {
            chunk.bytes.truncate(start);
            chunk.lines.push((number, None));
        } else if chunk.bytes.get(range.clone()).unwrap_or_default().iter().all(u8::is_ascii_whitespace) {
            chunk.bytes.truncate(start);
        } else {
            chunk.lines.push((number, Some(range)));
        }
        Ok(true)
    }

    /// The length of the byte order mark, or the error for what is no UTF-8 text at all.
    fn look_at_first_line(&self, line: &[u8]) -> Result<usize, InputError> {
        let twice = compression(line).map(|_| "compressed twice");
        match twice.or_else(|| foreign_format(line)).or_else(|| other_text(line)) {
            Some(found) => Err(InputError::Foreign { path: self.path.clone(), found }),
            None if line.starts_with(BYTE_ORDER_MARK) => Ok(BYTE_ORDER_MARK.len()),
            None => Ok(0),
        }
    }

    fn failure(&mut self, source: io::Error) -> InputError {
        let path = self.path.clone();
        let format = self.reader.get_mut().format();
        if format == "plain" || source.raw_os_error().is_some() {
            return InputError::Read { path, source };
        }
        match source.kind() {
            io::ErrorKind::UnexpectedEof => InputError::Truncated { path, format },
            _ => InputError::Damaged { path, format, source },
        }
    }
}

/// What the first bytes say where they are not the beginning of JSON in UTF-8.
fn foreign_format(start: &[u8]) -> Option<&'static str> {
    match start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start) {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 0, 0xfe, 0xff, ..] => Some("UTF-16 or UTF-32 text"),
        [b'{' | b'[', 0, ..] | [0, b'{' | b'[', ..] => Some("UTF-16 text"),
        [b'P', b'A', b'R', b'1', ..] => Some("a Parquet file"),
        [b'P', b'K', 3, 4, ..] => Some("a ZIP archive"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("an xz file"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some("a bzip2 file"),
        [b'%', b'P', b'D', b'F', ..] => Some("a PDF file"),
        // A row with a NUL in it is a bad row; what does not even begin as one is no text.
        [first, ..] if *first != b'{' && compression(start).is_none() && start.contains(&0) => Some("a binary file"),
        _ => None,
    }
}

/// What the first line says where it begins some other text than one row a line. Anything else is left to the rows.
fn other_text(line: &[u8]) -> Option<&'static str> {
    match line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii() {
        [b'[', ..] => Some("a JSON array, of which `jq -c '.[]'` makes one object a line"),
        b"{" => Some("one JSON text over several lines, of which `jq -c .` makes one object a line"),
        [b'{', ..] => None,
        line if line.split(|byte| b",;\t".contains(byte)).any(|name| name.trim_ascii() == b"customer_id") => {
            Some("a table with a heading, such as CSV")
        }
        _ => None,
    }
}

/// The compression that the first bytes announce. A zstd file may begin with a frame that decoders skip.
fn compression(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some("zstd"),
        _ => None,
    }
}
