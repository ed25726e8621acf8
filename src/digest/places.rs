//! Where values land in an HTML template, found out when a bundle is loaded.
//!
//! HTML escaping makes a value safe in text and inside a quoted attribute, and nowhere else. So a value anywhere
//! else (a tag's or attribute's name, an unquoted attribute, a script, a style, an event handler) is refused, and
//! a value in an attribute that takes a URL must be one that is known to be a safe URL.

use super::scan::{Segment, Token};

/// Attributes whose value is a URL.
const URL_ATTRIBUTES: [&str; 12] = [
    "href",
    "src",
    "action",
    "formaction",
    "background",
    "cite",
    "poster",
    "data",
    "srcset",
    "ping",
    "longdesc",
    "xlink:href",
];

/// What is wrong with a template at a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misplaced {
    pub(super) line: usize,
    pub(super) reason: &'static str,
}

const NOT_HERE: &str = "a value may stand in text or inside a quoted attribute only, where escaping makes it safe";
const IN_CODE: &str = "a value may not stand in a script, style, comment or event handler: no escaping is safe there";
const URL_WHOLE: &str = "a value that is a whole URL must be `unsubscribe_url`, `cid(\"NAME\")` or end with `| url`, which takes https only";
const URL_PART: &str = "a value inside a URL must end with `| query`, which percent-encodes it";
const FRAMES: &str = "`raw` and `autoescape` are not allowed in an HTML template: they switch escaping off";

/// Checks every place of an HTML template.
pub(super) fn check(segments: &[Segment<'_>]) -> Result<(), Misplaced> {
    let mut place = Place::Text;
    for segment in segments {
        let refuse = |reason| Err(Misplaced { line: segment.line, reason });
        match segment.token {
            Token::Literal(html) => html.chars().for_each(|c| place.step(c)),
            Token::Statement(code) if matches!(code.split_whitespace().next(), Some("raw" | "autoescape")) => {
                return refuse(FRAMES);
            }
            Token::Statement(_) | Token::Comment => {}
            Token::Value(code) => match place.fault(code.trim()) {
                Some(reason) => return refuse(reason),
                None => place.value(),
            },
        }
    }
    Ok(())
}

/// Where in HTML we are.
#[derive(Debug)]
enum Place {
    Text,
    /// Behind `<`, as far as read.
    Open(String),
    /// Inside a tag of this name, between attributes.
    Tag(String),
    /// In an attribute's name.
    Name {
        tag: String,
        name: String,
    },
    /// Behind `=`.
    Equals {
        tag: String,
        name: String,
    },
    /// In a quoted value; `begun` once something stands in it.
    Quoted {
        tag: String,
        name: String,
        quote: char,
        begun: bool,
    },
    Unquoted {
        tag: String,
    },
    Comment(String),
    /// In a script or style, until its end tag.
    Code {
        tag: String,
        tail: String,
    },
}

impl Place {
    fn step(&mut self, c: char) {
        *self = std::mem::replace(self, Self::Text).after(c);
    }

    fn after(self, c: char) -> Self {
        match self {
            Self::Text if c == '<' => Self::Open(String::new()),
            Self::Text => Self::Text,
            Self::Open(name) => after_open(name, c),
            Self::Tag(tag) => match c {
                '>' => inside(tag),
                _ if c.is_whitespace() || c == '/' => Self::Tag(tag),
                _ => Self::Name { tag, name: c.to_ascii_lowercase().to_string() },
            },
            Self::Name { tag, mut name } => match c {
                '>' => inside(tag),
                '=' => Self::Equals { tag, name },
                _ if c.is_whitespace() || c == '/' => Self::Tag(tag),
                _ => {
                    name.push(c.to_ascii_lowercase());
                    Self::Name { tag, name }
                }
            },
            Self::Equals { tag, name } => match c {
                '"' | '\'' => Self::Quoted { tag, name, quote: c, begun: false },
                '>' => inside(tag),
                _ if c.is_whitespace() => Self::Equals { tag, name },
                _ => Self::Unquoted { tag },
            },
            Self::Quoted { tag, quote, .. } if c == quote => Self::Tag(tag),
            Self::Quoted { tag, name, quote, begun } => {
                Self::Quoted { tag, name, quote, begun: begun || !c.is_whitespace() }
            }
            Self::Unquoted { tag } => match c {
                '>' => inside(tag),
                _ if c.is_whitespace() => Self::Tag(tag),
                _ => Self::Unquoted { tag },
            },
            Self::Comment(tail) => after_comment(tail, c),
            Self::Code { tag, tail } => after_code(tag, tail, c),
        }
    }

    /// A value stood here.
    fn value(&mut self) {
        if let Self::Quoted { begun, .. } = self {
            *begun = true;
        }
    }

    /// What is wrong with a value here.
    fn fault(&self, code: &str) -> Option<&'static str> {
        match self {
            Self::Text => None,
            Self::Quoted { name, begun, .. } if URL_ATTRIBUTES.contains(&name.as_str()) => match begun {
                false => (!is_url(code)).then_some(URL_WHOLE),
                true => (!ends_with_filter(code, "query")).then_some(URL_PART),
            },
            Self::Quoted { name, .. } if name.starts_with("on") || name == "style" || name == "srcdoc" => Some(IN_CODE),
            Self::Quoted { .. } => None,
            Self::Comment(_) | Self::Code { .. } => Some(IN_CODE),
            _ => Some(NOT_HERE),
        }
    }
}

