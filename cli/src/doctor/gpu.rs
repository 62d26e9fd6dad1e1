//! Findings about the driver, its devices, and CUPTI.

use super::probe::{CuptiFacts, DriverFacts, Probed};
use super::{Finding, PartState, Wanted};
use crate::output::counted;
use warpline_cuda::probe::DriverProbe;

const INSTALL: &str = "install NVIDIA's driver for CUDA 12.0 or newer";

/// What the driver can do, and its devices. A finding that others depend on comes first; if it fails, they are left
/// out.
pub(super) fn driver(probed: &Probed<DriverFacts>, wanted: &Wanted) -> Vec<Finding> {
    let asked = wanted.asks.kernels || wanted.asks.graph_timing;
    let facts = match probed {
        Probed::Found(facts) => facts,
        Probed::Failed(how) => {
            let what = format!("the CUDA driver does not respond: {how}");
            let remedy = "run `nvidia-smi` and `dmesg`: if it fails there too, install the driver again";
            return vec![Finding::new("driver", PartState::Broken, what).asked_for(asked).remedy(remedy)];
        }
    };
    if let Some(why) = &facts.not_loaded {
        let what = format!("there is no CUDA driver: {why}");
        let remedy = match kernel_module() {
            Some(module) => format!(
                "the kernel has NVIDIA's module {module}: in a container, start it with NVIDIA's container toolkit (`--gpus all`); \
                 elsewhere, add the folder of {} to LD_LIBRARY_PATH",
                facts.library
            ),
            None => format!("{INSTALL}, or pass the GPU to the container; host streams are timed without one"),
        };
        return vec![Finding::new("driver", PartState::Missing, what).asked_for(asked).remedy(remedy)];
    }
    let mut findings = vec![version(facts).asked_for(asked)];
    if findings[0].state == PartState::Works {
        findings.push(devices(facts).asked_for(asked));
        findings.push(event_times(facts));
        findings.push(captures(facts).asked_for(wanted.asks.graph_timing));
        findings.push(kernel_names(facts));
    }
    findings
}

/// The library's version and symbols.
fn version(facts: &DriverFacts) -> Finding {
    let library = facts.path.as_deref().unwrap_or(&facts.library);
    let Some(version) = facts.version else {
        let what = format!("{library} does not report its version");
        return Finding::new("driver", PartState::Broken, what).remedy(format!("it is not a CUDA driver: {INSTALL}"));
    };
    let cuda = readable(version);
    if version < DriverProbe::OLDEST {
        let what = format!("the driver is for CUDA {cuda} ({library})");
        return Finding::new("driver", PartState::Broken, what).remedy("install one for CUDA 12.0 or newer");
    }
    if !facts.missing.is_empty() {
        let what = format!("the driver for CUDA {cuda} has no {} ({library})", facts.missing.join(", "));
        return Finding::new("driver", PartState::Broken, what).remedy("install one for CUDA 12.0 or newer");
    }
    let module = kernel_module().map(|module| format!(", kernel module {module}")).unwrap_or_default();
    Finding::new("driver", PartState::Works, format!("CUDA {cuda} ({library}{module})"))
}

fn devices(facts: &DriverFacts) -> Finding {
    let hidden = std::env::var_os("CUDA_VISIBLE_DEVICES").map(|value| value.to_string_lossy().into_owned());
    let visible = hidden.as_ref().map(|value| format!("CUDA_VISIBLE_DEVICES=`{value}` chooses the devices; "));
    let visible = visible.unwrap_or_default();
    match &facts.not_initialised {
        Some(why) if why.contains("CUDA_ERROR_NO_DEVICE") => {
            let remedy = format!("{visible}`nvidia-smi -L` lists those of the host; pass them to the container");
            Finding::new("devices", PartState::Missing, format!("the driver finds no device: {why}")).remedy(remedy)
        }
        Some(why) => {
            let remedy = match () {
                () if why.contains("SYSTEM_DRIVER_MISMATCH") => {
                    "the libraries and the kernel module are of different versions: restart the host, or load the module again"
                }
                () if why.contains("COMPAT_NOT_SUPPORTED") => {
                    "remove the folder `cuda/compat` from LD_LIBRARY_PATH: this device does not support newer libraries"
                }
                () => "run `nvidia-smi`: it names the fault",
            };
            Finding::new("devices", PartState::Broken, format!("the driver does not start: {why}")).remedy(remedy)
        }
        None if facts.devices.is_empty() => Finding::new("devices", PartState::Missing, "the driver finds no device")
            .remedy(format!("{visible}`nvidia-smi -L` lists those of the host")),
        None => {
            let count = counted(facts.devices.len() as u64, "device");
            Finding::new("devices", PartState::Works, format!("{count}: {}", listed(&facts.devices)))
        }
    }
}

/// "2 x H200, H100".
fn listed(names: &[String]) -> String {
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match groups.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => groups.push((name, 1)),
        }
    }
    let group =
        |(name, count): &(&str, usize)| if *count == 1 { (*name).to_owned() } else { format!("{count} x {name}") };
    groups.iter().map(group).collect::<Vec<_>>().join(", ")
}

