//! The fields and the label of a zone. The first fields are stored inline. Further fields and the label are stored in memory that
//! a slot keeps for its next zones. Numbers, `bool` and string literals need no allocation of their own.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// The maximum number of fields of one zone; a mark with more does not compile.
pub const MAX_FIELDS: usize = 8;

/// The maximum length of a zone's label, in bytes; a longer one is cut at a character boundary and ends in `…`.
pub const MAX_LABEL_BYTES: usize = 62;

/// The maximum length of a field's text, in bytes; a longer one is cut at a character boundary and ends in `…`.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The value of a field. Two texts are equal if their characters are, whether [`Str`](Self::Str) or [`Text`](Self::Text).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// An unsigned integer.
    U64(u64),
    /// A signed integer.
    I64(i64),
    /// A floating-point number.
    F64(f64),
    /// A boolean.
    Bool(bool),
    /// Text that lives as long as the program.
    Str(&'static str),
    /// Text that was copied or created for this zone, of at most [`MAX_TEXT_BYTES`].
    Text(Box<str>),
}

/// Not derived, because a test of a mark must not depend on whether the text was copied.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::U64(one), Value::U64(two)) => one == two,
            (Value::I64(one), Value::I64(two)) => one == two,
            (Value::F64(one), Value::F64(two)) => one == two,
            (Value::Bool(one), Value::Bool(two)) => one == two,
            _ => self.text().is_some_and(|text| other.text() == Some(text)),
        }
    }
}

impl Value {
    fn text(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U64(value) => value.fmt(f),
            Value::I64(value) => value.fmt(f),
            Value::F64(value) => value.fmt(f),
            Value::Bool(value) => value.fmt(f),
            Value::Str(value) => value.fmt(f),
            Value::Text(value) => value.fmt(f),
        }
    }
}

/// Types that can be the value of a field: integers up to 64 bits, floats, `bool`, text, and references to them. For any other
/// type with a [`Display`](fmt::Display), use [`display`].
///
/// Text is copied when the zone records, which allocates. Text of more than [`MAX_TEXT_BYTES`] bytes is cut at a character
/// boundary and ends in `…`. A string literal in a mark is not copied, nor is [`Value::Str`] or `Cow::Borrowed` of a `&'static
/// str`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a zone's field",
    label = "not a number, a `bool` or text",
    note = "write `warpline::display(&value)` to record its `Display`, with `format_args!` inside for its `Debug`"
)]
pub trait IntoValue {
    /// Returns the value to record.
    fn into_value(self) -> Value;
}

/// Formats anything that has a [`Display`](fmt::Display) as the value of a field. It allocates when the zone records, and is cut
/// to [`MAX_TEXT_BYTES`] bytes.
pub fn display<T: fmt::Display>(value: T) -> Displayed<T> {
    Displayed(value)
}

/// See [`display`].
#[derive(Clone, Copy, Debug)]
pub struct Displayed<T>(T);

impl<T: fmt::Display> IntoValue for Displayed<T> {
    fn into_value(self) -> Value {
        let mut text = BoundedText(String::new());
        // If the `Display` fails, the text that it wrote before stays.
        let _ = write!(text, "{}", self.0);
        Value::Text(text.0.into())
    }
}

macro_rules! into_value {
    ($($variant:ident as $wide:ty: $($narrow:ty)*;)*) => {
        $($(
            impl IntoValue for $narrow {
                #[inline]
                fn into_value(self) -> Value {
                    Value::$variant(self as $wide)
                }
            }
            impl IntoValue for &$narrow {
                #[inline]
                fn into_value(self) -> Value {
                    Value::$variant(*self as $wide)
                }
            }
        )*)*
    };
}

into_value! {
    U64 as u64: u8 u16 u32 u64 usize;
    I64 as i64: i8 i16 i32 i64 isize;
    F64 as f64: f32 f64;
    Bool as bool: bool;
}

impl IntoValue for Value {
    #[inline]
    fn into_value(self) -> Value {
        match self {
            Value::Text(text) if text.len() > MAX_TEXT_BYTES => copied(&text),
            value => value,
        }
    }
}

