//! What a run came to: the JSON that programs read, the page that the engineer on call reads, the exit code.
//!
//! Every sealed row is in exactly one outcome; the outcomes add up to the snapshot's rows.

use std::fmt;

use super::failure::Exit;
use super::layout::{count, seconds, week_dates};
use jiff::SignedDuration;
use serde::{Serialize, Serializer};

use crate::run::{Outcomes, RunReport, RunSummary, WaitsFor};

struct Line {
    name: &'static str,
    count: u64,
    meaning: &'static str,
}

/// Every outcome in the order of the documentation.
fn lines(outcomes: &Outcomes) -> [Line; 13] {
    let line = |name, count, meaning| Line { name, count, meaning };
    [
        line("sent", outcomes.sent, "accepted by the provider in this run"),
        line("reconciled", outcomes.reconciled, "sent after an earlier attempt had been in doubt"),
        line("duplicate", outcomes.duplicate, "sent before, not sent again"),
        line("in progress", outcomes.in_progress, "claimed, or in doubt and waiting to be reconciled"),
        line("retryable", outcomes.retryable, "waiting for another attempt"),
        line("held", outcomes.held, "may have been accepted; a person must decide"),
        line("failed", outcomes.failed, "not sent and not tried again"),
        line("quarantined", outcomes.quarantined, "another content stands under the same key"),
        line("suppressed", outcomes.suppressed, "the recipient is on a suppression list"),
        line(
            "other version",
            outcomes.other_version,
            "left to another content version, which has served them or may have",
        ),
        line("outside cohort", outcomes.outside_cohort, "left to the other sender"),
        line("observed", outcomes.observed, "rendered and looked up, nothing sent"),
        line("never claimed", outcomes.never_claimed, "not begun"),
    ]
}

impl RunSummary {
    /// The exit code: a brake is always 3, then work left is 4, then what waits for a person is 3.
    pub(super) fn exit(&self) -> Exit {
        let outcomes = &self.outcomes;
        let waits_for_a_person =
            outcomes.held + outcomes.quarantined + self.ending.failed_otherwise + self.snapshot.rejected > 0;
        if self.ending.brake.is_some() {
            Exit::NeedsPerson
        } else if self.work_left() > 0 {
            Exit::WorkLeft
        } else if waits_for_a_person {
            Exit::NeedsPerson
        } else {
            Exit::Settled
        }
    }

    fn work_left(&self) -> u64 {
        let never_claimed = if self.ending.open { self.outcomes.never_claimed } else { 0 };
        self.outcomes.in_progress + self.outcomes.retryable + never_claimed
    }

    /// What to do, most urgent first; empty where there is nothing to do.
    fn next_steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        if let Some(brake) = &self.ending.brake {
            steps.push(format!("the run was stopped by a brake: {brake}"));
        }
        if self.work_left() > 0 {
            let due = self.ending.next_due_at.map(|at| format!("; the next one is due at {at:.0}")).unwrap_or_default();
            steps.push(format!(
                "{} still to do: run the same command again, it is always safe{due}",
                count(self.work_left())
            ));
        }
        if self.work_left() > 0 {
            steps.extend(self.ending.waits_for.iter().cloned());
        }
        for (state, filter, number) in [
            ("held", " --state held", self.outcomes.held),
            ("quarantined", "", self.outcomes.quarantined),
            ("failed", "", self.ending.failed_otherwise),
        ] {
            if number > 0 {
                let (verb, list) = (if number == 1 { "waits" } else { "wait" }, self.list_command(filter));
                steps.push(format!("{} {state} {verb} for a person: {list}", count(number)));
            }
        }
        if !self.ending.open && self.outcomes.never_claimed > 0 {
            let number = count(self.outcomes.never_claimed);
            steps.push(format!("{number} were not begun when a person closed the run: they are not sent"));
        }
        if self.snapshot.rejected > 0 {
            steps.push(format!("{} bad rows were set aside: see the rejects file", count(self.snapshot.rejected)));
        }
        steps
    }

    fn list_command(&self, filter: &str) -> String {
        format!("counterfoil review list --week {}{filter}", self.iso_week)
    }

    fn write_outcomes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = lines(&self.outcomes);
        let shown: Vec<(&str, String, &str)> = lines
            .iter()
            .filter(|line| line.count > 0)
            .map(|line| (line.name, count(line.count), line.meaning))
            .collect();
        let total = count(self.snapshot.rows);
        let names = shown.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max("rows".len());
        let numbers = shown.iter().map(|(_, number, _)| number.len()).max().unwrap_or(0).max(total.len());
        for (name, number, meaning) in &shown {
            writeln!(f, "  {name:names$}  {number:>numbers$}  {meaning}")?;
        }
        writeln!(f, "  {:-<width$}", "", width = names + 2 + numbers)?;
        let repeated = match self.snapshot.repeated {
            0 => String::new(),
            repeated => format!(", {} more stood in the input again", count(repeated)),
        };
        writeln!(f, "  {:names$}  {total:>numbers$}  in {}{repeated}", "rows", seconds(self.elapsed_seconds))
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (week, mode) = (self.iso_week, self.mode.as_str());
        writeln!(f, "{} {}, week {week} ({}), {mode}", self.digest_type, self.content_version, week_dates(week))?;
        writeln!(f, "run {}  snapshot {}", self.run_id, short(&self.snapshot.id))?;
        writeln!(f)?;
        self.write_outcomes(f)?;
        writeln!(f)?;
        let steps = self.next_steps();
        if steps.is_empty() {
            return writeln!(f, "nothing to do: every row is settled");
        }
        steps.iter().try_for_each(|step| writeln!(f, "-> {step}"))
    }
}

