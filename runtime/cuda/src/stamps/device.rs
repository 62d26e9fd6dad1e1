//! The stamps of one CUDA context: the kernels, the counter, the ring, and the relation of the device's `%globaltimer` to the host's clock.
//!
//! The ring is kept until the process ends. An executable graph with stamps can be replayed long after the session that captured it, and
//! the driver does not report when the last such graph is destroyed, so the memory that the stamps write must stay valid. The kernels and
//! their counter are destroyed with the context. The ring is memory of the process that only the context writes, so it can be read safely
//! even if the context was destroyed.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::driver::{ContextPtr, CudaError, Driver, StreamPtr};
use super::super::graph_api::CapturePosition;
use super::super::kernels::{Kernel, Kernels};
use super::abi::Calls;
use super::ring::{self, Slot, TIME_BITS};
use super::stand_behind;
use warpline_core::backend::BackendError;
use warpline_core::backend::event_clock::estimate;
use warpline_core::clock::{Comparison, now_ns};
use warpline_core::record::{DeviceInfo, DeviceKind};

/// The kernel's name in profilers and graphs.
pub(crate) const NAME: &str = "warpline_stamp";

/// The kernel in [`PTX`] that measurements run between their points.
pub(crate) const SPIN: &CStr = c"warpline_spin";

/// The length of a ring: 2 MiB. Back-to-back replays with 128 stamps each fill it in more than 100 ms.
pub(super) const SLOTS: usize = 1 << 17;

/// The id of stamps that do not belong to a captured zone.
pub(super) const OWN: u32 = 0;

/// A stamp reads the clock before it takes its slot, so that the end of a zone does not include the stamp. `ring` defines the layout. An
/// anchor waits for a given number of ns before it answers, so that the host's launch call has returned and the host is polling. The third
/// kernel runs for a given number of ns; a calibration uses it as well.
pub(crate) const PTX: &CStr = c"
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

.visible .entry warpline_anchor(.param .u64 at, .param .u64 token, .param .u64 wait)
{
    .reg .pred %p;
    .reg .u64 %begin, %time, %waited, %at, %token, %wait;
    ld.param.u64 %wait, [wait];
    ld.param.u64 %at, [at];
    ld.param.u64 %token, [token];
    shl.b64 %token, %token, 48;
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %time, %globaltimer;
    sub.u64 %waited, %time, %begin;
    setp.lt.u64 %p, %waited, %wait;
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

/// The bracket is measured with `SPINS` kernels that run for `SPIN_NS`, in `ROUNDS` rounds, of which only the last one is used.
const SPIN_NS: u64 = 5_000;
const SPINS: usize = 16;
const ROUNDS: usize = 3;
const BRACKET_WATCH: Duration = Duration::from_millis(100);

/// The part of a graph kernel's time in CUPTI that is before its first and after its last instruction, as measured on an H200.
const AROUND_NS: i64 = 750;

/// The maximum time from the device's read of its clock until the host can see the value.
const VISIBLE_NS: i64 = 1_500;

/// How long an anchor waits before it answers.
const ANSWER_AFTER_NS: u64 = 20_000;

/// How long the host polls for an anchor. The first anchor of a context takes longer, because the driver must load its kernel.
pub(super) const WATCH: Duration = Duration::from_micros(300);
pub(super) const FIRST_WATCH: Duration = Duration::from_millis(50);

/// The state that stamps need in one context.
pub struct Stamper {
    driver: &'static Driver,
    calls: Calls,
    kernels: Kernels,
    context: ContextPtr,
    pub id: u64,
    pub(crate) device: DeviceInfo,
    stamp: Kernel,
    anchor: Kernel,
    spin: Kernel,
    ring: &'static [Slot],
    ring_there: u64,
    /// A stream of our own for anchors. At most one anchor is pending.
    stream: StreamPtr,
    mailbox: Mailbox,
    /// The same for reads of the clock between events.
    joined: Mailbox,
    /// Whether the driver and the device support launch order: a kernel may begin as soon as the preceding one has begun.
    can_order_by_launch: bool,
    /// The session in which the stamper was created. All stamps in the ring are from that session or later ones.
    pub(super) session: u64,
}

/// A word of the device's: the low bits of its clock, and a token that says which read of the clock it answers.
struct Mailbox {
    word: &'static AtomicU64,
    there: u64,
    /// The token of the last read that was launched.
    token: Mutex<u64>,
}

impl Mailbox {
    fn new(word: &'static AtomicU64, there: u64) -> Mailbox {
        Mailbox { word, there, token: Mutex::new(0) }
    }

    /// Returns the device's time at the read with this token; none before the device has answered.
    fn answer(&self, token: u64) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (word >> TIME_BITS == token).then_some(word & ((1 << TIME_BITS) - 1))
    }
}

