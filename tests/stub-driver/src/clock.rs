//! Time: everything is kept in ns of the host's CLOCK_MONOTONIC; a device reads it through a clock of its own, which
//! has an offset, may drift, and steps by 32 ns.

use std::sync::LazyLock;
use std::time::Duration;

/// The step of a device's timestamps.
const STEP_NS: i64 = 32;

/// What the device's clock shows when the driver is loaded: far from the host's, as on a real device.
const OFFSET_NS: i64 = 1_700_000_000_123_456_789;

/// CLOCK_MONOTONIC, in ns.
pub fn now_ns() -> i64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// The same moment in ns of CLOCK_BOOTTIME. The two differ by the time that the machine slept, which is looked up once.
pub fn boot_ns(at_ns: i64) -> i64 {
    static SLEPT_NS: LazyLock<i64> = LazyLock::new(|| read_ns(libc::CLOCK_BOOTTIME) - now_ns());
    at_ns + *SLEPT_NS
}

fn read_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that lives through the call.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// How long it is until `at_ns`; nothing when that is over.
pub fn until(at_ns: i64) -> Duration {
    Duration::from_nanos(u64::try_from(at_ns - now_ns()).unwrap_or(0))
}

/// The device's clock against the host's. A new drift holds from when it is set.
pub struct DeviceClock {
    before: Vec<Pace>,
    now: Pace,
}

/// From `host_ns`, where the device shows `device_ns`, it gains `ppm` ns each ms.
struct Pace {
    host_ns: i64,
    device_ns: i64,
    ppm: i64,
}

impl Pace {
    fn device_ns(&self, host_ns: i64) -> i64 {
        let passed = i128::from(host_ns - self.host_ns);
        self.device_ns + (passed + passed * i128::from(self.ppm) / 1_000_000) as i64
    }
}

impl DeviceClock {
    /// A clock that does not drift.
    pub fn new() -> DeviceClock {
        DeviceClock { before: Vec::new(), now: Pace { host_ns: now_ns(), device_ns: OFFSET_NS, ppm: 0 } }
    }

    /// Lets it drift from now on.
    pub fn set_drift(&mut self, ppm: i64) {
        let host_ns = now_ns();
        let pace = Pace { host_ns, device_ns: self.now.device_ns(host_ns), ppm };
        self.before.push(std::mem::replace(&mut self.now, pace));
    }

    /// What a timestamp shows that the device takes at `host_ns`.
    pub fn timestamp_ns(&self, host_ns: i64) -> i64 {
        let paces = self.before.iter().chain([&self.now]);
        let pace = paces.rev().find(|pace| pace.host_ns <= host_ns).unwrap_or(&self.now);
        pace.device_ns(host_ns) / STEP_NS * STEP_NS
    }

    /// The time between two timestamps as the driver tells it: milliseconds, in 24 bits.
    pub fn elapsed_ms(&self, start_ns: i64, end_ns: i64) -> f32 {
        ((self.timestamp_ns(end_ns) - self.timestamp_ns(start_ns)) as f64 / 1e6) as f32
    }
}
