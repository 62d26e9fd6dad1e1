//! Tests of the record's bytes: written facts are read back, and no input makes the reader panic.

use std::any::Any;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::catalog::RangeSpec;
use crate::catalog::spec::{NamespaceSpec, RangeMeta};
use crate::lock::lock;

/// The offset of the facts.
const HEADER: usize = 12 + OWNER.len();
const NATIVE: ByteOrder = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

/// Returns the note as stored in a section: a mark knows the length of its text at compile time, a test does not.
fn note(kind: u32, namespace_len: usize, texts: &[&str]) -> Vec<u8> {
    let text = texts.iter().map(|text| format!("{text}\0")).collect::<String>();
    let empty = Note::<0>::new(kind, namespace_len, "");
    let mut bytes: Vec<u8> = empty.header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes[4..8].copy_from_slice(&(4 + text.len() as u32).to_ne_bytes());
    bytes.extend(empty.owner);
    bytes.extend(empty.namespace_len);
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn range_note(facts: &RangeMeta) -> Vec<u8> {
    let color = facts.color.map(|color| format!("{color:06x}")).unwrap_or_default();
    let line = facts.line.to_string();
    let (kind, level, lane) = (facts.kind.as_str(), facts.level.as_str(), facts.lane.unwrap_or_default());
    let mut texts = vec![facts.name(), kind, level, facts.description, lane, &color];
    texts.extend([facts.module, facts.file, &line, facts.version]);
    let undescribed = facts.undescribed.join(" ");
    let kind = if undescribed.is_empty() { TYPE_RANGE } else { TYPE_UNDESCRIBED };
    texts.extend(Some(&*undescribed).filter(|undescribed| !undescribed.is_empty()));
    texts.extend(facts.fields);
    note(kind, facts.namespace.len(), &texts)
}

fn namespace_note(spec: &NamespaceSpec) -> Vec<u8> {
    let line = spec.line.to_string();
    let texts = [spec.name, spec.about, spec.module, spec.file, &line, spec.version, spec.package];
    match spec.package {
        "" => note(TYPE_NAMESPACE, 0, &texts[..6]),
        _ => note(TYPE_OF_PACKAGE, 0, &texts),
    }
}

#[test]
fn a_note_lies_in_its_section_as_the_tests_put_it_there() {
    let written = Note::<12>::of_range("demo", "demo.add\0a\0b");
    assert_eq!((size_of_val(&written), align_of_val(&written)), (40, 4));
    let bytes = note(TYPE_RANGE, 4, &["demo.add", "a"]);
    assert_eq!(bytes.len(), 40);
    assert_eq!(&bytes[28..39], &written.text[..11]);
    assert_eq!(written.header, [9, 16, TYPE_RANGE]);
}

fn swap_header(note: &mut [u8]) {
    note[..12].chunks_mut(4).for_each(<[u8]>::reverse);
}

/// Keeps a value as long as the process, where LeakSanitizer finds it.
fn keep<T: Send + Sync>(value: T) -> &'static T {
    static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());
    let value: &'static T = Box::leak(Box::new(value));
    lock(&KEPT).push(Box::new(value));
    value
}

fn leak(text: String) -> &'static str {
    keep(text)
}

fn text() -> impl Strategy<Value = &'static str> {
    prop_oneof!["[^\0]{0,60}", "[a-z0-9_.]{0,40}"].prop_map(leak)
}

prop_compose! {
    fn facts()(
        (namespace, own) in (text(), text()),
        (description, module, file, version) in (text(), text(), text(), text()),
        lane in proptest::option::of("[^\0]{1,60}"),
        color in proptest::option::of(0..=0xFF_FF_FF_u32),
        fields in proptest::collection::vec("[^\0]{1,60}", 0..12),
        undescribed in proptest::collection::vec("[a-z_]{1,9}", 0..4),
        (gpu, coarse, line) in (any::<bool>(), any::<bool>(), any::<u32>()),
    ) -> RangeMeta {
        let label = leak(format!("{namespace}{own}\0"));
        let lane = lane.map(leak);
        let fields: Vec<_> = fields.into_iter().map(leak).collect();
        let undescribed: Vec<_> = undescribed.into_iter().map(leak).collect();
        RangeMeta {
            namespace, label, description, module, version, file, line, lane, color,
            kind: if gpu { Kind::Gpu } else { Kind::Host },
            level: if coarse { Level::Coarse } else { Level::Fine },
            fields: keep(fields),
            undescribed: keep(undescribed),
        }
    }
}

