//! The stamps of one CUDA context: the kernels, the counter, the ring, and how the device's `%globaltimer` stands against the
//! host's clock.
//!
//! All of it stays until the process ends. An executable graph with stamps in it can be replayed long after the session that
//! captured it, and nobody tells when the last one is gone: whatever it writes to must still be there. The kernels and their
//! counter go with the context; the ring is memory of the process, which the context only may write to, so that reading it is
//! sound whatever has become of the context.

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::driver::{ContextPtr, CudaError, Driver, StreamPtr};
use super::super::event_overhead::estimate;
use super::abi::{Calls, Ptr};
use super::ring::{self, Slot, TIME_BITS};
use warpline_core::backend::BackendError;
use warpline_core::clock::{Comparison, now_ns};
use warpline_core::record::{DeviceInfo, DeviceKind};

/// The kernel's name, by which profilers and graphs show it.
pub(crate) const NAME: &str = "warpline_stamp";

/// All kernels that a session launches itself, these and a calibration's.
#[cfg(feature = "cupti")]
pub(crate) const OWN_KERNELS: [&str; 3] = [NAME, "warpline_anchor", OWN_GRAPH];

/// The one of them that is in no graph but the one that a session measures with.
#[cfg(feature = "cupti")]
pub(crate) const OWN_GRAPH: &str = "warpline_spin";

/// Stamps of a ring: 2 MiB. 128 stamps in each replay, one replay behind another, fill it in more than 100 ms.
pub(super) const SLOTS: usize = 1 << 17;

/// The id of stamps that nobody captured.
pub(super) const OWN: u32 = 0;

/// A stamp reads the clock first, so that the end of a zone has none of it; then it takes its slot. The layout is `ring`'s. An
/// anchor answers only when the host, whose call that launches it has returned by then, watches for it.
const PTX: &CStr = c"
.version 7.0
.target sm_50
.address_size 64

.visible .global .align 8 .u64 warpline_stamps;

.visible .entry warpline_stamp(.param .u64 ring, .param .u64 id)
{
    .reg .u64 %time, %ring, %id, %number, %lap, %next, %at;
    mov.u64 %time, %globaltimer;
    atom.global.add.u64 %number, [warpline_stamps], 1;
    ld.param.u64 %ring, [ring];
    ld.param.u64 %id, [id];
    shl.b64 %id, %id, 32;
    and.b64 %time, %time, 281474976710655;
    shr.u64 %lap, %number, 17;
    and.b64 %lap, %lap, 32767;
    shl.b64 %lap, %lap, 48;
    or.b64 %time, %time, %lap;
    add.u64 %next, %number, 1;
    and.b64 %next, %next, 4294967295;
    or.b64 %id, %id, %next;
    and.b64 %at, %number, 131071;
    shl.b64 %at, %at, 4;
    add.u64 %at, %at, %ring;
    st.volatile.v2.u64 [%at], {%time, %id};
    ret;
}

.visible .entry warpline_anchor(.param .u64 at, .param .u64 token)
{
    .reg .pred %p;
    .reg .u64 %begin, %time, %waited, %at, %token;
    ld.param.u64 %at, [at];
    ld.param.u64 %token, [token];
    shl.b64 %token, %token, 48;
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %time, %globaltimer;
    sub.u64 %waited, %time, %begin;
    setp.lt.u64 %p, %waited, 20000;
    @%p bra again;
    and.b64 %time, %time, 281474976710655;
    or.b64 %time, %time, %token;
    st.volatile.u64 [%at], %time;
    ret;
}

.visible .entry warpline_spin(.param .u64 ns)
{
    .reg .pred %p;
    .reg .u64 %begin, %now, %ns;
    ld.param.u64 %ns, [ns];
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %p, %now, %ns;
    @%p bra again;
    ret;
}
";

const _: () = assert!(SLOTS == 131_072 && TIME_BITS == 48 && ring::LAPS == 32_768, "as in the text above");

