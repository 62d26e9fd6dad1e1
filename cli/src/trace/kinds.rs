//! What a slice is, and the arguments that figures need.

use warpline_core::work::Work;

use super::names::Name;

/// The kind of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A zone on a stream, also in the replay of a graph.
    Zone,
    Collective,
    /// A part of a batch of collectives.
    BatchEntry,
    HostZone,
    Launch,
    Replay,
    Kernel,
    Copy,
    Wait,
    /// A call with which a thread waits for the device.
    Sync,
    Signal,
    Step,
    Session,
    /// Anything else.
    Other,
}

impl Kind {
    /// The kind of a category in Perfetto traces.
    pub(super) fn of_category(category: &str) -> Kind {
        match category {
            "zone" | "gpu_user_annotation" => Kind::Zone,
            "collective" => Kind::Collective,
            "batch_entry" => Kind::BatchEntry,
            "host_zone" | "user_annotation" | "cpu_op" => Kind::HostZone,
            "launch" => Kind::Launch,
            "replay" => Kind::Replay,
            "kernel" => Kind::Kernel,
            "memcpy" | "memset" | "gpu_memcpy" | "gpu_memset" => Kind::Copy,
            "wait" => Kind::Wait,
            "cuda_sync" => Kind::Sync,
            "signal" => Kind::Signal,
            "step" => Kind::Step,
            "session" => Kind::Session,
            _ => Kind::Other,
        }
    }
}

/// The arguments of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) has_failed: bool,
    /// The end was found in another way than by the zone's own event.
    pub(crate) is_end_found: bool,
    pub(crate) end_early_by_ns: i64,
    pub(crate) corrected_ns: Option<i64>,
    /// The share of the range's zones that were recorded; 0 if it is not given.
    pub(crate) sampled_ppm: u64,
    /// Zones in replays, kernels and replays have it.
    pub(crate) has_correlation: bool,
    /// The name that PyTorch's profiler gives the collective.
    pub(crate) collective: Option<Name>,
    pub(crate) group: Option<Name>,
    pub(crate) ranks: Option<Name>,
    pub(crate) group_size: u64,
    pub(crate) dtype: Option<Name>,
    pub(crate) elements_in: Option<u64>,
    pub(crate) elements_out: Option<u64>,
    /// The zone of a kernel or of a wait, and who ended a wait.
    pub(crate) zone: Option<Name>,
    pub(crate) signalled_by: Option<Name>,
    pub(crate) semaphore: Option<Name>,
    /// The stream, where a row does not tell.
    pub(crate) stream: Option<Name>,
    /// The number of a step.
    pub(crate) step: Option<u64>,
    /// The declared work of a zone, if the trace also has its rates: without them, these are fields of the program.
    pub(crate) bytes: Option<u64>,
    pub(crate) flops: Option<u64>,
    pub(crate) has_byte_rate: bool,
    pub(crate) has_flop_rate: bool,
}

impl Args {
    pub(super) const NONE: Args = Args {
        has_failed: false,
        is_end_found: false,
        end_early_by_ns: 0,
        corrected_ns: None,
        sampled_ppm: 0,
        has_correlation: false,
        collective: None,
        group: None,
        ranks: None,
        group_size: 0,
        dtype: None,
        elements_in: None,
        elements_out: None,
        zone: None,
        signalled_by: None,
        semaphore: None,
        stream: None,
        step: None,
        bytes: None,
        flops: None,
        has_byte_rate: false,
        has_flop_rate: false,
    };

    /// Returns the work that the zone's mark declares.
    pub(crate) fn work(&self) -> Work {
        let declared = |amount: Option<u64>, has_rate: bool| amount.filter(|_| has_rate);
        Work::new(declared(self.bytes, self.has_byte_rate), declared(self.flops, self.has_flop_rate))
    }
}

/// The name of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Status,
    End,
    EndEarly,
    Corrected,
    Sampled,
    Correlation,
    Collective,
    Group,
    Ranks,
    GroupSize,
    Dtype,
    ElementsIn,
    ElementsOut,
    Zone,
    SignalledBy,
    Semaphore,
    Stream,
    Step,
    Bytes,
    Flops,
    ByteRate,
    FlopRate,
    Other,
}

impl Key {
    pub(super) fn of(name: &str) -> Key {
        match name {
            "status" => Key::Status,
            "end" => Key::End,
            "end_early_by_ns" => Key::EndEarly,
            "gpu_ns_corrected" => Key::Corrected,
            "sampled_ppm" => Key::Sampled,
            "correlation" => Key::Correlation,
            "Collective name" => Key::Collective,
            "Process Group Name" => Key::Group,
            "Process Group Ranks" => Key::Ranks,
            "Group size" => Key::GroupSize,
            "dtype" => Key::Dtype,
            "In msg nelems" => Key::ElementsIn,
            "Out msg nelems" => Key::ElementsOut,
            "zone" => Key::Zone,
            "signalled_by" => Key::SignalledBy,
            "semaphore" => Key::Semaphore,
            "stream" => Key::Stream,
            "step" => Key::Step,
            "bytes" => Key::Bytes,
            "flops" => Key::Flops,
            "gb_per_s" => Key::ByteRate,
            "tflop_per_s" => Key::FlopRate,
            _ => Key::Other,
        }
    }
}

/// The value of an argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    Number(i64),
    /// A number that is no integer.
    Real,
    Text(Name),
}

impl Args {
    /// Sets an argument. A user's fields come first, so the last of two arguments with one name is used.
    pub(super) fn set(&mut self, key: Key, said: Said) {
        match (key, said) {
            (Key::Status, Said::Text(_)) => self.has_failed = true,
            (Key::End, Said::Text(_)) => self.is_end_found = true,
            (Key::EndEarly, Said::Number(ns)) => self.end_early_by_ns = ns.max(0),
            (Key::Corrected, Said::Number(ns)) => self.corrected_ns = Some(ns),
            (Key::Sampled, Said::Number(ppm)) => self.sampled_ppm = ppm.clamp(0, 1_000_000) as u64,
            (Key::Correlation, Said::Number(_)) => self.has_correlation = true,
            (Key::Collective, Said::Text(text)) => self.collective = Some(text),
            (Key::Group, Said::Text(text)) => self.group = Some(text),
            (Key::Ranks, Said::Text(text)) => self.ranks = Some(text),
            (Key::GroupSize, Said::Number(size)) => self.group_size = size.max(0) as u64,
            (Key::Dtype, Said::Text(text)) => self.dtype = Some(text),
            (Key::ElementsIn, Said::Number(count)) => self.elements_in = u64::try_from(count).ok(),
            (Key::ElementsOut, Said::Number(count)) => self.elements_out = u64::try_from(count).ok(),
            (Key::Zone, Said::Text(text)) => self.zone = Some(text),
            (Key::SignalledBy, Said::Text(text)) => self.signalled_by = Some(text),
            (Key::Semaphore, Said::Text(text)) => self.semaphore = Some(text),
            (Key::Stream, Said::Text(text)) => self.stream = Some(text),
            (Key::Step, Said::Number(number)) => self.step = u64::try_from(number).ok(),
            (Key::Bytes, Said::Number(bytes)) => self.bytes = u64::try_from(bytes).ok(),
            (Key::Flops, Said::Number(flops)) => self.flops = u64::try_from(flops).ok(),
            (Key::ByteRate, Said::Number(_) | Said::Real) => self.has_byte_rate = true,
            (Key::FlopRate, Said::Number(_) | Said::Real) => self.has_flop_rate = true,
            _ => {}
        }
    }
}
