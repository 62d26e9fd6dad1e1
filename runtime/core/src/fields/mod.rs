//! The fields, the label, the lane and the declared work of a zone. The first fields are stored inline. Further fields, the label and the lane are stored in
//! memory that a slot keeps for its next zones. Numbers, `bool` and string literals need no allocation of their own; a text, a list and a
//! map need one each.
//!
//! `value` has the values, `list` and `map` those with several items, `into` the types that become values, and `lane` the lanes that are
//! named at run time.

use std::fmt;

use crate::work::{IntoWork, Work};

mod into;
mod item;
mod label;
mod lane;
mod list;
mod map;
mod text;
mod value;

pub use into::{Displayed, Element, EntryValue, IntoValue, display};
pub use item::Item;
use label::Label;
pub use label::MAX_LABEL_BYTES;
pub use lane::{MORE_LANES, MOST_LANES};
pub use list::{List, MAX_LIST_ITEMS};
pub use map::{MAX_MAP_ENTRIES, Map};
pub use text::{MAX_TEXT_BYTES, cut};
pub use value::Value;

/// The maximum number of fields of one zone; a mark with more does not compile.
pub const MAX_FIELDS: usize = 8;

/// The number of fields that are stored inline. Most zones have no more fields, and no label.
const INLINE: usize = 2;

