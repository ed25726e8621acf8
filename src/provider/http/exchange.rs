//! What a gateway's answer to a message means. Pure: the one table from an answer to an outcome.
//!
//! A status proves that nothing was accepted only where HTTP itself says that the request was not processed, or where
//! it belongs to the exchange. Everything else may come from a proxy that had passed the request on.

use serde_json::Value;

use super::json;
use super::settings::Gateway;
use crate::digest::Message;
use crate::provider::privacy;
use crate::provider::transport::Answer;
use crate::receipt::{Outcome, RetryAfter};

/// Longest `error` of a refusal that is kept beside its status.
const MAX_ERROR_CHARS: usize = 40;

/// The outcome of an attempt that was answered.
pub(super) fn outcome(answer: &Answer, message: &Message, gateway: &Gateway) -> Outcome {
    match by_status(answer, message, gateway) {
        // The answer came before the gateway had the whole request.
        Outcome::Ambiguous { code } if answer.is_early => Outcome::Unavailable { code },
        outcome => outcome,
    }
}

fn by_status(answer: &Answer, message: &Message, gateway: &Gateway) -> Outcome {
    let code = answer.status.to_string();
    match answer.status {
        200..=299 => accepted(answer, message),
        // The same request is to be made elsewhere (RFC 9110, 15.4.8 and 15.4.9). The other redirects may point to
        // the result of what was accepted.
        307 | 308 => Outcome::Misconfigured { problem: gateway.refuses_url(answer.status) },
        401 | 403 => Outcome::Misconfigured { problem: gateway.refuses_credentials(answer.status) },
        // Nothing of this belongs to one message.
        402 | 404 | 405 | 407 | 426 => Outcome::Misconfigured { problem: gateway.refuses_url(answer.status) },
        // A server says so when the request did not come whole, a proxy when whoever it asked took too long.
        408 => Outcome::Ambiguous { code },
        409 => taken_key(answer),
        422 => Outcome::OtherPayload { code },
        // Not processed, by their definition (RFC 9110, 15.5.20; RFC 8470, 5.2).
        421 | 425 => Outcome::Unavailable { code },
        429 => Outcome::Throttled { until: answer.retry_after.unwrap_or(RetryAfter::Unspecified), code },
        400..=499 => Outcome::Rejected { code: refusal_code(answer, message), text: None },
        503 => match answer.retry_after {
            Some(until) => Outcome::Throttled { until, code },
            None => Outcome::Unavailable { code },
        },
        _ => Outcome::Ambiguous { code },
    }
}

/// A success is one only with the gateway's own name for what it took.
fn accepted(answer: &Answer, message: &Message) -> Outcome {
    let id = json(answer).and_then(|body| body.get("id").and_then(Value::as_str).map(str::to_owned));
    match id.and_then(|id| privacy::reference(&id, message)) {
        Some(reference) => Outcome::Accepted { reference },
        None if answer.body.is_none() => Outcome::Ambiguous { code: format!("{}_unreadable", answer.status) },
        None => Outcome::Ambiguous { code: format!("{}_without_id", answer.status) },
    }
}

/// An earlier request under this key reached the gateway. An answer that broke off does not say which of the two.
fn taken_key(answer: &Answer) -> Outcome {
    if answer.body.is_none() {
        return Outcome::Ambiguous { code: "409_unreadable".to_owned() };
    }
    match json(answer).as_ref().and_then(|body| body.get("error")?.as_str()) {
        Some("in_progress") => Outcome::KeyInUse { code: "409 in_progress".to_owned() },
        _ => Outcome::OtherPayload { code: "409".to_owned() },
    }
}

/// The status, with the gateway's word for the error where it is a word and not a sentence.
fn refusal_code(answer: &Answer, message: &Message) -> String {
    let said = json(answer).and_then(|body| body.get("error").and_then(Value::as_str).map(str::to_owned));
    let to = &message.to;
    let private = [to.email.user(), to.email.domain(), to.name.as_deref().unwrap_or_default()];
    let is_word = |said: &String| {
        (1..=MAX_ERROR_CHARS).contains(&said.len())
            && said.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            && !privacy::is_private(said, &private)
    };
    match said.filter(is_word) {
        Some(word) => format!("{} {word}", answer.status),
        None => answer.status.to_string(),
    }
}

