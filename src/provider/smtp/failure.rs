//! What went wrong where, and what that means for the message. Pure: the one table from a point of failure to an
//! outcome.
//!
//! The rule behind the table: a server takes responsibility with its reply to the final dot and never before (RFC
//! 5321, 4.1.1.4 and 4.1.1.10). Until the dot's first byte is written a failure proves that nothing was accepted;
//! from then on only a reply proves anything.

use super::reply::Reply;
use crate::receipt::{Outcome, RetryAfter};

/// The steps of a dialogue, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Connect,
    Greeting,
    Ehlo,
    StartTls,
    Auth,
    /// `RSET` before a connection is used again after a refusal.
    Reset,
    Mail,
    Rcpt,
    Data,
    /// The message up to and without the final dot.
    Body,
    /// From the first byte of the final dot.
    Dot,
    /// `NOOP` of a check.
    Noop,
}

/// What a step met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server or the settings cannot do what is needed, for any message: the problem and the setting.
    Unfit(String),
    /// The server cannot take this message: our class of error.
    Undeliverable(&'static str),
    /// No connection: `dns` or `connect`, and the system's words.
    Unreachable(&'static str, String),
    /// TLS was not agreed on; the library's words. `tls` or `tls_certificate`.
    Insecure(&'static str, String),
    /// The connection ended.
    Lost,
    /// The time limit of the step passed.
    TimedOut,
    /// What came is no reply, or a reply that nobody asked for.
    Garbled,
    /// A reply that says no, or says something that does not belong here.
    Refused(Reply),
}

/// A failed step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) trouble: Trouble,
}

impl Step {
    /// Wraps what the step met.
    pub(super) fn failed(self, trouble: Trouble) -> Failure {
        Failure { step: self, trouble }
    }

    /// The step in codes.
    fn word(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Greeting => "greeting",
            Self::Ehlo => "ehlo",
            Self::StartTls => "starttls",
            Self::Auth => "auth",
            Self::Reset => "rset",
            Self::Mail => "mail",
            Self::Rcpt => "rcpt",
            Self::Data => "data",
            Self::Body => "body",
            Self::Dot => "final_dot",
            Self::Noop => "noop",
        }
    }
}

impl Failure {
    /// What the failure means for the message; `private` words are kept out of any text.
    pub(super) fn outcome(&self, private: &[&str]) -> Outcome {
        match &self.trouble {
            Trouble::Unfit(problem) => Outcome::Misconfigured { problem: problem.clone() },
            Trouble::Undeliverable(code) => Outcome::Rejected { code: (*code).to_owned(), text: None },
            Trouble::Unreachable(code, _) | Trouble::Insecure(code, _) => {
                Outcome::Unavailable { code: (*code).to_owned() }
            }
            Trouble::Refused(reply) => refusal(self.step, reply, private),
            Trouble::Lost => self.without_a_reply("lost"),
            Trouble::TimedOut => self.without_a_reply("timeout"),
            Trouble::Garbled => self.without_a_reply("unreadable"),
        }
    }

    /// Whether a connection that had been idle turns out to be gone. Nothing can have been accepted, and the same
    /// words on a fresh connection mean something else: a `421` that greets us back is the end of the idle time.
    pub(super) fn is_stale_connection(&self) -> bool {
        match (self.step, &self.trouble) {
            (Step::Reset, _) | (Step::Mail, Trouble::Lost | Trouble::TimedOut | Trouble::Garbled) => true,
            (Step::Mail, Trouble::Refused(reply)) => reply.code == 421,
            _ => false,
        }
    }

    fn without_a_reply(&self, what: &str) -> Outcome {
        match self.step {
            Step::Dot => Outcome::Ambiguous { code: format!("{what}_after_final_dot") },
            step => Outcome::Unavailable { code: format!("{what}_at_{}", step.word()) },
        }
    }

    /// The failure in one line, for a person who checks the settings.
    pub(super) fn describe(&self, private: &[&str]) -> String {
        let at = self.step.word();
        match &self.trouble {
            Trouble::Unfit(problem) => problem.clone(),
            Trouble::Undeliverable(code) => format!("at {at}: {code}"),
            Trouble::Unreachable(code, words) | Trouble::Insecure(code, words) => format!("{code}: {words}"),
            Trouble::Lost => format!("at {at}: the server ended the connection"),
            Trouble::TimedOut => format!("at {at}: no answer within the time limit"),
            Trouble::Garbled => format!("at {at}: the answer is not SMTP; look at `host`, `port` and `tls`"),
            Trouble::Refused(reply) => {
                format!("at {at}: the server said {} {}", reply.codes(), reply.text_without(private))
            }
        }
    }
}

