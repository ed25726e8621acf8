//! Two columns in plain text: words at the left, an amount at the right, in a fixed width.

use icu::properties::props::{EastAsianWidth, GeneralCategory};
use icu::properties::{CodePointMapData, CodePointMapDataBorrowed};

const EAST_ASIAN: CodePointMapDataBorrowed<'static, EastAsianWidth> = CodePointMapData::<EastAsianWidth>::new();
const CATEGORY: CodePointMapDataBorrowed<'static, GeneralCategory> = CodePointMapData::<GeneralCategory>::new();

/// Cells of a fixed-width font that a text takes, as nearly as can be known without the font.
pub(super) fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(cells).sum() }
}

fn cells(c: char) -> usize {
    match CATEGORY.get(c) {
        GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark | GeneralCategory::Format => 0,
        _ if matches!(EAST_ASIAN.get(c), EastAsianWidth::Wide | EastAsianWidth::Fullwidth) => 2,
        _ => 1,
    }
}

/// `left` and `right` in lines of `width` cells. Where they do not fit side by side, `left` is wrapped to leave room
/// for `right` on its first line, and later lines begin `hang` cells in.
pub(super) fn columns(left: &str, right: &str, line_width: usize, hang: usize) -> String {
    let room = line_width.saturating_sub(width(right) + 2).max(line_width / 3);
    let mut lines = wrap(left, room, hang).into_iter();
    let first = lines.next().unwrap_or_default();
    let gap = line_width.saturating_sub(width(&first) + width(right)).max(2);
    let mut out = if right.is_empty() { first } else { format!("{first}{}{right}", " ".repeat(gap)) };
    for line in lines {
        out.push('\n');
        out.push_str(&line);
    }
    out
}

/// Words in lines of at most `room` cells; lines after the first begin `hang` cells in. A word that is longer than
/// a line is broken between characters.
pub(super) fn wrap(text: &str, room: usize, hang: usize) -> Vec<String> {
    let hang = hang.min(room / 2);
    let indent = " ".repeat(hang);
    let mut lines = vec![String::new()];
    let mut used = 0;
    // Runs of spaces stay as they are inside a line: columns may depend on them.
    for piece in text.split_inclusive(' ') {
        let word = piece.trim_end_matches(' ');
        let cells = width(word);
        if used + cells > room && used > hang && cells + hang <= room {
            next_line(&mut lines, &mut used, &indent);
        }
        if used + cells > room {
            break_word(word, room, &indent, &mut lines, &mut used);
        } else if let Some(line) = lines.last_mut() {
            line.push_str(word);
            used += cells;
        }
        let spaces = piece.len() - word.len();
        // Spaces at a break go; those in front of the text are its indentation.
        let at_break = lines.len() > 1 && used <= hang;
        if !at_break
            && used + spaces <= room
            && let Some(line) = lines.last_mut()
        {
            line.push_str(piece.get(word.len()..).unwrap_or_default());
            used += spaces;
        }
    }
    for line in &mut lines {
        line.truncate(line.trim_end_matches(' ').len());
    }
    lines
}

fn next_line(lines: &mut Vec<String>, used: &mut usize, indent: &str) {
    lines.push(indent.to_owned());
    *used = indent.len();
}

fn break_word(word: &str, room: usize, indent: &str, lines: &mut Vec<String>, used: &mut usize) {
    for c in word.chars() {
        let wide = cells(c);
        if *used + wide > room && *used > indent.len() {
            next_line(lines, used, indent);
        }
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
        *used += wide;
    }
}

#[cfg(test)]
mod tests {
    use super::{columns, width};

    #[test]
    fn an_amount_stands_at_the_right_edge() {
        let line = columns("Coffee", "-£3.20", 30, 2);
        assert_eq!(line, "Coffee                  -£3.20");
        assert_eq!(width(&line), 30);
    }

    #[test]
    fn spaces_inside_a_line_stay_as_they_are() {
        assert_eq!(columns("  {{ 7 *  7 }}", "1", 20, 2), "  {{ 7 *  7 }}     1");
        assert_eq!(columns("ab cd ef", "1", 10, 2), "ab cd    1\n  ef");
    }

    #[test]
    fn long_words_break_and_never_pass_the_width() {
        let text = columns(&format!("Rent {}", "A".repeat(100)), "-£1,000.00", 40, 2);
        assert!(text.lines().all(|line| width(line) <= 40), "{text}");
        assert_eq!(text.matches('A').count(), 100);
        assert!(text.lines().next().is_some_and(|line| line.ends_with("-£1,000.00")));
    }

    #[test]
    fn wide_characters_take_two_cells_and_marks_none() {
        assert_eq!(width("寿司"), 4);
        assert_eq!(width("e\u{301}"), 1);
        assert_eq!(width(&columns("寿司 持ち帰り", "¥1,500", 30, 2)), 30);
    }

    #[test]
    fn nothing_is_lost_in_tiny_widths() {
        for line_width in 1..8 {
            let text = columns("ab cdefghijkl 寿司", "99", line_width, 4);
            assert_eq!(text.chars().filter(|c| c.is_alphabetic()).count(), 14, "{line_width}: {text}");
        }
    }
}