/// What the answer to a `HEAD` of `url` says about the settings. Few gateways answer it with a success, so only what
/// speaks of credentials, or of another place, is an error.
pub(super) fn describe(answer: Result<Answer, String>, gateway: &Gateway) -> Result<String, String> {
    let host = gateway.host();
    match answer {
        Err(code) => Err(format!("{host} cannot be reached ({code}); look at {}", gateway.name_of("url"))),
        Ok(Answer { status: status @ (401 | 403), .. }) => Err(gateway.refuses_credentials(status)),
        Ok(Answer { status: status @ 300..=399, .. }) => Err(gateway.refuses_url(status)),
        Ok(Answer { status, .. }) => Ok(format!(
            "{host} answers ({status} to a HEAD, which sends nothing); no `lookup_url`: credentials are not proven"
        )),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::provider::fixtures;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, retry_after: None, body: Some(body.to_owned().into()), is_early: false }
    }

    fn of(answer: &Answer) -> Outcome {
        outcome(answer, &fixtures::message(1), &super::super::settings::tests::gateway())
    }

    fn said(status: u16, body: &str) -> Outcome {
        of(&answer(status, body))
    }

    fn ambiguous(code: &str) -> Outcome {
        Outcome::Ambiguous { code: code.to_owned() }
    }

    #[test]
    fn any_success_with_an_id_is_accepted() {
        for status in [200, 201, 202, 207, 299] {
            let outcome = said(status, r#"{"id":"m-1","more":[1]}"#);
            assert_eq!(outcome, Outcome::Accepted { reference: "m-1".to_owned() });
        }
    }

    #[test]
    fn a_success_without_an_id_proves_nothing() {
        for body in
            ["", "ok", "{}", "[]", r#"{"id":7}"#, r#"{"id":""}"#, r#"{"id":" "}"#, r#"{"id":null}"#, r#"{"id":"m"#]
        {
            assert_eq!(said(202, body), ambiguous("202_without_id"), "{body}");
        }
        assert_eq!(of(&Answer { body: None, ..answer(200, "") }), ambiguous("200_unreadable"));
    }

    #[test]
    fn a_taken_key_is_in_use_only_where_the_answer_says_so() {
        let in_use = Outcome::KeyInUse { code: "409 in_progress".to_owned() };
        assert_eq!(said(409, r#"{"error":"in_progress"}"#), in_use);
        for body in ["", "{}", r#"{"error":"conflict"}"#, r#"{"error":["in_progress"]}"#, "in_progress"] {
            assert_eq!(said(409, body), Outcome::OtherPayload { code: "409".to_owned() }, "{body}");
        }
        assert_eq!(said(422, r#"{"error":"in_progress"}"#), Outcome::OtherPayload { code: "422".to_owned() });
        assert_eq!(of(&Answer { body: None, ..answer(409, "") }), ambiguous("409_unreadable"));
    }

    #[test]
    fn only_what_asks_to_wait_throttles() {
        let wait = RetryAfter::In(SignedDuration::from_secs(3));
        for status in [429, 503] {
            let throttled = Outcome::Throttled { until: wait, code: status.to_string() };
            assert_eq!(of(&Answer { retry_after: Some(wait), ..answer(status, "") }), throttled);
        }
        let unspecified = Outcome::Throttled { until: RetryAfter::Unspecified, code: "429".to_owned() };
        assert_eq!(said(429, ""), unspecified);
        assert_eq!(said(503, ""), Outcome::Unavailable { code: "503".to_owned() });
        assert_eq!(of(&Answer { retry_after: Some(wait), ..answer(500, "") }), ambiguous("500"));
    }

    #[test]
    fn what_a_proxy_may_say_after_passing_the_request_on_is_ambiguous() {
        for status in [101, 300, 301, 302, 303, 304, 408, 500, 501, 502, 504, 505, 507, 520, 522, 599, 600, 999] {
            let body = r#"{"id":"m-1"}"#;
            assert_eq!(said(status, body), ambiguous(&status.to_string()));
            let early = Answer { is_early: true, ..answer(status, body) };
            assert_eq!(of(&early), Outcome::Unavailable { code: status.to_string() });
        }
    }

    #[test]
    fn what_concerns_every_message_stops_the_run_and_names_the_setting() {
        for (status, setting) in [
            (401, "token_file"),
            (403, "token_file"),
            (307, "url"),
            (308, "url"),
            (402, "url"),
            (404, "url"),
            (405, "url"),
            (407, "url"),
            (426, "url"),
        ] {
            let Outcome::Misconfigured { problem } = said(status, "zoe@example.test") else { panic!("{status}") };
            assert!(problem.contains(&format!("`destination.retail.{setting}`")), "{problem}");
            assert!(problem.contains(&status.to_string()) && !problem.contains("zoe"), "{problem}");
        }
    }

    #[test]
    fn other_refusals_are_final_and_keep_a_word_but_no_sentence_and_no_name() {
        for status in [400, 406, 410, 411, 412, 413, 414, 415, 423, 424, 428, 431, 451] {
            assert_eq!(said(status, "<html>"), Outcome::Rejected { code: status.to_string(), text: None });
        }
        let coded = |body: &str| match said(400, body) {
            Outcome::Rejected { code, text: None } => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(coded(r#"{"error":"invalid_address"}"#), "400 invalid_address");
        for error in ["zoe is unknown", "zoe@example.test", "zoe", "Zoe", "", &"a".repeat(41)] {
            assert_eq!(coded(&format!(r#"{{"error":"{error}"}}"#)), "400", "{error}");
        }
        assert_eq!(
            of(&Answer { body: None, ..answer(413, "") }),
            Outcome::Rejected { code: "413".to_owned(), text: None }
        );
    }

    #[test]
    fn what_http_itself_calls_unprocessed_is_tried_again() {
        for status in [421, 425] {
            assert_eq!(said(status, ""), Outcome::Unavailable { code: status.to_string() });
        }
    }
}
