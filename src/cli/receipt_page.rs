//! How receipts and their events are shown. The JSON members are the columns of `receipt_overview`.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::receipts::Place;
use crate::ledger::{EventRecord, ReceiptRecord};

/// A receipt.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    receipt_key: String,
    iso_week: String,
    digest_type: String,
    content_version: String,
    state: &'static str,
    reason: Option<&'static str>,
    in_conflict: bool,
    attempts: u32,
    first_claimed_at: String,
    sent_at: Option<String>,
    next_attempt_at: Option<String>,
    ambiguous_since: Option<String>,
    destination: String,
    provider_reference: Option<String>,
    provider_code: Option<String>,
    fingerprint: String,
    key_id: String,
    run_id: String,
    updated_at: String,
}

impl Line {
    /// Takes what is shown.
    pub(super) fn new(record: &ReceiptRecord) -> Self {
        Self {
            receipt_key: record.key.to_string(),
            iso_week: record.iso_week.to_string(),
            digest_type: record.digest_type.to_string(),
            content_version: record.content_version.to_string(),
            state: record.standing.state.as_str(),
            reason: record.reason.map(crate::receipt::Reason::as_str),
            in_conflict: record.in_conflict,
            attempts: record.attempts,
            first_claimed_at: instant(record.first_claimed_at),
            sent_at: record.sent_at.map(instant),
            next_attempt_at: record.standing.next_attempt_at.map(instant),
            ambiguous_since: record.standing.ambiguous_since.map(instant),
            destination: record.destination.clone(),
            provider_reference: record.provider_reference.clone(),
            provider_code: record.provider_code.clone(),
            fingerprint: record.standing.fingerprint.to_string(),
            key_id: record.key_id.clone(),
            run_id: record.run_id.clone(),
            updated_at: instant(record.updated_at),
        }
    }

    fn standing(&self) -> String {
        let conflict = if self.in_conflict && self.state != "quarantined" { ", in conflict" } else { "" };
        match self.reason {
            Some(reason) => format!("{} ({reason}){conflict}", self.state),
            None => format!("{}{conflict}", self.state),
        }
    }
}

/// Milliseconds are enough for people and programs to order what happened.
fn instant(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// One line a receipt.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = self.sent_at.as_ref().or(self.next_attempt_at.as_ref()).unwrap_or(&self.updated_at);
        let detail = self.provider_reference.as_ref().or(self.provider_code.as_ref()).map_or("", String::as_str);
        let line = format!("{}  {}  {:28}  {when}  {detail}", self.iso_week, self.receipt_key, self.standing());
        writeln!(f, "{}", line.trim_end())
    }
}

/// A page of receipts.
#[derive(Debug, Serialize)]
pub(super) struct List {
    /// In the order (week, key).
    pub(super) receipts: Vec<Line>,
    /// Where the next page begins, if there may be one.
    pub(super) next: Option<String>,
}

impl List {
    /// A page that was asked for with `limit`; a full one says where the next begins.
    pub(super) fn page(records: &[ReceiptRecord], limit: u32) -> Self {
        let full = u32::try_from(records.len()).is_ok_and(|found| found == limit);
        let next = records.last().filter(|_| full).map(|record| Place(record.iso_week, record.key).to_string());
        Self { receipts: records.iter().map(Line::new).collect(), next }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.receipts.is_empty() {
            return writeln!(f, "no receipt matches");
        }
        self.receipts.iter().try_for_each(|line| write!(f, "{line}"))?;
        match &self.next {
            Some(next) => writeln!(f, "\nthere may be more: --after {next}"),
            None => Ok(()),
        }
    }
}

/// A receipt with its events.
#[derive(Debug, Serialize)]
pub(super) struct Detail {
    #[serde(flatten)]
    line: Line,
    grant_number: i64,
    part: u32,
    events: Vec<Event>,
}

impl Detail {
    /// Takes what is shown.
    pub(super) fn new(record: &ReceiptRecord, events: &[EventRecord]) -> Self {
        Self {
            line: Line::new(record),
            grant_number: record.grant_number,
            part: record.part,
            events: events.iter().map(Event::new).collect(),
        }
    }

    /// What is known, by name; the order in which it is asked for.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let line = &self.line;
        let mut facts = vec![
            ("state", line.standing()),
            ("digest", format!("{} {}, week {}", line.digest_type, line.content_version, line.iso_week)),
        ];
        let optional = [
            ("sent", &line.sent_at),
            ("reference", &line.provider_reference),
            ("next attempt", &line.next_attempt_at),
            ("in doubt since", &line.ambiguous_since),
            ("provider said", &line.provider_code),
        ];
        facts.extend(optional.into_iter().filter_map(|(name, value)| value.clone().map(|value| (name, value))));
        facts.extend([
            ("destination", line.destination.clone()),
            ("attempts", line.attempts.to_string()),
            ("first claimed", line.first_claimed_at.clone()),
            ("updated", line.updated_at.clone()),
            ("run", format!("{}, part {}", line.run_id, self.part)),
            ("key id", line.key_id.clone()),
            ("fingerprint", line.fingerprint.clone()),
        ]);
        facts
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "receipt {}\n", self.line.receipt_key)?;
        self.facts().iter().try_for_each(|(name, value)| writeln!(f, "  {name:14}  {value}"))?;
        writeln!(f, "\nevents, oldest first\n")?;
        self.events.iter().try_for_each(|event| write!(f, "  {event}"))
    }
}