fn event_times(facts: &DriverFacts) -> Finding {
    if facts.has("cuEventElapsedTime_v2") {
        return Finding::new("event times", PartState::Works, "reading them does not wait for threads that launch");
    }
    let what = "the driver has no cuEventElapsedTime_v2: reading times waits for threads that launch";
    Finding::new("event times", PartState::Limited, what).remedy("a driver for CUDA 12.8 or newer has it")
}

fn captures(facts: &DriverFacts) -> Finding {
    match (facts.has("cuStreamGetCaptureInfo_v3"), facts.has("cuStreamGetCaptureInfo_v2")) {
        (false, false) => {
            let what = "the driver does not report the position of a stream in its capture: captured zones are dropped";
            Finding::new("captures", PartState::Missing, what).remedy("install a driver for CUDA 12.0 or newer")
        }
        (false, true) => {
            let what =
                "the driver has no cuStreamGetCaptureInfo_v3: zones are dropped in captures with programmatic edges";
            Finding::new("captures", PartState::Limited, what).remedy("a driver for CUDA 12.3 or newer has it")
        }
        (true, _) if !facts.has("cuStreamUpdateCaptureDependencies_v2") => {
            let what = "zones are placed in graphs; `graph_timing=launch-order-stamps` gives plain stamps";
            Finding::new("captures", PartState::Limited, what)
                .remedy("a driver for CUDA 12.3 or newer supports the graph edges that they need")
        }
        (true, _) => Finding::new("captures", PartState::Works, "zones are placed in graphs, and stamps can time them"),
    }
}

fn kernel_names(facts: &DriverFacts) -> Finding {
    if facts.has("cuFuncGetName") && facts.has("cuKernelGetName") {
        return Finding::new("kernel names", PartState::Works, "nodes of graphs have the names of their kernels");
    }
    let what = "the driver does not report the names of kernels in graphs";
    Finding::new("kernel names", PartState::Limited, what).remedy("a driver for CUDA 12.3 or newer reports them")
}

/// Whether the driver or CUPTI reports the ids by which profilers know the nodes of graphs.
pub(super) fn graph_ids(driver: &Probed<DriverFacts>, cupti: &Probed<CuptiFacts>) -> Option<Finding> {
    let Probed::Found(DriverFacts { version: Some(version), not_loaded: None, tells_ids, .. }) = driver else {
        return None;
    };
    if *tells_ids {
        let what = "the driver reports the ids of graph nodes: labels join with the kernels of any profiler";
        return Some(Finding::new("graph ids", PartState::Works, what));
    }
    let cuda = readable(*version);
    let by_cupti = matches!(cupti, Probed::Found(CuptiFacts { unusable: None, tells_ids: true, .. }));
    let (state, what, remedy) = match by_cupti {
        true => (
            PartState::Limited,
            format!(
                "the driver for CUDA {cuda} does not report the ids of graph nodes; CUPTI reports them in a session with `kernels`"
            ),
            "use `kernels` where graphs are registered, join with `warpline annotate --by order`, or install a driver for CUDA \
             13.1 or newer",
        ),
        false => (
            PartState::Missing,
            format!(
                "the ids of graph nodes are unknown: the driver for CUDA {cuda} does not report them, and there is no usable CUPTI"
            ),
            "join with `warpline annotate --by order`, install CUPTI, or install a driver for CUDA 13.1 or newer",
        ),
    };
    Some(Finding::new("graph ids", state, what).remedy(remedy))
}

/// CUPTI, which records kernels.
pub(super) fn cupti(probed: &Probed<CuptiFacts>, wanted: &Wanted) -> Finding {
    let asked = wanted.asks.kernels;
    let found = match probed {
        Probed::Failed(how) => Finding::new("CUPTI", PartState::Broken, format!("CUPTI does not respond: {how}"))
            .remedy("install the CUPTI of the driver's CUDA version, or name another library in WARPLINE_CUPTI"),
        Probed::Found(CuptiFacts { unusable: Some(why), .. }) => match why.rsplit_once(": ") {
            Some((what, remedy)) => Finding::new("CUPTI", PartState::Missing, what).remedy(remedy),
            None => Finding::new("CUPTI", PartState::Missing, why),
        },
        Probed::Found(CuptiFacts { path, version, .. }) => {
            let (path, version) = (path.as_deref().unwrap_or("libcupti"), version.unwrap_or_default());
            let injected = std::env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty());
            match injected {
                Some(tool) => {
                    let what = format!(
                        "API version {version} ({path}); CUDA_INJECTION64_PATH loads `{}` into CUDA programs, and such a tool holds \
                         CUPTI",
                        tool.to_string_lossy()
                    );
                    Finding::new("CUPTI", if asked { PartState::Missing } else { PartState::Limited }, what)
                        .remedy("unset CUDA_INJECTION64_PATH to record `kernels`")
                }
                None => {
                    let what = format!(
                        "API version {version} ({path}); `kernels` works unless another tool in the program holds it"
                    );
                    Finding::new("CUPTI", PartState::Works, what)
                }
            }
        }
    };
    found.asked_for(asked)
}

/// "13.1".
pub(super) fn readable(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The version of NVIDIA's kernel module, where Linux shows it.
pub(super) fn kernel_module() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let line = text.lines().next()?.to_owned();
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    line.split_ascii_whitespace().find(is_version).map(str::to_owned)
}
