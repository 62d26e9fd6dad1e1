//! One event of a Chrome trace, with the members that the format defines.
//!
//! Values are kept as text, as they are in the file: no float holds the decimal times exactly, and unknown members are passed on
//! unchanged.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The members, in the order of the file.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'a>, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(12);
                while let Some((Text(key), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

impl<'a> Members<'a> {
    /// The last member of this name, which is the one that most readers use.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

/// An event.
#[derive(Debug, Default)]
pub struct Event<'a> {
    pub phase: Cow<'a, str>,
    pub name: Cow<'a, str>,
    pub category: Cow<'a, str>,
    /// In ns; none if it is missing or malformed.
    pub ts: Option<i64>,
    pub dur: Option<i64>,
    pub pid: Cow<'a, str>,
    pub tid: Cow<'a, str>,
    pub id: Option<Cow<'a, str>>,
    pub bind_id: Option<Cow<'a, str>>,
    pub flow_in: bool,
    pub flow_out: bool,
    /// An arrow ends at the enclosing slice, and not at the next one.
    pub binds_enclosing: bool,
    pub args: Option<&'a RawValue>,
    /// All other members.
    pub rest: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// What was read of the bytes of an event.
#[derive(Debug)]
pub struct Lenient<'a> {
    /// None if they are no JSON, even mended.
    pub event: Option<Event<'a>>,
    /// The bytes that were read.
    pub bytes: &'a [u8],
    pub is_mended: bool,
}

impl<'a> Event<'a> {
    /// Reads an event, [`mended`] into `room` if it is not JSON.
    pub fn read_or_mend(bytes: &'a [u8], room: &'a mut Option<Vec<u8>>) -> Lenient<'a> {
        if let Ok(event) = Event::read(bytes) {
            return Lenient { event: Some(event), bytes, is_mended: false };
        }
        *room = mended(bytes);
        let bytes = room.as_deref().unwrap_or_default();
        let event = Event::read(bytes).ok();
        Lenient { is_mended: event.is_some(), event, bytes }
    }

    pub fn read(bytes: &'a [u8]) -> serde_json::Result<Event<'a>> {
        let mut event = Event::default();
        for (key, value) in serde_json::from_slice::<Members<'a>>(bytes)?.0 {
            match &*key {
                "ph" => event.phase = scalar(value),
                "name" => event.name = scalar(value),
                "cat" => event.category = scalar(value),
                "ts" => event.ts = ns(value),
                "dur" => event.dur = ns(value),
                "pid" => event.pid = scalar(value),
                "tid" => event.tid = scalar(value),
                "id" => event.id = Some(scalar(value)),
                "bind_id" => event.bind_id = Some(scalar(value)),
                "flow_in" => event.flow_in = value.get() == "true",
                "flow_out" => event.flow_out = value.get() == "true",
                "bp" => event.binds_enclosing = scalar(value) == "e",
                "args" => event.args = Some(value),
                _ => event.rest.push((key, value)),
            }
        }
        if event.id.is_none() {
            // `{"local": "0x1"}` or `{"global": "0x1"}`.
            event.id = event.rest.iter().find(|(key, _)| key == "id2").map(|(_, value)| Cow::Borrowed(value.get()));
        }
        Ok(event)
    }

    /// Whether it is the launch of a graph: `cudaGraphLaunch`, `cuGraphLaunch_ptsz`, …
    pub fn is_graph_launch(&self) -> bool {
        self.name.contains("GraphLaunch") && self.phase == "X"
    }

    pub fn members_of_args(&self) -> Option<Members<'a>> {
        self.args.and_then(|args| serde_json::from_str(args.get()).ok())
    }
}