/// The bracket is measured around kernels that run so long: twice around so many, of which the first time does not count.
const SPIN_NS: u64 = 5_000;
const SPINS: usize = 16;
const ROUNDS: usize = 3;
const BRACKET_WATCH: Duration = Duration::from_millis(100);

/// What CUPTI counts of a kernel of a graph before and behind its first and last instruction: seen on an H200.
const AROUND_NS: i64 = 750;

/// The device's time is visible to the host so long after it was read, at most.
const VISIBLE_NS: i64 = 1_500;

/// For so long an anchor is watched; the first one of a context, for which the driver has to load the kernel, for longer.
pub(super) const WATCH: Duration = Duration::from_micros(300);
pub(super) const FIRST_WATCH: Duration = Duration::from_millis(50);

/// What stamps need of one context.
pub struct Stamper {
    driver: &'static Driver,
    calls: Calls,
    context: ContextPtr,
    pub id: u64,
    pub(crate) device: DeviceInfo,
    stamp: Ptr,
    anchor: Ptr,
    ring: &'static [Slot],
    ring_there: u64,
    mailbox: &'static AtomicU64,
    mailbox_there: u64,
    /// A stream of our own, for anchors: at most one is under way.
    stream: StreamPtr,
    token: Mutex<u64>,
    spin: Ptr,
    /// The session in which it was made: all that is in the ring is of that one or of later ones.
    pub(super) session: u64,
}

// SAFETY: the driver takes handles from any thread; everything else is `Send` and `Sync`.
#[allow(unsafe_code)]
unsafe impl Send for Stamper {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Stamper {}

impl Stamper {
    /// Makes all of it in a context that lives, while the calling thread's capture mode is relaxed. It compiles kernels, which
    /// takes some ms. Nothing here synchronises, but the driver may let the loading of a module wait for work in the context, so a
    /// launching thread calls it only where a capture needs it at once.
    pub(super) fn new(
        driver: &'static Driver,
        context: ContextPtr,
        id: u64,
        session: u64,
    ) -> Result<Stamper, BackendError> {
        let calls = Calls::new(driver)?;
        let told = |error| driver.describe(error);
        driver
            .with_context(context, || {
                let ordinal = driver.device()?;
                let name = driver.device_name(ordinal)?;
                let module = calls.load(PTX)?;
                let stamp = calls.function(module, c"warpline_stamp")?;
                let anchor = calls.function(module, c"warpline_anchor")?;
                let spin = calls.function(module, c"warpline_spin")?;
                let stream = driver.create_stream()?;
                // Last of all, since it stays whatever comes of it.
                let memory: &'static [Slot] = leak(SLOTS + RESERVED);
                let (ring, rest) = memory.split_at(SLOTS);
                ring::clear(ring);
                let ring_there = calls.map(bytes(memory)).inspect_err(|_| driver.destroy_stream(stream))?;
                let mailbox = &rest[0][0];
                let device = DeviceInfo { ordinal: ordinal.unsigned_abs(), name, kind: DeviceKind::Cuda };
                Ok((device, stamp, anchor, spin, ring, mailbox, ring_there, stream))
            })
            .map(|(device, stamp, anchor, spin, ring, mailbox, ring_there, stream)| Stamper {
                driver,
                context,
                id,
                device,
                stamp,
                anchor,
                ring,
                ring_there,
                mailbox,
                mailbox_there: ring_there + size_of_val(ring) as u64,
                stream,
                token: Mutex::new(0),
                spin,
                session,
                calls,
            })
            .map_err(told)
    }

    /// Captures a stamp on a stream of this context, which is current.
    pub(super) fn capture(&self, stream: StreamPtr, id: u32) -> Result<(), CudaError> {
        self.calls.launch(self.stamp, stream, [self.ring_there, u64::from(id)])
    }

    /// The kernel, as the nodes of graphs name it.
    pub(super) fn function(&self) -> usize {
        self.stamp as usize
    }

    pub(super) fn context(&self) -> ContextPtr {
        self.context
    }

    pub(super) fn ring(&self) -> &'static [Slot] {
        self.ring
    }

