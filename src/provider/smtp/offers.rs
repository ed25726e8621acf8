//! What a server says that it can do, in its reply to `EHLO`. Pure.

use super::reply::Reply;

/// The extensions that make a difference here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Offers {
    pub(super) start_tls: bool,
    pub(super) auth_plain: bool,
    pub(super) auth_login: bool,
    pub(super) size: bool,
    pub(super) eight_bit_mime: bool,
    pub(super) smtp_utf8: bool,
    pub(super) pipelining: bool,
    pub(super) dsn: bool,
}

impl Offers {
    /// Reads every line but the first, which names the server.
    pub(super) fn from_reply(reply: &Reply) -> Self {
        let mut offers = Self::default();
        for line in reply.lines.iter().skip(1) {
            let line = line.trim().to_ascii_uppercase();
            let mut words = line.split([' ', '=']);
            match words.next() {
                Some("STARTTLS") => offers.start_tls = true,
                Some("SIZE") => offers.size = true,
                Some("8BITMIME") => offers.eight_bit_mime = true,
                Some("SMTPUTF8") => offers.smtp_utf8 = true,
                Some("PIPELINING") => offers.pipelining = true,
                Some("DSN") => offers.dsn = true,
                Some("AUTH") => {
                    for mechanism in words {
                        offers.auth_plain |= mechanism == "PLAIN";
                        offers.auth_login |= mechanism == "LOGIN";
                    }
                }
                _ => {}
            }
        }
        offers
    }

    /// The names of what is offered, for a person.
    pub(super) fn names(&self) -> String {
        let all = [
            (self.auth_plain, "AUTH PLAIN"),
            (self.auth_login, "AUTH LOGIN"),
            (self.size, "SIZE"),
            (self.eight_bit_mime, "8BITMIME"),
            (self.smtp_utf8, "SMTPUTF8"),
            (self.pipelining, "PIPELINING"),
            (self.dsn, "DSN"),
        ];
        let offered: Vec<_> = all.into_iter().filter(|(offered, _)| *offered).map(|(_, name)| name).collect();
        if offered.is_empty() { "no extension".to_owned() } else { offered.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_but_the_first_is_an_offer() {
        let lines = ["STARTTLS is my name", "pipelining", "SIZE 1000", "AUTH=LOGIN", "AUTH CRAM-MD5 plain", "DSN"];
        let reply = Reply { code: 250, lines: lines.map(str::to_owned).to_vec() };
        let offers = Offers::from_reply(&reply);
        let expected =
            Offers { auth_plain: true, auth_login: true, size: true, pipelining: true, dsn: true, ..Offers::default() };
        assert_eq!(offers, expected);
        assert_eq!(offers.names(), "AUTH PLAIN, AUTH LOGIN, SIZE, PIPELINING, DSN");
    }
}
