//! Texts of bounded length: where a text is cut, and what its end then is.

use std::fmt::{self, Write};

/// The maximum length of a field's text, in bytes; a longer one is cut at a character boundary and ends in `…`.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The end of a truncated text or label.
pub(super) const CUT: &str = "…";

/// Returns the start of a text, cut at a character boundary to at most this many bytes.
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns whether [`BoundedText`] has cut this text. A text of the same form that is its author's own looks like one, and says so itself.
pub(super) fn is_cut(text: &str) -> bool {
    // A cut leaves out at most three bytes of a character before the end.
    text.len() >= MAX_TEXT_BYTES - 3 && text.ends_with(CUT)
}

/// A text of at most [`MAX_TEXT_BYTES`].
pub(super) struct BoundedText(pub(super) String);

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() <= MAX_TEXT_BYTES {
            self.0.push_str(text);
            return Ok(());
        }
        // The ellipsis needs room, also after text that was written before.
        let written = self.0.len();
        let kept = cut(&self.0, MAX_TEXT_BYTES - CUT.len()).len();
        self.0.truncate(kept);
        if kept == written {
            self.0.push_str(cut(text, MAX_TEXT_BYTES - CUT.len() - kept));
        }
        self.0.push_str(CUT);
        Err(fmt::Error)
    }
}
