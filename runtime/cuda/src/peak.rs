//! Measures what a device reaches at most: the bandwidth of a copy in its memory, and the rate of FP32 multiply-adds.
//!
//! Only `warpline doctor --measure-peak` calls it, in a process of its own: it creates a context, keeps the device busy for about a second, and
//! waits for it. No session and no application does. The kernels are PTX text, which the driver compiles for the device.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_uint};

use crate::driver::{Code, ContextPtr, CudaError, Driver, EventPtr, StreamPtr};
use crate::kernels::{Kernels, ModulePtr};
use warpline_core::backend::BackendError;

/// What one device reached.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MeasuredPeak {
    /// The bytes that a copy reads and writes, per second.
    pub bytes_per_s: f64,
    /// The floating-point operations of FP32 multiply-adds outside the tensor cores, per second; a multiply-add is two.
    pub f32_flops_per_s: f64,
    /// The bytes of the copy, from which caches are small.
    pub copied_bytes: u64,
}

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: c_int = 16;

const THREADS: u32 = 256;
/// The bytes that a block copies: four times 16 for each thread.
const BLOCK_BYTES: u64 = 4 * 16 * THREADS as u64;
/// The sizes of a copy, the largest that fits first. Caches have up to some 100 MB.
const COPIES: [u64; 4] = [1 << 30, 512 << 20, 256 << 20, 64 << 20];
/// The copies between two events, so that what the events add is small.
const COPIES_IN_A_ROW: u32 = 8;

/// The independent sums of a thread, and the multiply-adds of each in a round.
const SUMS: u64 = 16;
const IN_A_ROUND: u64 = 8;
/// The blocks of each multiprocessor: as many threads as it can hold.
const BLOCKS: u32 = 8;
const ROUNDS: u64 = 8_192;

/// The best of so many counts. The clocks of an idle device need some of them to rise.
const TRIES: usize = 20;

table! {
    init: b"cuInit\0" fn(c_uint);
    device_get: b"cuDeviceGet\0" fn(*mut c_int, c_int);
    retain: b"cuDevicePrimaryCtxRetain\0" fn(*mut ContextPtr, c_int);
    release: b"cuDevicePrimaryCtxRelease_v2\0" fn(c_int);
    allocate: b"cuMemAlloc_v2\0" fn(*mut u64, usize);
    free: b"cuMemFree_v2\0" fn(u64);
    unload: b"cuModuleUnload\0" fn(ModulePtr);
    event_wait: b"cuEventSynchronize\0" fn(EventPtr);
}

/// Measures the device with this ordinal.
///
/// # Errors
/// The driver's error, as text.
pub fn measure(ordinal: u32) -> Result<MeasuredPeak, String> {
    let text = |error: BackendError| error.0;
    let driver = Driver::get().map_err(text)?;
    let (symbols, kernels) = (Symbols::load(&driver.library).map_err(text)?, Kernels::new(driver).map_err(text)?);
    let told = |error| driver.describe(error).0;
    // The driver must be initialised for everything but its version.
    // SAFETY: it takes flags, of which there are none.
    driver.check("cuInit", unsafe { (symbols.init)(0) }).map_err(told)?;
    Bench { driver, symbols, kernels }.measure(ordinal.cast_signed()).map_err(told)
}

struct Bench {
    driver: &'static Driver,
    symbols: Symbols,
    kernels: Kernels,
}

impl Bench {
    fn measure(&self, ordinal: c_int) -> Result<MeasuredPeak, CudaError> {
        // SAFETY: a valid out-pointer.
        let device =
            self.driver.ask("cuDeviceGet", 0, |device| unsafe { (self.symbols.device_get)(device, ordinal) })?;
        // SAFETY: a valid out-pointer.
        let retain = |context| unsafe { (self.symbols.retain)(context, device) };
        let context = self.driver.ask("cuDevicePrimaryCtxRetain", std::ptr::null_mut(), retain)?;
        let measured = self.driver.with_context(context, || {
            let stream = self.driver.create_stream()?;
            let measured = self.with_module(|module| self.on(device, stream, module));
            self.driver.destroy_stream(stream);
            measured
        });
        // SAFETY: it was retained above.
        let _ = unsafe { (self.symbols.release)(device) };
        measured
    }

