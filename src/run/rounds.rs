//! Which open runs a process works on, in which order, and when it comes back to one; and how a run gets past another
//! version's open run. What is done on one run is `engine`'s.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::engine::{Invocation, short};
use super::guards::{self, Admitted, Gate, Opened};
use super::{RunError, RunReport, RunRequest, RunSummary, WaitsFor};
use crate::ledger::Run;

/// A trigger within this time of the one before it is a doubled one.
const DOUBLED: SignedDuration = SignedDuration::from_mins(5);

/// What one turn at a run came to.
pub(super) struct Worked {
    pub(super) summary: RunSummary,
    /// Part of what is left moves only when other runs are worked on.
    pub(super) waits_elsewhere: bool,
}

/// What this process has done so far.
#[derive(Default)]
pub(super) struct Rounds {
    /// In the order of their first turns.
    summaries: Vec<RunSummary>,
    /// Runs that wait for other runs, with the number of runs that were closed when they last had a turn.
    elsewhere: BTreeMap<String, usize>,
    blocked: Vec<(String, String)>,
    unfinished: bool,
    waits_for: Option<WaitsFor>,
    joined_after: Option<SignedDuration>,
}

impl Rounds {
    /// Whether the run has had its turn.
    pub(super) fn worked_on(&self, run_id: &str) -> bool {
        self.summaries.iter().any(|summary| summary.run_id == run_id)
    }

    /// Whether the run has had its turn, or could not have one.
    pub(super) fn knows(&self, run_id: &str) -> bool {
        self.worked_on(run_id) || self.blocked.iter().any(|(blocked, _)| blocked == run_id)
    }

    /// Whether part of what is left of a run moves only when other runs are worked on.
    pub(super) fn waits_elsewhere(&self, run_id: &str) -> bool {
        self.elsewhere.contains_key(run_id)
    }

    /// A run has a turn, and another one when runs were closed since that it may have waited for: each further turn
    /// costs a closed run, so that this ends.
    fn wants(&self, run: &Run) -> bool {
        match self.elsewhere.get(&run.new.run_id) {
            Some(closed) => *closed < self.closed(),
            None => !self.knows(&run.new.run_id),
        }
    }

    fn closed(&self) -> usize {
        self.summaries.iter().filter(|summary| !summary.ending.open).count()
    }

    /// Remembers a turn; a later one of the same run takes the place of the earlier one.
    pub(super) fn record(&mut self, worked: Worked) {
        let Worked { summary, waits_elsewhere } = worked;
        let run_id = summary.run_id.clone();
        self.blocked.retain(|(blocked, _)| *blocked != run_id);
        match self.summaries.iter_mut().find(|known| known.run_id == run_id) {
            Some(known) => *known = summary,
            None => self.summaries.push(summary),
        }
        if waits_elsewhere {
            self.elsewhere.insert(run_id, self.closed());
        } else {
            self.elsewhere.remove(&run_id);
        }
    }

    /// Summaries of closed runs in which something was still on its way.
    pub(super) fn on_their_way(&mut self) -> impl Iterator<Item = &mut RunSummary> {
        let moves = |summary: &RunSummary| summary.outcomes.in_progress + summary.outcomes.retryable > 0;
        self.summaries.iter_mut().filter(move |summary| !summary.ending.open && moves(summary))
    }

    fn block(&mut self, run: &Run, error: &RunError) {
        let run_id = &run.new.run_id;
        tracing::error!(run = short(run_id), week = %run.new.iso_week, "an earlier run cannot be finished: {error}");
        self.elsewhere.remove(run_id);
        self.blocked.push((run_id.clone(), error.to_string()));
    }

    /// The report; `main` is the run that was asked for.
    pub(super) fn report(mut self, main: Option<&str>) -> RunReport {
        let place = self.summaries.iter().position(|summary| Some(summary.run_id.as_str()) == main);
        RunReport {
            main: place.map(|place| self.summaries.remove(place)),
            earlier: self.summaries,
            blocked: self.blocked,
            unfinished: self.unfinished,
            waits_for: self.waits_for,
            joined_after: self.joined_after,
            left_open: Vec::new(),
        }
    }
}

