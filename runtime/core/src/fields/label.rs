//! A short text inside the memory of its owner: the label of a zone, and the lane that it is given at run time while that is formatted.

use std::fmt::{self, Write};

use super::text::{CUT, cut};

/// The maximum length of a zone's label, in bytes; a longer one is cut at a character boundary and ends in `…`.
pub const MAX_LABEL_BYTES: usize = 62;

/// A short text, inline.
#[derive(Clone, Copy)]
pub(super) struct Label {
    pub(super) len: u8,
    bytes: [u8; MAX_LABEL_BYTES],
}

impl Label {
    pub(super) const NONE: u8 = u8::MAX;

    pub(super) fn set(&mut self, text: impl fmt::Display) {
        self.len = 0;
        // If the `Display` fails, the text that it wrote before stays.
        let _ = write!(self, "{text}");
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        let bytes = self.bytes.get(..usize::from(self.len))?;
        std::str::from_utf8(bytes).ok()
    }
}

impl Default for Label {
    fn default() -> Self {
        Label { len: Label::NONE, bytes: [0; MAX_LABEL_BYTES] }
    }
}

impl Write for Label {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let used = usize::from(self.len);
        // There is always room for the ellipsis.
        let room = MAX_LABEL_BYTES - CUT.len() - used;
        if text.len() <= room {
            self.bytes[used..used + text.len()].copy_from_slice(text.as_bytes());
            self.len += text.len() as u8;
            return Ok(());
        }
        let kept = cut(text, room);
        let end = used + kept.len();
        self.bytes[used..end].copy_from_slice(kept.as_bytes());
        self.bytes[end..end + CUT.len()].copy_from_slice(CUT.as_bytes());
        self.len = (end + CUT.len()) as u8;
        Err(fmt::Error)
    }
}