    fn with_module<T>(&self, work: impl FnOnce(ModulePtr) -> Result<T, CudaError>) -> Result<T, CudaError> {
        let module = self.kernels.load(&CString::new(ptx()).unwrap_or_default())?;
        let done = work(module);
        // SAFETY: the module is ours, and all its kernels were waited for, or the device has failed.
        let _ = unsafe { (self.symbols.unload)(module) };
        done
    }

    fn on(&self, device: c_int, stream: StreamPtr, module: ModulePtr) -> Result<MeasuredPeak, CudaError> {
        let (copied_bytes, from, to) = self.buffers()?;
        let measured = self.rates(device, stream, module, (copied_bytes, from, to));
        for address in [from, to] {
            // SAFETY: it was allocated above, and nothing uses it any more.
            let _ = unsafe { (self.symbols.free)(address) };
        }
        measured
    }

    /// Allocates two buffers of one size.
    fn buffers(&self) -> Result<(u64, u64, u64), CudaError> {
        let mut refused = None;
        for bytes in COPIES {
            match self.allocate(bytes) {
                Ok(from) => match self.allocate(bytes) {
                    Ok(to) => return Ok((bytes, from, to)),
                    Err(error) => {
                        refused = Some(error);
                        // SAFETY: it was just allocated.
                        let _ = unsafe { (self.symbols.free)(from) };
                    }
                },
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or(CudaError { call: "cuMemAlloc", code: 2 }))
    }

    fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
        // SAFETY: a valid out-pointer.
        let allocate = |address| unsafe { (self.symbols.allocate)(address, bytes as usize) };
        self.driver.ask("cuMemAlloc", 0, allocate)
    }

    fn rates(
        &self,
        device: c_int,
        stream: StreamPtr,
        module: ModulePtr,
        (copied_bytes, from, to): (u64, u64, u64),
    ) -> Result<MeasuredPeak, CudaError> {
        let multiprocessors = self.kernels.attribute(MULTIPROCESSORS, device)?;
        let copy = self.kernels.function(module, c"warpline_peak_copy")?;
        let multiply = self.kernels.function(module, c"warpline_peak_fma")?;
        let blocks = multiprocessors.max(1).cast_unsigned() * BLOCKS;
        let copy_ns = self.best_ns(stream, || {
            let blocks = (copied_bytes / BLOCK_BYTES) as u32;
            (0..COPIES_IN_A_ROW).try_for_each(|_| self.kernels.launch(copy, (blocks, THREADS), stream, [from, to]))
        })?;
        let multiply_ns =
            self.best_ns(stream, || self.kernels.launch(multiply, (blocks, THREADS), stream, [ROUNDS, to]))?;
        let moved = 2.0 * copied_bytes as f64 * f64::from(COPIES_IN_A_ROW);
        let flops = 2.0 * (SUMS * IN_A_ROUND * ROUNDS) as f64 * f64::from(blocks) * f64::from(THREADS);
        Ok(MeasuredPeak {
            bytes_per_s: moved / copy_ns as f64 * 1e9,
            f32_flops_per_s: flops / multiply_ns as f64 * 1e9,
            copied_bytes,
        })
    }