/// The value that careless programs mean by bytes which are not JSON: control characters and lone backslashes of texts are escaped, what is no UTF-8
/// becomes U+FFFD, and `NaN` and `Infinity` become `null`. None if it is not JSON even so.
pub fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(bytes);
    let mut mended = String::with_capacity(text.len() + 16);
    let (mut rest, mut in_text) = (&*text, false);
    while let Some(next) = rest.chars().next() {
        let word = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_alphabetic()).len();
        let mut width = next.len_utf8();
        match next {
            '"' => in_text = !in_text,
            '\\' if in_text => match rest.as_bytes().get(1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => width = 2,
                Some(b'u') if rest.len() > 5 && rest.as_bytes()[2..6].iter().all(u8::is_ascii_hexdigit) => width = 6,
                _ => mended.push('\\'),
            },
            '\0'..' ' if in_text => {
                mended.push_str(&format!("\\u{:04x}", u32::from(next)));
                rest = &rest[width..];
                continue;
            }
            _ if !in_text && ["nan", "inf", "infinity"].contains(&&*rest[..word].to_ascii_lowercase()) => {
                let sign = mended.trim_end_matches('-').len();
                mended.truncate(sign);
                mended.push_str("null");
                rest = &rest[word..];
                continue;
            }
            _ if !in_text && word > 0 => width = word,
            _ => {}
        }
        mended.push_str(&rest[..width]);
        rest = &rest[width..];
    }
    serde_json::from_str::<&RawValue>(&mended).is_ok().then(|| mended.into_bytes())
}

/// A text without its quotes; any other value as written.
pub fn scalar(value: &RawValue) -> Cow<'_, str> {
    let text = value.get();
    if text.starts_with('"')
        && let Ok(Text(text)) = serde_json::from_str(text)
    {
        return text;
    }
    Cow::Borrowed(text)
}

/// An integer, written as a number or as a text.
pub fn whole(value: &RawValue) -> Option<u64> {
    scalar(value).parse().ok()
}

/// Decimal microseconds as ns, rounded to a whole ns.
pub fn ns(value: &RawValue) -> Option<i64> {
    let text = scalar(value);
    exact_ns(&text).or_else(|| {
        let ns = text.parse::<f64>().ok()? * 1e3;
        (ns.abs() < 9e18).then(|| ns.round() as i64)
    })
}

fn exact_ns(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut ns = whole.parse::<i64>().ok()?.checked_mul(1000)?;
    for (digit, scale) in fraction.bytes().zip([100, 10, 1]) {
        ns = ns.checked_add(i64::from(digit - b'0') * scale)?;
    }
    if fraction.as_bytes().get(3).is_some_and(|digit| *digit >= b'5') {
        ns = ns.checked_add(1)?;
    }
    Some(if negative { -ns } else { ns })
}

/// Nanoseconds as decimal microseconds, exactly: what [`ns`] reads.
pub fn us(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:03}", ns / 1000, ns % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_careless_programs_write_is_mended() {
        let read =
            |bytes: &[u8]| mended(bytes).map(|mended| serde_json::from_slice::<serde_json::Value>(&mended).unwrap());
        for (bytes, name) in [
            (&b"{\"name\": \"a\tb\n\x01\"}"[..], "a\tb\n\u{1}"),
            (br#"{"name": "C:\work\\x \" \u00e9 \u12"}"#, "C:\\work\\x \" é \\u12"),
            (b"{\"name\": \"kern\xFFel\"}", "kern\u{FFFD}el"),
            (br#"{"a": NaN, "b": [-Infinity, 1e5, inf], "c": true, "name": "NaN -inf"}"#, "NaN -inf"),
        ] {
            assert_eq!(read(bytes).expect("JSON")["name"], name);
        }
        let values = read(br#"{"a": NaN, "b": [-Infinity, -1e5, inf], "c": true}"#).expect("JSON");
        assert_eq!(values, serde_json::json!({"a": null, "b": [null, -1e5, null], "c": true}));
        for bytes in [&b"{\"name\" \"x\"}"[..], b"{\"a\": nul}", b"{", b"", b"{\"a\": \"\\", b"{\"a\": 1 NaN}"] {
            assert_eq!(mended(bytes), None, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1.5", Some(1_500)),
            ("9007199254740993.001", Some(9_007_199_254_740_993_001)),
            ("12.3456", Some(12_346)),
            ("-0.25", Some(-250)),
            ("\"7\"", Some(7_000)),
            ("1e3", Some(1_000_000)),
            ("1e300", None),
            ("99999999999999999999", None),
            ("\"x\"", None),
            ("null", None),
        ] {
            let value: Box<RawValue> = serde_json::from_str(text).unwrap();
            assert_eq!(ns(&value), expected, "{text}");
        }
    }
}
