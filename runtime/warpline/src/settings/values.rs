//! The values of settings: parsers for the text of `WARPLINE`, and checks for values from the program.
//!
//! The table uses the parsers; the builder and the session's setters use the checks. Each error says what to write
//! instead.

use std::ops::RangeBounds;
use std::path::PathBuf;
use std::time::Duration;

use warpline_core::catalog::Level;
use warpline_core::file_name;
use warpline_core::timing::{EndMode, GraphTiming, Timing};

/// How the error of a setting begins that needs a feature which this program lacks.
const NO_FEATURE: &str = "this program was built without warpline's feature `";

/// Returns the error of a setting that needs this feature.
pub(super) fn no_feature(feature: &str) -> String {
    let or = if feature == "tracy" { ", or write a trace with `perfetto=FILE`" } else { "" };
    format!("{NO_FEATURE}{feature}`; build it with that{or}")
}

/// Whether the fault of a setting is only that this build lacks a feature.
pub(super) fn is_missing_feature(problem: &str) -> bool {
    problem.starts_with(NO_FEATURE)
}

/// The descriptions of these settings in errors.
const BUDGET: &str = "a budget is a share of the launching thread's time";
const SAMPLE: &str = "a sample is a share of each range's zones";

/// The maximum number of zones and of events: the maximum capacity of a ring.
pub(crate) const MOST_ZONES: usize = (1 << 20) - 1;

/// The minimum and the maximum size of a flight recorder, in bytes.
pub(crate) const LEAST_FLIGHT: u64 = 256 << 10;
pub(crate) const MOST_FLIGHT: u64 = 64 << 30;

/// The shortest window of the tables of many ranks, time between two exports, and time after which a stream is stalled.
pub(super) const SHORTEST_TIME: Duration = Duration::from_millis(100);

/// The smallest size limit for the files of a rotated trace, in bytes. A record must fit into one file.
const LEAST_FILE: u64 = 64 << 10;

/// The value of the setting `flight`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlightSettings {
    pub(crate) bytes: u64,
    /// The file; none for one in the working directory that is removed with the session.
    pub(crate) path: Option<PathBuf>,
}

pub(super) fn parse_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    file_name::check(&path).map(|()| path)
}

/// Checks that a report can be written to the file: its ending says how.
pub(super) fn check_summary(path: PathBuf) -> Result<PathBuf, String> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "json" | "md") => Ok(path),
        _ => Err("a report is a file that ends with `.html`, `.json` or `.md`, as in `summary=report.html`".to_owned()),
    }
}

/// Returns the value if it is one of `legal`.
pub(super) fn within<T: PartialOrd>(value: T, legal: impl RangeBounds<T>, problem: &str) -> Result<T, String> {
    if legal.contains(&value) { Ok(value) } else { Err(problem.to_owned()) }
}

/// Returns the value with this name.
fn one_of<T: Copy>(name: &str, values: &[(&str, T)], problem: &str) -> Result<T, String> {
    values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| problem.to_owned())
}

pub(super) fn parse_level(text: &str) -> Result<Level, String> {
    one_of(text, &[("coarse", Level::Coarse), ("fine", Level::Fine)], "a level is `coarse` or `fine`")
}

pub(super) fn check_ring(zones: usize) -> Result<usize, String> {
    let problem = format!("a ring holds 1 to {MOST_ZONES} zones a stream, as in `ring=4096`");
    within(zones, 1..=MOST_ZONES, &problem)
}

pub(super) fn check_events(events: usize) -> Result<usize, String> {
    let problem = format!("a GPU context has 2 to {MOST_ZONES} events, two a zone, as in `events=16384`");
    within(events, 2..=MOST_ZONES, &problem)
}

pub(super) fn check_window(time: Duration) -> Result<Duration, String> {
    within(time, SHORTEST_TIME.., "a window lasts at least 100 ms, as in `ranks_window=60s`")
}

