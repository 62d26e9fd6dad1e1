//! Findings about the HIP runtime, if the command is built with the feature `hip`.

use std::time::Duration;

use super::probe::{HipFacts, Probed};
use super::{Finding, PartState};
use crate::output::counted;

/// Asks the runtime; none without the feature.
#[cfg(feature = "hip")]
pub(super) fn ask(within: Duration) -> Option<Probed<HipFacts>> {
    Some(super::probe::ask(super::Part::Hip, within))
}

#[cfg(not(feature = "hip"))]
pub(super) fn ask(_: Duration) -> Option<Probed<HipFacts>> {
    None
}

/// The library, its optional symbols, and its devices.
pub(super) fn runtime(probed: &Probed<HipFacts>) -> Finding {
    let facts = match probed {
        Probed::Found(facts) => facts,
        Probed::Failed(how) => {
            return Finding::new("HIP", PartState::Broken, format!("the HIP runtime does not respond: {how}"))
                .remedy("run `rocminfo` and `dmesg`: if it fails there too, install ROCm again");
        }
    };
    if let Some(why) = &facts.unusable {
        return match why.rsplit_once("; ") {
            Some((what, remedy)) => Finding::new("HIP", PartState::Missing, what).remedy(remedy),
            None => Finding::new("HIP", PartState::Missing, why),
        };
    }
    let library = facts.path.as_deref().unwrap_or("libamdhip64.so");
    let version = facts.version.map_or_else(|| "of unknown version".to_owned(), readable);
    if facts.has_no_device {
        return Finding::new("HIP", PartState::Off, format!("the runtime {version} ({library}) finds no device"))
            .remedy("where the host has an AMD GPU, run `rocminfo`: it names the fault");
    }
    if let Some(why) = &facts.not_initialised {
        return Finding::new(
            "HIP",
            PartState::Broken,
            format!("the runtime {version} ({library}) does not start: {why}"),
        )
        .remedy("run `rocminfo`: it names the fault");
    }
    let devices = match facts.devices.as_slice() {
        [] => "no device".to_owned(),
        devices => format!("{}: {}", counted(devices.len() as u64, "device"), devices.join(", ")),
    };
    let what = format!("HIP {version} ({library}), {devices}");
    if facts.missing.is_empty() {
        return Finding::new("HIP", PartState::Works, what);
    }
    Finding::new("HIP", PartState::Limited, format!("{what}; it has no {}", facts.missing.join(", ")))
        .remedy("a newer ROCm has them; docs/hip.md says what each is for")
}

/// "7.0".
fn readable(version: i32) -> String {
    format!("{}.{}", version / 10_000_000, version / 100_000 % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_such_a_device_is_not_broken() {
        let state = |facts: HipFacts| runtime(&Probed::Found(facts)).state;
        assert!(matches!(state(HipFacts { has_no_device: true, ..HipFacts::default() }), PartState::Off));
        let why = "`hipInit` gave initialization error (3)".to_owned();
        assert!(matches!(state(HipFacts { not_initialised: Some(why), ..HipFacts::default() }), PartState::Broken));
    }
}
