//! The peaks that `warpline doctor --measure-peak` has measured, in a file of the user's cache: `warpline/peaks.tsv` in `$XDG_CACHE_HOME`, or
//! in `~/.cache`.
//!
//! The command writes it, and reports read it, also those of a program that runs as the same user. A line has the device's name, the bytes
//! per second, the operations per second with 32-bit numbers, the day, and the driver, separated by tabs. Whatever is no such line is left out.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::peak::{Peak, PeakMeasurement};
use warpline_core::environment;
use warpline_core::sorting;

/// The first line of the file.
const HEAD: &str = "# device\tbytes per second\tFP32 operations per second\tmeasured on\tdriver\n";

/// The largest file that is read.
const LONGEST: u64 = 1 << 20;

/// Returns the file; none if the environment names no folder for it.
pub fn file() -> Option<PathBuf> {
    let folder = |name| environment::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("warpline").join("peaks.tsv"))
}

/// Returns the measured peaks by the names of their devices. The file is read once.
pub(super) fn known() -> &'static HashMap<String, Peak> {
    static KNOWN: OnceLock<HashMap<String, Peak>> = OnceLock::new();
    KNOWN.get_or_init(|| file().map_or_else(HashMap::new, |file| read(&file)))
}

/// Reads a file of peaks. A file that is not there, or is something else, has none.
pub fn read(file: &Path) -> HashMap<String, Peak> {
    let mut text = String::new();
    // Opening a pipe would block.
    let is_file = std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file());
    let mut read = || std::fs::File::open(file)?.take(LONGEST).read_to_string(&mut text);
    if !is_file || read().is_err() {
        return HashMap::new();
    }
    text.lines().filter_map(of_line).collect()
}

/// Adds peaks to a file, in place of those of devices with the same names. The file changes at once or not at all.
///
/// # Errors
/// The file, or its folder, cannot be written.
pub fn write(file: &Path, peaks: Vec<(String, Peak)>) -> io::Result<()> {
    let mut all = read(file);
    all.extend(peaks);
    let mut lines: Vec<String> = all.iter().filter_map(|(device, peak)| line_of(device, peak)).collect();
    sorting::sort(&mut lines);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let new = file.with_extension(format!("tsv.{}", std::process::id()));
    let written = std::fs::File::create(&new)
        .and_then(|mut out| out.write_all((HEAD.to_owned() + &lines.concat()).as_bytes()))
        .and_then(|()| std::fs::rename(&new, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

fn of_line(line: &str) -> Option<(String, Peak)> {
    let mut cells = line.split('\t');
    let mut next = || cells.next().map(str::to_owned);
    let device = next().filter(|device| !device.starts_with('#'))?;
    let rate = |cell: Option<String>| cell?.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    let (bytes_per_s, f32_flops_per_s) = (rate(next())?, rate(next()));
    let measured = Some(PeakMeasurement { date: next()?, driver: next()? });
    Some((device, Peak { bytes_per_s, f16_flops_per_s: None, f32_flops_per_s, measured }))
}

fn line_of(device: &str, peak: &Peak) -> Option<String> {
    let PeakMeasurement { date, driver } = peak.measured.as_ref()?;
    let plain = |text: &str| text.replace(|c: char| c.is_control(), " ");
    let flops = peak.f32_flops_per_s.unwrap_or(0.0);
    Some(format!("{}\t{:.0}\t{flops:.0}\t{}\t{}\n", plain(device), peak.bytes_per_s, plain(date), plain(driver)))
}

/// Returns a peak that was measured.
pub fn peak(bytes_per_s: f64, f32_flops_per_s: Option<f64>, measured: PeakMeasurement) -> Peak {
    Peak { bytes_per_s, f16_flops_per_s: None, f32_flops_per_s, measured: Some(measured) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_the_last_peak_of_each_device_and_nothing_else_counts() {
        let folder = std::env::temp_dir().join(format!("warpline-peaks-{}", std::process::id()));
        let file = folder.join("cache/peaks.tsv");
        assert!(read(&file).is_empty());
        let on = |day: &str| PeakMeasurement::new(day.to_owned(), "CUDA 13.0".to_owned());
        let one = peak(1.5e12, Some(40e12), on("2026-11-24"));
        write(&file, vec![("one\tdevice".to_owned(), one.clone()), ("two".to_owned(), one)]).expect("written");
        let again = peak(1.6e12, None, on("2026-11-25"));
        write(&file, vec![("two".to_owned(), again.clone())]).expect("written");
        let text = std::fs::read_to_string(&file).expect("written");
        std::fs::write(&file, text + "three\tmany\nfour\t-1\t1\t2026-11-25\tCUDA 13.0\nfive\t1e12\n\n")
            .expect("longer");
        let known = read(&file);
        assert_eq!((known.len(), known.get("two")), (2, Some(&again)), "{known:?}");
        assert_eq!(known["one device"].f32_flops_per_s, Some(40e12));
        assert!(read(&folder).is_empty(), "a folder is no file");
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