fn after_open(mut name: String, c: char) -> Place {
    if name.is_empty() && !(c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?')) {
        return Place::Text;
    }
    match c {
        '>' => inside(name),
        _ if c.is_whitespace() => Place::Tag(name),
        _ => {
            name.push(c.to_ascii_lowercase());
            if name == "!--" { Place::Comment(String::new()) } else { Place::Open(name) }
        }
    }
}

/// Behind the `>` of a tag.
fn inside(tag: String) -> Place {
    if matches!(tag.as_str(), "script" | "style") { Place::Code { tag, tail: String::new() } } else { Place::Text }
}

fn after_comment(mut tail: String, c: char) -> Place {
    tail.push(c);
    if tail.ends_with("-->") {
        return Place::Text;
    }
    let keep = tail.char_indices().rev().nth(1).map_or(0, |(at, _)| at);
    Place::Comment(tail.split_off(keep))
}

fn after_code(tag: String, mut tail: String, c: char) -> Place {
    tail.push(c.to_ascii_lowercase());
    if c == '<' {
        tail = String::from('<');
    }
    if tail == format!("</{tag}") { Place::Tag(format!("/{tag}")) } else { Place::Code { tag, tail } }
}

fn is_url(code: &str) -> bool {
    code == "unsubscribe_url" || (code.starts_with("cid(") && code.ends_with(')')) || ends_with_filter(code, "url")
}

fn ends_with_filter(code: &str, filter: &str) -> bool {
    // What follows the last bar must be the filter alone; a conditional behind it would hide another value.
    let alone = !code.split_whitespace().any(|word| matches!(word, "if" | "else" | "or" | "and" | "~"));
    alone && code.rsplit_once('|').is_some_and(|(_, last)| last.trim() == filter)
}

#[cfg(test)]
mod tests {
    use super::super::scan::segments;
    use super::{FRAMES, IN_CODE, NOT_HERE, URL_PART, URL_WHOLE, check};

    fn fault(template: &str) -> Option<&'static str> {
        check(&segments(template).expect("segments")).err().map(|misplaced| misplaced.reason)
    }

    #[test]
    fn values_in_text_and_quoted_attributes_pass() {
        for template in [
            "<p>{{ a }}</p>",
            "<p title=\"{{ a }}\" class='x {{ b }}'>a &lt; b < {{ c }}</p>",
            "<!doctype html><html lang=\"{{ a }}\"><!-- c --><style>p{}</style><title>{{ b }}</title>",
            "<td {% if a %}class=\"b\"{% else %}class=\"c\"{% endif %}>{{ d }}</td>",
            "<a href=\"{{ unsubscribe_url }}\">x</a><img src=\"{{ cid('a.png') }}\" alt=\"{{ b }}\">",
            "<a href=\"{{ data.link | url }}\">x</a><a href=\"https://example.test/?q={{ data.q | query }}\">x</a>",
            "<br/>{{ a }}<img/>{{ b }}",
        ] {
            assert_eq!(fault(template), None, "{template}");
        }
    }

    #[test]
    fn values_where_escaping_does_not_help_are_refused() {
        for (template, reason) in [
            ("<p title={{ a }}>", NOT_HERE),
            ("<{{ a }}>", NOT_HERE),
            ("<p {{ a }}>", NOT_HERE),
            ("<p {{ a }}=\"b\">", NOT_HERE),
            ("<script>var a = \"{{ a }}\";</script>", IN_CODE),
            ("<style>p { color: {{ a }} }</style>", IN_CODE),
            ("<!-- {{ a }} -->", IN_CODE),
            ("<p onclick=\"{{ a }}\">", IN_CODE),
            ("<p style=\"color: {{ a }}\">", IN_CODE),
            ("<a href=\"{{ data.link }}\">", URL_WHOLE),
            ("<a href=\" {{ data.link }}\">", URL_WHOLE),
            ("<A HREF='{{ data.link }}'>", URL_WHOLE),
            ("<img src=\"{{ data.a | url if data.b else data.c }}\">", URL_WHOLE),
            ("<a href=\"{{ data.c if data.b else data.a | url }}\">", URL_WHOLE),
            ("<a href=\"https://example.test/{{ data.a }}\">", URL_PART),
            ("<a href=\"{{ unsubscribe_url }}{{ data.a | url }}\">", URL_PART),
            ("{% autoescape false %}{{ a }}{% endautoescape %}", FRAMES),
            ("{% raw %}{{ a }}{% endraw %}", FRAMES),
        ] {
            assert_eq!(fault(template), Some(reason), "{template}");
        }
    }
}
