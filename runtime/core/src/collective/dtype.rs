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

impl DataType {
    /// The types in the order of `ncclDataType_t`.
    const NCCL: [DataType; 12] = [
        DataType::I8,
        DataType::U8,
        DataType::I32,
        DataType::U32,
        DataType::I64,
        DataType::U64,
        DataType::F16,
        DataType::F32,
        DataType::F64,
        DataType::Bf16,
        DataType::F8E4M3,
        DataType::F8E5M2,
    ];

    /// Returns the type of an `ncclDataType_t`, or none for a number that NCCL 2.30 does not define.
    pub fn from_nccl(value: u32) -> Option<DataType> {
        DataType::NCCL.get(value as usize).copied()
    }

    /// Returns the number of the type in NCCL.
    pub(super) fn index(self) -> u64 {
        DataType::NCCL.iter().position(|dtype| *dtype == self).unwrap_or(0) as u64
    }

    /// Returns the size of an element, in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            DataType::I8 | DataType::U8 | DataType::F8E4M3 | DataType::F8E5M2 => 1,
            DataType::F16 | DataType::Bf16 => 2,
            DataType::I32 | DataType::U32 | DataType::F32 => 4,
            DataType::I64 | DataType::U64 | DataType::F64 => 8,
        }
    }

    /// Returns the type's word in marks and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            DataType::I8 => "i8",
            DataType::U8 => "u8",
            DataType::I32 => "i32",
            DataType::U32 => "u32",
            DataType::I64 => "i64",
            DataType::U64 => "u64",
            DataType::F16 => "f16",
            DataType::F32 => "f32",
            DataType::F64 => "f64",
            DataType::Bf16 => "bf16",
            DataType::F8E4M3 => "f8e4m3",
            DataType::F8E5M2 => "f8e5m2",
        }
    }

    /// Returns the name in PyTorch's profiler, if PyTorch has the type.
    pub const fn torch_name(self) -> &'static str {
        match self {
            DataType::I8 => "Char",
            DataType::U8 => "Byte",
            DataType::I32 => "Int",
            DataType::U32 => "UInt32",
            DataType::I64 => "Long",
            DataType::U64 => "UInt64",
            DataType::F16 => "Half",
            DataType::F32 => "Float",
            DataType::F64 => "Double",
            DataType::Bf16 => "BFloat16",
            DataType::F8E4M3 => "Float8_e4m3fn",
            DataType::F8E5M2 => "Float8_e5m2",
        }
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
