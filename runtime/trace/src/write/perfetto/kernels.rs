//! Converts kernels and copies to slices.
//!
//! Each is written twice. It is a render stage in Perfetto's GPU table (`gpu_slice`), where GPU tools look for it, but a trace
//! cannot choose the group of those rows. So it is also on a row `kernels` below its stream, next to the stream's zones. The sink
//! calls this module for each record.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::annotations;
use super::category::Category;
use super::intern::Seen;
use super::proto::{Buffer, event, interned, packet, stage};
use super::tables::{Tables, keep};
use super::track::{Sequence, Session, i32_bits, kernel_iid};
use warpline_core::kernel::{KernelRecord, KernelWork};

/// The maximum number of names with a number.
const NAMES: usize = 1 << 15;

/// The numbers of the stages; those of streams are far above.
const STAGES: [(u64, &str); 3] = [(1, "kernel"), (2, "memcpy"), (3, "memset")];

/// The name of the row below a stream.
const ROW: &str = "kernels";

/// The state of kernels while the trace is written.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    names: HashMap<Arc<str>, u32>,
    /// The row of each stream.
    rows: HashMap<u32, usize>,
    /// The packets of render stages, and the number of the first stream. The number differs between traces, because a reader merges
    /// streams of several traces that have the same number and name.
    stages: Option<(Sequence, u64)>,
    queues: Seen,
    contexts: HashSet<u32>,
}

impl Kernels {
    pub(super) fn write(&mut self, record: &KernelRecord, tables: &mut Tables, buffer: &mut Buffer) {
        tables.end_ns = tables.end_ns.max(record.gpu.end_ns);
        let name = self.number(&record.name);
        let row = tables.below_stream(&mut self.rows, &record.stream, ROW, buffer);
        let Tables { tracks, session, texts, .. } = &mut *tables;
        let lane = tracks[row].lane(record.gpu, session, buffer);
        let category = Category::of_work(&record.work);
        lane.define_category(category, buffer);
        if let Some(name) = name {
            lane.define_kernel(name, &record.name, buffer);
        }
        let correlation = lane.word(CORRELATION, texts, buffer);
        lane.slice(record.gpu, buffer, |slice| {
            match name {
                Some(name) => slice.uint(event::NAME_IID, kernel_iid(name)),
                None => slice.text(event::NAME, &record.name),
            }
            category.write(slice);
            annotations::uint(slice, correlation, u64::from(record.correlation));
        });
        self.stage(record, name, tables, buffer);
    }

    /// Writes the render stage with all its data.
    fn stage(&mut self, record: &KernelRecord, name: Option<u32>, tables: &mut Tables, buffer: &mut Buffer) {
        let Kernels { stages, queues, contexts, .. } = self;
        let Tables { session, facts, .. } = tables;
        let (sequence, first_queue) = stages.get_or_insert_with(|| {
            let uuid = session.ids.next();
            let sequence = stages_of(uuid, session, buffer);
            (sequence, session.ids.next() >> 34 | 1 << 20)
        });
        if sequence.piece != session.piece {
            *sequence = stages_of(sequence.uuid, session, buffer);
            *queues = Seen::default();
            contexts.clear();
        }
        let stream = &record.stream;
        let queue = *first_queue + u64::from(stream.id);
        if queues.is_first(stream.id) {
            let name = format!("{} ({}, device {})", stream.name, stream.device.name, stream.device.ordinal);
            sequence.define(buffer, |data| specify(data, queue, &name, "a CUDA stream", 0));
        }
        if contexts.insert(record.context) {
            sequence.define(buffer, |data| {
                data.message(interned::GRAPHICS_CONTEXTS, |context| {
                    context.uint(interned::IID, u64::from(record.context));
                    context.uint(stage::CONTEXT_PID, i32_bits(u64::from(facts.process_id)));
                    context.uint(stage::CONTEXT_API, stage::CUDA);
                });
            });
        }
        if let Some(name) = name {
            sequence.define_kernel(name, &record.name, buffer);
        }
        let id = session.ids.next();
        let (of_work, _) = match record.work {
            KernelWork::Memcpy { .. } => STAGES[1],
            KernelWork::Memset { .. } => STAGES[2],
            _ => STAGES[0],
        };
        buffer.packet(|packet| {
            sequence.time(record.gpu.begin_ns, packet);
            packet.short(&sequence.head);
            packet.message(packet::GPU_RENDER_STAGE, |event| {
                event.uint(stage::EVENT_ID, id);
                event.int(stage::DURATION, record.duration_ns());
                event.uint(stage::CONTEXT, u64::from(record.context));
                event.uint(stage::SUBMISSION_ID, u64::from(record.correlation));
                event.uint(stage::GPU_ID, u64::from(stream.device.ordinal));
                event.uint(stage::HW_QUEUE_IID, queue);
                event.uint(stage::STAGE_IID, of_work);
                match name {
                    Some(name) => event.uint(stage::NAME_IID, kernel_iid(name)),
                    None => event.text(stage::NAME, &record.name),
                }
                event.message(stage::LAUNCH, |launch| write_launch(launch, record));
            });
        });
    }

