//! The clock of a rank's host: that of the machine, ahead by a constant and a drift, and stepped at given times.
//!
//! A program cannot set the clocks of its own process, so this one has a `clock_gettime` of its own, which the linker takes in place of the C
//! library's, for the standard library and for warpline. It is the same for all processes of a host, because it is a function of the
//! machine's clock and of one variable. warpline has no part in it.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// The variable that describes the clock.
pub const VARIABLE: &str = "SOAK_CLOCK";

/// A step of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// When, on the machine's clock.
    pub at_ns: i64,
    pub by_ns: i64,
}

/// What a host's clock is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock {
    /// The time of the machine's clock from which on the clock drifts.
    pub from_ns: i64,
    /// By how much `CLOCK_BOOTTIME` is ahead at that time.
    pub ahead_ns: i64,
    /// In parts per billion.
    pub drift_ppb: i64,
    /// Of `CLOCK_REALTIME`, as by an administrator or NTP.
    pub steps: Vec<Step>,
}

static CLOCK: OnceLock<Clock> = OnceLock::new();

impl Clock {
    /// For the variable: `FROM AHEAD DRIFT [AT BY]…`.
    pub fn to_text(&self) -> String {
        let steps = self.steps.iter().map(|step| format!(" {} {}", step.at_ns, step.by_ns)).collect::<String>();
        format!("{} {} {}{steps}", self.from_ns, self.ahead_ns, self.drift_ppb)
    }

    fn parse(text: &str) -> Option<Clock> {
        let numbers = text.split(' ').map(|word| word.parse::<i64>().ok()).collect::<Option<Vec<_>>>()?;
        let [from_ns, ahead_ns, drift_ppb, rest @ ..] = numbers.as_slice() else { return None };
        let steps = rest.chunks_exact(2).map(|pair| Step { at_ns: pair[0], by_ns: pair[1] }).collect();
        Some(Clock { from_ns: *from_ns, ahead_ns: *ahead_ns, drift_ppb: *drift_ppb, steps })
    }

    /// By how much a clock is ahead at a time of the machine's clock.
    fn ahead_ns(&self, clock: libc::clockid_t, now_ns: i64) -> i64 {
        let drift = i128::from(now_ns - self.from_ns) * i128::from(self.drift_ppb) / 1_000_000_000;
        match clock {
            libc::CLOCK_BOOTTIME => self.ahead_ns + drift as i64,
            libc::CLOCK_REALTIME => self.steps.iter().filter(|step| step.at_ns <= now_ns).map(|step| step.by_ns).sum(),
            _ => 0,
        }
    }
}

/// Takes the clock of the variable for that of this process.
pub fn take() -> Option<()> {
    let clock = Clock::parse(&std::env::var(VARIABLE).ok()?)?;
    CLOCK.set(clock).ok()
}

fn of_kernel(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    // SAFETY: the caller's pointer is valid for a `timespec`, or the kernel says that it is not.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as libc::c_int }
}

/// The machine's `CLOCK_BOOTTIME`: the truth.
pub fn machine_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    of_kernel(libc::CLOCK_BOOTTIME, &raw mut time);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The C library's function, for everything in this program.
///
/// # Safety
/// As that of the C library: `time` is valid for a `timespec`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let outcome = of_kernel(clock, time);
    if outcome == 0
        && let Some(host) = CLOCK.get()
    {
        let ahead_ns = host.ahead_ns(clock, machine_ns());
        if ahead_ns != 0 {
            // SAFETY: the kernel has just written there.
            let time = unsafe { &mut *time };
            let ns = time.tv_sec * 1_000_000_000 + time.tv_nsec + ahead_ns;
            (time.tv_sec, time.tv_nsec) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
        }
    }
    outcome
}