impl IntoValue for &str {
    fn into_value(self) -> Value {
        copied(self)
    }
}

impl IntoValue for &&str {
    fn into_value(self) -> Value {
        copied(self)
    }
}

impl IntoValue for String {
    fn into_value(self) -> Value {
        Value::Text(self.into()).into_value()
    }
}

impl IntoValue for &String {
    fn into_value(self) -> Value {
        copied(self)
    }
}

impl IntoValue for Box<str> {
    fn into_value(self) -> Value {
        Value::Text(self).into_value()
    }
}

impl IntoValue for Cow<'static, str> {
    fn into_value(self) -> Value {
        match self {
            Cow::Borrowed(text) => Value::Str(text),
            Cow::Owned(text) => text.into_value(),
        }
    }
}

/// Returns a copy of the text, truncated if it is too long.
fn copied(text: &str) -> Value {
    let mut copy = BoundedText(String::new());
    // The write fails when it truncates.
    let _ = copy.write_str(text);
    Value::Text(copy.0.into())
}

/// A text of at most [`MAX_TEXT_BYTES`].
struct BoundedText(String);

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() <= MAX_TEXT_BYTES {
            self.0.push_str(text);
            return Ok(());
        }
        // The ellipsis needs room, also after text that was written before.
        let kept = cut(&self.0, MAX_TEXT_BYTES - CUT.len()).len();
        self.0.truncate(kept);
        self.0.push_str(cut(text, MAX_TEXT_BYTES - CUT.len() - kept));
        self.0.push_str(CUT);
        Err(fmt::Error)
    }
}

/// The number of fields that are stored inline. Most zones have no more fields, and no label.
const INLINE: usize = 2;

