//! Time: the host's clock, and its relation to a device's clock.
//!
//! A zone's length is the difference of its own two points. Positions come from a chain of anchors: events with a known device
//! time, each the base of the next, summed in i64 ns, so that no distance is long enough for a device's time format to lose
//! digits. [`Correlation`] converts these times to the host's clock.

mod comparison;
mod comparisons;
mod correlation;
#[cfg_attr(not(all(target_os = "linux", feature = "runtime")), path = "portable.rs")]
mod system;
#[cfg(all(target_os = "linux", target_arch = "x86_64", feature = "runtime", not(miri), not(loom)))]
mod ticks;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use comparison::Comparison;
pub use comparisons::Comparisons;
pub use correlation::Correlation;
pub(crate) use system::thread_id;
pub use ticks::Ticks;

/// Where the processor has no time stamp counter that this crate knows, or nothing is recorded: the clock is the kernel's.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", feature = "runtime", not(miri), not(loom))))]
mod ticks {
    /// See `ticks.rs`.
    #[derive(Debug)]
    pub struct Ticks;

    #[inline(always)]
    pub(super) fn now_ns() -> Option<i64> {
        None
    }

    impl Ticks {
        pub fn start() -> Ticks {
            Ticks
        }

        pub fn compare(&self) {}
    }
}

/// Returns the current time, in ns of the clock of every record: `CLOCK_BOOTTIME` on Linux. It never runs backwards on a thread
/// by more than 1 µs.
#[inline]
pub fn now_ns() -> i64 {
    ticks::now_ns().unwrap_or_else(system::now_ns)
}

/// Whether the kernel takes the processor's time stamp counter for its clock. It does so only if the counter has one rate on all cores in
/// all states, and watches it. A session then reads the counter, too.
pub fn kernels_clock_is_counter() -> bool {
    cfg!(target_arch = "x86_64") && kernels_clock().is_some_and(|name| name == "tsc")
}

/// Returns the name of the kernel's clock source on Linux: `tsc`, `kvm-clock`, `hyperv_clocksource_tsc_page`, …
pub fn kernels_clock() -> Option<String> {
    let name = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok()?;
    Some(name.trim_end().to_owned())
}

/// Returns the current time, in ns since the Unix epoch.
pub fn unix_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as i64
}

/// Returns the day of a time in seconds since the Unix epoch, in UTC: `2026-11-24`.
pub fn utc_date(unix_s: i64) -> String {
    // The civil calendar, in eras of 400 years that begin in March.
    let shifted = unix_s.div_euclid(86_400) + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + i64::from(month <= 2))
}

/// The time that a pair of points adds to the work between them, in ns, measured on the device itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventOverhead {
    /// The overhead on an idle stream, with no work between the points.
    pub idle_ns: i64,
    /// The overhead on a stream with queued work.
    pub busy_ns: i64,
}

/// A year of 365 days, in ns. What a backend says in ns is no longer, so that figures made of it stay in range.
pub const YEAR_NS: i64 = 365 * 24 * 3_600 * 1_000_000_000;

impl EventOverhead {
    /// Returns the overhead within the range that figures can be made of.
    pub fn checked(self) -> EventOverhead {
        EventOverhead { idle_ns: self.idle_ns.clamp(0, YEAR_NS), busy_ns: self.busy_ns.clamp(0, YEAR_NS) }
    }
}