    /// Whether the context still is what it was.
    pub(super) fn is_there(&self) -> bool {
        self.driver.context_id(self.context) == Ok(self.id)
    }

    /// What two stamps add to a kernel between them, in ns, by a graph of such kernels that run for a known time, on a stream of
    /// our own; none where the device is too busy. A profiler makes a difference to it, so each session measures anew.
    pub(super) fn measure_bracket(&self) -> Result<Option<i64>, CudaError> {
        self.driver.with_context(self.context, || self.driver.outside_captures(|| self.bracket()))
    }

    fn bracket(&self) -> Result<Option<i64>, CudaError> {
        let capture = || {
            for _ in 0..SPINS {
                self.capture(self.stream, OWN)?;
                self.calls.launch(self.spin, self.stream, [SPIN_NS])?;
            }
            self.capture(self.stream, OWN)
        };
        self.calls.with_graph(self.stream, capture, |exec| {
            let deadline = Instant::now() + BRACKET_WATCH;
            let mut reader = ring::Reader::new(self.ring);
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                self.calls.launch_graph(exec, self.stream)?;
                times.clear();
                while times.len() <= SPINS {
                    reader.read(self.ring, |id, time| times.extend((id == OWN).then_some(time)));
                    if times.len() > SPINS {
                        break;
                    }
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            let lengths = times.windows(2).map(|pair| difference(pair[1], pair[0])).collect();
            let estimate = estimate(lengths, SPIN_NS as i64 + AROUND_NS);
            Ok(estimate.filter(|estimate| estimate.is_sound).map(|estimate| estimate.ns))
        })
    }

    /// Asks the device for its time on a stream of our own, and watches the answer come; none where it does not come by then.
    pub(super) fn anchor(&self, watch: Duration) -> Result<Option<Comparison>, CudaError> {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mailbox.load(Ordering::Acquire) >> TIME_BITS != *token {
            // The last one is still under way.
            return Ok(None);
        }
        let (next, mut from_ns) = (*token % 0xFFFF + 1, now_ns());
        let launch = || self.calls.launch(self.anchor, self.stream, [self.mailbox_there, next]);
        self.driver.with_context(self.context, || self.driver.outside_captures(launch))?;
        // One that was refused never answers.
        *token = next;
        let token = next;
        let deadline = Instant::now() + watch;
        loop {
            let asked_ns = now_ns();
            let word = self.mailbox.load(Ordering::Acquire);
            if word >> TIME_BITS == token {
                let to_ns = now_ns();
                let uncertainty_ns = (to_ns - from_ns + VISIBLE_NS) / 2;
                let device_ns = (word & ((1 << TIME_BITS) - 1)).cast_signed();
                return Ok(Some(Comparison { device_ns, host_ns: to_ns - uncertainty_ns, uncertainty_ns }));
            }
            from_ns = asked_ns;
            if Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }
}

/// The distance of two times of which only the low bits are known, in ns.
pub(super) fn difference(time: u64, since: u64) -> i64 {
    let up = 64 - TIME_BITS;
    (time.wrapping_sub(since) << up).cast_signed() >> up
}

/// Slots behind the ring, for the mailbox: a page of its own.
const RESERVED: usize = 4096 / size_of::<Slot>();

/// Memory that stays for as long as the process.
fn leak(slots: usize) -> &'static [Slot] {
    // Whole pages, so that nothing else of the process is in what the device may write to.
    #[repr(align(4096))]
    struct Page(#[expect(dead_code, reason = "seen as slots")] [Slot; RESERVED]);
    let pages: Vec<Page> =
        (0..slots.div_ceil(RESERVED)).map(|_| Page(std::array::from_fn(|_| Slot::default()))).collect();
    let pages = pages.leak();
    // SAFETY: a page is so many slots and nothing else, and they are side by side.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(pages.as_ptr().cast(), slots)
    }
}

fn bytes(memory: &'static [Slot]) -> &'static [u8] {
    // SAFETY: only its address and its length are used; nobody reads through it.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(memory.as_ptr().cast(), size_of_val(memory))
    }
}
