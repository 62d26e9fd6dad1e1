//! How much of the communication hides behind computing: kernels on one stream beside copies on another and, where there
//! are two GPUs and NCCL, beside all-reduces; with a session and without.
//!
//! Hidden is what the two together save over one after the other, as a share of the shorter one. Each number of hardware
//! queues has a process of its own.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, CudaStream, result};
use gpu::{DeviceMemory, Gpu, Pinned, Result, require_driver};
use warpline::Session;

use crate::clock::let_session_settle;
use crate::figures::{Table, median, verdict};
use crate::options::Options;

warpline::range! {
    COMPUTE = "gpu_bench.compute": "A kernel beside communication.";
    COPY = "gpu_bench.copy": "A copy to the device beside kernels.";
    ALL_REDUCE = "gpu_bench.all_reduce": "A sum over two GPUs beside kernels.";
}

const PARTS: usize = 40;
const KERNEL_NS: u64 = 1_000_000;
const COPY_NUMBERS: usize = 4 << 20;
const REDUCED: usize = 32 << 20;
/// Share points, in percent.
const GOAL: f64 = 1.0;

pub fn run(options: &Options) -> Result {
    let rounds = options.size("rounds", 9);
    if let Some(connections) = options.connections {
        return one_process(connections, rounds);
    }
    require_driver()?;
    let title = format!(
        "hidden: share of {PARTS} communications that hides behind {PARTS} kernels, medians of {rounds} rounds"
    );
    let columns =
        ["connections", "beside kernels", "compute ms", "communication ms", "off", "on", "points lost", "goal 1"];
    let mut table = Table::new(&title, &columns);
    let mut notes = Vec::new();
    for connections in ["1", "8", "32"] {
        let output = Command::new(std::env::current_exe()?)
            .args(["hidden", &format!("--connections={connections}"), &format!("--rounds={rounds}")])
            .env("CUDA_DEVICE_MAX_CONNECTIONS", connections)
            .env_remove("WARPLINE")
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("with {connections} connections: {}: {said}", output.status).into());
        }
        for line in said.lines() {
            if let Some(row) = line.strip_prefix("row ") {
                table.row(&row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
            } else if let Some(note) = line.strip_prefix("note ")
                && !notes.contains(&note.to_owned())
            {
                notes.push(note.to_owned());
            }
        }
    }
    table.print();
    notes.iter().for_each(|note| println!("\n{note}"));
    Ok(())
}

fn one_process(connections: u64, rounds: u64) -> Result {
    let gpu = Gpu::new(0)?;
    let copies =
        Copies { stream: gpu.stream()?, from: Pinned::new(COPY_NUMBERS)?, to: DeviceMemory::zeroed(8 * COPY_NUMBERS)? };
    row(connections, rounds, "copies", &[(&gpu, gpu.stream()?)], &copies)?;
    if CudaContext::device_count()? < 2 {
        println!("note with one GPU there are no all-reduces to hide");
        return Ok(());
    }
    let second = Gpu::new(1)?;
    let reduces = match Reduces::new(&gpu, &second) {
        Ok(reduces) => reduces,
        Err(error) => {
            println!("note no all-reduces: {error}");
            return Ok(());
        }
    };
    gpu.context.bind_to_thread()?;
    let (a, b) = (gpu.stream()?, second.stream()?);
    gpu.context.bind_to_thread()?;
    row(connections, rounds, "all-reduces", &[(&gpu, a), (&second, b)], &reduces)
}

/// What goes on beside the kernels.
trait Communication {
    fn launch(&self) -> Result;
    fn synchronize(&self) -> Result;
}