#[derive(Debug, Serialize)]
struct Event {
    at: String,
    kind: &'static str,
    state: &'static str,
    reason: Option<&'static str>,
    grant_number: i64,
    attempts: u32,
    claimed_at: Option<String>,
    provider_reference: Option<String>,
    provider_code: Option<String>,
    presented_fingerprint: Option<String>,
    actor: Option<String>,
    note: Option<String>,
}

impl Event {
    fn new(event: &EventRecord) -> Self {
        Self {
            at: instant(event.at),
            kind: event.kind.as_str(),
            state: event.state.as_str(),
            reason: event.reason.map(crate::receipt::Reason::as_str),
            grant_number: event.grant_number,
            attempts: event.attempts,
            claimed_at: event.claimed_at.map(instant),
            provider_reference: event.provider_reference.clone(),
            provider_code: event.provider_code.clone(),
            presented_fingerprint: event.presented.map(|presented| presented.to_string()),
            actor: event.actor.clone(),
            note: event.note.clone(),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {:13}  {}", self.at, self.kind, self.state)?;
        if let Some(reason) = self.reason {
            write!(f, " ({reason})")?;
        }
        write!(f, "  grant {}, attempts {}", self.grant_number, self.attempts)?;
        for (name, value) in [
            ("reference", &self.provider_reference),
            ("provider said", &self.provider_code),
            ("presented", &self.presented_fingerprint),
            ("by", &self.actor),
            ("note", &self.note),
        ] {
            if let Some(value) = value {
                write!(f, ", {name} {value}")?;
            }
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{ContentVersion, DigestType, Fingerprint, ReceiptKey};
    use crate::receipt::{EventKind, Reason, Standing, State};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn record() -> ReceiptRecord {
        ReceiptRecord {
            key: ReceiptKey::from_bytes([0x43; 32]),
            iso_week: "2026-W32".parse().unwrap(),
            digest_type: DigestType::new("weekly_activity").unwrap(),
            content_version: ContentVersion::new("v3").unwrap(),
            standing: Standing {
                fingerprint: Fingerprint::from_bytes([0xfe; 32]),
                state: State::Held,
                lease_ends_at: None,
                next_attempt_at: None,
                ambiguous_since: Some(at("2026-08-10T06:00:01Z")),
            },
            reason: Some(Reason::Undecidable),
            in_conflict: false,
            attempts: 1,
            grant_number: 1,
            first_claimed_at: at("2026-08-10T06:00:00Z"),
            sent_at: None,
            destination: "retail".to_owned(),
            provider_reference: None,
            provider_code: Some("timeout_after_final_dot".to_owned()),
            key_id: "2026-W01".to_owned(),
            run_id: "1f6c0a3b9d2e".to_owned(),
            part: 0,
            updated_at: at("2026-08-10T06:10:01.5Z"),
        }
    }

    fn event() -> EventRecord {
        EventRecord {
            event_id: 1,
            kind: EventKind::Settle,
            at: at("2026-08-10T06:10:01.5Z"),
            grant_number: 1,
            claimed_at: Some(at("2026-08-10T06:00:00Z")),
            state: State::Held,
            reason: Some(Reason::Undecidable),
            attempts: 1,
            provider_reference: None,
            provider_code: Some("timeout_after_final_dot".to_owned()),
            presented: None,
            actor: None,
            note: None,
        }
    }

    #[test]
    fn a_receipt_is_shown_with_its_events() {
        insta::assert_snapshot!(Detail::new(&record(), &[event()]).to_string(), @r"
        receipt 4343434343434343434343434343434343434343434343434343434343434343

          state           held (undecidable)
          digest          weekly_activity v3, week 2026-W32
          in doubt since  2026-08-10T06:00:01.000Z
          provider said   timeout_after_final_dot
          destination     retail
          attempts        1
          first claimed   2026-08-10T06:00:00.000Z
          updated         2026-08-10T06:10:01.500Z
          run             1f6c0a3b9d2e, part 0
          key id          2026-W01
          fingerprint     fefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefe

        events, oldest first

          2026-08-10T06:10:01.500Z  settle         held (undecidable)  grant 1, attempts 1, provider said timeout_after_final_dot
        ");
    }

    #[test]
    fn a_list_is_one_line_a_receipt_and_says_where_to_go_on() {
        let list = List { receipts: vec![Line::new(&record())], next: Some("2026-W32:43".to_owned()) };
        insta::assert_snapshot!(list.to_string(), @r"
        2026-W32  4343434343434343434343434343434343434343434343434343434343434343  held (undecidable)            2026-08-10T06:10:01.500Z  timeout_after_final_dot

        there may be more: --after 2026-W32:43
        ");
        assert_eq!(List { receipts: Vec::new(), next: None }.to_string(), "no receipt matches\n");
    }
}
