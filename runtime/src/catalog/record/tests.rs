//! The record's bytes: what is written is read back, and no bytes whatever make the reader panic.

use proptest::prelude::*;

use super::*;
use crate::catalog::RangeSpec;

/// Larger than any note that [`facts`] makes.
const ROOM: usize = 8192;
const NATIVE: ByteOrder = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

/// The note's bytes as a mark would have written them: a mark knows the length while it compiles, a test does not.
fn cut<const N: usize>(note: Note<N>, len: usize) -> Vec<u8> {
    assert!(note.0[len..].iter().all(|&byte| byte == 0), "the note is longer than its declared length");
    let mut bytes = note.0[..len].to_vec();
    bytes[4..8].copy_from_slice(&((len - HEADER) as u32).to_ne_bytes());
    bytes
}

fn range_note(facts: &Facts) -> Vec<u8> {
    cut(Note::<ROOM>::of_range(facts), facts.note_len())
}

fn namespace_note(spec: &NamespaceSpec) -> Vec<u8> {
    cut(Note::<ROOM>::of_namespace(spec), spec.note_len())
}

fn swap_header(note: &mut [u8]) {
    note[..12].chunks_mut(4).for_each(<[u8]>::reverse);
}

fn leak(text: String) -> &'static str {
    text.leak()
}

fn text() -> impl Strategy<Value = &'static str> {
    prop_oneof![".{0,60}", "[a-z0-9_.]{0,40}"].prop_map(leak)
}

prop_compose! {
    fn facts()(
        label in "[^\0]{0,120}",
        (namespace, description, module, file) in (text(), text(), text(), text()),
        version in proptest::option::of(text()),
        lane in proptest::option::of(text()),
        color in proptest::option::of(any::<u32>()),
        fields in proptest::collection::vec(text(), 0..12),
        (gpu, coarse, line) in (any::<bool>(), any::<bool>(), any::<u32>()),
    ) -> Facts {
        let label = leak(format!("{label}\0"));
        Facts {
            namespace, label, description, module, version, file, line, lane, color,
            kind: if gpu { Kind::Gpu } else { Kind::Host },
            level: if coarse { Level::Coarse } else { Level::Fine },
            fields: fields.leak(),
        }
    }
}

prop_compose! {
    fn namespace()(
        (name, about, module, file) in (text(), text(), text(), text()),
        version in proptest::option::of(text()),
        line in any::<u32>(),
    ) -> NamespaceSpec {
        NamespaceSpec { name, about, module, version, file, line }
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
                // Only what looks like padding may be left.
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

const FACTS: Facts = Facts {
    namespace: "demo",
    label: "demo.add\0",
    description: "adds",
    kind: Kind::Gpu,
    level: Level::Fine,
    lane: Some("copy"),
    color: Some(0x76_b9_00),
    fields: &["n"],
    module: "demo::kernels",
    version: Some("1.2.3"),
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
    let good = range_note(&FACTS);
    let with = |at: usize, byte: u8| {
        let mut note = good.clone();
        note[at] = byte;
        note
    };
    assert_eq!(error(&with(HEADER, 9)), "unknown kind of range");
    assert_eq!(error(&with(HEADER + 1, 9)), "unknown level");
    assert_eq!(error(&with(HEADER + 2, 0x80)), "unknown flags");
    assert_eq!(error(&with(HEADER + 3, 0)), "bytes that belong to nothing");
    assert_eq!(error(&with(HEADER + 3, 200)), "cut short");
    assert_eq!(error(&with(HEADER + 16, 0xff)), "text that is not UTF-8");
    assert_eq!(error(&with(7, 0x7f)), "cut short");
    assert_eq!(error(&good[..good.len() - 4]), "cut short");
    assert_eq!(error(&[1]), "cut short");
}

#[test]
fn an_error_says_where_in_the_section() {
    let mut section = [range_note(&FACTS), range_note(&FACTS)].concat();
    let at = section.len() / 2 + HEADER;
    section[at] = 9;
    let error = Records::from_section(&section, NATIVE).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the catalog is damaged at byte {at} of its section: unknown kind of range; build the binary again")
    );
}
