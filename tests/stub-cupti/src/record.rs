//! Records as CUPTI's headers lay them out, by the offsets that gcc gives (CUDA 12.0 to 13.5).

use crate::launch::{Launch, Memory, Sync};

pub const MEMCPY: u32 = 1;
pub const MEMSET: u32 = 2;
pub const DRIVER: u32 = 4;
pub const RUNTIME: u32 = 5;
pub const CONCURRENT_KERNEL: u32 = 10;
pub const NAME: u32 = 11;
pub const MEMCPY2: u32 = 22;
pub const SYNCHRONIZATION: u32 = 38;
pub const EXTERNAL_CORRELATION: u32 = 39;
pub const MEMORY2: u32 = 49;

/// How large records are, by what `cuptiGetVersion` says: kernel, copy, copy between devices, set.
fn sizes(version: u32) -> [usize; 4] {
    match version {
        ..=25 => [208, 88, 96, 88],
        26..130_000 => [208, 96, 96, 88],
        130_000..130_100 => [216, 96, 96, 88],
        130_100..130_300 => [224, 96, 96, 88],
        130_300..130_400 => [232, 96, 96, 88],
        _ => [248, 112, 96, 104],
    }
}

/// A record under construction; what is not written is garbage, as in a buffer that was used before.
struct Record(Vec<u8>);

impl Record {
    fn new(size: usize, kind: u32) -> Record {
        let mut record = Record(vec![0xEE; size]);
        record.u32(0, kind);
        record
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn place(&mut self, at: [usize; 3], launch: &Launch) {
        for (at, value) in at.into_iter().zip([launch.device, launch.context, launch.stream]) {
            self.u32(at, value);
        }
    }
}

/// The record of what was launched.
pub fn work(version: u32, launch: &Launch, correlation: u32) -> Vec<u8> {
    let [kernel, copy, peer, set] = sizes(version);
    let (begin, end) = (launch.begin_ns, launch.end_ns);
    match launch.kind {
        MEMCPY => {
            let mut record = Record::new(copy, MEMCPY);
            record.0[4..8].copy_from_slice(&[1, 2, 3, 0]);
            record.u64(8, launch.bytes);
            record.u64(16, begin);
            record.u64(24, end);
            record.place([32, 36, 40], launch);
            record.u32(44, correlation);
            record.u64(64, launch.node);
            record.u32(72, launch.graph);
            record.0
        }
        MEMCPY2 => {
            let mut record = Record::new(peer, MEMCPY2);
            record.0[4..8].copy_from_slice(&[10, 3, 3, 0]);
            record.u64(8, launch.bytes);
            record.u64(16, begin);
            record.u64(24, end);
            record.place([32, 36, 40], launch);
            record.u32(60, correlation);
            record.u64(72, launch.node);
            record.u32(80, launch.graph);
            record.0
        }
        MEMSET => {
            let mut record = Record::new(set, MEMSET);
            record.u32(4, 7);
            record.u64(8, launch.bytes);
            record.u64(16, begin);
            record.u64(24, end);
            record.place([32, 36, 40], launch);
            record.u32(44, correlation);
            record.u16(48, 0);
            record.u16(50, 3);
            record.u64(64, launch.node);
            record.u32(72, launch.graph);
            record.0
        }
        _ => {
            let mut record = Record::new(kernel, CONCURRENT_KERNEL);
            record.u16(6, 40);
            record.u64(16, begin);
            record.u64(24, end);
            record.place([40, 44, 48], launch);
            for (at, value) in (52..).step_by(4).zip([8, 4, 2, 128, 2, 1, 1_024, 2_048]) {
                record.u32(at, value);
            }
            record.u32(92, correlation);
            record.u64(104, launch.name as u64);
            record.u64(144, launch.node);
            record.u32(156, launch.graph);
            record.0
        }
    }
}

/// The record of a call that succeeded.
pub fn call(kind: u32, number: u32, thread: u32, times: (u64, u64), correlation: u32) -> Vec<u8> {
    call_that_returned(0, kind, number, thread, times, correlation)
}

/// The record of a call.
pub fn call_that_returned(
    returned: u32,
    kind: u32,
    number: u32,
    thread: u32,
    (begin_ns, end_ns): (u64, u64),
    correlation: u32,
) -> Vec<u8> {
    let mut record = Record::new(40, kind);
    record.u32(4, number);
    record.u64(8, begin_ns);
    record.u64(16, end_ns);
    record.u32(28, thread);
    record.u32(32, correlation);
    record.u32(36, returned);
    record.0
}

/// The record of a call that synchronised, which comes before the call's own.
pub fn sync(version: u32, sync: &Sync, begin_ns: u64, end_ns: u64, correlation: u32) -> Vec<u8> {
    let mut record = Record::new(sync_len(version), SYNCHRONIZATION);
    record.u32(4, sync.sync_type);
    record.u64(8, begin_ns);
    record.u64(16, end_ns);
    for (at, value) in (24..).step_by(4).zip([correlation, sync.context, sync.stream, sync.event]) {
        record.u32(at, value);
    }
    record.0
}

/// The record of an allocation or a free.
pub fn memory(version: u32, memory: &Memory, begin_ns: u64, correlation: u32) -> Vec<u8> {
    let mut record = Record::new(memory_len(version), MEMORY2);
    for (at, value) in (4..).step_by(4).zip([memory.operation, memory.memory, correlation]) {
        record.u32(at, value);
    }
    for (at, value) in (16..).step_by(8).zip([memory.address, memory.bytes, begin_ns]) {
        record.u64(at, value);
    }
    for (at, value) in (52..).step_by(4).zip([memory.device, memory.context, memory.stream]) {
        record.u32(at, value);
    }
    record.0
}

/// `CUpti_ActivityMemory4`, since CUDA 12.6, has one field more.
fn memory_len(version: u32) -> usize {
    if version < 24 { 120 } else { 128 }
}

/// The record of a stream's name.
pub fn name(context: u32, stream: u32, name: u64) -> Vec<u8> {
    let mut record = Record::new(32, NAME);
    // CUPTI_ACTIVITY_OBJECT_STREAM.
    for (at, value) in (4..).step_by(4).zip([5, 0, context, stream]) {
        record.u32(at, value);
    }
    record.u64(24, name);
    record.0
}

/// `CUpti_ActivitySynchronization2` has two fields more.
fn sync_len(version: u32) -> usize {
    if version < 26 { 40 } else { 56 }
}

/// The record that comes before a call's.
pub fn external(kind: u32, id: u64, correlation: u32) -> Vec<u8> {
    let mut record = Record::new(24, EXTERNAL_CORRELATION);
    record.u32(4, kind);
    record.u64(8, id);
    record.u32(16, correlation);
    record.0
}

/// How long a record of this kind is.
pub fn len(version: u32, kind: u32) -> Option<usize> {
    let [kernel, copy, peer, set] = sizes(version);
    match kind {
        CONCURRENT_KERNEL => Some(kernel),
        MEMCPY => Some(copy),
        MEMCPY2 => Some(peer),
        MEMSET => Some(set),
        DRIVER | RUNTIME => Some(40),
        NAME => Some(32),
        SYNCHRONIZATION => Some(sync_len(version)),
        EXTERNAL_CORRELATION => Some(24),
        MEMORY2 => Some(memory_len(version)),
        _ => None,
    }
}
