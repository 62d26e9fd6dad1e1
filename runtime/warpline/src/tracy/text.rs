//! Fields, labels, the data of collectives and the values of semaphores as text.

use std::fmt::Write;

use warpline_core::collective::Message;
use warpline_core::fields::Fields;
use warpline_core::kernel::{KernelRecord, KernelWork};
use warpline_core::observer::SyncCall;

/// Adds the label, and the fields as `name: value`.
pub(super) fn fields(text: &mut String, fields: &Fields) {
    if let Some(label) = fields.label() {
        line(text);
        text.push_str(label);
    }
    for (name, value) in fields.iter() {
        line(text);
        let _ = write!(text, "{name}: {value}");
    }
}

/// Adds the semaphore and the value that a thread waits for or signals.
pub(super) fn sync(text: &mut String, call: &SyncCall<'_>) {
    let _ = write!(text, "{}: {}", call.semaphore, call.value);
    if call.values > 1 {
        let _ = write!(text, ", the first of {}", call.values);
    }
}

/// Returns a collective's name: its operation and its group.
pub(super) fn collective(message: &Message) -> String {
    match &message.group {
        Some(group) => format!("{} {}", message.kind, group.name()),
        None => message.kind.to_string(),
    }
}

/// Adds the numbers of a collective. They are the same in every step of a program: the number of the collective in its group is left out.
pub(super) fn message(text: &mut String, message: &Message) {
    line(text);
    text.push_str(message.kind.as_str());
    if let Some(count) = message.count {
        let _ = write!(text, ", {count}");
        if let Some(dtype) = message.dtype {
            let _ = write!(text, " {}", dtype.as_str());
        }
    }
    if let Some(op) = message.op {
        let _ = write!(text, ", {}", op.as_str());
    }
    if let Some(bytes) = message.bytes() {
        let _ = write!(text, ", {bytes} bytes");
    }
    if let Some(group) = &message.group {
        let _ = write!(text, ", {}: rank {} of {}", group.name(), group.rank(), group.size());
    }
    for (name, rank) in [("root", message.root), ("peer", message.peer)] {
        if let Some(rank) = rank {
            let _ = write!(text, ", {name} {rank}");
        }
    }
}

/// Adds to a name that the length is only a bound: Tracy shows it up to its latest end.
pub(super) fn end_not_timed(name: &str) -> String {
    format!("{name} (end not timed)")
}

/// Returns the size of a kernel, a copy or a memory set.
pub(super) fn work(kernel: &KernelRecord) -> String {
    match &kernel.work {
        KernelWork::Kernel { grid: [x, y, z], block: [a, b, c], .. } => format!("grid {x}x{y}x{z}, block {a}x{b}x{c}"),
        work => work.bytes().map_or_else(String::new, |bytes| format!("{bytes} bytes")),
    }
}

fn line(text: &mut String) {
    if !text.is_empty() {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::collective::{CollectiveKind, DataType, ProcessGroup, ReduceOp};

    #[test]
    fn values_are_lines_and_a_collective_is_one() {
        let mut all = Fields::default();
        all.push("rows", 3_u32);
        all.push("dtype", "bf16");
        all.push("shape", [4, 128]);
        all.push("tile", [("rows", 8)]);
        all.set_label("layer 1");
        let group = ProcessGroup::new("tp0", [0, 1], 1);
        let sum = Message::new(CollectiveKind::AllReduce).count(8).dtype(DataType::F32).op(ReduceOp::Sum).group(&group);
        let mut text = String::new();
        message(&mut text, &sum.seq(9_u64));
        fields(&mut text, &all);
        assert_eq!(
            text,
            "all_reduce, 8 f32, sum, 32 bytes, tp0: rank 1 of 2\nlayer 1\nrows: 3\ndtype: bf16\nshape: [4, 128]\ntile: {rows: 8}"
        );
        let mut text = String::new();
        message(&mut text, &Message::new(CollectiveKind::Broadcast).root(0_u64));
        assert_eq!(text, "broadcast, root 0");
    }
}
