//! `warpline doctor`: what works on this host, what does not, and what to do about it.
//!
//! `probe` asks the driver and CUPTI in a process of its own, because a driver can crash or hang. `gpu`, `tools` and
//! `host` turn facts into findings, `show` prints them. Nothing is changed on the host: no tool is started, no context
//! is created, and CUPTI is not initialised. Only with `--measure-peak`, `peaks` has the devices measured, also in a
//! process of its own, and keeps their rates.

mod gpu;
mod hip;
mod host;
mod peaks;
mod probe;
mod show;
mod tools;

use std::time::Duration;

use serde::Serialize;

use probe::{CuptiFacts, DriverFacts, HipFacts, PeakFacts, Probed};
use warpline::__doctor::{InspectedSettings, inspect};

pub(crate) use probe::{Part, answer};

/// The value of `format` in the JSON.
const FORMAT: &str = "warpline-doctor/1";

/// How one part of the host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum PartState {
    Works,
    /// It works with a limit.
    Limited,
    /// It is present, and trying it would have effects.
    Untried,
    /// It is not in use, and nothing asks for it.
    Off,
    /// It is not present.
    Missing,
    /// It is present and does not work.
    Broken,
}

/// The finding about one part.
#[derive(Debug, Serialize)]
struct Finding {
    part: &'static str,
    state: PartState,
    /// A setting or a variable asks for this part.
    asked_for: bool,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn new(part: &'static str, state: PartState, what: impl Into<String>) -> Finding {
        Finding { part, state, asked_for: false, what: what.into(), remedy: None }
    }

    fn asked_for(self, asked_for: bool) -> Finding {
        Finding { asked_for, ..self }
    }

    fn remedy(self, remedy: impl Into<String>) -> Finding {
        Finding { remedy: Some(remedy.into()), ..self }
    }

    /// Whether the command's status is 1 because of it.
    fn is_problem(&self) -> bool {
        match self.state {
            PartState::Broken => true,
            PartState::Missing => self.asked_for,
            PartState::Works | PartState::Limited | PartState::Untried | PartState::Off => false,
        }
    }
}

/// The settings that are checked.
struct Wanted {
    /// As they are written; none if there are none.
    line: Option<String>,
    /// Where they come from, for the texts.
    origin: &'static str,
    /// The variable is not UTF-8.
    is_unreadable: bool,
    asks: InspectedSettings,
}

impl Wanted {
    /// The settings of the option, or else of the variable.
    fn new(option: Option<String>) -> Wanted {
        let (line, origin, is_unreadable) = match (option, std::env::var("WARPLINE")) {
            (Some(line), _) => (Some(line), "--settings", false),
            (None, Ok(line)) => (Some(line), "WARPLINE", false),
            (None, Err(std::env::VarError::NotPresent)) => (None, "WARPLINE", false),
            (None, Err(std::env::VarError::NotUnicode(_))) => (None, "WARPLINE", true),
        };
        let mut asks = line.as_deref().map(inspect).unwrap_or_default();
        // Settings that turn the recording off need nothing else.
        if asks.is_off {
            let InspectedSettings { problem, is_off, nvtx, .. } = asks;
            asks = InspectedSettings::default();
            (asks.problem, asks.is_off, asks.nvtx) = (problem, is_off, nvtx.filter(|wanted| !wanted));
        }
        Wanted { line, origin, is_unreadable, asks }
    }
}

/// The result of the examination.
#[derive(Serialize)]
struct Examination {
    format: &'static str,
    /// Everything that the settings ask for works, and nothing is broken.
    works: bool,
    settings: Option<String>,
    findings: Vec<Finding>,
    driver: Probed<DriverFacts>,
    cupti: Probed<CuptiFacts>,
    /// None if the command was built without the feature `hip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    hip: Option<Probed<HipFacts>>,
    /// None without `--measure-peak`.
    #[serde(skip_serializing_if = "Option::is_none")]
    peaks: Option<Probed<PeakFacts>>,
}

/// Examines the host. The driver and CUPTI have the time `within` to answer. Measures the devices if the arguments ask
/// for it. Returns the text to print, and whether everything that the settings ask for works.
pub(crate) fn doctor(settings: Option<String>, within: Duration, measures: bool, is_json: bool) -> (String, bool) {
    let wanted = Wanted::new(settings);
    let driver = probe::ask::<DriverFacts>(Part::Driver, within);
    let cupti = probe::ask::<CuptiFacts>(Part::Cupti, within);
    let mut findings = vec![host::settings(&wanted)];
    findings.extend(gpu::driver(&driver, &wanted));
    findings.extend(gpu::graph_ids(&driver, &cupti));
    findings.push(gpu::cupti(&cupti, &wanted));
    let peaks = measures.then(|| probe::ask::<PeakFacts>(Part::Peaks, within));
    findings.extend(peaks.iter().flat_map(|peaks| peaks::findings(peaks, &driver)));
    let hip = hip::ask(within);
    findings.extend(hip.as_ref().map(hip::runtime));
    findings.push(tools::nvtx(&wanted));
    findings.push(tools::tracy(&wanted));
    findings.extend(host::files(&wanted));
    findings.extend(host::control(&wanted));
    findings.extend(host::counters());
    findings.push(host::clock());
    let works = !findings.iter().any(Finding::is_problem);
    let examination = Examination { format: FORMAT, works, settings: wanted.line, findings, driver, cupti, hip, peaks };
    let text = if is_json { crate::output::json(&examination) } else { show::text(&examination.findings) };
    (text, works)
}
