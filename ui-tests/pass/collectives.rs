#![allow(unused_variables)]

use warpline::{HostStream, block, collective};
use warpline::collective::{CollectiveKind, DataType, Element, Message, ProcessGroup, ReduceOp};

warpline::namespace!("demo", "vector arithmetic");

warpline::range! {
    SYNC = "demo.sync": "Sums the gradients of all ranks.", kind = collective;
}

/// Sums over all ranks.
#[collective("demo.sum", kind = "all_reduce", count = buf.len(), dtype = f32, group = group, op = "sum")]
fn sum(stream: &HostStream, buf: &mut [f32], group: &ProcessGroup) -> usize {
    stream.launch(|| ());
    buf.len()
}

#[collective(SYNC, kind = all_reduce, count = 8, dtype = "bf16", group = group, label = "own", begin = launch)]
fn sync(stream: &HostStream, group: &ProcessGroup) {}

struct Layer<T> {
    stream: HostStream,
    group: ProcessGroup,
    buf: Vec<T>,
}

impl<T: Element> Layer<T> {
    /// Gathers from all ranks.
    #[collective(
        kind = "all_gather", stream = self.stream, count = self.buf.len() as i32, count_out = 64_u64, dtype = <T>,
        group = self.group, seq = 7, is_async = true, err, level = fine
    )]
    fn gather(&self) -> Result<(), std::fmt::Error> {
        self.stream.launch(|| ());
        Ok(())
    }
}

/// From the root.
#[collective("demo.weights", kind = "broadcast", count = n, dtype = dtype, group = group, root = 0)]
fn weights(stream: &HostStream, n: u32, dtype: u32, group: &ProcessGroup) {}

/// To each its own.
#[collective(
    "demo.route", kind = "all_to_all", count = 4, dtype = DataType::F8E4M3, group = group,
    in_split = sizes, out_split = [1, 1, 1, 1], fields(experts = sizes.len())
)]
async fn route(stream: &HostStream, sizes: &[usize], group: &ProcessGroup) {}

/// A flag.
#[collective("demo.flag", kind = "signal", group = group, peer = 1)]
fn flag(stream: &HostStream, group: &ProcessGroup) {}

fn main() {
    let stream = HostStream::new("s");
    let group = ProcessGroup::new("tp0", [0, 1], 0);
    assert_eq!(sum(&stream, &mut [1.0; 4], &group), 4);
    let layer = Layer { stream: HostStream::new("layer"), group: group.clone(), buf: vec![1_i8; 32] };
    layer.gather().unwrap();
    weights(&stream, 3, 7, &group);
    drop(route(&stream, &[2, 2], &group));
    flag(&stream, &group);
    block::collective!("demo.reduce", &stream, kind = "reduce", count = 8, dtype = f64, group = group, root = 1,
        op = ReduceOp::Max, description = "The largest of all ranks.", { stream.launch(|| ()) });
    let message = Message::new(CollectiveKind::Send).count(1).dtype(DataType::U8).group(&group).peer(1);
    let _zone = SYNC.zone(&stream).message(message);
}
