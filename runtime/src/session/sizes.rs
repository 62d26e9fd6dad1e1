//! The settings that say how much is kept and for how long something may take: `rotate`, `keep`, `flight`, `stall`,
//! `dump_on`.

use std::path::PathBuf;
use std::time::Duration;

use super::config::{FlightSettings, parse_duration};
use crate::flight::format;

/// Bytes that a file of a rotated trace must be allowed to have: a record has to fit into one.
const LEAST_FILE: u64 = 64 << 10;

/// A number of bytes with its unit.
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
    match bytes {
        LEAST_FILE.. => Ok(bytes),
        _ => Err("a file of a trace has at least `64KiB`, as in `rotate=256MiB`".to_owned()),
    }
}

pub(super) fn parse_rotate(text: &str) -> Result<u64, String> {
    let wrong = "a size is a number with `KB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`, as in `rotate=256MiB`";
    check_rotate(parse_bytes(text).ok_or(wrong)?)
}

pub(super) fn check_keep(files: usize) -> Result<usize, String> {
    match files {
        1.. => Ok(files),
        0 => Err("at least one file stays, the one that is being written, as in `keep=4`".to_owned()),
    }
}

pub(super) fn parse_keep(text: &str) -> Result<usize, String> {
    check_keep(text.parse().map_err(|_| "a number of files stays, as in `keep=4`".to_owned())?)
}

pub(super) fn check_flight(bytes: u64) -> Result<u64, String> {
    match bytes {
        format::LEAST_BYTES..=format::MOST_BYTES => Ok(bytes),
        _ => Err("a flight recorder holds from `256KiB` to `64GiB`, as in `flight=64MiB`".to_owned()),
    }
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
    Ok(FlightSettings { bytes: check_flight(parse_bytes(size).ok_or(wrong)?)?, path: path.map(PathBuf::from) })
}

pub(super) fn parse_stall(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)
        .map_err(|_| "a time is a number with `ms`, `s`, `m` or `h`, as in `stall=10s`".to_owned())?;
    check_stall(time)
}

pub(super) fn check_stall(time: Duration) -> Result<Duration, String> {
    match time >= Duration::from_millis(100) {
        true => Ok(time),
        false => Err("a stream is given at least `100ms`, as in `stall=10s`".to_owned()),
    }
}

pub(super) fn parse_dump_on(text: &str) -> Result<bool, String> {
    match text {
        "sigusr2" => Ok(true),
        _ => Err("the signal is SIGUSR2: write `dump_on=sigusr2`".to_owned()),
    }
}
