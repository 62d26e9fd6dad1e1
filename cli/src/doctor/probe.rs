//! Asks the driver and CUPTI of this host, each in a process of its own: this command, started again with
//! `doctor --probe`.
//!
//! A driver that crashes, aborts or hangs ends that process and not the command, which reports it. No tool is started
//! there: the variables that inject one into CUDA programs are removed.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use warpline_cuda::probe as cuda;

/// How long a process that was killed may take to end. One that waits in the kernel for a device does not end.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// A tool in the probe would hold CUPTI, and could write files.
const INJECTIONS: [&str; 2] = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"];

/// The library that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Driver,
    Cupti,
    /// Measures the peaks of the devices.
    Peaks,
    #[cfg(feature = "hip")]
    Hip,
}

/// The driver.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct DriverFacts {
    pub(super) library: String,
    /// The file that the loader chose.
    pub(super) path: Option<String>,
    pub(super) not_loaded: Option<String>,
    /// 1000 × major + 10 × minor.
    pub(super) version: Option<i32>,
    pub(super) missing: Vec<String>,
    pub(super) optional: Vec<Symbol>,
    pub(super) not_initialised: Option<String>,
    pub(super) devices: Vec<String>,
    pub(super) tells_ids: bool,
}

/// An optional symbol of the driver.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) found: bool,
}

impl DriverFacts {
    pub(super) fn has(&self, symbol: &str) -> bool {
        self.optional.iter().any(|known| known.name == symbol && known.found)
    }

    fn read() -> DriverFacts {
        let found = cuda::driver();
        let optional = found.optional.iter().map(|(name, found)| Symbol { name: (*name).to_owned(), found: *found });
        DriverFacts {
            library: found.library.to_owned(),
            path: mapped("libcuda.so"),
            optional: optional.collect(),
            tells_ids: found.tells_ids(),
            not_loaded: found.not_loaded,
            version: found.version,
            missing: found.missing,
            not_initialised: found.not_initialised,
            devices: found.devices,
        }
    }
}

/// The peak rates of the devices of each name, measured on the first of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct PeakFacts {
    pub(super) devices: Vec<DevicePeak>,
}

/// The peak rates of one device.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct DevicePeak {
    pub(super) device: String,
    pub(super) ordinal: u32,
    /// Why it was not measured. The rates are then 0.
    pub(super) failed: Option<String>,
    /// The bytes per second that a copy within its memory reads and writes.
    pub(super) bytes_per_s: f64,
    /// The operations per second of FP32 multiply-adds, which are two each.
    pub(super) f32_flops_per_s: f64,
}

impl PeakFacts {
    fn read() -> PeakFacts {
        let names = cuda::driver().devices;
        let is_first = |(at, name): &(usize, &String)| !names[..*at].contains(name);
        let measure = |(at, name): (usize, &String)| {
            let ordinal = at as u32;
            let (failed, bytes_per_s, f32_flops_per_s) = match warpline_cuda::peak::measure(ordinal) {
                Ok(peak) => (None, peak.bytes_per_s, peak.f32_flops_per_s),
                Err(why) => (Some(why), 0.0, 0.0),
            };
            DevicePeak { device: name.clone(), ordinal, failed, bytes_per_s, f32_flops_per_s }
        };
        PeakFacts { devices: names.iter().enumerate().filter(is_first).map(measure).collect() }
    }
}

/// CUPTI.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct CuptiFacts {
    /// Why it cannot be used, with the remedy.
    pub(super) unusable: Option<String>,
    pub(super) path: Option<String>,
    /// CUPTI's own version number.
    pub(super) version: Option<u32>,
    pub(super) tells_ids: bool,
}

impl CuptiFacts {
    fn read() -> CuptiFacts {
        match cuda::cupti() {
            Ok(found) => CuptiFacts {
                unusable: None,
                path: Some(mapped("libcupti.so").unwrap_or(found.library)),
                version: Some(found.version),
                tells_ids: found.tells_ids,
            },
            Err(why) => CuptiFacts { unusable: Some(why), ..CuptiFacts::default() },
        }
    }
}

/// The HIP runtime.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct HipFacts {
    /// Why it cannot be used, with the remedy.
    pub(super) unusable: Option<String>,
    pub(super) path: Option<String>,
    /// 10,000,000 × major + 100,000 × minor + patch.
    pub(super) version: Option<i32>,
    pub(super) missing: Vec<String>,
    pub(super) has_no_device: bool,
    pub(super) not_initialised: Option<String>,
    pub(super) devices: Vec<String>,
}

#[cfg(feature = "hip")]
impl HipFacts {
    fn read() -> HipFacts {
        let found = warpline_hip::probe::hip();
        HipFacts {
            path: mapped("libamdhip64.so").or_else(|| Some(found.library.to_owned())),
            unusable: found.unusable,
            version: found.version,
            missing: found.missing.into_iter().map(str::to_owned).collect(),
            has_no_device: found.has_no_device,
            not_initialised: found.not_initialised,
            devices: found.devices,
        }
    }
}

/// The file of a library that this process has loaded, where Linux shows it.
fn mapped(name: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let mut named = paths.filter(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(name)));
    named.next().map(str::to_owned)
}

/// In the process of the probe: the answer, as one line of JSON.
pub(crate) fn answer(part: Part) -> String {
    // A crash is reported, and leaves no file.
    #[cfg(unix)]
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
    );
    let answer = match part {
        Part::Driver => serde_json::to_string(&DriverFacts::read()),
        Part::Cupti => serde_json::to_string(&CuptiFacts::read()),
        Part::Peaks => serde_json::to_string(&PeakFacts::read()),
        #[cfg(feature = "hip")]
        Part::Hip => serde_json::to_string(&HipFacts::read()),
    };
    answer.unwrap_or_default() + "\n"
}

/// The facts from a probe, or how it failed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Probed<T> {
    Found(T),
    /// The library ended the process, did not answer, or no process could be started.
    Failed(String),
}

/// Asks in a process of its own.
pub(super) fn ask<T: DeserializeOwned>(part: Part, within: Duration) -> Probed<T> {
    match answer_of(part, within) {
        Ok(text) => serde_json::from_str(&text).map_or_else(
            |_| Probed::Failed("the child process that called it returned no result".to_owned()),
            Probed::Found,
        ),
        Err(why) => Probed::Failed(why),
    }
}

fn answer_of(part: Part, within: Duration) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("the child process to call it could not be started: {error}");
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    let name = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    command.args(["doctor", "--probe", &name]);
    for variable in INJECTIONS {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(cannot)?;
    let (say, said) = mpsc::channel();
    if let Some(mut out) = child.stdout.take() {
        let read = move || {
            let mut text = Vec::new();
            let _ = out.read_to_end(&mut text);
            let _ = say.send(String::from_utf8_lossy(&text).into_owned());
        };
        thread::Builder::new().spawn(read).map_err(cannot)?;
    }
    let Ok(text) = said.recv_timeout(within) else {
        let _ = child.kill();
        ended(&mut child, ENDS_WITHIN);
        return Err(format!("it did not return within {} s", within.as_secs_f32()));
    };
    match ended(&mut child, within) {
        Some(status) if status.success() => Ok(text),
        Some(status) => Err(format!("it ended the child process that called it ({})", how(status))),
        // The answer is complete; a library keeps the process from ending.
        None => {
            let _ = child.kill();
            ended(&mut child, ENDS_WITHIN);
            Ok(text)
        }
    }
}

/// The status of a process that ends within this time.
fn ended(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if began.elapsed() < within => thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

/// How a process ended.
fn how(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("signal {signal}");
    }
    status.to_string()
}
