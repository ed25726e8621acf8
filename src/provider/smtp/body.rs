//! A message as `DATA` carries it. Pure.

/// Doubles the dots that begin a line (RFC 5321, 4.5.2) and ends the last line, so that the final dot alone may
/// follow. A carriage return or line feed that stands alone becomes a line end: servers disagree on what it means,
/// and what looks like a final dot to one of them would end the message early.
pub(super) fn transparent(message: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(message.len() + message.len() / 64 + 2);
    for piece in message.split_inclusive(|byte| *byte == b'\n') {
        let line = piece.strip_suffix(b"\n").unwrap_or(piece);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        for part in line.split(|byte| *byte == b'\r') {
            if part.first() == Some(&b'.') {
                body.push(b'.');
            }
            body.extend_from_slice(part);
            body.extend_from_slice(b"\r\n");
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::transparent;

    #[test]
    fn dots_are_doubled_at_the_beginning_of_a_line_only() {
        assert_eq!(transparent(b".a\r\nb.\r\n.\r\n..c\r\n"), b"..a\r\nb.\r\n..\r\n...c\r\n");
    }

    #[test]
    fn the_last_line_ends() {
        assert_eq!(transparent(b"a"), b"a\r\n");
        assert_eq!(transparent(b"a\r\n\r\n"), b"a\r\n\r\n");
        assert_eq!(transparent(b""), b"");
    }

    #[test]
    fn no_lone_carriage_return_or_line_feed_gets_through() {
        assert_eq!(transparent(b"a\n.\nb\r.\rc\r\n"), b"a\r\n..\r\nb\r\n..\r\nc\r\n");
        assert_eq!(transparent(b"a\r\r\n.\r\n"), b"a\r\n\r\n..\r\n");
    }
}