impl RunReport {
    /// The exit code of the invocation: a brake is always 3, then work left is 4, then what waits for a person is 3.
    pub(super) fn exit(&self) -> Exit {
        let runs = || self.main.iter().chain(&self.earlier);
        let any = |exit: Exit| runs().any(|run| run.exit() == exit);
        if runs().any(|run| run.ending.brake.is_some()) {
            Exit::NeedsPerson
        } else if self.unfinished || self.waits_for_a_moving_run() || any(Exit::WorkLeft) {
            Exit::WorkLeft
        } else if !self.blocked.is_empty() || any(Exit::NeedsPerson) {
            Exit::NeedsPerson
        } else {
            Exit::Settled
        }
    }

    /// The run that is in the way goes on by itself. One that cannot be finished waits for a person, and so does this.
    fn waits_for_a_moving_run(&self) -> bool {
        let blocked = |run_id: &str| self.blocked.iter().any(|(blocked, _)| blocked == run_id);
        self.waits_for.as_ref().is_some_and(|other| !blocked(&other.run_id))
    }
}

fn joined(before: SignedDuration) -> String {
    format!("another trigger of this run came {} s before: this one joined it", before.as_secs())
}

fn not_begun(other: &WaitsFor) -> String {
    format!(
        "not begun: version {} of this week has an open run ({}), one digest a week. Run the same command again once \
         that is closed, or close it with `counterfoil run close {} --by WHO --note WHY`",
        other.content_version,
        short(&other.run_id),
        short(&other.run_id)
    )
}

/// The documented object of the run that was asked for; earlier runs that were worked on stand in a member more.
impl Serialize for RunReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            #[serde(flatten)]
            main: Option<&'a RunSummary>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            earlier_runs: &'a [RunSummary],
            #[serde(skip_serializing_if = "Vec::is_empty")]
            blocked_runs: Vec<Blocked<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            waits_for: Option<&'a WaitsFor>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            open_runs: &'a [String],
        }
        #[derive(Serialize)]
        struct Blocked<'a> {
            run_id: &'a str,
            reason: &'a str,
        }
        let (main, earlier_runs) = match (&self.main, self.earlier.as_slice()) {
            (Some(main), earlier) => (Some(main), earlier),
            (None, [earlier @ .., last]) if self.waits_for.is_none() => (Some(last), earlier),
            (None, earlier) => (None, earlier),
        };
        let blocked_runs = self.blocked.iter().map(|(run_id, reason)| Blocked { run_id, reason }).collect();
        let (waits_for, open_runs) = (self.waits_for.as_ref(), self.left_open.as_slice());
        Document { main, earlier_runs, blocked_runs, waits_for, open_runs }.serialize(serializer)
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [_, ..] = self.left_open.as_slice() {
            let ids: Vec<&str> = self.left_open.iter().map(|id| short(id)).collect();
            return writeln!(f, "nothing done: observing finishes no run, and {} is open", ids.join(", "));
        }
        let nothing = self.main.is_none() && self.earlier.is_empty() && self.blocked.is_empty();
        if nothing && self.waits_for.is_none() {
            return writeln!(f, "nothing to do: no run is open");
        }
        for (place, run) in self.earlier.iter().chain(&self.main).enumerate() {
            write!(f, "{}{run}", if place == 0 { "" } else { "\n" })?;
        }
        let joined = self.joined_after.map(joined).into_iter();
        let blocked =
            self.blocked.iter().map(|(run_id, reason)| format!("run {} cannot be finished: {reason}", short(run_id)));
        let not_begun = self.waits_for.as_ref().map(not_begun).into_iter();
        joined.chain(blocked).chain(not_begun).try_for_each(|line| writeln!(f, "-> {line}"))
    }
}

