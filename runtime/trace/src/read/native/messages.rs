//! The messages that only PyTorch's profiler writes: kernels by id, and counters of a device. The tags are from `protos/perfetto/trace` in
//! Perfetto's repository, which documents each field.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::read::parts::messages;
use crate::read::wire::{Fields, Malformed, first};
use crate::write::perfetto::proto::stage;

/// `InternedData.gpu_counter_descriptors`.
pub(super) const COUNTERS: u32 = 47;
/// `InternedData`, an extension: `GpuInternedData.compute_kernels` and `compute_arg_names`.
pub(super) const KERNELS: u32 = 1000;
pub(super) const ARGUMENTS: u32 = 1001;

/// The name of an `InternedComputeKernel`: as it is in the source, where that is known.
pub(super) fn kernel(message: &[u8]) -> Cow<'_, str> {
    let text = |number| first(message, number).map_or(Cow::default(), |value| value.text());
    let demangled = text(3);
    if demangled.is_empty() { text(2) } else { demangled }
}

/// The device of an `InternedGpuCounterDescriptor`, and its counters by their ids.
pub(super) fn counters(message: &[u8]) -> (i32, impl Iterator<Item = Result<(u32, Cow<'_, str>), Malformed>>) {
    let gpu = first(message, 3).map_or(0, |value| value.int() as i32);
    let descriptor = first(message, 2).map_or(&[][..], |value| value.bytes());
    let specs = messages(descriptor, 1).map(|spec| {
        let spec = spec?;
        let id = first(spec, 1).map_or(0, |value| value.int() as u32);
        Ok((id, first(spec, 2).map_or(Cow::default(), |value| value.text())))
    });
    (gpu, specs)
}

/// A value of a counter, by its id.
pub(super) struct Sample {
    pub(super) id: u32,
    pub(super) int: Option<i64>,
    pub(super) double: Option<f64>,
}

/// The id of the descriptor of a `GpuCounterEvent`, and its values.
pub(super) fn samples(message: &[u8]) -> (u64, impl Iterator<Item = Result<Sample, Malformed>>) {
    let of = first(message, 4).map_or(0, |value| value.int());
    let samples = messages(message, 2).map(|message| {
        let mut sample = Sample { id: 0, int: None, double: None };
        for field in Fields(message?) {
            match field? {
                (1, value) => sample.id = value.int() as u32,
                (2, value) => sample.int = Some(value.int() as i64),
                (3, value) => sample.double = Some(value.double()),
                _ => {}
            }
        }
        Ok(sample)
    });
    (of, samples)
}

/// The sizes of a `ComputeKernelLaunch`: of its grid and of its blocks.
pub(super) fn sizes(launch: &[u8]) -> [Option<[u64; 3]>; 2] {
    [1, 2].map(|number| {
        let size = first(launch, number)?.bytes();
        Some([1, 2, 3].map(|axis| first(size, axis).map_or(0, |value| value.int())))
    })
}

/// An argument of a `ComputeKernelLaunch`.
#[derive(Default)]
pub(super) struct Argument<'a> {
    pub(super) name_iid: u64,
    /// None if it is interned.
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) value: Json,
}

/// The arguments of a `ComputeKernelLaunch`.
pub(super) fn arguments(launch: &[u8]) -> impl Iterator<Item = Result<Argument<'_>, Malformed>> {
    messages(launch, stage::ARGS).map(|message| {
        let mut argument = Argument::default();
        for field in Fields(message?) {
            match field? {
                (1, value) => argument.name_iid = value.int(),
                (stage::ARG_NAME, value) => argument.name = Some(value.text()),
                (3, value) => argument.value = (value.int() as i64).into(),
                (stage::ARG_UINT, value) => argument.value = value.int().into(),
                (stage::ARG_DOUBLE, value) => argument.value = value.double().into(),
                (stage::ARG_STRING, value) => argument.value = value.text().into(),
                _ => {}
            }
        }
        Ok(argument)
    })
}
