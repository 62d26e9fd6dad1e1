//! Untrusted text, made safe to display: names, paths and messages from a program, a file or a user.
//!
//! Reports, warnings, exported catalogs and every command of `warpline` pass such text through this module before they write it.
//! A control character could drive the terminal; an invisible or bidirectional formatting character could make a name look like
//! another one. Both are written as escapes, so nothing is lost and nothing takes effect. Never called where zones begin.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns whether a character acts on the terminal, or hides which characters are there: control characters (C0, DEL, C1), line
/// and paragraph separators, bidirectional formatting characters, and invisible characters. Joiners and variation selectors are
/// among them; the functions below keep them where a language or an emoji needs them.
pub fn deceives(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
            | '\u{e0100}'..='\u{e01ef}'
        )
}

/// Returns whether an invisible character changes how its neighbors look, as in Persian, Hindi and emoji. `before` is none if
/// that character is an escape.
fn shapes(before: Option<char>, c: char, after: Option<char>) -> bool {
    let Some(before) = before else { return false };
    // Arabic to Sinhala, Tibetan and Myanmar, Khmer and Mongolian.
    let joins =
        |c| matches!(c, '\u{600}'..='\u{dff}' | '\u{f00}'..='\u{109f}' | '\u{1780}'..='\u{18af}') && !deceives(c);
    let is_emoji = |c| matches!(c, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}');
    match c {
        '\u{200c}' | '\u{200d}' if joins(before) && after.is_some_and(joins) => true,
        '\u{200d}' => (is_emoji(before) || before == '\u{fe0f}') && after.is_some_and(is_emoji),
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => {
            !deceives(before) && (!before.is_ascii() || after == Some('\u{20e3}'))
        }
        _ => false,
    }
}

/// Returns the text on one line, with each character that [`deceives`] as a Rust escape: `\n`, `\u{1b}`, `\u{202e}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false, |c, out| out.extend(c.escape_default()))
}

/// Like [`printable`], for a text of several lines; line ends (`\n` or `\r\n`) stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let ends_line = |rest: &str| rest.starts_with('\n') || rest.starts_with("\r\n");
    escaped(text, ends_line, |c, out| out.extend(c.escape_default()))
}

/// Returns the JSON with each character that [`deceives`] as a JSON escape: `\u202e`. The JSON's meaning stays the same. Line
/// ends between values stay; strings contain none.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let escape = |c: char, out: &mut String| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    };
    escaped(json, |rest| rest.starts_with('\n'), escape)
}

/// Returns whether the pattern, in which `*` is any characters, matches the whole name. The time is at most the product of the two lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to resume when the characters after the last star do not match.
    let mut retry = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            p += 1;
            n += 1;
        } else if let Some((after_star, from)) = retry {
            retry = Some((after_star, from + 1));
            (p, n) = (after_star, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Returns the text as one value of CSV, on one line. A text that a spreadsheet would take for a formula begins with `'`; numbers are none.
pub fn csv(text: &str) -> Cow<'_, str> {
    let text = printable(text);
    let is_formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    let quote = if is_formula { "'" } else { "" };
    if is_formula || text.contains(['"', ',']) {
        format!("\"{quote}{}\"", text.replace('"', "\"\"")).into()
    } else {
        text
    }
}

/// Escapes characters that deceive, unless `stays` is true for the text from that character on. A second call changes nothing: a
/// character that is kept for its neighbors has neighbors that are kept.
fn escaped(text: &str, stays: impl Fn(&str) -> bool, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let (mut out, mut done, mut before) = (String::new(), 0, None);
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        if deceives(c) && !stays(&text[at..]) && !shapes(before, c, text[end..].chars().next()) {
            out.push_str(&text[done..at]);
            escape(c, &mut out);
            (done, before) = (end, None);
        } else {
            before = Some(c);
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
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

    #[test]
    fn characters_without_a_shape_stay_where_a_language_needs_them_and_nowhere_else() {
        for plain in [
            "👨\u{200d}👩\u{200d}👧 👩🏽\u{200d}🔬 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3} 🇩🇪",
            "می\u{200c}شود क्\u{200d}ष ශ්\u{200d}රී",
            "שלום مرحبا 葛\u{e0100} naïve e\u{301} Ελληνικά ไทย 한국어",
        ] {
            assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain), "{plain}");
        }
        assert_eq!(printable("a\u{200d}b計\u{200c}算👍\u{200d}"), "a\\u{200d}b計\\u{200c}算👍\\u{200d}");
        assert_eq!(printable("a\u{fe0f}\u{e0100}👍"), "a\\u{fe0f}\\u{e0100}👍");
        // Escaped text stays the same: the command shows JSON and names that were already escaped.
        let some = ['a', '👍', 'क', '\u{200c}', '\u{200d}', '\u{fe0f}', '\u{20e3}', '\u{1b}', '\u{17b4}'];
        for number in 0..some.len().pow(4) {
            let text: String = (0..4).map(|digit| some[number / some.len().pow(digit) % some.len()]).collect();
            let once = printable(&text).into_owned();
            assert_eq!(printable_lines(&once), once, "{text:?}");
        }
    }

    #[test]
    fn a_value_of_csv_is_no_formula_and_no_line_of_its_own() {
        let shown = ["=1+1", "@x", "+a", "-x", "-5", "+1.5e3", "a=1", "a, \"b\"", "a\r\nb\u{1b}", ""].map(csv);
        let values = [
            "\"'=1+1\"",
            "\"'@x\"",
            "\"'+a\"",
            "\"'-x\"",
            "-5",
            "+1.5e3",
            "a=1",
            "\"a, \"\"b\"\"\"",
            "a\\r\\nb\\u{1b}",
            "",
        ];
        assert_eq!(shown, values);
    }

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