pub(super) fn check_active(steps: u64) -> Result<u64, String> {
    within(steps, 1.., "a cycle records at least one step, as in `active=3`")
}

pub(super) fn parse_steps(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a number of steps or cycles is a whole number, as in `wait=10`".to_owned())
}

pub(super) fn check_event_pool(events: usize) -> Result<usize, String> {
    let problem = format!("a pool keeps 0 to {MOST_ZONES} free events, as in `event_pool_capacity=256`");
    within(events, ..=MOST_ZONES, &problem)
}

pub(super) fn parse_ends(text: &str) -> Result<EndMode, String> {
    let values = [("auto", EndMode::Auto), ("eager", EndMode::Eager), ("lazy", EndMode::Lazy)];
    one_of(text, &values, "ends are `auto`, `eager` or `lazy`")
}

pub(super) fn parse_timing(text: &str) -> Result<Timing, String> {
    let values = [("events", Timing::Events), ("kernels", Timing::Kernels)];
    check_timing(one_of(text, &values, "a way of timing zones is `events` or `kernels`")?)
}

pub(super) fn check_timing(timing: Timing) -> Result<Timing, String> {
    match timing != Timing::Events && cfg!(not(feature = "cupti")) {
        true => Err(no_feature("cupti")),
        false => Ok(timing),
    }
}

pub(super) fn parse_graph_timing(text: &str) -> Result<GraphTiming, String> {
    let values = [
        ("off", GraphTiming::Off),
        ("stamps", GraphTiming::Stamps),
        ("launch-order-stamps", GraphTiming::LaunchOrderStamps),
    ];
    check_graph_timing(one_of(text, &values, "a way of timing graphs is `off`, `stamps` or `launch-order-stamps`")?)
}

pub(super) fn check_graph_timing(timing: GraphTiming) -> Result<GraphTiming, String> {
    match timing != GraphTiming::Off && cfg!(not(feature = "cuda")) {
        true => Err(no_feature("cuda")),
        false => Ok(timing),
    }
}

/// Where the report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Console {
    Output,
    Error,
}

pub(super) fn parse_mirror(key: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None => Ok(true),
        Some("off") => Ok(false),
        Some(_) => Err(format!("write `{key}` or `{key}=off`")),
    }
}

pub(super) fn parse_switch(key: &str, value: &str) -> Result<bool, String> {
    one_of(value, &[("on", true), ("off", false)], &format!("write `{key}=on` or `{key}=off`"))
}

/// Combines two values of `nvtx` or of `roctx`. If one of them is off, the result is off.
pub(super) fn wish_mirror(before: Option<bool>, wish: bool) -> Option<bool> {
    Some(wish && before != Some(false))
}

pub(super) fn parse_budget(text: &str) -> Result<f64, String> {
    parse_share(text, "budget", BUDGET, "0.5%")
        .map_err(|wrong| wrong.unwrap_or_else(|| format!("{BUDGET}, above 0 % and up to 100 %, as in `budget=0.5%`")))
}

pub(super) fn check_budget(share: f64) -> Result<f64, String> {
    check_share(share).ok_or_else(|| format!("{BUDGET}, above 0 and up to 1; write `budget(0.005)` for 0.5 %"))
}

pub(super) fn parse_sample(text: &str) -> Result<f64, String> {
    if text.trim_end_matches('%').trim().parse() == Ok(0.0) {
        return Err(format!("{SAMPLE}, above 0 %, as in `sample=10%`; write `off` to record nothing"));
    }
    parse_share(text, "sample", SAMPLE, "10%")
        .map_err(|wrong| wrong.unwrap_or_else(|| format!("{SAMPLE}, above 0 % and up to 100 %, as in `sample=10%`")))
}

pub(crate) fn check_sample(share: f64) -> Result<f64, String> {
    check_share(share).ok_or_else(|| format!("{SAMPLE}, above 0 and up to 1; write `sample(0.1)` for 10 %"))
}