type Field = Option<(&'static str, Value)>;

/// The fields of one zone, its label, and its lane if it has one of its own.
#[derive(Clone, Default)]
pub struct Fields {
    first: [Field; INLINE],
    len: u8,
    /// Fields that found no room.
    left_out: u8,
    more: Option<Box<More>>,
}

/// The data that only few zones have.
#[derive(Clone, Default)]
struct More {
    values: [Field; MAX_FIELDS - INLINE],
    label: Label,
    lane: Option<&'static str>,
    /// Whether the lane stands for names that found no room.
    is_lane_left_out: bool,
    work: Work,
}

impl Fields {
    /// No field, no label and no lane.
    pub(crate) const NONE: Fields = Fields { first: [const { None }; INLINE], len: 0, left_out: 0, more: None };

    /// Adds a field. The macros never add more than [`MAX_FIELDS`]; further ones are left out, and the session's report counts them.
    #[inline]
    pub fn push(&mut self, name: &'static str, value: impl IntoValue) {
        let at = usize::from(self.len);
        let free = match self.first.get_mut(at) {
            Some(free) => free,
            None => match self.more().values.get_mut(at - INLINE) {
                Some(free) => free,
                None => {
                    self.left_out = self.left_out.saturating_add(1);
                    return;
                }
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

    /// Sets the lane on which traces show the zone, in place of its range's. An empty text sets none. The text is cut as a label is.
    ///
    /// A lane is looked up in a table under a lock, and stays there as long as the process.
    #[inline]
    pub fn set_lane(&mut self, lane: impl fmt::Display) {
        let found = lane::interned(&lane);
        if found.name.is_some() || self.more.is_some() {
            let more = self.more();
            (more.lane, more.is_lane_left_out) = (found.name, found.is_left_out);
        }
    }

    /// Sets a lane that another zone has had.
    #[doc(hidden)]
    pub fn set_known_lane(&mut self, lane: &'static str) {
        self.more().lane = Some(lane);
    }

    /// Sets the bytes that the zone's work reads and writes.
    #[inline]
    pub fn set_bytes(&mut self, bytes: impl IntoWork) {
        self.more().work.bytes = Some(bytes.into_work());
    }

    /// Sets the floating-point operations of the zone's work.
    #[inline]
    pub fn set_flops(&mut self, flops: impl IntoWork) {
        self.more().work.flops = Some(flops.into_work());
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

    /// Returns the lane that the zone was given at run time.
    #[inline]
    pub fn lane(&self) -> Option<&'static str> {
        self.more.as_ref()?.lane
    }

    /// Returns the work that the mark declares.
    #[inline]
    pub fn work(&self) -> Work {
        self.more.as_ref().map_or_else(Work::default, |more| more.work)
    }

    /// Returns whether the zone is on the lane [`MORE_LANES`] because there are more lanes than [`MOST_LANES`].
    #[doc(hidden)]
    #[inline]
    pub fn is_lane_left_out(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.is_lane_left_out)
    }

    /// Returns the number of fields that found no room, of at most 255.
    #[doc(hidden)]
    #[inline]
    pub fn left_out(&self) -> u64 {
        self.left_out.into()
    }

    /// Clears everything, so that the slot can be reused for the next zone.
    pub(crate) fn clear(&mut self) {
        self.first = [const { None }; INLINE];
        if let Some(more) = &mut self.more {
            for value in &mut more.values[..usize::from(self.len).saturating_sub(INLINE)] {
                *value = None;
            }
            more.label.len = Label::NONE;
            (more.lane, more.is_lane_left_out) = (None, false);
            more.work = Work::default();
        }
        (self.len, self.left_out) = (0, 0);
    }

    /// Moves the contents out, for the collector. The memory stays, so that a launching thread allocates it only once per slot.
    #[doc(hidden)]
    pub fn take(&mut self) -> Fields {
        let is_small =
            usize::from(self.len) <= INLINE && self.label().is_none() && self.lane().is_none() && self.work().is_none();
        Fields {
            first: std::mem::take(&mut self.first),
            len: std::mem::take(&mut self.len),
            left_out: std::mem::take(&mut self.left_out),
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
        if let Some(lane) = self.lane() {
            map.entry(&"lane", &lane);
        }
        if !self.work().is_none() {
            map.entry(&"work", &self.work());
        }
        map.entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

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
        assert_eq!((fields.len(), fields.left_out()), (MAX_FIELDS, 1));
        assert_eq!((fields.clone().take().left_out(), fields.left_out()), (1, 1));
        fields.clear();
        assert!(fields.is_empty() && fields.get("n").is_none() && fields.left_out() == 0);
    }

    #[test]
    fn a_lane_stays_with_its_zone_and_is_one_text_for_all() {
        let mut fields = Fields::default();
        fields.set_lane("");
        assert!(fields.lane().is_none() && fields.more.is_none(), "an empty lane takes no memory");
        fields.set_lane(format_args!("loader {}", 3));
        let taken = fields.take();
        assert_eq!((taken.lane(), fields.lane()), (Some("loader 3"), None));
        fields.set_lane("loader 3".to_owned());
        assert!(std::ptr::eq(fields.lane().unwrap_or_default(), taken.lane().unwrap_or_default()));
        fields.set_lane("ß".repeat(40) + "\0");
        assert!(fields.lane().is_some_and(|lane| lane.ends_with("ß…") && lane.len() <= MAX_LABEL_BYTES));
        fields.set_lane("a\0b");
        assert_eq!(fields.lane(), Some("a␀b"));
        fields.clear();
        assert_eq!(fields.lane(), None);
    }

    #[test]
    fn declared_work_goes_with_its_zone() {
        let mut fields = Fields::default();
        assert!(fields.work().is_none());
        fields.set_bytes(12_u32);
        fields.set_flops(2e3);
        let taken = fields.take();
        assert_eq!((taken.work().bytes, taken.work().flops), (Some(12), Some(2_000)));
        assert!(fields.work().is_none() && taken.is_empty());
        fields.set_bytes(0);
        assert_eq!(fields.work().bytes, Some(0), "none is not the same as nothing");
        fields.clear();
        assert!(fields.work().is_none());
    }

    #[test]
    fn a_text_that_was_written_in_parts_is_its_own_beginning() {
        let text = format!("{}ß", "x".repeat(MAX_TEXT_BYTES - 4));
        let Value::Text(cut) = display(format_args!("{text}{text}")).into_value() else { panic!("it is a text") };
        assert!(text.starts_with(cut.trim_end_matches('…')) && cut.len() >= MAX_TEXT_BYTES - 4, "{cut}");
        assert!(Value::Text(cut).is_cut() && !Value::from("x…").is_cut());
        assert!(!Value::Text("x".repeat(MAX_TEXT_BYTES).into()).is_cut());
    }
}
