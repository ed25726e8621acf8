//! A server's reply: its lines, its codes, and what may be kept of its text. Pure.

use crate::provider::privacy;

/// Longest text or reference that is kept, in characters.
const KEPT: usize = 128;

/// A complete reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    /// 200 to 599.
    pub(super) code: u16,
    /// The text of each line, behind code and separator.
    pub(super) lines: Vec<String>,
}

/// One line of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) code: u16,
    pub(super) text: String,
    pub(super) is_last: bool,
}

impl Line {
    /// Reads a line with or without its line end. A code without text ends a reply too (RFC 5321, 4.2.1).
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (digits, rest) = line.split_at_checked(3)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let code = std::str::from_utf8(digits).ok()?.parse().ok().filter(|code| (200..600).contains(code))?;
        let (is_last, text) = match rest.split_first() {
            None => (true, rest),
            Some((b' ', text)) => (true, text),
            Some((b'-', text)) => (false, text),
            Some(_) => return None,
        };
        Some(Self { code, text: String::from_utf8_lossy(text).into_owned(), is_last })
    }
}

impl Reply {
    /// `4yz`
    pub(super) fn is_transient(&self) -> bool {
        (400..500).contains(&self.code)
    }

    /// `5yz`
    pub(super) fn is_permanent(&self) -> bool {
        (500..600).contains(&self.code)
    }

    /// A refusal after which the server waits for the next command; `421` announces that it hangs up.
    pub(super) fn leaves_channel_open(&self) -> bool {
        self.code != 421 && (self.is_transient() || self.is_permanent())
    }

    /// The enhanced status code, such as `5.1.1`, if there is one of the same class as the code.
    pub(super) fn enhanced(&self) -> Option<&str> {
        self.lines.first().and_then(|line| enhanced_of(line, self.code))
    }

    /// Code and enhanced code: `550 5.1.1`.
    pub(super) fn codes(&self) -> String {
        match self.enhanced() {
            Some(enhanced) => format!("{} {enhanced}", self.code),
            None => self.code.to_string(),
        }
    }

    /// The text in one line, without enhanced codes.
    fn text(&self) -> String {
        let bare = self.lines.iter().map(|line| match enhanced_of(line, self.code) {
            Some(enhanced) => line.strip_prefix(enhanced).unwrap_or(line),
            None => line,
        });
        bare.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }

    /// The text, printable and bounded, without addresses and without any of the `private` words.
    pub(super) fn text_without(&self, private: &[&str]) -> String {
        let text = self.text();
        let words: Vec<_> = text
            .split(' ')
            .map(|word| if privacy::is_private(word, private) { privacy::REMOVED } else { word })
            .collect();
        words.join(" ").chars().take(KEPT).map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
    }

    /// The server's own name for the message that it accepted, or its bounded text where none is recognised.
    pub(super) fn reference(&self, private: &[&str]) -> String {
        let text = self.text_without(private);
        match queue_id(&text) {
            Some(id) => id.to_owned(),
            None if text.is_empty() => self.codes(),
            None => text,
        }
    }
}

/// The enhanced code that `line` begins with, of the class of `code`.
fn enhanced_of(line: &str, code: u16) -> Option<&str> {
    let word = line.split(' ').next()?;
    let mut parts = word.split('.');
    let class = parts.next()?;
    let (subject, detail) = (parts.next()?, parts.next()?);
    let is_number = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let fits = parts.next().is_none() && is_number(subject) && is_number(detail);
    (fits && class == (code / 100).to_string()).then_some(word)
}

