//! Fields may be lists and short maps, and a lane may be a value.
#![deny(warnings)]

use std::collections::BTreeMap;

use warpline::{HostStream, Value, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

warpline::range! {
    SHARED = "demo.shared": "Shared.", lane = "shared", fields(shape);
}

const LANE: &str = "constant";

struct Model {
    stream: HostStream,
    sizes: Vec<usize>,
    options: BTreeMap<String, f64>,
    name: String,
}

impl Model {
    fn lane_name(&self) -> &str {
        &self.name
    }

    /// Adds.
    #[gpu_zone(
        "demo.add",
        stream = self.stream,
        lane = self.lane_name(),
        fields(
            shape = [4, 128, 64],
            sizes = &self.sizes,
            part = &self.sizes[1..],
            scales = scales,
            mask = [true, false],
            options = &self.options,
            tile = [("rows", 8), ("columns", 4)],
            mode = [("fast", Value::from(true)), ("name", Value::from("x"))]
        )
    )]
    fn add(&self, scales: &[f32]) {}

    /// Of a declared range.
    #[gpu_zone(SHARED, stream = self.stream, lane = format_args!("{}", self.name), fields(shape = self.sizes))]
    fn shared(self) {}
}

/// Takes what it records.
#[host_zone("demo.take", fields(pairs = pairs, sizes = sizes), lane = LANE)]
fn take(pairs: Vec<(String, i64)>, sizes: Box<[u8]>) {}

fn main() {
    let sizes = vec![1, 2, 3];
    let model = Model { stream: HostStream::new("s"), sizes, options: BTreeMap::new(), name: "m".to_owned() };
    model.add(&[0.5]);
    for lane in ["a", "b"] {
        block::gpu_zone!("demo.part", &model.stream, description = "A part.", lane = lane, fields(n = [1, 2]), {});
        drop(SHARED.zone(&model.stream).lane(lane).field("shape", [1, 2]));
    }
    model.shared();
    take(vec![("a".to_owned(), 1)], Box::new([1]));
}