    /// Returns the shortest time of the work on the device, in ns, between two events.
    fn best_ns(&self, stream: StreamPtr, work: impl Fn() -> Result<(), CudaError>) -> Result<i64, CudaError> {
        let events = self.driver.create_events(2)?;
        let (begin, end) = (events[0], events[1]);
        let once = || {
            self.driver.record(begin, stream)?;
            work()?;
            self.driver.record(end, stream)?;
            // SAFETY: an event of ours that was recorded.
            let code = unsafe { (self.symbols.event_wait)(end) };
            self.driver.check("cuEventSynchronize", code)?;
            Ok(self.driver.elapsed_ns(begin, end)?.unwrap_or(0).max(1))
        };
        let times: Result<Vec<i64>, CudaError> = (0..TRIES).map(|_| once()).collect();
        events.into_iter().for_each(|event| self.driver.destroy_event(event));
        Ok(times?.into_iter().min().unwrap_or(1))
    }
}

/// The kernels. Each thread copies four times 16 bytes, or adds to sums that nobody wants: they are stored only if they are what they cannot be.
fn ptx() -> String {
    let stride = 16 * THREADS;
    let each = |line: &dyn Fn(u64) -> String, count: u64| (0..count).map(line).collect::<String>();
    let vector = |at: u64| format!("{{%v{}, %v{}, %v{}, %v{}}}", 4 * at, 4 * at + 1, 4 * at + 2, 4 * at + 3);
    let loads = each(&|at| format!("ld.global.v4.u32 {}, [%from+{}];\n", vector(at), at * u64::from(stride)), 4);
    let stores = each(&|at| format!("st.global.v4.u32 [%to+{}], {};\n", at * u64::from(stride), vector(at)), 4);
    let begins = each(&|at| format!("add.f32 %s{at}, %one, 0f{:08X};\n", (at as f32 + 1.0).to_bits()), SUMS);
    let round = each(&|at| format!("fma.rn.f32 %s{at}, %s{at}, %x, %y;\n"), SUMS).repeat(IN_A_ROUND as usize);
    let all = each(&|at| format!("add.f32 %one, %one, %s{at};\n"), SUMS);
    format!(
        ".version 7.0
.target sm_50
.address_size 64
.visible .entry warpline_peak_copy(.param .u64 from, .param .u64 to)
{{
.reg .b32 %block, %thread, %v<16>;
.reg .b64 %from, %to, %at, %in;
mov.u32 %block, %ctaid.x;
mov.u32 %thread, %tid.x;
mul.wide.u32 %at, %block, {BLOCK_BYTES};
mul.wide.u32 %in, %thread, 16;
add.s64 %at, %at, %in;
ld.param.u64 %from, [from];
ld.param.u64 %to, [to];
cvta.to.global.u64 %from, %from;
cvta.to.global.u64 %to, %to;
add.s64 %from, %from, %at;
add.s64 %to, %to, %at;
{loads}{stores}ret;
}}
.visible .entry warpline_peak_fma(.param .u64 rounds, .param .u64 to)
{{
.reg .pred %more;
.reg .b32 %thread;
.reg .b64 %rounds, %to;
.reg .f32 %one, %x, %y, %s<{SUMS}>;
ld.param.u64 %rounds, [rounds];
ld.param.u64 %to, [to];
cvta.to.global.u64 %to, %to;
mov.u32 %thread, %tid.x;
cvt.rn.f32.u32 %one, %thread;
mov.f32 %x, 0f3F000000;
mov.f32 %y, 0f3F800000;
{begins}AGAIN:
{round}sub.u64 %rounds, %rounds, 1;
setp.ne.u64 %more, %rounds, 0;
@%more bra AGAIN;
{all}setp.eq.f32 %more, %one, 0fBF800000;
@%more st.global.f32 [%to], %one;
ret;
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_work_that_is_counted() {
        let text = ptx();
        assert_eq!(text.matches("fma.rn.f32").count() as u64, SUMS * IN_A_ROUND);
        assert_eq!((text.matches("ld.global.v4").count(), text.matches("st.global.v4").count()), (4, 4));
        assert!(COPIES.iter().all(|bytes| bytes % BLOCK_BYTES == 0), "a copy has whole blocks");
    }
}