type Field = Option<(&'static str, Value)>;

/// The fields and the label of one zone.
#[derive(Clone, Default)]
pub struct Fields {
    first: [Field; INLINE],
    len: u8,
    more: Option<Box<More>>,
}

/// The data that only few zones have.
#[derive(Clone, Default)]
struct More {
    values: [Field; MAX_FIELDS - INLINE],
    label: Label,
}

impl Fields {
    /// No field and no label.
    pub(crate) const NONE: Fields = Fields { first: [const { None }; INLINE], len: 0, more: None };

    /// Adds a field. The macros never add more than [`MAX_FIELDS`]; further ones are dropped.
    #[inline]
    pub fn push(&mut self, name: &'static str, value: impl IntoValue) {
        let at = usize::from(self.len);
        let free = match self.first.get_mut(at) {
            Some(free) => free,
            None => match self.more().values.get_mut(at - INLINE) {
                Some(free) => free,
                None => return,
            },
        };
        *free = Some((name, value.into_value()));
        self.len += 1;
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// Sets the instance's own label.
    #[inline]
    pub fn set_label(&mut self, label: impl fmt::Display) {
        self.more().label.set(label);
    }

    /// Returns the fields in the order in which the mark names them.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        let more = self.more.iter().flat_map(|more| &more.values);
        let values = self.first.iter().chain(more).take(usize::from(self.len));
        values.flatten().map(|(name, value)| (*name, value))
    }

    /// Returns the value of the field with this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the instance's own label, if the mark has one.
    #[inline]
    pub fn label(&self) -> Option<&str> {
        self.more.as_ref()?.label.as_str()
    }

    /// Clears everything, so that the slot can be reused for the next zone.
    pub(crate) fn clear(&mut self) {
        self.first = [const { None }; INLINE];
        if let Some(more) = &mut self.more {
            for value in &mut more.values[..usize::from(self.len).saturating_sub(INLINE)] {
                *value = None;
            }
            more.label.len = Label::NONE;
        }
        self.len = 0;
    }

    /// Moves the contents out, for the collector. The memory stays, so that a launching thread allocates it only once per slot.
    #[doc(hidden)]
    pub fn take(&mut self) -> Fields {
        let is_small = usize::from(self.len) <= INLINE && self.label().is_none();
        Fields {
            first: std::mem::take(&mut self.first),
            len: std::mem::take(&mut self.len),
            more: self.more.as_deref_mut().filter(|_| !is_small).map(|more| Box::new(std::mem::take(more))),
        }
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        if let Some(label) = self.label() {
            map.entry(&"label", &label);
        }
        map.entries(self.iter()).finish()
    }
}

/// A short text, inline.
#[derive(Clone, Copy)]
struct Label {
    len: u8,
    bytes: [u8; MAX_LABEL_BYTES],
}

impl Label {
    const NONE: u8 = u8::MAX;

    fn set(&mut self, text: impl fmt::Display) {
        self.len = 0;
        // If the `Display` fails, the text that it wrote before stays.
        let _ = write!(self, "{text}");
    }

    fn as_str(&self) -> Option<&str> {
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

/// Returns the start of a text, cut at a character boundary to at most this many bytes.
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The end of a truncated text or label.
const CUT: &str = "…";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_label_is_cut_between_characters() {
        let mut fields = Fields::default();
        assert_eq!(fields.label(), None);
        fields.set_label(format_args!("layer {}", 12));
        assert_eq!(fields.label(), Some("layer 12"));
        fields.set_label("ß".repeat(40));
        let label = fields.label().unwrap_or_default();
        assert!(label.ends_with("ß…") && label.len() <= MAX_LABEL_BYTES, "{label}");
        fields.set_label("");
        assert_eq!(fields.label(), Some(""));
    }

    #[test]
    fn texts_are_equal_by_their_characters() {
        let (literal, copied) = (Value::Str("fast"), Value::Text("fast".into()));
        assert_eq!(literal, copied);
        assert_eq!(copied, literal);
        assert_ne!(literal, Value::Text("slow".into()));
        assert_ne!(Value::Text("1".into()), Value::U64(1));
        assert_ne!(Value::U64(1), Value::I64(1));
        assert_ne!(Value::F64(f64::NAN), Value::F64(f64::NAN));
        assert_eq!([Value::I64(-1), Value::Bool(true)], [Value::I64(-1), Value::Bool(true)]);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = |value: Value| value.to_string();
        let exact = "x".repeat(MAX_TEXT_BYTES);
        assert_eq!(text(exact.as_str().into_value()), exact);
        assert_eq!(text(display(&exact).into_value()), exact);
        let long = "ß".repeat(MAX_TEXT_BYTES);
        for cut in [
            text(long.as_str().into_value()),
            text((&long).into_value()),
            text(long.clone().into_value()),
            text(display(&long).into_value()),
            text(display(format_args!("{exact}{long}")).into_value()),
        ] {
            assert!(
                cut.ends_with('…') && cut.len() <= MAX_TEXT_BYTES && cut.len() > MAX_TEXT_BYTES - 4,
                "{}",
                cut.len()
            );
        }
        assert_eq!(Cow::Borrowed("static").into_value(), Value::Str("static"));
    }

    #[test]
    fn what_is_taken_out_leaves_its_memory_and_nothing_else() {
        assert!(size_of::<Fields>() <= 96);
        let mut fields = Fields::default();
        (0..5_u32).for_each(|n| fields.push("n", n));
        fields.set_label("one");
        let taken = fields.take();
        assert_eq!((taken.len(), taken.label(), taken.iter().last()), (5, Some("one"), Some(("n", &Value::U64(4)))));
        assert_eq!((fields.len(), fields.label(), fields.iter().count()), (0, None, 0));
        let place = fields.more.as_deref().map(std::ptr::from_ref);
        fields.push("n", 7_u32);
        let small = fields.take();
        assert_eq!((small.len(), small.more.is_none()), (1, true), "a copy of what is not used");
        (0..3_u32).for_each(|n| fields.push("n", n));
        assert!(place.is_some() && place == fields.more.as_deref().map(std::ptr::from_ref));
        assert_eq!((fields.len(), fields.label()), (3, None));
    }

    #[test]
    fn a_ninth_field_is_left_out() {
        let mut fields = Fields::default();
        for n in 0..9_u32 {
            fields.push("n", n);
        }
        assert_eq!(fields.len(), MAX_FIELDS);
        fields.clear();
        assert!(fields.is_empty() && fields.get("n").is_none());
    }
}
