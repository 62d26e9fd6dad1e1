//! With feature `cuda`: the GPU through cudarc. cudarc panics where a library or one of its symbols is missing, so
//! [`Gpu::find`] asks before its first call.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DeviceRepr, DriverError, LaunchConfig, PushKernelArg, result, sys,
};
use cudarc::nvrtc;
use warpline::AsStream;
use warpline::collective::ProcessGroup;
use warpline::stream::StreamRef;

use super::{Grid, Kernel, Tokens};
use crate::error::Error;

const KERNELS: &str = include_str!("kernels.cu");

/// As in `kernels.cu`.
const THREADS: u32 = 256;
const TILE: u32 = 16;

/// The kernels count elements in 32 bits, and a little beyond the last one.
const MOST_ELEMENTS: usize = i32::MAX as usize;

impl Kernel {
    /// Their names in `kernels.cu`, in the order in which they are declared.
    const NAMES: [&str; Kernel::JoinHeads as usize + 1] = [
        "embed",
        "matmul",
        "layernorm",
        "scores",
        "softmax",
        "attend",
        "gelu",
        "add",
        "unpack",
        "split_heads",
        "join_heads",
    ];
}

// SAFETY: numbers, in the order and of the size that `kernels.cu` declares.
unsafe impl DeviceRepr for Tokens {}

/// One GPU of this machine, with the kernels loaded. A clone is the same.
#[derive(Clone)]
pub(crate) struct Gpu {
    pub(super) context: Arc<CudaContext>,
    functions: Arc<[CudaFunction]>,
}

impl Gpu {
    /// How many there are.
    pub(crate) fn count() -> Result<usize, String> {
        // SAFETY: loading the driver runs its initialisers, as in every program that uses CUDA.
        if !unsafe { sys::is_culib_present() } {
            return Err("this machine has no CUDA driver (`libcuda.so.1`)".to_owned());
        }
        let none = |why: &dyn fmt::Debug| format!("the CUDA driver has no GPU for this program ({why:?})");
        match CudaContext::device_count() {
            Ok(0) => Err(none(&sys::CUresult::CUDA_ERROR_NO_DEVICE)),
            Ok(count) => Ok(count as usize),
            Err(error) => Err(none(&error.0)),
        }
    }

    /// The GPU of this number, and its name; or what is missing, in words.
    pub(crate) fn find(ordinal: usize) -> Result<(Gpu, String), String> {
        let count = Gpu::count()?;
        if ordinal >= count {
            return Err(format!("there is no GPU {ordinal}; this program sees {count}, counted from 0"));
        }
        let context = CudaContext::new(ordinal)
            .map_err(|error| format!("the CUDA driver does not give GPU {ordinal} ({:?})", error.0))?;
        let name = context.name().map_err(|error| format!("the GPU does not say its name ({:?})", error.0))?;
        // SAFETY: loading NVRTC runs its initialisers and nothing else.
        if !unsafe { nvrtc::sys::is_culib_present() } {
            return Err(format!(
                "{name} is there, but not NVRTC (`libnvrtc.so`), which compiles the kernels; install the CUDA toolkit, \
                 or add its lib64 to LD_LIBRARY_PATH"
            ));
        }
        // SAFETY: applications order their streams with events, and `Memory` waits before it is freed.
        unsafe { context.disable_event_tracking() };
        let functions = functions(&context).map_err(|why| format!("{name} is there, but {why}"))?;
        Ok((Gpu { context, functions }, name))
    }

    /// A new stream.
    pub(crate) fn queue(&self) -> Result<Queue, Error> {
        Ok(Queue { stream: self.context.new_stream()?, gpu: self.clone() })
    }

    /// A copy of `elements`, of a type without padding, in the GPU's memory.
    pub(crate) fn upload<T: Copy>(&self, elements: &[T]) -> Result<Memory, Error> {
        if elements.len() > MOST_ELEMENTS {
            let got = format!("{} elements", elements.len());
            return Err(Error::Shapes { operation: "a GPU", got, needs: "less than 2^31" });
        }
        self.context.bind_to_thread()?;
        let bytes = size_of_val(elements);
        // SAFETY: the context is current; what is allocated is written below before anyone reads it.
        let address = unsafe { result::malloc_sync(bytes.max(1)) }?;
        let memory = Memory { address, bytes, gpu: self.clone() };
        memory.overwrite(elements)?;
        Ok(memory)
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gpu").field(&self.context.ordinal()).finish()
    }
}

