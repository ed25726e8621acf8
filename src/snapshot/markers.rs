//! Markers of what a ledger has committed to: that a part of a run was begun, and each visit of a process to a run. Tiny
//! files or objects beside the snapshots, which a ledger that is restored from an older copy does not take back with it.
//! They hold no customer data and are never changed. Not what follows from one.
//!
//! `markers/<week>/<type>/<version>/<run id>/<mark>`: by what receipt keys depend on, so that another run of the same
//! digest finds them too.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::store::{Store, StoreError};
use crate::identity::{ContentVersion, DigestType, IsoWeek};

/// What a marker is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// A part of the run was begun.
    Part(u32),
    /// A process came to work on the run, or has closed it; the first is 1.
    Visit(u32),
}

impl Mark {
    fn name(self) -> String {
        match self {
            Self::Part(number) => format!("part-{number:06}"),
            Self::Visit(number) => format!("visit-{number:06}"),
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let (kind, number) = name.split_once('-')?;
        let number = number.parse().ok()?;
        match kind {
            "part" => Some(Self::Part(number)),
            "visit" => Some(Self::Visit(number)),
            _ => None,
        }
    }
}

/// Where a marker stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkerPlace {
    /// The week.
    pub iso_week: IsoWeek,
    /// The digest's type.
    pub digest_type: DigestType,
    /// The content version.
    pub content_version: ContentVersion,
    /// The run.
    pub run_id: String,
    /// What it is of.
    pub mark: Mark,
}

/// What a marker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The ledger that it was written for.
    pub ledger: String,
    /// The run.
    pub run: String,
    /// Before this instant, on the ledger's clock, nothing was claimed of what it is of.
    pub at: Timestamp,
}

impl MarkerPlace {
    fn name(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            folder(self.iso_week, &self.digest_type),
            self.content_version,
            self.run_id,
            self.mark.name()
        )
    }
}

fn folder(week: IsoWeek, digest_type: &DigestType) -> String {
    format!("markers/{week}/{digest_type}")
}

impl Store {
    /// Where markers of a week's digest stand, of every version and run, in order.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn markers(&self, week: IsoWeek, digest_type: &DigestType) -> Result<Vec<MarkerPlace>, StoreError> {
        let folder = folder(week, digest_type);
        let place = |name: &String| {
            let mut words = name.strip_prefix(&folder)?.strip_prefix('/')?.split('/');
            let (version, run, mark) = (words.next()?, words.next()?, words.next()?);
            Some(MarkerPlace {
                iso_week: week,
                digest_type: digest_type.clone(),
                content_version: ContentVersion::new(version).ok()?,
                run_id: run.to_owned(),
                mark: Mark::from_name(mark)?,
            })
        };
        let mut found: Vec<MarkerPlace> = self.names(&folder)?.iter().filter_map(place).collect();
        found.sort();
        Ok(found)
    }

    /// Reads a marker; `None` where none stands there.
    ///
    /// # Errors
    /// A store that cannot be read, or a marker that is not one.
    pub fn marker(&self, place: &MarkerPlace) -> Result<Option<Marker>, StoreError> {
        let name = place.name();
        let Some(bytes) = self.read(&name)? else { return Ok(None) };
        let marker = serde_json::from_slice(&bytes);
        marker.map(Some).map_err(|_| StoreError::Damaged { path: self.shown(&name) })
    }

    /// Writes a marker; `false` where another one stands there already, which is left as it is.
    ///
    /// # Errors
    /// A store that cannot be written to.
    pub fn mark(&self, place: &MarkerPlace, marker: &Marker) -> Result<bool, StoreError> {
        let written = self.create(&place.name(), serde_json::to_vec(marker).unwrap_or_default())?;
        // A request that was repeated because its answer was lost finds what it has written itself.
        Ok(written || self.marker(place)?.as_ref() == Some(marker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(version: &str, run_id: &str, mark: Mark) -> MarkerPlace {
        MarkerPlace {
            iso_week: "2026-W32".parse().unwrap(),
            digest_type: DigestType::new("weekly_activity").unwrap(),
            content_version: ContentVersion::new(version).unwrap(),
            run_id: run_id.to_owned(),
            mark,
        }
    }

    #[test]
    fn a_marker_is_written_once_and_found_with_those_of_other_versions() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let (first, other) = (place("v1", "aa", Mark::Part(12)), place("v2", "bb", Mark::Visit(1)));
        assert_eq!(store.markers(first.iso_week, &first.digest_type).unwrap(), []);
        let marker = |at: &str| Marker { ledger: "l".to_owned(), run: "aa".to_owned(), at: at.parse().unwrap() };
        assert!(store.mark(&first, &marker("2026-08-10T06:00:00Z")).unwrap());
        assert!(store.mark(&first, &marker("2026-08-10T06:00:00Z")).unwrap(), "the same once more");
        assert!(!store.mark(&first, &marker("2026-08-11T06:00:00Z")).unwrap());
        assert!(store.mark(&other, &marker("2026-08-11T06:00:00Z")).unwrap());
        assert_eq!(store.marker(&first).unwrap(), Some(marker("2026-08-10T06:00:00Z")));
        assert_eq!(store.marker(&place("v1", "aa", Mark::Part(13))).unwrap(), None);
        assert_eq!(store.markers(first.iso_week, &first.digest_type).unwrap(), [first, other]);
        assert_eq!(store.list().unwrap(), []);
    }
}
