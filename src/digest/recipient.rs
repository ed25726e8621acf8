//! Sender and recipient as a message names them: addresses in ASCII, names on one line.

use lettre::Address;
use lettre::message::Mailbox;

use super::plain_text::{has_control, neutralised};
use crate::snapshot::{Row, RowFault};

/// The longest name of a recipient or sender, in characters.
const MAX_NAME_CHARS: usize = 200;

/// What is wrong with a mailbox: its address or its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MailboxFault {
    Address(&'static str),
    Name(&'static str),
}

/// The address of a row, fit for a header.
pub(super) fn recipient(row: &Row) -> Result<Mailbox, RowFault> {
    mailbox(row.name.as_deref(), &row.email).map_err(|fault| {
        let (field, reason) = match fault {
            MailboxFault::Address(reason) => ("email", reason),
            MailboxFault::Name(reason) => ("name", reason),
        };
        RowFault { field: field.to_owned(), reason: reason.to_owned() }
    })
}

/// A mailbox fit for a header: domain as A-labels, local part in ASCII, name without direction overrides.
pub(super) fn mailbox(name: Option<&str>, email: &Address) -> Result<Mailbox, MailboxFault> {
    if !email.user().bytes().all(|b| b.is_ascii_graphic()) {
        return Err(MailboxFault::Address(
            "has a character other than printable ASCII before the @, which needs a mail system with SMTPUTF8",
        ));
    }
    let ascii = ascii_domain(email).ok_or(MailboxFault::Address("has a domain that cannot be written as A-labels"))?;
    let name = name.map(|name| checked_name(name).map_err(MailboxFault::Name)).transpose()?.flatten();
    Ok(Mailbox::new(name, ascii))
}

fn ascii_domain(email: &Address) -> Option<Address> {
    if email.domain().is_ascii() {
        return Some(email.clone());
    }
    let domain = idna::domain_to_ascii(email.domain()).ok()?;
    Address::new(email.user(), domain).ok()
}

/// A name without what would break its header; `None` where nothing is left of it.
fn checked_name(name: &str) -> Result<Option<String>, &'static str> {
    if has_control(name) {
        return Err("holds a control character or line break, which a header must not have");
    }
    if name.chars().count() > MAX_NAME_CHARS {
        return Err("is longer than 200 characters");
    }
    let shown = neutralised(name);
    let shown = shown.trim();
    Ok((!shown.is_empty()).then(|| shown.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{MailboxFault, mailbox};

    fn made(name: Option<&str>, email: &str) -> Result<String, MailboxFault> {
        let address = email.parse().expect("an address");
        mailbox(name, &address).map(|mailbox| format!("{:?} {}", mailbox.name, mailbox.email))
    }

    #[test]
    fn a_domain_travels_as_a_labels() {
        assert_eq!(made(None, "a@bücher.example").as_deref(), Ok("None a@xn--bcher-kva.example"));
    }

    #[test]
    fn a_name_that_is_empty_or_only_marks_is_left_out() {
        assert_eq!(made(Some(" \u{202e} "), "a@example.test").as_deref(), Ok("None a@example.test"));
        assert_eq!(made(Some(" Zoë\u{202e} "), "a@example.test").as_deref(), Ok("Some(\"Zoë\") a@example.test"));
    }

    #[test]
    fn what_would_break_a_header_is_refused() {
        for name in ["a\r\nBcc: b@example.test", "a\nb", "a\tb", "a\u{2028}b", "\0"] {
            assert!(matches!(made(Some(name), "a@example.test"), Err(MailboxFault::Name(_))), "{name:?}");
        }
        assert!(made(Some(&"x".repeat(201)), "a@example.test").is_err());
        assert!(matches!(made(None, "é@example.test"), Err(MailboxFault::Address(_))));
    }
}
