//! What a gateway's answer about an earlier message means. Pure: the one table from an answer to a sighting.
//!
//! An absence lets the same message be sent again, so it has to be the gateway's own. A `404` with a page, or with a
//! line of text, is what a router says that knows no such path.

use serde_json::Value;

use super::json;
use super::settings::Gateway;
use crate::identity::ReceiptKey;
use crate::provider::privacy;
use crate::provider::transport::Answer;
use crate::receipt::Sighting;

/// The sighting of an answered look under `key`.
pub(super) fn sighting(answer: &Answer, key: &ReceiptKey) -> Sighting {
    match answer.status {
        200 => found(answer, key),
        404 if is_own_absence(answer) => Sighting::Absent,
        404 => unknown("404_not_the_gateways"),
        status => unknown(&status.to_string()),
    }
}

fn found(answer: &Answer, key: &ReceiptKey) -> Sighting {
    let Some(body) = json(answer) else { return unknown("200_unreadable") };
    let text = |member: &str| body.get(member).and_then(Value::as_str);
    if text("status") != Some("accepted") {
        return unknown("200_not_accepted");
    }
    // Where the answer names a key, it answers another question unless it is ours.
    if text("key").is_some_and(|named| named != key.to_string()) {
        return unknown("200_other_key");
    }
    match text("id").and_then(privacy::reference_of_anyone) {
        Some(reference) => Sighting::Found { reference },
        None => unknown("200_without_id"),
    }
}

/// Nothing at all, or a JSON object that does not claim the contrary.
fn is_own_absence(answer: &Answer) -> bool {
    match (&answer.body, json(answer)) {
        (Some(body), _) if body.is_empty() => true,
        (_, Some(Value::Object(members))) => members.get("status").and_then(Value::as_str) != Some("accepted"),
        _ => false,
    }
}

fn unknown(code: &str) -> Sighting {
    Sighting::Unknown { code: code.to_owned() }
}

/// What the answer to a look under a key that no receipt has says about the settings.
pub(super) fn describe(answer: Result<Answer, String>, gateway: &Gateway) -> Result<String, String> {
    let (host, setting) = (gateway.host(), gateway.name_of("lookup_url"));
    match answer {
        Err(code) => Err(format!("{host} cannot be reached ({code}); look at {setting}")),
        Ok(Answer { status: status @ (401 | 403), .. }) => Err(gateway.refuses_credentials(status)),
        Ok(answer) if answer.status == 404 && is_own_absence(&answer) => {
            Ok(format!("{host} answers and looks up by key"))
        }
        Ok(Answer { status: 404, .. }) => Err(format!(
            "{host} answers a look under a key that does not exist with 404 and something that is no JSON object: no \
             absence will be believed; look at {setting}"
        )),
        Ok(Answer { status, .. }) => Err(format!(
            "{host} answers {status} to a look under a key that does not exist, where 404 is expected; look at {setting}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [0x5a; 32];

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, retry_after: None, body: Some(body.to_owned().into()), is_early: false }
    }

    fn of(answer: &Answer) -> Sighting {
        sighting(answer, &ReceiptKey::from_bytes(KEY))
    }

    #[test]
    fn found_needs_a_status_and_an_id() {
        let found = Sighting::Found { reference: "m-1".to_owned() };
        assert_eq!(of(&answer(200, r#"{"status":"accepted","id":"m-1"}"#)), found);
        let own = "5a".repeat(32);
        assert_eq!(of(&answer(200, &format!(r#"{{"key":"{own}","status":"accepted","id":"m-1"}}"#))), found);
        for (body, code) in [
            ("", "200_unreadable"),
            ("<html>", "200_unreadable"),
            ("{}", "200_not_accepted"),
            (r#"{"status":"queued","id":"m-1"}"#, "200_not_accepted"),
            (r#"[{"status":"accepted","id":"m-1"}]"#, "200_not_accepted"),
            (r#"{"status":"accepted"}"#, "200_without_id"),
            (r#"{"status":"accepted","id":1}"#, "200_without_id"),
            (r#"{"status":"accepted","id":"m-1","key":"other"}"#, "200_other_key"),
        ] {
            assert_eq!(of(&answer(200, body)), unknown(code), "{body}");
        }
        assert_eq!(of(&Answer { body: None, ..answer(200, "") }), unknown("200_unreadable"));
    }

    #[test]
    fn absent_is_only_what_the_gateway_says_itself() {
        for body in ["", "{}", r#"{"error":"not_found"}"#] {
            assert_eq!(of(&answer(404, body)), Sighting::Absent, "{body}");
        }
        for body in ["<html>404</html>", "404 page not found", "[]", "null", r#"{"status":"accepted","id":"m-1"}"#] {
            assert_eq!(of(&answer(404, body)), unknown("404_not_the_gateways"), "{body}");
        }
        assert_eq!(of(&Answer { body: None, ..answer(404, "") }), unknown("404_not_the_gateways"));
    }

    #[test]
    fn every_other_status_is_unknown() {
        for status in [201, 202, 204, 206, 301, 304, 400, 401, 403, 405, 410, 429, 500, 502, 503, 504] {
            assert_eq!(of(&answer(status, r#"{"status":"accepted","id":"m-1"}"#)), unknown(&status.to_string()));
        }
    }
}