/// The queue id in the text of an acceptance:
/// `Ok: queued as ID` (Postfix and many services), `OK id=ID` (Exim), `ID Message accepted for delivery` (Sendmail,
/// OpenSMTPD), `[InternalId=ID, …] Queued mail for delivery` (Exchange), `Ok ID` (Amazon).
fn queue_id(text: &str) -> Option<&str> {
    let after = |marker: &str| text.find(marker).and_then(|at| text.get(at + marker.len()..));
    let candidate = if let Some(rest) = after("queued as ") {
        rest.split([' ', ',', ';']).next()
    } else if let Some(rest) = after("InternalId=") {
        rest.split([',', ']', ' ']).next()
    } else if let Some(rest) = after(" id=") {
        rest.split(' ').next()
    } else if let Some(rest) = text.strip_suffix("Message accepted for delivery") {
        Some(rest.trim_end()).filter(|id| !id.contains(' '))
    } else {
        text.split_once(' ').filter(|(ok, id)| ok.eq_ignore_ascii_case("ok") && !id.contains(' ')).map(|(_, id)| id)
    };
    candidate.map(|id| id.trim_matches(['<', '>', '.'])).filter(|id| !id.is_empty() && *id != "(removed)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16, lines: &[&str]) -> Reply {
        Reply { code, lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }

    #[test]
    fn a_line_has_a_code_a_separator_and_a_text() {
        let line = |text: &str| Line::parse(text.as_bytes()).map(|line| (line.code, line.text, line.is_last));
        assert_eq!(line("250 ok\r\n"), Some((250, "ok".to_owned(), true)));
        assert_eq!(line("250-SIZE 10\r\n"), Some((250, "SIZE 10".to_owned(), false)));
        assert_eq!(line("354\r\n"), Some((354, String::new(), true)));
        assert_eq!(line("250 bare\n"), Some((250, "bare".to_owned(), true)));
        for garbage in ["", "25", "2x0 ok", "150 ok", "600 ok", "250_ok", "HTTP/1.1 400 Bad Request", "+OK"] {
            assert_eq!(line(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn codes_carry_the_enhanced_code_of_their_own_class_only() {
        assert_eq!(reply(550, &["5.1.1 no such user"]).codes(), "550 5.1.1");
        assert_eq!(reply(550, &["4.1.1 no such user"]).codes(), "550");
        assert_eq!(reply(451, &["4.7.500 busy"]).codes(), "451 4.7.500");
        assert_eq!(reply(550, &["5.1.1.1 what"]).codes(), "550");
        assert_eq!(reply(550, &[""]).codes(), "550");
    }

    #[test]
    fn the_reference_is_the_queue_id_of_the_servers_that_say_one() {
        let cases = [
            ("2.0.0 Ok: queued as 4XyZ12abCD", "4XyZ12abCD"),
            ("2.0.0 from MTA(smtp:[127.0.0.1]:10025): 250 2.0.0 Ok: queued as 9F3", "9F3"),
            ("OK id=1rAbCd-0002Xy-1Z", "1rAbCd-0002Xy-1Z"),
            ("2.0.0 4A1B2C3d012345 Message accepted for delivery", "4A1B2C3d012345"),
            ("2.6.0 <a@b.test> [InternalId=123456, Hostname=x.test] Queued mail for delivery", "123456"),
            ("Ok 0102017d-aa11-000000", "0102017d-aa11-000000"),
            ("2.0.0 OK  1616161616 h12si1234.45 - gsmtp", "OK 1616161616 h12si1234.45 - gsmtp"),
            ("Message accepted for delivery", "Message accepted for delivery"),
            ("2.0.0 Ok", "Ok"),
            ("", "250"),
        ];
        for (text, expected) in cases {
            assert_eq!(reply(250, &[text]).reference(&[]), expected, "{text}");
        }
    }

    #[test]
    fn a_reference_is_printable_bounded_and_without_addresses() {
        let long = "x".repeat(500);
        assert_eq!(reply(250, &[&long]).reference(&[]).len(), KEPT);
        assert_eq!(reply(250, &["sent\u{7} to zoe@example.test"]).reference(&[]), "sent? to (removed)");
    }

    #[test]
    fn the_text_of_a_refusal_names_nobody() {
        let refusal = reply(
            550,
            &[
                "5.1.1 <Zoe.Q@Example.test>: user zoe.q unknown;",
                "5.1.1 bounce+zoe.q=example.test was zoe.quinn, see https://mail.test/",
            ],
        );
        assert_eq!(
            refusal.text_without(&["zoe.q", "example.test"]),
            "(removed) user (removed) unknown; (removed) was zoe.quinn, see https://mail.test/"
        );
    }
}