fn row(
    connections: u64,
    rounds: u64,
    name: &str,
    compute: &[(&Gpu, Arc<CudaStream>)],
    beside: &dyn Communication,
) -> Result {
    measure(compute, beside)?; // warms up
    let (mut off, mut on, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let round = measure(compute, beside)?;
        off.push(round.hidden());
        times.push(round);
        let session = Session::builder().start()?;
        wall_ms(Some(compute), Some(beside))?; // the session meets the streams
        let_session_settle();
        let round = measure(compute, beside);
        session.finish();
        on.push(round?.hidden());
    }
    let lost = median(&off.iter().zip(&on).map(|(off, on)| off - on).collect::<Vec<_>>());
    println!(
        "row {connections}|{name}|{:.1}|{:.1}|{:.1}%|{:.1}%|{lost:+.2}|{}",
        median(&times.iter().map(|times| times.compute).collect::<Vec<_>>()),
        median(&times.iter().map(|times| times.beside).collect::<Vec<_>>()),
        median(&off),
        median(&on),
        verdict(lost, GOAL)
    );
    Ok(())
}

/// In ms.
struct Times {
    compute: f64,
    beside: f64,
    both: f64,
}

impl Times {
    fn hidden(&self) -> f64 {
        100.0 * (self.compute + self.beside - self.both) / self.compute.min(self.beside)
    }
}

fn measure(compute: &[(&Gpu, Arc<CudaStream>)], beside: &dyn Communication) -> Result<Times> {
    Ok(Times {
        compute: wall_ms(Some(compute), None)?,
        beside: wall_ms(None, Some(beside))?,
        both: wall_ms(Some(compute), Some(beside))?,
    })
}

fn wall_ms(compute: Option<&[(&Gpu, Arc<CudaStream>)]>, beside: Option<&dyn Communication>) -> Result<f64> {
    let begin = Instant::now();
    for _ in 0..PARTS {
        for (gpu, stream) in compute.unwrap_or_default() {
            gpu.context.bind_to_thread()?;
            let _zone = COMPUTE.zone(stream);
            gpu.spin(stream, KERNEL_NS, None)?;
        }
        beside.map_or(Ok(()), Communication::launch)?;
    }
    for (_, stream) in compute.unwrap_or_default() {
        stream.synchronize()?;
    }
    beside.map_or(Ok(()), Communication::synchronize)?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

struct Copies {
    stream: Arc<CudaStream>,
    from: Pinned,
    to: DeviceMemory,
}

impl Communication for Copies {
    fn launch(&self) -> Result {
        let _zone = COPY.zone(&self.stream);
        // SAFETY: both have as many bytes, and live until the stream is synchronised.
        let from = unsafe { std::slice::from_raw_parts(self.from.as_ptr().cast::<u8>(), self.from.bytes()) };
        // SAFETY: as above.
        unsafe { result::memcpy_htod_async(self.to.0, from, self.stream.cu_stream()) }?;
        Ok(())
    }

    fn synchronize(&self) -> Result {
        Ok(self.stream.synchronize()?)
    }
}

/// All-reduces of f32 over two GPUs of this process.
struct Reduces {
    comms: Vec<nccl::Comm>,
    streams: [Arc<CudaStream>; 2],
    memory: [DeviceMemory; 2],
}

impl Reduces {
    fn new(first: &Gpu, second: &Gpu) -> Result<Reduces> {
        let comms = nccl::Comm::all(nccl::Library::open()?, &[0, 1])?;
        let one = |gpu: &Gpu| -> Result<(Arc<CudaStream>, DeviceMemory)> {
            gpu.context.bind_to_thread()?;
            Ok((gpu.stream()?, DeviceMemory::zeroed(4 * REDUCED)?))
        };
        let ((a, on_a), (b, on_b)) = (one(first)?, one(second)?);
        Ok(Reduces { comms, streams: [a, b], memory: [on_a, on_b] })
    }
}

impl Communication for Reduces {
    fn launch(&self) -> Result {
        let _zones = (ALL_REDUCE.zone(&self.streams[0]), ALL_REDUCE.zone(&self.streams[1]));
        self.comms[0].library().group(|| {
            for ((comm, stream), memory) in self.comms.iter().zip(&self.streams).zip(&self.memory) {
                // SAFETY: memory, streams and communicators live until the streams are synchronised.
                unsafe { comm.all_reduce(memory.0, memory.0, REDUCED, stream.cu_stream().cast()) }?;
            }
            Ok(())
        })
    }

    fn synchronize(&self) -> Result {
        self.streams.iter().try_for_each(|stream| stream.synchronize())?;
        Ok(())
    }
}