/// Compiles the kernels and loads them.
///
/// They are compiled for the oldest GPU that NVRTC knows: the driver makes them fit the one that is there, also when it
/// is newer than NVRTC.
fn functions(context: &Arc<CudaContext>) -> Result<Arc<[CudaFunction]>, String> {
    let ptx = nvrtc::compile_ptx(KERNELS).map_err(|error| match error {
        nvrtc::CompileError::CompileError { log, .. } => {
            format!("NVRTC does not compile the kernels: {}", log.to_string_lossy().trim())
        }
        other => format!("NVRTC does not compile the kernels ({other:?})"),
    })?;
    let refused = |error: DriverError| {
        format!("its driver does not take what NVRTC compiled ({:?}); NVRTC may not be newer than the driver", error.0)
    };
    let module = context.load_module(ptx).map_err(refused)?;
    Kernel::NAMES.iter().map(|name| module.load_function(name).map_err(refused)).collect()
}

/// A CUDA stream, which does not wait for the default stream.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(super) stream: Arc<CudaStream>,
    pub(super) gpu: Gpu,
}

impl Queue {
    /// Launches a kernel with these matrices, then these sizes.
    ///
    /// # Safety
    /// They are those that the kernel declares, and its threads stay inside the matrices with this grid.
    pub(crate) unsafe fn launch(
        &self,
        kernel: Kernel,
        grid: Grid,
        matrices: &[&Memory],
        sizes: &[usize],
    ) -> Result<(), Error> {
        // SAFETY: as the caller says.
        unsafe { self.launch_with(None, kernel, grid, matrices, sizes) }
    }

    /// Launches a kernel with these matrices, then these sizes, then the tokens if it takes any.
    ///
    /// # Safety
    /// As for `launch`.
    pub(crate) unsafe fn launch_with(
        &self,
        tokens: Option<&Tokens>,
        kernel: Kernel,
        grid: Grid,
        matrices: &[&Memory],
        sizes: &[usize],
    ) -> Result<(), Error> {
        let config = config(grid);
        if config.grid_dim.0 == 0 || config.grid_dim.1 == 0 {
            return Ok(()); // No elements; the driver refuses a launch of no threads.
        }
        let sizes: Vec<u32> = sizes.iter().map(|size| *size as u32).collect();
        let mut launch = self.stream.launch_builder(&self.gpu.functions[kernel as usize]);
        for matrix in matrices {
            launch.arg(&matrix.address);
        }
        for size in &sizes {
            launch.arg(size);
        }
        if let Some(tokens) = tokens {
            launch.arg(tokens);
        }
        // SAFETY: the caller vouches for the arguments; what they point to is freed only when the GPU is idle.
        unsafe { launch.launch(config) }?;
        Ok(())
    }

    /// Blocks until everything that is queued now has run.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The kernels are unloaded with the last stream and matrix. What fails here, the next call shows.
        let _ = self.stream.synchronize();
    }
}

impl AsStream for Queue {
    fn as_stream(&self) -> StreamRef<'_> {
        self.stream.as_stream()
    }
}

fn config(grid: Grid) -> LaunchConfig {
    let blocks = |count: usize, of: u32| (count as u32).div_ceil(of);
    let (grid_dim, block_dim) = match grid {
        Grid::Elements(count) => ((blocks(count, THREADS), 1, 1), (THREADS, 1, 1)),
        Grid::Rows(rows) => ((rows as u32, 1, 1), (THREADS, 1, 1)),
        Grid::Tiles(rows, cols) => ((blocks(cols, TILE), blocks(rows, TILE), 1), (TILE, TILE, 1)),
    };
    LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 }
}

/// A rank's end of an NCCL communicator.
#[derive(Debug)]
pub(crate) struct Ranks {
    comm: nccl::Comm,
    /// Its device's context outlives it.
    gpu: Gpu,
}

impl Ranks {
    /// What other ranks need to find this one.
    pub(crate) const ID_BYTES: usize = nccl::UniqueId::BYTES;

    pub(crate) fn version() -> Result<String, Error> {
        Ok(nccl::Library::open()?.version()?)
    }

    pub(crate) fn new_id() -> Result<[u8; Ranks::ID_BYTES], Error> {
        Ok(*nccl::Library::open()?.unique_id()?.as_bytes())
    }