prop_compose! {
    fn namespace()(
        (name, about, module, package, file, version) in (text(), text(), text(), text(), text(), text()),
        line in any::<u32>(),
    ) -> NamespaceSpec {
        NamespaceSpec { name, about, module, package, version, file, line }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn what_is_written_is_read_back(
        ranges in proptest::collection::vec(facts(), 0..4),
        spaces in proptest::collection::vec(namespace(), 0..3),
        padding in 0_usize..6,
        swap in any::<bool>(),
    ) {
        let mut section = Vec::new();
        for mut note in ranges.iter().map(range_note).chain(spaces.iter().map(namespace_note)) {
            if swap {
                swap_header(&mut note);
            }
            section.extend(note);
            section.resize(section.len() + padding * 4, 0);
        }
        let mut expected = Records {
            ranges: ranges.iter().map(|&facts| RangeRecord::from(&RangeSpec::new(facts))).collect(),
            namespaces: spaces.iter().map(NamespaceRecord::from).collect(),
            unreadable: 0,
        };
        expected.sort();
        let order = if swap == (NATIVE == ByteOrder::Big) { ByteOrder::Little } else { ByteOrder::Big };
        prop_assert_eq!(Records::from_section(&section, order), Ok(expected));
    }

    #[test]
    fn a_cut_section_is_an_error_or_the_notes_before_the_cut(facts in facts(), at in any::<prop::sample::Index>()) {
        let section = [range_note(&facts), range_note(&facts)].concat();
        let at = at.index(section.len());
        match Records::from_section(&section[..at], NATIVE) {
            Ok(records) => {
                prop_assert_eq!(records.ranges.len(), at / (section.len() / 2));
                // The rest may contain only bytes that look like padding.
                prop_assert!(section[at - at % (section.len() / 2)..at].iter().all(|&byte| byte == 0));
            }
            Err(error) => prop_assert!(error.at <= at, "{error}"),
        }
    }

    #[test]
    fn changed_bytes_never_panic(
        facts in facts(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut section = range_note(&facts);
        for (at, byte) in changes {
            let at = at.index(section.len());
            section[at] = byte;
        }
        let _ = Records::from_section(&section, NATIVE).map(|records| records.faults().len());
    }

    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = Records::from_section(&bytes, ByteOrder::Little);
        let _ = Records::from_section(&bytes, ByteOrder::Big);
    }
}

const FACTS: RangeMeta = RangeMeta {
    namespace: "demo",
    label: "demo.add\0",
    description: "adds",
    kind: Kind::Gpu,
    level: Level::Fine,
    lane: Some("copy"),
    color: Some(0x76_b9_00),
    fields: &["n"],
    undescribed: &[],
    module: "demo::kernels",
    version: "1.2.3",
    file: "src/kernels.rs",
    line: 7,
};

fn error(section: &[u8]) -> &'static str {
    Records::from_section(section, NATIVE).unwrap_err().what
}

#[test]
fn foreign_notes_are_stepped_over() {
    let mut gnu = Vec::new();
    gnu.extend(4_u32.to_ne_bytes());
    gnu.extend(5_u32.to_ne_bytes());
    gnu.extend(3_u32.to_ne_bytes());
    gnu.extend(b"GNU\0\x01\x02\x03\x04\x05\0\0\0");
    let section = [gnu.clone(), range_note(&FACTS), gnu].concat();
    assert_eq!(Records::from_section(&section, NATIVE).unwrap().ranges.len(), 1);
}

#[test]
fn notes_of_an_unknown_type_are_counted() {
    let mut note = range_note(&FACTS);
    note[8..12].copy_from_slice(&77_u32.to_ne_bytes());
    let records = Records::from_section(&note, NATIVE).unwrap();
    assert_eq!((records.ranges.len(), records.unreadable), (0, 1));
}

#[test]
fn each_damage_is_named() {
    let texts = ["demo.add", "gpu", "fine", "adds", "copy", "76b900", "demo", "src/lib.rs", "7", "1.2.3", "n"];
    let good = note(TYPE_RANGE, 4, &texts);
    assert!(Records::from_section(&good, NATIVE).is_ok());
    let with_text = |at: usize, text: &str| {
        let mut texts = texts.to_vec();
        texts[at] = text;
        error(&note(TYPE_RANGE, 4, &texts))
    };
    assert_eq!(with_text(0, "dem"), "a namespace longer than the name");
    assert_eq!(with_text(1, "disk"), "unknown kind of range");
    assert_eq!(with_text(2, "coarser"), "unknown level");
    assert_eq!(with_text(5, "76b9"), "a color that is not six hexadecimal digits");
    assert_eq!(with_text(5, "76b90g"), "a color that is not six hexadecimal digits");
    assert_eq!(with_text(8, "-1"), "a line that is not a number");
    assert_eq!(with_text(10, ""), "a field without a name");
    assert_eq!(error(&note(TYPE_RANGE, 4, &texts[..9])), "cut short");
    let undescribed = |words| error(&note(TYPE_UNDESCRIBED, 4, &[&texts[..10], &[words]].concat()));
    assert_eq!((undescribed(""), undescribed("count  dtype")), ("no options", "no options"));
    assert_eq!(
        error(&note(TYPE_NAMESPACE, 0, &["demo", "what", "demo", "lib.rs", "1", "", "more"])),
        "bytes that belong to nothing"
    );
    let with_byte = |at: usize, byte: u8| {
        let mut note = good.clone();
        note[at] = byte;
        error(&note)
    };
    assert_eq!(with_byte(HEADER + 4, 0xff), "text that is not UTF-8");
    assert_eq!(with_byte(7, 0x7f), "cut short");
    assert_eq!(error(&good[..good.len() - 4]), "cut short");
    assert_eq!(error(&[1]), "cut short");
}

#[test]
fn an_error_says_where_in_the_section() {
    let mut section = [range_note(&FACTS), range_note(&FACTS)].concat();
    let at = section.len() / 2 + HEADER + 4 + "demo.add\0".len();
    section[at] = b'9';
    let error = Records::from_section(&section, NATIVE).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the catalog is damaged at byte {at} of its section: unknown kind of range; build the binary again")
    );
}
