//! Spreads an export's lines over threads that check them and hands the results on in the order of the lines.
//! Queues are bounded: memory depends on the number of threads and never on the number of rows.

use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::checks::RowChecks;
use super::input::{Chunk, Export, InputError, MAX_LINE_BYTES};
use super::row::{BadRow, RowFault};
use super::seen::{Entry, EntryHasher};

/// More threads than these would wait for the one that reads.
const MAX_WORKERS: usize = 16;

/// What became of a chunk of lines.
#[derive(Default)]
pub(super) struct CheckedChunk {
    /// The good rows in canonical form, each followed by a line feed.
    pub(super) sealed: Vec<u8>,
    /// For each good row where it ends in `sealed`, what is remembered of it, and its line.
    pub(super) rows: Vec<(usize, Entry, u32)>,
    /// The bad rows.
    pub(super) bad: Vec<BadRow>,
}

impl CheckedChunk {
    /// The good rows: canonical form with its line feed, entry and line.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&[u8], Entry, u32)> {
        let mut start = 0;
        self.rows.iter().map(move |(end, entry, line)| {
            let row = self.sealed.get(start..*end).unwrap_or_default();
            start = *end;
            (row, *entry, *line)
        })
    }
}

type Outcome = Result<CheckedChunk, InputError>;

/// Checks every line of an export and gives the chunks to `take` in order, until either fails.
///
/// # Errors
/// The first error of the export or of `take`.
pub(super) fn check_all<E: From<InputError>>(
    export: &mut Export,
    checks: &RowChecks<'_>,
    hasher: &EntryHasher,
    mut take: impl FnMut(CheckedChunk) -> Result<(), E>,
) -> Result<(), E> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_WORKERS);
    // The results come through one channel a chunk, which stand in the order of the chunks in `ordered`: nothing has
    // to be put in order again, and what is under way is limited by this queue.
    let (queue, ordered) = sync_channel::<Receiver<Outcome>>(2 * workers);
    let (jobs, waiting) = sync_channel::<(Chunk, SyncSender<Outcome>)>(2 * workers);
    let waiting = Arc::new(Mutex::new(waiting));
    thread::scope(|scope| {
        scope.spawn(move || read_all(export, &queue, &jobs));
        for _ in 0..workers {
            let waiting = Arc::clone(&waiting);
            scope.spawn(move || work(&waiting, checks, hasher));
        }
        // Only the workers hold it now: were they all to die, the reader would notice instead of waiting for them.
        drop(waiting);
        for result in ordered {
            // Without a result its thread panicked, and the scope panics in turn when it ends.
            let Ok(outcome) = result.recv() else { break };
            take(outcome?)?;
        }
        Ok(())
    })
}

/// Reads until the export ends or fails, or until nobody wants more.
fn read_all(
    export: &mut Export,
    queue: &SyncSender<Receiver<Outcome>>,
    jobs: &SyncSender<(Chunk, SyncSender<Outcome>)>,
) {
    loop {
        let next = export.next_chunk();
        let (answer, result) = sync_channel(1);
        let more = match next {
            Ok(Some(chunk)) => queue.send(result).is_ok() && jobs.send((chunk, answer)).is_ok(),
            Ok(None) => false,
            Err(error) => {
                // The answer waits in its channel, which has room for one.
                let _ = answer.send(Err(error));
                let _ = queue.send(result);
                false
            }
        };
        if !more {
            return;
        }
    }
}

fn work(waiting: &Mutex<Receiver<(Chunk, SyncSender<Outcome>)>>, checks: &RowChecks<'_>, hasher: &EntryHasher) {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((chunk, answer)) = job else { return };
        // Nobody listens any more where sealing has failed elsewhere; the reader notices and stops.
        let _ = answer.send(Ok(check_chunk(&chunk, checks, hasher)));
    }
}

fn check_chunk(chunk: &Chunk, checks: &RowChecks<'_>, hasher: &EntryHasher) -> CheckedChunk {
    let mut checked = CheckedChunk::default();
    for (number, line) in chunk.lines() {
        let start = checked.sealed.len();
        let result = match line {
            Some(line) => checks.check(line, &mut checked.sealed),
            None => Err(RowFault::new("", format!("is longer than {MAX_LINE_BYTES} bytes"))),
        };
        match result {
            Ok(row) => {
                let canonical = checked.sealed.get(start..).unwrap_or_default();
                let entry = hasher.entry(number, row.customer_id.as_str(), canonical);
                checked.sealed.push(b'\n');
                checked.rows.push((checked.sealed.len(), entry, number));
            }
            Err(fault) => checked.bad.push(BadRow::new(u64::from(number), fault)),
        }
    }
    checked
}