    /// Updates the rows after tracks have moved or were forgotten.
    pub(super) fn keep(&mut self, places: &[Option<usize>]) {
        keep(&mut self.rows, places);
    }

    /// Returns the number of a name, or none if there are too many.
    fn number(&mut self, name: &Arc<str>) -> Option<u32> {
        if let Some(number) = self.names.get(name) {
            return Some(*number);
        }
        let number = self.names.len() as u32 + 1;
        (self.names.len() < NAMES).then(|| {
            self.names.insert(Arc::clone(name), number);
            number
        })
    }
}

const CORRELATION: &str = "correlation";

/// Creates the sequence for render stages in one piece of the trace.
fn stages_of(uuid: u64, session: &mut Session, buffer: &mut Buffer) -> Sequence {
    let sequence = Sequence::new(uuid, session, buffer);
    sequence.define(buffer, |data| {
        for (id, name) in STAGES {
            specify(data, id, name, "", stage::COMPUTE);
        }
    });
    sequence
}

fn specify(data: &mut Buffer, id: u64, name: &str, description: &str, category: u64) {
    data.message(interned::GPU_SPECIFICATIONS, |specification| {
        specification.uint(interned::IID, id);
        specification.text(interned::TEXT, name);
        specification.text(stage::DESCRIPTION, description);
        specification.uint(stage::CATEGORY, category);
    });
}

fn write_launch(launch: &mut Buffer, record: &KernelRecord) {
    if let KernelWork::Kernel { grid, block, .. } = &record.work {
        for (field, [x, y, z]) in [(stage::GRID_SIZE, *grid), (stage::WORKGROUP_SIZE, *block)] {
            launch.message(field, |size| {
                for (axis, count) in [(1, x), (2, y), (3, z)] {
                    size.uint(axis, u64::from(count));
                }
            });
        }
    }
    // Perfetto's UI looks for the first two by these names.
    uint(launch, "device", u64::from(record.stream.device.ordinal));
    uint(launch, "stream", u64::from(record.stream.id));
    uint(launch, "cuda_stream", u64::from(record.cuda_stream));
    uint(launch, CORRELATION, u64::from(record.correlation));
    match &record.work {
        KernelWork::Kernel { registers_per_thread, static_shared_bytes, dynamic_shared_bytes, .. } => {
            uint(launch, "registers_per_thread", u64::from(*registers_per_thread));
            uint(launch, "shared_mem_static", u64::from(*static_shared_bytes));
            uint(launch, "shared_mem_dynamic", u64::from(*dynamic_shared_bytes));
        }
        KernelWork::Memcpy { bytes, kind, .. } => {
            uint(launch, "bytes", *bytes);
            text(launch, "kind", kind);
        }
        KernelWork::Memset { bytes, value, .. } => {
            uint(launch, "bytes", *bytes);
            uint(launch, "value", u64::from(*value));
        }
        _ => {}
    }
    if let Some(speed) = record.bytes_per_second() {
        argument(launch, "bandwidth_gb_per_s", |value| value.double(stage::ARG_DOUBLE, speed * 1e-9));
    }
    if let Some(node) = record.graph {
        uint(launch, "graph_id", u64::from(node.graph));
        uint(launch, "graph_node_id", node.node);
    }
    if let Some(zone) = record.zone {
        text(launch, "zone", zone.range.name());
        uint(launch, "zone_sequence", zone.sequence);
        if let Some(stream) = zone.stream {
            uint(launch, "zone_stream", u64::from(stream));
        }
    }
}

fn uint(launch: &mut Buffer, name: &str, number: u64) {
    argument(launch, name, |value| value.uint(stage::ARG_UINT, number));
}

fn text(launch: &mut Buffer, name: &str, text: &str) {
    argument(launch, name, |value| value.text(stage::ARG_STRING, text));
}

fn argument(launch: &mut Buffer, name: &str, value: impl FnOnce(&mut Buffer)) {
    launch.message(stage::ARGS, |argument| {
        argument.text(stage::ARG_NAME, name);
        value(argument);
    });
}