impl Invocation<'_> {
    /// Works on every open run, or on the one with this id, from its own snapshot, oldest first. One that cannot be
    /// finished is named and left to a person.
    ///
    /// # Errors
    /// What concerns more than one run.
    pub(super) async fn finish_open(&self, only: Option<&str>, rounds: &mut Rounds) -> Result<(), RunError> {
        loop {
            let mut open = self.setup.ledger.open_runs().await?;
            open.retain(|run| only.is_none_or(|only| run.new.run_id == only) && rounds.wants(run));
            let Some(run) = open.first() else { return Ok(()) };
            if self.setup.stop.is_cancelled() {
                rounds.unfinished = true;
                return Ok(());
            }
            match self.finish(run, rounds.knows(&run.new.run_id)).await {
                Ok(worked) => rounds.record(worked),
                Err(error) if error.is_about_its_run_alone() => rounds.block(run, &error),
                Err(error) => return Err(error),
            }
        }
    }

    async fn finish(&self, run: &Run, again: bool) -> Result<Worked, RunError> {
        let bundle = guards::resume(run, self.setup, self.clock.now()).await?;
        let what = if again { "coming back to a run that waited for others" } else { "working on an open run" };
        tracing::info!(run = short(&run.new.run_id), week = %run.new.iso_week, "{what}");
        self.work(run.clone(), bundle).await
    }

    /// Joins the run that was asked for where it is open already: the trigger is counted, and said to be one of two,
    /// before the work begins.
    ///
    /// # Errors
    /// As [`Invocation::open`].
    pub(super) async fn join(
        &self,
        request: &RunRequest,
        admitted: &Admitted,
        rounds: &mut Rounds,
    ) -> Result<Option<Opened>, RunError> {
        match self.setup.ledger.run(admitted.run_id()).await?.filter(|run| run.closed_at.is_none()) {
            Some(_) => self.open(request, admitted, rounds).await,
            None => Ok(None),
        }
    }

    /// Opens or joins the run that was asked for, once no other version of its week has an open run. One that has is
    /// worked on until it is closed; where it can only wait longer than allowed, the run is not begun: `None`.
    ///
    /// # Errors
    /// The first guard that refuses, or a ledger that fails.
    pub(super) async fn open(
        &self,
        request: &RunRequest,
        admitted: &Admitted,
        rounds: &mut Rounds,
    ) -> Result<Option<Opened>, RunError> {
        loop {
            if self.setup.stop.is_cancelled() {
                rounds.unfinished = true;
                return Ok(None);
            }
            let other = match guards::open(request, admitted, self.setup, &self.clock).await? {
                Gate::Opened(opened) => {
                    rounds.joined_after = self.doubled(&opened);
                    return Ok(Some(opened));
                }
                Gate::Waits(other) => other,
            };
            self.finish_open(Some(&other.new.run_id), rounds).await?;
            let other = self.setup.ledger.run(&other.new.run_id).await?.filter(|run| run.closed_at.is_none());
            if let Some(other) = other.filter(|_| !self.setup.stop.is_cancelled()) {
                rounds.waits_for = Some(WaitsFor::of(&other));
                return Ok(None);
            }
        }
    }

    /// How long before this trigger another one came for the same open run, where that was a moment ago.
    fn doubled(&self, opened: &Opened) -> Option<SignedDuration> {
        let before = self.clock.now().duration_since(opened.triggered_before?).max(SignedDuration::ZERO);
        let seconds = before.as_secs();
        (before < DOUBLED).then(|| {
            let run = short(&opened.run.new.run_id);
            tracing::info!(run, "another trigger of this run came {seconds} s before: this one joins it");
            before
        })
    }
}
