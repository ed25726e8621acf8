//! A template's source as literal text, values, statements and comments; the engine's own parser keeps this apart
//! from us. Used to check templates when they are loaded, never to render.

/// A piece of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    pub(super) token: Token<'a>,
    /// Where it begins, from 1.
    pub(super) line: usize,
}

/// What a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Text that is shown as it stands.
    Literal(&'a str),
    /// `{{ … }}`, without braces and whitespace control.
    Value(&'a str),
    /// `{% … %}`, likewise.
    Statement(&'a str),
    /// `{# … #}`
    Comment,
}

/// Takes a template apart; answers the line of what is not closed.
pub(super) fn segments(source: &str) -> Result<Vec<Segment<'_>>, usize> {
    let (mut found, mut rest, mut line) = (Vec::new(), source, 1);
    while let Some(at) = next_opening(rest) {
        let (literal, code) = rest.split_at(at);
        push(&mut found, &mut line, Token::Literal(literal), literal);
        let (token, length) = opened(code).ok_or(line)?;
        let (whole, behind) = code.split_at(length);
        push(&mut found, &mut line, token, whole);
        rest = behind;
    }
    push(&mut found, &mut line, Token::Literal(rest), rest);
    Ok(found)
}

fn push<'a>(found: &mut Vec<Segment<'a>>, line: &mut usize, token: Token<'a>, whole: &str) {
    if !whole.is_empty() {
        found.push(Segment { token, line: *line });
        *line += whole.bytes().filter(|b| *b == b'\n').count();
    }
}

fn next_opening(text: &str) -> Option<usize> {
    ["{{", "{%", "{#"].iter().filter_map(|opening| text.find(opening)).min()
}

/// The token at the start of `code` and its length in bytes.
fn opened(code: &str) -> Option<(Token<'_>, usize)> {
    let kind = code.as_bytes().get(1)?;
    let closing = match kind {
        b'{' => "}}",
        b'%' => "%}",
        _ => "#}",
    };
    let inner = code.get(2..)?;
    let end = if *kind == b'#' { inner.find(closing)? } else { end_outside_quotes(inner, closing)? };
    let text = inner.get(..end)?.trim_matches(['-', '+']).trim();
    let token = match kind {
        b'{' => Token::Value(text),
        b'%' => Token::Statement(text),
        _ => Token::Comment,
    };
    Some((token, 2 + end + 2))
}

fn end_outside_quotes(code: &str, closing: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in code.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if code.get(at..).is_some_and(|rest| rest.starts_with(closing)) => return Some(at),
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None => {}
        }
    }
    None
}

/// The names behind each `|` of some code, outside its quoted texts.
pub(super) fn filter_names(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = code;
    while let Some(end) = end_outside_quotes(rest, "|") {
        rest = rest.get(end + 1..).unwrap_or_default();
        let name = rest.trim_start();
        let length = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len());
        names.extend(name.get(..length).filter(|name| !name.is_empty()));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{Segment, Token, filter_names, segments};

    #[test]
    fn a_template_falls_into_its_pieces() {
        let found = segments("a\n{{- b | c(\"}}\") }}{# d\n #}{% if e %}f").expect("segments");
        let expected = [
            (Token::Literal("a\n"), 1),
            (Token::Value("b | c(\"}}\")"), 2),
            (Token::Comment, 2),
            (Token::Statement("if e"), 3),
            (Token::Literal("f"), 3),
        ];
        assert_eq!(found, expected.map(|(token, line)| Segment { token, line }));
        assert_eq!(segments("a\n{{ b"), Err(2));
    }

    #[test]
    fn filters_are_found_outside_quoted_texts() {
        assert_eq!(filter_names("a | money(b)|x ~ \"| y\" | z"), ["money", "x", "z"]);
    }
}
