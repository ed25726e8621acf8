//! Markers of parts that were begun: tiny files or objects beside the snapshots, which a ledger that is restored from
//! an older copy does not take back with it. They hold no customer data and are never changed. Not what follows from
//! one.
//!
//! `markers/<week>/<type>/<version>/<run id>/<part>`: by what receipt keys depend on, so that another run of the same
//! digest finds them too.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::store::{Store, StoreError};
use crate::identity::{ContentVersion, DigestType, IsoWeek};

/// Where a marker stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkerPlace {
    /// The week.
    pub iso_week: IsoWeek,
    /// The digest's type.
    pub digest_type: DigestType,
    /// The content version.
    pub content_version: ContentVersion,
    /// The run that began the part.
    pub run_id: String,
    /// Its number.
    pub part: u32,
}

/// What a marker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The ledger that the part was begun in.
    pub ledger: String,
    /// The run.
    pub run: String,
    /// The part.
    pub part: u32,
    /// Before this instant, on the ledger's clock, nothing of the part was claimed.
    pub at: Timestamp,
}

impl MarkerPlace {
    fn name(&self) -> String {
        format!(
            "{}/{}/{}/{:06}",
            folder(self.iso_week, &self.digest_type),
            self.content_version,
            self.run_id,
            self.part
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
            let (version, run, part) = (words.next()?, words.next()?, words.next()?);
            Some(MarkerPlace {
                iso_week: week,
                digest_type: digest_type.clone(),
                content_version: ContentVersion::new(version).ok()?,
                run_id: run.to_owned(),
                part: part.parse().ok()?,
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

    /// Writes a marker; `false` where one stands there already, which is left as it is.
    ///
    /// # Errors
    /// A store that cannot be written to.
    pub fn mark(&self, place: &MarkerPlace, marker: &Marker) -> Result<bool, StoreError> {
        self.create(&place.name(), serde_json::to_vec(marker).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(version: &str, run_id: &str, part: u32) -> MarkerPlace {
        MarkerPlace {
            iso_week: "2026-W32".parse().unwrap(),
            digest_type: DigestType::new("weekly_activity").unwrap(),
            content_version: ContentVersion::new(version).unwrap(),
            run_id: run_id.to_owned(),
            part,
        }
    }

    #[test]
    fn a_marker_is_written_once_and_found_with_those_of_other_versions() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let (first, other) = (place("v1", "aa", 12), place("v2", "bb", 0));
        assert_eq!(store.markers(first.iso_week, &first.digest_type).unwrap(), []);
        let marker =
            |at: &str| Marker { ledger: "l".to_owned(), run: "aa".to_owned(), part: 12, at: at.parse().unwrap() };
        assert!(store.mark(&first, &marker("2026-08-10T06:00:00Z")).unwrap());
        assert!(!store.mark(&first, &marker("2026-08-11T06:00:00Z")).unwrap());
        assert!(store.mark(&other, &marker("2026-08-11T06:00:00Z")).unwrap());
        assert_eq!(store.marker(&first).unwrap(), Some(marker("2026-08-10T06:00:00Z")));
        assert_eq!(store.marker(&place("v1", "aa", 13)).unwrap(), None);
        assert_eq!(store.markers(first.iso_week, &first.digest_type).unwrap(), [first, other]);
        assert_eq!(store.list().unwrap(), []);
    }
}
