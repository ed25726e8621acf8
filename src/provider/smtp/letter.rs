//! One message as the SMTP dialogue needs it: envelope and bytes. Pure.

use lettre::Address;
use lettre::transport::smtp::commands::{Mail, Rcpt};
use lettre::transport::smtp::extension::{MailBodyParameter, MailParameter};

use super::body;
use super::failure::Trouble;
use super::offers::Offers;
use crate::identity::ReceiptKey;
use crate::provider::Outgoing;

/// A message with its envelope.
pub(super) struct Letter {
    from: Address,
    to: Address,
    /// The receipt key in hex, given along where delivery reports can carry it back.
    key: String,
    /// With doubled dots and without the final one.
    pub(super) body: Vec<u8>,
    size: usize,
    /// Bytes beyond ASCII in the headers, or in an address: only SMTPUTF8 carries them (RFC 6531).
    needs_utf8: bool,
    /// Bytes beyond ASCII anywhere.
    needs_eight_bits: bool,
}

impl Letter {
    pub(super) fn new(outgoing: Outgoing<'_>) -> Self {
        let Outgoing { key, message, .. } = outgoing;
        Self::from_parts(key, &message.from.email, &message.to.email, &message.to_mime())
    }

    fn from_parts(key: &ReceiptKey, from: &Address, to: &Address, mime: &[u8]) -> Self {
        let (from, to) = (with_ascii_domain(from), with_ascii_domain(to));
        let headers = mime.windows(4).position(|four| four == b"\r\n\r\n").and_then(|end| mime.get(..end));
        Self {
            needs_utf8: !is_ascii(&from) || !is_ascii(&to) || !headers.unwrap_or(mime).is_ascii(),
            needs_eight_bits: !mime.is_ascii(),
            key: key.to_string(),
            body: body::transparent(mime),
            size: mime.len(),
            from,
            to,
        }
    }

    /// The words that a server's text may repeat and that must not be kept.
    pub(super) fn private_words(&self) -> [&str; 4] {
        [self.to.user(), self.to.domain(), self.from.user(), self.from.domain()]
    }

    /// `MAIL`, with the parameters that the server offers and the message needs.
    pub(super) fn mail(&self, offers: &Offers) -> Result<String, Trouble> {
        let mut parameters = Vec::new();
        if offers.size {
            parameters.push(MailParameter::Size(self.size));
        }
        if self.needs_eight_bits {
            if !offers.eight_bit_mime {
                return Err(Trouble::Undeliverable("8bitmime_not_offered"));
            }
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        if self.needs_utf8 {
            if !offers.smtp_utf8 {
                return Err(Trouble::Undeliverable("smtputf8_not_offered"));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if offers.dsn {
            parameters.push(MailParameter::Other { keyword: "ENVID".to_owned(), value: Some(self.key.clone()) });
        }
        Ok(Mail::new(Some(self.from.clone()), parameters).to_string())
    }

    /// `RCPT`
    pub(super) fn rcpt(&self) -> String {
        Rcpt::new(self.to.clone(), Vec::new()).to_string()
    }
}

fn is_ascii(address: &Address) -> bool {
    address.user().is_ascii() && address.domain().is_ascii()
}

/// An international domain travels in its ASCII form, which every server understands.
fn with_ascii_domain(address: &Address) -> Address {
    idna::domain_to_ascii(address.domain())
        .ok()
        .and_then(|domain| Address::new(address.user(), domain).ok())
        .unwrap_or_else(|| address.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIME: &str = "Subject: x\r\n\r\nhello\r\n";

    fn letter(to: &str, mime: &str) -> Letter {
        let from = "digest@example.test".parse().unwrap();
        Letter::from_parts(&ReceiptKey::from_bytes([0xab; 32]), &from, &to.parse().unwrap(), mime.as_bytes())
    }

    fn refused(letter: &Letter) -> Trouble {
        letter.mail(&Offers::default()).unwrap_err()
    }

    #[test]
    fn parameters_are_given_only_where_offered() {
        let letter = letter("zoe@example.test", MIME);
        assert_eq!(letter.mail(&Offers::default()).unwrap(), "MAIL FROM:<digest@example.test>\r\n");
        let offers = Offers { size: true, dsn: true, smtp_utf8: true, eight_bit_mime: true, ..Offers::default() };
        let mail = format!("MAIL FROM:<digest@example.test> SIZE=21 ENVID={}\r\n", "ab".repeat(32));
        assert_eq!(letter.mail(&offers).unwrap(), mail);
        assert_eq!(letter.rcpt(), "RCPT TO:<zoe@example.test>\r\n");
    }

    #[test]
    fn an_international_domain_needs_no_extension_but_an_international_name_does() {
        let domain = letter("zoe@bücher.test", MIME);
        assert_eq!(domain.rcpt(), "RCPT TO:<zoe@xn--bcher-kva.test>\r\n");
        assert!(domain.mail(&Offers::default()).is_ok());
        let name = letter("zoë@example.test", MIME);
        assert_eq!(refused(&name), Trouble::Undeliverable("smtputf8_not_offered"));
        let offers = Offers { smtp_utf8: true, ..Offers::default() };
        assert!(name.mail(&offers).unwrap().ends_with(" SMTPUTF8\r\n"));
    }

    #[test]
    fn bytes_beyond_ascii_need_the_extension_of_the_place_where_they_stand() {
        let body = letter("zoe@example.test", "Subject: x\r\n\r\nZoë\r\n");
        assert_eq!(refused(&body), Trouble::Undeliverable("8bitmime_not_offered"));
        let offers = Offers { eight_bit_mime: true, ..Offers::default() };
        assert!(body.mail(&offers).unwrap().ends_with(" BODY=8BITMIME\r\n"));
        let header = letter("zoe@example.test", "Subject: Zoë\r\n\r\nhello\r\n");
        assert_eq!(header.mail(&offers), Err(Trouble::Undeliverable("smtputf8_not_offered")));
    }
}
