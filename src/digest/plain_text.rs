//! Text of a row before it is shown: what could break a line, hide itself or turn the reading direction round is
//! taken out. Escaping for HTML is another matter and happens where a value lands.

use std::borrow::Cow;

/// A text without control characters, line breaks and characters that override or embed a reading direction.
///
/// Controls and separators (categories Cc, Zl, Zp) become a space: they may separate words. Overrides, embeddings
/// and isolates (U+202A–U+202E, U+2066–U+2069) go without replacement, as do byte order marks and interlinear
/// annotation marks. The marks U+200E, U+200F and U+061C stay: honest right-to-left text needs them and they reverse
/// nothing.
pub(super) fn neutralised(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unwanted) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter_map(neutral).collect())
}

/// Whether a text could end or break a header line.
pub(super) fn has_control(text: &str) -> bool {
    text.chars().any(breaks_lines)
}

fn breaks_lines(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

fn turns_direction(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}')
}

fn is_unwanted(c: char) -> bool {
    breaks_lines(c) || turns_direction(c)
}

fn neutral(c: char) -> Option<char> {
    if turns_direction(c) {
        return None;
    }
    Some(if breaks_lines(c) { ' ' } else { c })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{has_control, neutralised};

    #[test]
    fn overrides_vanish_and_controls_become_spaces() {
        assert_eq!(neutralised("ACME \u{202e}gnp.exe"), "ACME gnp.exe");
        assert_eq!(neutralised("a\u{2066}b\u{2069}c\u{202a}d\u{202c}"), "abcd");
        assert_eq!(neutralised("a\tb\r\nc\0d\u{85}e\u{2028}f"), "a b  c d e f");
        assert_eq!(neutralised("\u{feff}a"), "a");
    }

    #[test]
    fn honest_text_is_not_copied() {
        for text in ["Zoë", "مثال\u{200f}!", "👩\u{200d}👩\u{200d}👧 soft\u{ad}hyphen"] {
            assert!(matches!(neutralised(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn line_breaks_of_any_kind_are_seen() {
        for text in ["a\nb", "a\rb", "\0", "\u{7f}", "\u{2029}", "\u{9f}"] {
            assert!(has_control(text));
        }
        assert!(!has_control("plain"));
    }
}
