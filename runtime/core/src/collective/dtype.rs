//! Element types, as NCCL defines them.

/// The element type of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataType {
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer.
    I64,
    /// 64-bit unsigned integer.
    U64,
    /// IEEE half precision.
    F16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Brain float.
    Bf16,
    /// 8-bit float with 4 bits of exponent.
    F8E4M3,
    /// 8-bit float with 5 bits of exponent.
    F8E5M2,
}

/// Each type with its word, its name in PyTorch and its size; in the order of [`DataType`], which is that of `ncclDataType_t`.
const TYPES: [(DataType, &str, &str, u64); 12] = [
    (DataType::I8, "i8", "Char", 1),
    (DataType::U8, "u8", "Byte", 1),
    (DataType::I32, "i32", "Int", 4),
    (DataType::U32, "u32", "UInt32", 4),
    (DataType::I64, "i64", "Long", 8),
    (DataType::U64, "u64", "UInt64", 8),
    (DataType::F16, "f16", "Half", 2),
    (DataType::F32, "f32", "Float", 4),
    (DataType::F64, "f64", "Double", 8),
    (DataType::Bf16, "bf16", "BFloat16", 2),
    (DataType::F8E4M3, "f8e4m3", "Float8_e4m3fn", 1),
    (DataType::F8E5M2, "f8e5m2", "Float8_e5m2", 1),
];

impl DataType {
    /// Returns the type of an `ncclDataType_t`, or none for a number that NCCL 2.30 does not define.
    pub fn from_nccl(value: u32) -> Option<DataType> {
        TYPES.get(value as usize).map(|(dtype, ..)| *dtype)
    }

    /// Returns the size of an element, in bytes.
    pub const fn bytes(self) -> u64 {
        TYPES[self as usize].3
    }

    /// Returns the type's word in marks and reports.
    pub const fn as_str(self) -> &'static str {
        TYPES[self as usize].1
    }

    /// Returns the name in PyTorch's profiler, if PyTorch has the type.
    pub const fn torch_name(self) -> &'static str {
        TYPES[self as usize].2
    }
}

/// A Rust type whose values a collective can move: `dtype = <T>` in a generic function.
#[diagnostic::on_unimplemented(
    message = "NCCL has no data type `{Self}`",
    label = "not a type of elements",
    note = "in a generic function write `T: warpline::collective::Element`; for another type say which it is, as in `dtype = \"bf16\"`"
)]
pub trait Element {
    /// The corresponding NCCL type.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty => $variant:ident;)*) => {
        $(
            impl Element for $rust {
                const DATA_TYPE: DataType = DataType::$variant;
            }
        )*
    };
}

elements! {
    i8 => I8;
    u8 => U8;
    i32 => I32;
    u32 => U32;
    i64 => I64;
    u64 => U64;
    f32 => F32;
    f64 => F64;
}

/// An element type at run time: a [`DataType`], or the number of an `ncclDataType_t`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say the type of elements",
    label = "not a `DataType`, nor the number of an `ncclDataType_t`",
    note = "write a type (`dtype = f32`, `dtype = <T>`), a literal (`dtype = \"bf16\"`) or a `warpline::collective::DataType`"
)]
pub trait IntoDataType {
    /// Returns the type, or none for an undefined number.
    fn into_data_type(self) -> Option<DataType>;
}

impl IntoDataType for DataType {
    fn into_data_type(self) -> Option<DataType> {
        Some(self)
    }
}

impl IntoDataType for Option<DataType> {
    fn into_data_type(self) -> Option<DataType> {
        self
    }
}

impl IntoDataType for u32 {
    fn into_data_type(self) -> Option<DataType> {
        DataType::from_nccl(self)
    }
}

impl IntoDataType for i32 {
    fn into_data_type(self) -> Option<DataType> {
        u32::try_from(self).ok().and_then(DataType::from_nccl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_type_in_its_place() {
        assert!(TYPES.iter().enumerate().all(|(place, (dtype, ..))| *dtype as usize == place));
    }
}
