//! Fail on demand: single calls by name, or nearly every call once the device is broken.

use std::collections::HashMap;

use crate::code::Code;
use crate::moment::Moment;

/// Calls that a device error leaves alone: they ask the driver, not the device.
const DEVICE_FREE: [&str; 17] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxGetDevice",
    "cuCtxGetId",
    "cuCtxDestroy_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset_v2",
    "cuDevicePrimaryCtxRetain",
    "cuThreadExchangeStreamCaptureMode",
];

/// Calls that do their work on a broken device and return its error all the same.
const WORKS_AND_FAILS: [&str; 3] = ["cuEventDestroy_v2", "cuStreamDestroy_v2", "cuGraphDestroy"];

/// What is to fail.
#[derive(Default)]
pub struct Faults {
    calls: HashMap<String, CallFault>,
    device: Option<Code>,
    /// Kernels that will break the device.
    pub pending: Vec<(Moment, Code)>,
}

struct CallFault {
    skip: u64,
    times: u64,
    code: Code,
}

/// What becomes of a call.
pub enum Verdict {
    Works,
    Fails(Code),
    WorksAndFails(Code),
}

impl Faults {
    /// After `skip` more calls of `symbol`, the next `times` fail with `code`. A new order replaces the old one.
    pub fn fail(&mut self, symbol: &str, skip: u64, times: u64, code: Code) {
        self.calls.insert(symbol.to_owned(), CallFault { skip, times, code });
    }

    /// Breaks the device, or mends it.
    pub fn set_device(&mut self, code: Option<Code>) {
        self.device = code;
        self.pending.clear();
    }

    /// What the device is broken with.
    pub fn device(&mut self, now_ns: i64) -> Option<Code> {
        let broken = self.pending.iter().find(|(moment, _)| moment.is_reached(now_ns)).map(|(_, code)| *code);
        if let Some(code) = broken {
            self.set_device(Some(code));
        }
        self.device
    }

    /// What becomes of this call of `symbol`.
    pub fn verdict(&mut self, symbol: &str, now_ns: i64) -> Verdict {
        match self.device(now_ns) {
            _ if symbol.starts_with("cuGetError") || symbol == "cuDriverGetVersion" => Verdict::Works,
            Some(code) if WORKS_AND_FAILS.contains(&symbol) => Verdict::WorksAndFails(code),
            Some(code) if code == Code::DEINITIALIZED || !DEVICE_FREE.contains(&symbol) => Verdict::Fails(code),
            _ => self.calls.get_mut(symbol).and_then(CallFault::take).map_or(Verdict::Works, Verdict::Fails),
        }
    }
}

impl CallFault {
    fn take(&mut self) -> Option<Code> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times = self.times.checked_sub(1)?;
        Some(self.code)
    }
}
