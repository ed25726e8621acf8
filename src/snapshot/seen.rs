//! Which customers an export named before: hashes of 24 bytes a row, however long the rows are, and at the end the
//! rows that repeat one alike and those that contradict one another.

use sha2::{Digest, Sha256};

/// Entries allocated at a time; growing a vector by doubling would take up to twice the memory.
const SLAB: usize = 128;

/// What is remembered of a row: hash of its customer, hash of its content, line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(super) struct Entry {
    customer: [u8; 12],
    line: u32,
    content: [u8; 8],
}

/// Makes entries. A random prefix keeps anyone from preparing two customers with one hash.
#[derive(Clone)]
pub(super) struct EntryHasher(Sha256);

impl EntryHasher {
    pub(super) fn new(prefix: &[u8; 16]) -> Self {
        Self(Sha256::new_with_prefix(prefix))
    }

    pub(super) fn entry(&self, line: u32, customer_id: &str, canonical_row: &[u8]) -> Entry {
        Entry { customer: self.truncated(customer_id.as_bytes()), line, content: self.truncated(canonical_row) }
    }

    fn truncated<const N: usize>(&self, bytes: &[u8]) -> [u8; N] {
        let hash: [u8; 32] = self.0.clone().chain_update(bytes).finalize().into();
        let mut start = [0; N];
        start.iter_mut().zip(hash).for_each(|(target, byte)| *target = byte);
        start
    }
}

/// All rows so far, spread by the first byte of the customer's hash so that each share is sorted by itself.
pub(super) struct Seen {
    shares: Vec<Vec<Vec<Entry>>>,
}

/// What [`Seen::finish`] found, each in the order of lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Repeats {
    /// Lines that say the same as an earlier one.
    pub(super) alike: Vec<u32>,
    /// Lines whose customer has another content in another line, with that line.
    pub(super) contradicting: Vec<(u32, u32)>,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self { shares: vec![Vec::new(); 256] }
    }

    pub(super) fn push(&mut self, entry: Entry) {
        let [first, ..] = entry.customer;
        let Some(share) = self.shares.get_mut(usize::from(first)) else { return };
        match share.last_mut() {
            Some(slab) if slab.len() < SLAB => slab.push(entry),
            _ => {
                let mut slab = Vec::with_capacity(SLAB);
                slab.push(entry);
                share.push(slab);
            }
        }
    }

    pub(super) fn finish(self) -> Repeats {
        let mut repeats = Repeats::default();
        for share in self.shares {
            let mut entries = share.concat();
            drop(share);
            entries.sort_unstable();
            entries.chunk_by(|a, b| a.customer == b.customer).for_each(|group| repeats.add(group));
        }
        repeats.alike.sort_unstable();
        repeats.contradicting.sort_unstable();
        repeats
    }
}

impl Repeats {
    /// Judges the rows of one customer, which come in the order of lines.
    fn add(&mut self, group: &[Entry]) {
        let Some((first, later)) = group.split_first() else { return };
        match later.iter().find(|entry| entry.content != first.content) {
            None => self.alike.extend(later.iter().map(|entry| entry.line)),
            Some(other) => self.contradicting.extend(group.iter().map(|entry| {
                let opposite = if entry.content == first.content { other.line } else { first.line };
                (entry.line, opposite)
            })),
        }
    }

    /// Every line that is not sealed on account of another one, in order.
    pub(super) fn lines(&self) -> Vec<u32> {
        let mut lines = Vec::with_capacity(self.alike.len() + self.contradicting.len());
        lines.extend(&self.alike);
        lines.extend(self.contradicting.iter().map(|(line, _)| line));
        lines.sort_unstable();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &[(&str, &str)]) -> Repeats {
        let hasher = EntryHasher::new(&[7; 16]);
        let mut seen = Seen::new();
        for (line, (customer, content)) in (1..).zip(rows) {
            seen.push(hasher.entry(line, customer, content.as_bytes()));
        }
        seen.finish()
    }

    #[test]
    fn repeats_and_contradictions_name_the_right_lines() {
        let repeats = found(&[("a", "1"), ("b", "1"), ("a", "1"), ("c", "1"), ("b", "2"), ("b", "1"), ("a", "1")]);
        assert_eq!(repeats.alike, [3, 7]);
        assert_eq!(repeats.contradicting, [(2, 5), (5, 2), (6, 5)]);
        assert_eq!(repeats.lines(), [2, 3, 5, 6, 7]);
    }

    #[test]
    fn different_customers_never_meet() {
        let ids: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
        let rows: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "same")).collect();
        assert_eq!(found(&rows), Repeats::default());
    }

    #[test]
    fn an_entry_takes_the_documented_24_bytes() {
        assert_eq!(size_of::<Entry>(), 24);
    }
}
