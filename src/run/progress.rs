//! How far a run is: a bar with rate and time left on a terminal, plain lines otherwise, nothing when quiet.
//! Always on standard error.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows how far the work is.
#[derive(Debug)]
pub struct Progress {
    style: Style,
    bar: ProgressBar,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Bar,
    Lines,
    Quiet,
}

#[derive(Debug, Default)]
struct State {
    label: String,
    rows: u64,
    done: u64,
    began: Option<Instant>,
    last_line: Option<Instant>,
    parts: BTreeMap<u32, u64>,
}

impl Progress {
    /// A bar where standard error is a terminal, plain lines elsewhere.
    pub fn on_stderr() -> Self {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        Self::new(if terminal { Style::Bar } else { Style::Lines })
    }

    /// Shows nothing.
    pub fn quiet() -> Self {
        Self::new(Style::Quiet)
    }

    fn new(style: Style) -> Self {
        let bar = ProgressBar::hidden();
        if style == Style::Bar {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        }
        Self { style, bar, state: Mutex::default() }
    }

    /// A stage begins: sealing, or the work on a run.
    pub fn begin(&self, label: &str, rows: u64) {
        let mut state = self.lock();
        *state = State {
            label: label.get(..12).unwrap_or(label).to_owned(),
            rows,
            began: Some(Instant::now()),
            ..State::default()
        };
        self.bar.reset();
        self.bar.set_length(rows);
        self.bar.set_message(state.label.clone());
        let template = if rows == 0 {
            "{msg} {human_pos} rows, {per_sec}"
        } else {
            "{msg} [{wide_bar}] {human_pos}/{human_len} {per_sec}, {eta} left"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }

    /// So many rows of a part have been worked on; a part that is taken again never counts backwards.
    pub fn part(&self, part: u32, rows: u64) {
        let mut state = self.lock();
        let known = state.parts.entry(part).or_default();
        let more = rows.saturating_sub(*known);
        *known += more;
        let done = state.done + more;
        self.show(&mut state, done);
    }

    /// Rows that have been sealed so far.
    pub fn sealed(&self, rows: u64) {
        let mut state = self.lock();
        self.show(&mut state, rows);
    }

    /// Nothing is due for a while.
    pub fn waiting(&self, wait: Duration) {
        let state = self.lock();
        self.bar.set_message(format!("{} waiting {} s for what is due", state.label, wait.as_secs()));
    }

    /// The stage is over.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, state: &mut State, done: u64) {
        state.done = done;
        self.bar.set_position(done);
        if self.style != Style::Lines
            || state.last_line.or(state.began).is_none_or(|last| last.elapsed() < LINE_INTERVAL)
        {
            return;
        }
        state.last_line = Some(Instant::now());
        let of = if state.rows > 0 { format!(" of {}", state.rows) } else { String::new() };
        tracing::info!(target: "counterfoil::progress", "{}: {}{of} rows, {}", state.label, state.done, rate(state));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rate(state: &State) -> String {
    let elapsed = state.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "for people, to the nearest row")]
    let (done, rows) = (state.done as f64, state.rows as f64);
    if elapsed <= 0.0 || done <= 0.0 {
        return "rate unknown".to_owned();
    }
    let per_second = done / elapsed;
    if rows > done {
        format!("{per_second:.0}/s, {:.0} s left", (rows - done) / per_second)
    } else {
        format!("{per_second:.0}/s")
    }
}
