//! The element types by their words. `message` and `infer` look them up; the runtime has the same types in its `collective/dtype.rs`.

/// Element types as the user writes them, and the runtime's `DataType::…`.
pub const TYPES: [(&str, &str); 12] = [
    ("i8", "I8"),
    ("u8", "U8"),
    ("i32", "I32"),
    ("u32", "U32"),
    ("i64", "I64"),
    ("u64", "U64"),
    ("f16", "F16"),
    ("f32", "F32"),
    ("f64", "F64"),
    ("bf16", "Bf16"),
    ("f8e4m3", "F8E4M3"),
    ("f8e5m2", "F8E5M2"),
];

/// The runtime's `DataType::…` of a word.
pub fn variant_of(word: &str) -> Option<&'static str> {
    TYPES.iter().find(|(name, _)| *name == word).map(|(_, variant)| *variant)
}