// SAFETY: the driver takes handles from any thread; everything else is `Send` and `Sync`.
#[allow(unsafe_code)]
unsafe impl Send for Stamper {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Stamper {}

impl Stamper {
    /// Prepares a context that is kept alive, while the calling thread's capture mode is relaxed. It compiles kernels, which takes some ms.
    /// Nothing here synchronises, but the driver may wait for work in the context when it loads a module. A launching thread therefore
    /// calls this only if a capture needs it at once.
    pub(super) fn new(
        driver: &'static Driver,
        context: ContextPtr,
        id: u64,
        session: u64,
    ) -> Result<Stamper, BackendError> {
        let (calls, kernels) = (Calls::new(driver)?, Kernels::new(driver)?);
        let prepare = move || {
            let ordinal = driver.device()?;
            let name = driver.device_name(ordinal)?;
            let can_order_by_launch = driver.can_stand_behind_launches()
                && kernels.attribute(CAPABILITY_MAJOR, ordinal).is_ok_and(|major| major >= LAUNCH_ORDER_SINCE);
            let module = kernels.load(PTX)?;
            let stamp = kernels.function(module, c"warpline_stamp")?;
            let anchor = kernels.function(module, c"warpline_anchor")?;
            let spin = kernels.function(module, SPIN)?;
            let stream = driver.create_stream()?;
            // This comes last, because the memory is never freed, even if the mapping fails.
            let memory: &'static [Slot] = leak(SLOTS + RESERVED);
            let (ring, rest) = memory.split_at(SLOTS);
            ring::clear(ring);
            let ring_there = calls.map(bytes(memory)).inspect_err(|_| driver.destroy_stream(stream))?;
            let there = |slot: usize| ring_there + (size_of_val(ring) + slot * size_of::<Slot>()) as u64;
            Ok(Stamper {
                driver,
                calls,
                kernels,
                context,
                id,
                device: DeviceInfo { ordinal: ordinal.unsigned_abs(), name, kind: DeviceKind::Cuda },
                stamp,
                anchor,
                spin,
                ring,
                ring_there,
                stream,
                mailbox: Mailbox::new(&rest[0][0], there(0)),
                joined: Mailbox::new(&rest[1][0], there(1)),
                can_order_by_launch,
                session,
            })
        };
        driver.with_context(context, prepare).map_err(|error| driver.describe(error))
    }

    /// Captures a stamp on a stream of this context, which must be current.
    pub(super) fn capture(&self, stream: StreamPtr, id: u32) -> Result<(), CudaError> {
        self.kernels.launch(self.stamp, (1, 1), stream, [self.ring_there, u64::from(id)])
    }

    /// Returns the position at which work after a stamp waits. With stamps by launch order, if the driver and the device support that, the
    /// next kernel waits only until the stamp has begun and so has read the clock. The stamp may then be written after the end of that
    /// kernel.
    pub(super) fn behind(&self, place: CapturePosition) -> CapturePosition {
        match *place.frontier {
            [stamp] if self.orders_by_launch() => place.behind_launch(stamp),
            _ => place,
        }
    }

    /// Returns whether the session has stamps by launch order, and the driver and the device support them.
    pub(super) fn orders_by_launch(&self) -> bool {
        self.can_order_by_launch && super::BY_LAUNCH.load(Ordering::Relaxed)
    }

    /// Returns the handle of the kernel in graph nodes.
    pub(super) fn function(&self) -> usize {
        self.stamp.address()
    }

    pub(super) fn context(&self) -> ContextPtr {
        self.context
    }

    pub(super) fn ring(&self) -> &'static [Slot] {
        self.ring
    }

    /// Returns whether the context still exists.
    pub(super) fn is_there(&self) -> bool {
        self.driver.context_id(self.context) == Ok(self.id)
    }

    /// Measures by how much two stamps lengthen a kernel between them, in ns; none if the device is too busy. It launches a graph of
    /// kernels with a known duration, on a stream of our own. A profiler changes the result, so each session measures again.
    pub(super) fn measure_bracket(&self) -> Result<Option<i64>, CudaError> {
        self.driver.with_context(self.context, || self.driver.outside_captures(|| self.bracket()))
    }

