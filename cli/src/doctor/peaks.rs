//! The option `--measure-peak`: the rates that each kind of device reaches, compared with its vendor's figures, and
//! kept for reports.

use std::time::{SystemTime, UNIX_EPOCH};

use warpline_core::clock::utc_date;
use warpline_report::rate;
use warpline_report::work::{Peak, PeakMeasurement, measured};

use super::gpu::{kernel_module, readable};
use super::probe::{DevicePeak, DriverFacts, PeakFacts, Probed};
use super::{Finding, PartState};

/// A device that reaches less than this share of its vendor's figure is throttled, or other programs use it, too.
const LOW: f64 = 0.6;

/// Reports the measured rates, and writes them to the file of the user's cache.
pub(super) fn findings(probed: &Probed<PeakFacts>, driver: &Probed<DriverFacts>) -> Vec<Finding> {
    let facts = match probed {
        Probed::Found(facts) => facts,
        Probed::Failed(how) => {
            let what = format!("the devices were not measured: {how}");
            let remedy = "give them more time with `--within 2m`, while no other program uses them";
            return vec![Finding::new("peak", PartState::Broken, what).asked_for(true).remedy(remedy)];
        }
    };
    if facts.devices.is_empty() {
        let what = "there is no device to measure";
        return vec![
            Finding::new("peak", PartState::Missing, what)
                .asked_for(true)
                .remedy("see the lines on driver and devices"),
        ];
    }
    let mut findings: Vec<Finding> = facts.devices.iter().map(finding).collect();
    findings.extend(kept(facts, driver));
    findings
}

fn finding(measured: &DevicePeak) -> Finding {
    let DevicePeak { device, failed, bytes_per_s, f32_flops_per_s, .. } = measured;
    if let Some(why) = failed {
        let what = format!("{device} was not measured: {why}");
        let remedy = "measure it while no other program uses it";
        return Finding::new("peak", PartState::Broken, what).asked_for(true).remedy(remedy);
    }
    let stated = Peak::stated(device);
    let of = |rate: f64, stated: Option<f64>| stated.map(|stated| rate / stated);
    let memory = of(*bytes_per_s, stated.as_ref().map(|peak| peak.bytes_per_s));
    let compute = of(*f32_flops_per_s, stated.as_ref().and_then(|peak| peak.f32_flops_per_s));
    let share = |share: Option<f64>| share.map_or_else(String::new, |share| format!(" ({:.0} %)", 100.0 * share));
    let mut what = format!(
        "{device}: {}{} of a copy, {}{} of FP32 multiply-adds",
        rate(*bytes_per_s, "B"),
        share(memory),
        rate(*f32_flops_per_s, "FLOP"),
        share(compute)
    );
    if stated.is_some() {
        what += "; the percentages are of the vendor's figures, which reports use";
    }
    if [memory, compute].into_iter().flatten().any(|share| share < LOW) {
        let remedy =
            "measure it while no other program uses it, and look at its clocks with `nvidia-smi -q -d CLOCK,POWER`";
        return Finding::new("peak", PartState::Limited, what).asked_for(true).remedy(remedy);
    }
    Finding::new("peak", PartState::Works, what).asked_for(true)
}

/// Writes what was measured.
fn kept(facts: &PeakFacts, driver: &Probed<DriverFacts>) -> Option<Finding> {
    let measurement = PeakMeasurement::new(today(), version(driver));
    let peaks: Vec<(String, Peak)> = facts
        .devices
        .iter()
        .filter(|device| device.failed.is_none())
        .map(|one| {
            let peak = measured::peak(one.bytes_per_s, Some(one.f32_flops_per_s), measurement.clone());
            (one.device.clone(), peak)
        })
        .collect();
    if peaks.is_empty() {
        return None;
    }
    let remedy = "set XDG_CACHE_HOME to a folder that you can write";
    Some(match measured::file() {
        None => Finding::new("peak file", PartState::Broken, "there is no folder for the file of peaks").remedy(remedy),
        Some(file) => match measured::write(&file, peaks) {
            Ok(()) => {
                Finding::new("peak file", PartState::Works, format!("reports of this user read `{}`", file.display()))
            }
            Err(error) => {
                let what = format!("cannot write `{}`: {error}", file.display());
                Finding::new("peak file", PartState::Broken, what).remedy(remedy)
            }
        },
    })
}

/// The day in UTC.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    utc_date(i64::try_from(since.as_secs()).unwrap_or(0))
}

/// "CUDA 13.0, 580.159.04".
fn version(driver: &Probed<DriverFacts>) -> String {
    let Probed::Found(DriverFacts { version: Some(version), .. }) = driver else { return "CUDA".to_owned() };
    let module = kernel_module().map(|module| format!(", {module}")).unwrap_or_default();
    format!("CUDA {}{module}", readable(*version))
}
