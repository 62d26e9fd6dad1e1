//! Text from outside, made safe to show: names, paths and messages that a program, a file or a user chose.
//!
//! Reports, warnings, exported catalogs and every command of `warpline` come here before they write such text. A control
//! character could drive the terminal; a character that is invisible, or that changes the direction of writing, could make a
//! name look like another one. Both are written as escapes, so nothing is lost and nothing acts. Never called where zones begin.

use std::borrow::Cow;
#[cfg(feature = "export")]
use std::fmt::Write;

/// Whether a character acts on the terminal, or deceives the reader about which characters are there: control characters
/// (C0, DEL, C1), line and paragraph separators, marks that change the direction of writing, and characters without a shape.
pub fn deceives(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// The text on one line, with each character that [`deceives`] as an escape of Rust: `\n`, `\u{1b}`, `\u{202e}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |_, c| deceives(c), |c, out| out.extend(c.escape_default()))
}

/// The same for a text of several lines, whose ends (`\n` or `\r\n`) stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let acts = |rest: &str, c: char| deceives(c) && c != '\n' && !rest.starts_with("\r\n");
    escaped(text, acts, |c, out| out.extend(c.escape_default()))
}

/// JSON with each character that [`deceives`] as an escape of JSON: `\u202e`. What the JSON says is the same. The line ends
/// between its values stay; in its strings there are none.
#[cfg(feature = "export")]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let escape = |c: char, out: &mut String| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    };
    escaped(json, |_, c| deceives(c) && c != '\n', escape)
}

/// Escapes the characters that `acts` is true of, which is given the text from the character on.
fn escaped(text: &str, acts: impl Fn(&str, char) -> bool, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let mut acting = text.char_indices().filter(|(at, c)| acts(&text[*at..], *c)).peekable();
    if acting.peek().is_none() {
        return Cow::Borrowed(text);
    }
    let (mut out, mut done) = (String::with_capacity(text.len() + 16), 0);
    for (at, c) in acting {
        out.push_str(&text[done..at]);
        escape(c, &mut out);
        done = at + c.len_utf8();
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_or_deceives_is_spelled_out_and_all_else_stays() {
        assert_eq!(printable("a\u{1b}[31mb\nc\u{202e}d – ß"), "a\\u{1b}[31mb\\nc\\u{202e}d – ß");
        assert_eq!(printable_lines("a\u{9b}\r\nb\rc\n\u{7f}"), "a\\u{9b}\r\nb\\rc\n\\u{7f}");
        for plain in ["", "demo.add", "計算 ÄÖ 👍🏽 e\u{301}", "C:\\u{1b}"] {
            assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
        }
    }

    #[cfg(feature = "export")]
    #[test]
    fn json_says_the_same_with_escapes() {
        let text = "a\u{7f}\u{9b}\u{2066}\u{e0041}\u{1b}\"\\\n";
        let json = serde_json::json!({ text: [text] }).to_string();
        let shown = printable_json(&json);
        assert_eq!(shown.find(deceives), None, "{shown}");
        assert!(shown.contains("\\u009b\\u2066\\udb40\\udc41\\u001b"), "{shown}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"),
            serde_json::json!({ text: [text] })
        );
    }

    #[test]
    fn every_control_and_every_mark_of_direction_is_one_of_them() {
        let bad =
            ('\0'..='\u{1f}').chain('\u{7f}'..='\u{9f}').chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        for c in
            bad.chain(['\u{200e}', '\u{200f}', '\u{61c}', '\u{2028}', '\u{2029}', '\u{200b}', '\u{200d}', '\u{feff}'])
        {
            assert!(deceives(c), "{c:?}");
        }
        assert!((' '..='~').chain('\u{a1}'..='\u{ac}').chain('一'..='三').all(|c| !deceives(c)));
    }
}