/// Parses a share in percent.
///
/// # Errors
/// The text to write instead, if it is a number without `%`; none for any other invalid text.
fn parse_share(text: &str, key: &str, what: &str, example: &str) -> Result<f64, Option<String>> {
    if let Some(number) = text.strip_suffix('%') {
        return number.trim().parse().ok().and_then(|percent: f64| check_share(percent / 100.0)).ok_or(None);
    }
    let number: f64 = text.parse().map_err(|_| None)?;
    let percent = match number {
        // A user who writes 0.5 may mean half.
        number if check_share(number).is_some() => {
            format!("write `{key}={text}%`, or `{key}={}%` for that share of 1", (number * 1e8).round() / 1e6)
        }
        number if check_share(number / 100.0).is_some() => format!("write `{key}={text}%`"),
        _ => format!("as in `{key}={example}`"),
    };
    Err(Some(format!("{what} and needs a `%`; {percent}")))
}

fn check_share(share: f64) -> Option<f64> {
    (share > 0.0 && share <= 1.0).then_some(share)
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let number_len = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let seconds = match unit {
        "s" => Some(1.0),
        "ms" => Some(1e-3),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let value = number.parse::<f64>().ok().zip(seconds).map(|(number, seconds)| number * seconds);
    value
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a time is a number with `ms`, `s`, `m` or `h`, as in `5s` or `250ms`".to_owned())
}

/// Parses a number of bytes with its unit.
fn parse_bytes(text: &str) -> Option<u64> {
    let number_len = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let bytes = match unit {
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(bytes)
}

pub(super) fn check_rotate(bytes: u64) -> Result<u64, String> {
    within(bytes, LEAST_FILE.., "a file of a trace has at least `64KiB`, as in `rotate=256MiB`")
}

pub(super) fn parse_rotate(text: &str) -> Result<u64, String> {
    let wrong = "a size is a number with `KB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`, as in `rotate=256MiB`";
    check_rotate(parse_bytes(text).ok_or(wrong)?)
}

pub(super) fn check_keep(files: usize) -> Result<usize, String> {
    within(files, 1.., "at least 1 file stays, the one that is being written, as in `keep=4`")
}

pub(super) fn parse_keep(text: &str) -> Result<usize, String> {
    check_keep(text.parse().map_err(|_| "the value is a number of files, as in `keep=4`".to_owned())?)
}

pub(super) fn check_flight(bytes: u64) -> Result<u64, String> {
    let problem = "a flight recorder holds from `256KiB` to `64GiB`, as in `flight=64MiB`";
    within(bytes, LEAST_FLIGHT..=MOST_FLIGHT, problem)
}

pub(super) fn parse_flight(text: &str) -> Result<FlightSettings, String> {
    let (size, path) = match text.split_once(':') {
        Some((size, path)) => (size.trim(), Some(path.trim())),
        None => (text, None),
    };
    if path == Some("") {
        return Err("names no file; write `flight=64MiB`, or `flight=64MiB:/var/tmp/my.flight`".to_owned());
    }
    let wrong = "a size is a number with `KB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`, as in `flight=64MiB` or \
         `flight=64MiB:/var/tmp/my.flight`";
    let bytes = check_flight(parse_bytes(size).ok_or(wrong)?)?;
    let path = path.map(PathBuf::from);
    path.as_deref().map_or(Ok(()), file_name::check)?;
    Ok(FlightSettings { bytes, path })
}

pub(super) fn parse_stall(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)
        .map_err(|_| "a time is a number with `ms`, `s`, `m` or `h`, as in `stall=10s`".to_owned())?;
    check_stall(time)
}

pub(super) fn check_stall(time: Duration) -> Result<Duration, String> {
    within(time, SHORTEST_TIME.., "the shortest time is `100ms`, as in `stall=10s`")
}

pub(super) fn parse_dump_on(text: &str) -> Result<bool, String> {
    one_of(text, &[("sigusr2", true)], "the only signal is SIGUSR2; write `dump_on=sigusr2`")
}