/// What a reply other than the hoped-for one means.
///
/// * `421` closes the channel and `4yz` before a recipient was named concerns everyone: throttled.
/// * `530`, `534`, `535`, `538` speak of credentials wherever they come (RFC 4954, 6): misconfigured.
/// * `5yz` before `MAIL`: the server wants nothing from this host or account: misconfigured.
/// * `5yz` to `MAIL`: the server knows only the sender by then, and every message has the same one, so that going on
///   would fail them all: misconfigured. Only what speaks of the size (`552`, `5.3.4`, `5.2.3`) concerns the message.
/// * From `RCPT` on a refusal concerns the recipient or the message.
/// * A positive reply of the wrong kind proves nothing: the dialogue is out of step.
fn refusal(step: Step, reply: &Reply, private: &[&str]) -> Outcome {
    let code = reply.codes();
    let names_message = matches!(step, Step::Rcpt | Step::Data | Step::Body | Step::Dot);
    let about_size = reply.code == 552 || matches!(reply.enhanced(), Some("5.3.4" | "5.2.3"));
    if reply.code == 421 || (reply.is_transient() && !names_message) {
        Outcome::Throttled { until: RetryAfter::Unspecified, code }
    } else if matches!(reply.code, 530 | 534 | 535 | 538) {
        Outcome::Misconfigured {
            problem: format!(
                "the SMTP server does not accept the credentials ({code} at {}); look at `username`, `password_file` \
                 and `tls`",
                step.word()
            ),
        }
    } else if reply.is_transient() {
        Outcome::Deferred { code }
    } else if reply.is_permanent() && (names_message || (step == Step::Mail && about_size)) {
        let text = Some(reply.text_without(private)).filter(|text| !text.is_empty());
        Outcome::Rejected { code, text }
    } else if reply.is_permanent() {
        Outcome::Misconfigured { problem: refused_for_all(step, &code) }
    } else if step == Step::Dot {
        Outcome::Ambiguous { code: "unexpected_reply_after_final_dot".to_owned() }
    } else {
        Outcome::Unavailable { code: format!("unexpected_reply_at_{}", step.word()) }
    }
}

fn refused_for_all(step: Step, code: &str) -> String {
    let look_at = match step {
        Step::Mail => "the digest's `from` and what this account may send as",
        Step::StartTls => "`tls`",
        Step::Auth => "`username` and `password_file`",
        _ => "`host`, `port` and whether this machine may use the server",
    };
    format!("the SMTP server refuses every message ({code} at {}); look at {look_at}", step.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(step: Step, code: u16, text: &str) -> Outcome {
        step.failed(Trouble::Refused(Reply { code, lines: vec![text.to_owned()] })).outcome(&["zoe"])
    }

    const BEFORE_DOT: [Step; 10] = [
        Step::Connect,
        Step::Greeting,
        Step::Ehlo,
        Step::StartTls,
        Step::Auth,
        Step::Reset,
        Step::Mail,
        Step::Rcpt,
        Step::Data,
        Step::Body,
    ];

    #[test]
    fn no_reply_is_ambiguous_from_the_dot_on_and_never_before() {
        for trouble in [Trouble::Lost, Trouble::TimedOut, Trouble::Garbled] {
            for step in BEFORE_DOT {
                let outcome = step.failed(trouble.clone()).outcome(&[]);
                assert!(matches!(outcome, Outcome::Unavailable { .. }), "{step:?} {trouble:?}");
            }
            let outcome = Step::Dot.failed(trouble).outcome(&[]);
            assert!(matches!(outcome, Outcome::Ambiguous { .. }), "{outcome:?}");
        }
    }

    #[test]
    fn a_closing_channel_throttles_everywhere() {
        for step in BEFORE_DOT.into_iter().chain([Step::Dot]) {
            assert!(matches!(said(step, 421, "4.3.2 closing"), Outcome::Throttled { .. }), "{step:?}");
        }
    }

    #[test]
    fn a_transient_refusal_throttles_before_the_recipient_and_defers_from_there() {
        for step in [Step::Greeting, Step::Ehlo, Step::StartTls, Step::Auth, Step::Mail] {
            assert!(matches!(said(step, 454, "4.7.0 later"), Outcome::Throttled { .. }), "{step:?}");
        }
        for step in [Step::Rcpt, Step::Data, Step::Body, Step::Dot] {
            assert_eq!(said(step, 451, "4.7.1 greylisted"), Outcome::Deferred { code: "451 4.7.1".to_owned() });
        }
    }

    #[test]
    fn a_permanent_refusal_concerns_everyone_before_the_recipient_and_one_from_there() {
        for step in [Step::Greeting, Step::Ehlo, Step::StartTls, Step::Auth, Step::Mail] {
            assert!(matches!(said(step, 554, "5.7.1 go away"), Outcome::Misconfigured { .. }), "{step:?}");
        }
        for step in [Step::Rcpt, Step::Data, Step::Body, Step::Dot] {
            let rejected =
                Outcome::Rejected { code: "550 5.1.1".to_owned(), text: Some("(removed) is unknown".to_owned()) };
            assert_eq!(said(step, 550, "5.1.1 <zoe> is unknown"), rejected);
        }
    }

    #[test]
    fn size_concerns_the_message_and_credentials_the_account() {
        assert!(matches!(said(Step::Mail, 552, "5.3.4 too big"), Outcome::Rejected { .. }));
        assert!(matches!(said(Step::Rcpt, 530, "5.7.0 authenticate first"), Outcome::Misconfigured { .. }));
        assert!(matches!(said(Step::Auth, 535, "5.7.8 bad"), Outcome::Misconfigured { .. }));
    }

    #[test]
    fn a_positive_reply_out_of_step_proves_nothing() {
        assert!(matches!(said(Step::Data, 250, "ok"), Outcome::Unavailable { .. }));
        assert!(matches!(said(Step::Dot, 354, "go on"), Outcome::Ambiguous { .. }));
    }

    #[test]
    fn only_an_idle_connection_that_is_gone_is_replaced() {
        let stale = |step: Step, trouble: Trouble| step.failed(trouble).is_stale_connection();
        let closing = Trouble::Refused(Reply { code: 421, lines: vec![] });
        assert!(stale(Step::Mail, Trouble::Lost));
        assert!(stale(Step::Mail, closing.clone()));
        assert!(stale(Step::Reset, Trouble::TimedOut));
        assert!(!stale(Step::Rcpt, Trouble::Lost));
        assert!(!stale(Step::Dot, Trouble::Lost));
        assert!(!stale(Step::Mail, Trouble::Refused(Reply { code: 550, lines: vec![] })));
    }
}