    fn bracket(&self) -> Result<Option<i64>, CudaError> {
        let capture = || {
            for _ in 0..SPINS {
                self.capture(self.stream, OWN)?;
                // As after the stamp of a zone's begin.
                if self.orders_by_launch()
                    && let Some(place) = self.driver.capture(self.stream)?
                {
                    stand_behind(self.driver, self.stream, self.behind(place))?;
                }
                self.kernels.launch(self.spin, (1, 1), self.stream, [SPIN_NS])?;
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

    /// Compares the device's clock with the host's: launches an anchor on a stream of our own and polls for its answer. Returns none if
    /// there is no answer within `watch`.
    pub(super) fn anchor(&self, watch: Duration) -> Result<Option<Comparison>, CudaError> {
        let mut token = self.mailbox.token.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mailbox.answer(*token).is_none() {
            // The previous anchor is still pending.
            return Ok(None);
        }
        let (next, mut from_ns) = (*token % 0xFFFF + 1, now_ns());
        let launch = || self.launch_anchor(&self.mailbox, next, ANSWER_AFTER_NS);
        self.driver.with_context(self.context, || self.driver.outside_captures(launch))?;
        // Only a launch that succeeded is counted, because one that failed never answers.
        *token = next;
        let token = next;
        let deadline = Instant::now() + watch;
        loop {
            let asked_ns = now_ns();
            if let Some(time) = self.mailbox.answer(token) {
                let to_ns = now_ns();
                let uncertainty_ns = (to_ns - from_ns + VISIBLE_NS) / 2;
                let device_ns = time.cast_signed();
                return Ok(Some(Comparison { device_ns, host_ns: to_ns - uncertainty_ns, uncertainty_ns }));
            }
            from_ns = asked_ns;
            if Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    fn launch_anchor(&self, mailbox: &Mailbox, token: u64, wait_ns: u64) -> Result<(), CudaError> {
        self.kernels.launch(self.anchor, (1, 1), self.stream, [mailbox.there, token, wait_ns])
    }

    /// Puts a read of the device's clock onto the stream of the anchors; none if the last one is still pending. `put` gets the stream and
    /// what puts the read on it.
    pub(crate) fn read_clock(
        &self,
        put: impl FnOnce(StreamPtr, &dyn Fn() -> Result<(), CudaError>) -> Result<(), CudaError>,
    ) -> Result<Option<ClockRead>, CudaError> {
        let mut token = self.joined.token.lock().unwrap_or_else(PoisonError::into_inner);
        if self.joined.answer(*token).is_none() {
            return Ok(None);
        }
        let next = *token % 0xFFFF + 1;
        let launched = Cell::new(false);
        let launch = || {
            self.launch_anchor(&self.joined, next, 0)?;
            launched.set(true);
            Ok(())
        };
        let put = self.driver.with_context(self.context, || self.driver.outside_captures(|| put(self.stream, &launch)));
        // Only a launch that succeeded answers, whatever failed after it.
        if launched.get() {
            *token = next;
        }
        put.map(|()| Some(ClockRead { token: next }))
    }

    /// Returns the device's time at a read; none before the device has answered.
    pub(super) fn answer(&self, read: &ClockRead) -> Option<u64> {
        self.joined.answer(read.token)
    }
}

/// A read of the device's clock that was put onto a stream.
pub(crate) struct ClockRead {
    token: u64,
}

/// Returns the difference of two times in ns. Only their low bits are known.
pub(super) fn difference(time: u64, since: u64) -> i64 {
    let up = 64 - TIME_BITS;
    (time.wrapping_sub(since) << up).cast_signed() >> up
}

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
const CAPABILITY_MAJOR: c_int = 75;

/// The first major compute capability of devices that begin a kernel while the preceding one runs.
const LAUNCH_ORDER_SINCE: c_int = 9;

/// The number of slots after the ring, for the two mailboxes: one page.
const RESERVED: usize = 4096 / size_of::<Slot>();

/// Allocates memory that is never freed.
fn leak(slots: usize) -> &'static [Slot] {
    // It consists of whole pages, so that the device can write to nothing else of the process.
    #[repr(align(4096))]
    struct Page(#[expect(dead_code, reason = "seen as slots")] [Slot; RESERVED]);
    let pages: Vec<Page> =
        (0..slots.div_ceil(RESERVED)).map(|_| Page(std::array::from_fn(|_| Slot::default()))).collect();
    let pages = pages.leak();
    // SAFETY: a page consists only of `RESERVED` slots, and pages are contiguous.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(pages.as_ptr().cast(), slots)
    }
}

fn bytes(memory: &'static [Slot]) -> &'static [u8] {
    // SAFETY: only the address and the length are used; nothing reads through the slice.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(memory.as_ptr().cast(), size_of_val(memory))
    }
}