/// The first 12 characters of an id.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{ContentVersion, DigestType};
    use crate::ledger::Mode;
    use crate::run::{Ending, SnapshotCounts};

    fn summary(outcomes: Outcomes) -> RunSummary {
        RunSummary {
            run_id: "1f6c0a3b9d2e4455".to_owned(),
            iso_week: "2026-W32".parse().unwrap(),
            digest_type: DigestType::new("weekly_activity").unwrap(),
            content_version: ContentVersion::new("v3").unwrap(),
            mode: Mode::Enforce,
            snapshot: SnapshotCounts { id: "5a".repeat(32), rows: outcomes.total(), repeated: 0, rejected: 0 },
            outcomes,
            elapsed_seconds: 12.345,
            ending: Ending { open: true, ..Ending::default() },
        }
    }

    #[test]
    fn a_settled_run_is_a_few_lines() {
        let outcomes = Outcomes { sent: 9_998, duplicate: 2, ..Outcomes::default() };
        insta::assert_snapshot!(summary(outcomes).to_string(), @r"
        weekly_activity v3, week 2026-W32 (3 Aug to 9 Aug 2026), enforce
        run 1f6c0a3b9d2e4455  snapshot 5a5a5a5a5a5a

          sent        9,998  accepted by the provider in this run
          duplicate       2  sent before, not sent again
          -----------------
          rows       10,000  in 12.3 s

        nothing to do: every row is settled
        ");
    }

    #[test]
    fn a_run_with_trouble_says_what_to_do_next() {
        let outcomes = Outcomes {
            sent: 1,
            reconciled: 2,
            in_progress: 3,
            retryable: 4,
            held: 1,
            failed: 6,
            quarantined: 7,
            never_claimed: 1_000_000,
            ..Outcomes::default()
        };
        let mut summary = summary(outcomes);
        summary.snapshot.repeated = 8;
        summary.snapshot.rejected = 9;
        summary.ending.failed_otherwise = 5;
        summary.ending.next_due_at = Some("2026-08-10T06:00:00.123Z".parse().unwrap());
        summary.ending.brake = Some("more than 1% of the rows are in conflict".to_owned());
        insta::assert_snapshot!(summary.to_string(), @r"
        weekly_activity v3, week 2026-W32 (3 Aug to 9 Aug 2026), enforce
        run 1f6c0a3b9d2e4455  snapshot 5a5a5a5a5a5a

          sent                   1  accepted by the provider in this run
          reconciled             2  sent after an earlier attempt had been in doubt
          in progress            3  claimed, or in doubt and waiting to be reconciled
          retryable              4  waiting for another attempt
          held                   1  may have been accepted; a person must decide
          failed                 6  not sent and not tried again
          quarantined            7  another content stands under the same key
          never claimed  1,000,000  not begun
          ------------------------
          rows           1,000,024  in 12.3 s, 8 more stood in the input again

        -> the run was stopped by a brake: more than 1% of the rows are in conflict
        -> 1,000,007 still to do: run the same command again, it is always safe; the next one is due at 2026-08-10T06:00:00Z
        -> 1 held waits for a person: counterfoil review list --week 2026-W32 --state held
        -> 7 quarantined wait for a person: counterfoil review list --week 2026-W32
        -> 5 failed wait for a person: counterfoil review list --week 2026-W32
        -> 9 bad rows were set aside: see the rejects file
        ");
    }

    #[test]
    fn what_a_closed_run_left_out_is_said() {
        let mut summary = summary(Outcomes { sent: 1, never_claimed: 1_500, ..Outcomes::default() });
        summary.ending.open = false;
        let text = summary.to_string();
        assert!(text.ends_with("-> 1,500 were not begun when a person closed the run: they are not sent\n"), "{text}");
    }

    #[test]
    fn the_json_has_the_documented_members() {
        let json = serde_json::to_string(&summary(Outcomes { sent: 1, ..Outcomes::default() })).unwrap();
        let id = "5a".repeat(32);
        let expected = format!(
            "{{\"run_id\":\"1f6c0a3b9d2e4455\",\"iso_week\":\"2026-W32\",\"digest_type\":\"weekly_activity\",\
             \"content_version\":\"v3\",\"mode\":\"enforce\",\"snapshot\":{{\"id\":\"{id}\",\"rows\":1,\"repeated\":0,\
             \"rejected\":0}},\"outcomes\":{{\"sent\":1,\"reconciled\":0,\"duplicate\":0,\"in_progress\":0,\
             \"retryable\":0,\"held\":0,\"failed\":0,\"quarantined\":0,\"suppressed\":0,\"other_version\":0,\
             \"outside_cohort\":0,\"observed\":0,\"never_claimed\":0}},\"elapsed_seconds\":12.345}}"
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn a_run_that_waits_for_another_version_says_which_and_is_work_left() {
        let mut report = RunReport {
            earlier: vec![summary(Outcomes { sent: 1, retryable: 2, ..Outcomes::default() })],
            waits_for: Some(WaitsFor {
                run_id: "77770a3b9d2e4455".to_owned(),
                iso_week: "2026-W32".parse().unwrap(),
                digest_type: DigestType::new("weekly_activity").unwrap(),
                content_version: ContentVersion::new("v2").unwrap(),
            }),
            ..RunReport::default()
        };
        assert_eq!(report.exit(), Exit::WorkLeft);
        let text = report.to_string();
        assert!(text.contains("-> not begun: version v2 of this week has an open run (77770a3b9d2e)"), "{text}");
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["waits_for"]["content_version"], &json["run_id"]), (&"v2".into(), &serde_json::Value::Null));
        assert_eq!(json["earlier_runs"][0]["run_id"], "1f6c0a3b9d2e4455");
        report.earlier.clear();
        report.blocked.push(("77770a3b9d2e4455".to_owned(), "its snapshot is gone".to_owned()));
        assert_eq!(report.exit(), Exit::NeedsPerson, "what is in the way waits for a person");
    }

    #[test]
    fn a_report_names_what_was_joined_and_what_was_left_open() {
        let joined = RunReport {
            main: Some(summary(Outcomes { sent: 1, ..Outcomes::default() })),
            joined_after: Some(SignedDuration::from_secs(12)),
            ..RunReport::default()
        };
        assert!(joined.to_string().ends_with("-> another trigger of this run came 12 s before: this one joined it\n"));
        let left = RunReport { left_open: vec!["1f6c0a3b9d2e4455".to_owned()], ..RunReport::default() };
        assert_eq!(left.to_string(), "nothing done: observing finishes no run, and 1f6c0a3b9d2e is open\n");
        assert_eq!(left.exit(), Exit::Settled);
    }

    #[test]
    fn exit_codes_follow_the_documented_order() {
        let exit = |change: fn(&mut RunSummary)| {
            let mut summary = summary(Outcomes { sent: 1, ..Outcomes::default() });
            change(&mut summary);
            summary.exit()
        };
        assert_eq!(exit(|_| {}), Exit::Settled);
        assert_eq!(exit(|s| s.outcomes.failed = 3), Exit::Settled, "refused recipients are no alarm");
        assert_eq!(exit(|s| s.outcomes.suppressed = 3), Exit::Settled);
        assert_eq!(exit(|s| s.ending.failed_otherwise = 1), Exit::NeedsPerson);
        assert_eq!(exit(|s| s.outcomes.held = 1), Exit::NeedsPerson);
        assert_eq!(exit(|s| s.outcomes.quarantined = 1), Exit::NeedsPerson);
        assert_eq!(exit(|s| s.snapshot.rejected = 1), Exit::NeedsPerson);
        assert_eq!(exit(|s| s.outcomes.retryable = 1), Exit::WorkLeft);
        assert_eq!(exit(|s| s.outcomes.never_claimed = 1), Exit::WorkLeft);
        let closed = exit(|s| {
            s.outcomes.never_claimed = 1;
            s.ending.open = false;
        });
        assert_eq!(closed, Exit::Settled, "a run that a person closed has no work left");
        let both = exit(|s| {
            s.outcomes.held = 1;
            s.outcomes.in_progress = 1;
        });
        assert_eq!(both, Exit::WorkLeft, "4 wins over 3");
        let braked = exit(|s| {
            s.outcomes.never_claimed = 1;
            s.ending.brake = Some(String::new());
        });
        assert_eq!(braked, Exit::NeedsPerson, "a brake is always 3");
    }
}