    /// Waits until all ranks have come.
    pub(crate) fn new(gpu: &Gpu, id: [u8; Ranks::ID_BYTES], ranks: u32, rank: u32) -> Result<Ranks, Error> {
        // NCCL takes the device that is current on this thread.
        gpu.context.bind_to_thread()?;
        let comm = nccl::Comm::new(nccl::Library::open()?, ranks, nccl::UniqueId::from_bytes(id), rank)?;
        Ok(Ranks { comm, gpu: gpu.clone() })
    }

    /// The group of the communicator, which NCCL is asked for.
    pub(crate) fn group(&self, name: &str) -> Result<ProcessGroup, Error> {
        // SAFETY: the communicator lives, and is of the NCCL that is found as `libnccl.so.2`.
        unsafe { warpline::nccl::process_group(name, self.comm.as_ptr()) }
            .map_err(|error| Error::Ranks(error.to_string()))
    }

    /// What has failed in a collective after its call returned.
    pub(crate) fn failure(&self) -> Result<(), Error> {
        Ok(self.comm.async_error()?)
    }

    /// Sums each matrix over the ranks, in place: one launch for all of them.
    pub(crate) fn sum(&self, queue: &Queue, matrices: &[&Memory]) -> Result<(), Error> {
        queue.gpu.context.bind_to_thread()?;
        let one = |memory: &Memory| {
            let (address, count) = (memory.address, memory.bytes / size_of::<f32>());
            // SAFETY: so many elements are there, and freed only when the GPU is idle; the operations take a communicator and
            // a stream of one device, and lock the communicator.
            unsafe { self.comm.all_reduce(address, address, count, queue.stream.cu_stream().cast()) }
        };
        match matrices {
            [memory] => Ok(one(memory)?),
            _ => Ok(self.comm.library().group(|| matrices.iter().try_for_each(|memory| one(memory)))?),
        }
    }

    /// Gives every rank the root's elements, in place.
    pub(crate) fn broadcast(&self, queue: &Queue, memory: &Memory, root: u32) -> Result<(), Error> {
        queue.gpu.context.bind_to_thread()?;
        let (address, count) = (memory.address, memory.bytes / size_of::<f32>());
        // SAFETY: as for the sum.
        Ok(unsafe { self.comm.broadcast(address, address, count, root, queue.stream.cu_stream().cast()) }?)
    }

    /// Whether the stream is of the communicator's device.
    pub(crate) fn is_on(&self, queue: &Queue) -> bool {
        self.gpu.context.ordinal() == queue.gpu.context.ordinal()
    }
}

/// Elements in the GPU's memory.
#[derive(Debug)]
pub(crate) struct Memory {
    address: sys::CUdeviceptr,
    bytes: usize,
    gpu: Gpu,
}

impl Memory {
    /// Puts these elements, of a type without padding, where the old ones were. There are not more of them.
    pub(crate) fn overwrite<T: Copy>(&self, elements: &[T]) -> Result<(), Error> {
        debug_assert!(size_of_val(elements) <= self.bytes);
        self.gpu.context.bind_to_thread()?;
        // SAFETY: so many bytes are there, as the callers see to.
        unsafe { result::memcpy_htod_sync(self.address, elements) }?;
        // The copy may be on its way still, and streams of our own do not wait for it.
        Ok(self.gpu.context.synchronize()?)
    }

    /// Its address on the GPU.
    pub(crate) fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    /// A copy of the elements, as the streams have left them so far.
    pub(crate) fn download(&self) -> Result<Vec<f32>, Error> {
        self.gpu.context.bind_to_thread()?;
        let mut elements = vec![0.0; self.bytes / size_of::<f32>()];
        // SAFETY: the memory has so many bytes, and any bytes are an `f32`.
        unsafe { result::memcpy_dtoh_sync(&mut elements, self.address) }?;
        Ok(elements)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Work that uses it may be queued. What fails here, a stream or the next call shows.
        let _ = self.gpu.context.synchronize();
        // SAFETY: it came from `malloc_sync`, and nobody else frees it.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

impl From<nccl::Error> for Error {
    fn from(error: nccl::Error) -> Error {
        Error::Ranks(error.to_string())
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Error {
        // Its name alone: asking the driver for a text is one more call that can fail.
        Error::Driver(format!("{:?}", error.0))
    }
}
