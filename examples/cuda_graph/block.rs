//! What one rank does, on a thread of its own: it runs the block, captures it, and replays the graph.

use std::error::Error;

use tensor::{Comm, Device, Rendezvous};
use transformer::{Block, Captured, Shape, reference};
use warpline::graph::GraphZones;

pub const SHAPE: Shape = Shape::TUTORIAL;

/// The input of the replays, and another one.
const INPUT: usize = 1;
const OTHER: usize = 0;

/// A rank whose block has run, so that all libraries are set up, and is not captured yet.
pub struct Rank {
    gpu: String,
    block: Block,
    /// What the block makes of the input without a graph.
    eager: Vec<f32>,
}

/// A rank that has replayed its graph.
pub struct Replayed {
    /// What the graph's kernels use. The session is over before it goes.
    pub captured: Captured,
    pub zones: GraphZones,
    /// What was compared, in words.
    pub checked: String,
}

impl Rank {
    /// Waits until all ranks have come.
    pub fn new(rendezvous: Rendezvous) -> Result<Rank, Box<dyn Error>> {
        let (device, gpu) = Device::gpu(rendezvous.local_rank() as usize)?;
        let comm = match rendezvous.ranks() {
            1 => None,
            _ => Some(Comm::new("tp0", &device, rendezvous)?),
        };
        let block = Block::new(&device, SHAPE, comm)?;
        let eager = run(&block, INPUT)?;
        // All that the block writes is that of another input now: what the replays do not write is wrong.
        run(&block, OTHER)?;
        block.set_input(INPUT)?;
        Ok(Rank { gpu, block, eager })
    }

    /// Captures the block and launches the graph so many times.
    pub fn replay(self, replays: usize) -> Result<Replayed, Box<dyn Error>> {
        let captured = Captured::new(self.block)?;
        let zones = GraphZones::for_graph(&captured)?.named("block");
        for _ in 0..replays {
            captured.replay()?;
        }
        let output = captured.block().output()?;
        let bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        if bits(&output) != bits(&self.eager) {
            return Err("the graph computes something else than the block without it; please report this".into());
        }
        let compared = reference::check(SHAPE, INPUT, &output)
            .map_err(|wrong| format!("wrong result: {wrong}; please report this"))?;
        let checked = format!(
            "{}: {} numbers are those of the block without a graph, bit for bit; {compared} of them were compared with a \
             reference in f64",
            self.gpu,
            output.len()
        );
        Ok(Replayed { captured, zones, checked })
    }
}

fn run(block: &Block, input: usize) -> Result<Vec<f32>, tensor::Error> {
    block.set_input(input)?;
    block.forward()?;
    block.output()
}
