//! The values of arguments: formats, times, sizes, shares, and the options that several commands have.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

#[derive(Args)]
pub(crate) struct Show {
    /// The output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// How a trace is served to Perfetto's UI.
#[derive(Args)]
pub(crate) struct Serving {
    /// Only print the address of the UI
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Serve the trace until the command is interrupted, so that the page can be loaded again
    #[arg(long)]
    pub(crate) keep: bool,
    /// The address of the UI
    #[arg(long, value_name = "URL", default_value = "https://ui.perfetto.dev")]
    pub(crate) ui: String,
    /// The port; the UI at ui.perfetto.dev reads traces from 9001 alone
    #[arg(long, value_name = "N", default_value_t = 9001)]
    pub(crate) port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people, as wide as the terminal
    Table,
    /// The output of `catalog().records().to_json()` in the program, byte for byte
    Json,
    /// One table per namespace, for documentation
    Markdown,
    /// RFC 4180, for spreadsheets
    Csv,
    /// A response file for Nsight Compute: `ncu @FILE ./app`
    Ncu,
    /// A command file for Nsight Systems: `nsys profile --command-file=FILE ./app`
    Nsys,
    /// One page that loads nothing and searches the ranges, for a browser
    Html,
    /// A configuration of Perfetto's tracing service: `perfetto --txt -c FILE -o system.pftrace`
    Perfetto,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum JoinBy {
    /// By the `graph node id` that newer profilers record for each kernel
    Id,
    /// By the launch that caused it and the order within that launch; fails if the numbers of kernels differ
    Order,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindingsFormat {
    /// For people, as wide as the terminal
    Table,
    /// For programs; docs/collectives.md describes it
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people, 80 columns wide
    Table,
    /// For programs; docs/report.md describes it
    Json,
    /// Tables for a pull request or a page
    Markdown,
    /// RFC 4180, for spreadsheets: all tables in one
    Csv,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComparisonFormat {
    /// For people, as wide as the terminal
    Table,
    /// For programs; docs/compare-traces.md describes it
    Json,
    /// For a pull request
    Markdown,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplyFormat {
    /// For people, as wide as the terminal
    Table,
    /// For programs; docs/control.md describes it
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DoctorFormat {
    /// For people: a line for each part
    Text,
    /// For programs; docs/troubleshooting.md describes it
    Json,
}

/// Parses a time of up to a day.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text {
        _ if text.ends_with("ms") => (&text[..text.len() - 2], 1e-3),
        _ if text.ends_with('s') => (&text[..text.len() - 1], 1.0),
        _ if text.ends_with('m') => (&text[..text.len() - 1], 60.0),
        _ if text.ends_with('h') => (&text[..text.len() - 1], 3600.0),
        _ => ("", 1.0),
    };
    let time = number.parse::<f64>().ok().and_then(|number| Duration::try_from_secs_f64(number * seconds).ok());
    let time = time.filter(|time| (Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60)).contains(time));
    time.ok_or_else(|| "write a time up to a day, such as 5s, 250ms, 2m or 1h".to_owned())
}

/// Parses a number of bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_uppercase();
    let power = |letter: &str| ["", "K", "M", "G", "T"].iter().position(|known| *known == letter);
    // A single letter is a unit of 1024, as in shell tools.
    let bytes = match (unit.strip_suffix("IB"), unit.strip_suffix('B')) {
        (Some(letter), _) if !letter.is_empty() => power(letter).map(|power| 1024_u64.pow(power as u32)),
        (None, Some(letter)) => power(letter).map(|power| 1000_u64.pow(power as u32)),
        _ => power(&unit).map(|power| 1024_u64.pow(power as u32)),
    };
    let size = number.parse::<u64>().ok().zip(bytes).and_then(|(number, bytes)| number.checked_mul(bytes));
    size.filter(|size| *size > 0).ok_or_else(|| "write a number of bytes, such as 8GiB or 500MB".to_owned())
}

/// Parses a percentage as a share.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim();
    let share = percent.parse::<f64>().ok().map(|percent| percent / 100.0);
    share
        .filter(|share| (0.0..=1000.0).contains(share))
        .ok_or_else(|| "write a percentage, such as 5% or 2.5%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(time("2.5s"), Ok(Duration::from_millis(2_500)));
        assert_eq!(time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(time("24h"), Ok(Duration::from_secs(86_400)));
        for wrong in ["", "5", "s", "-1s", "0s", "25h", "25000m", "NaNs", "infs"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_is_a_percentage() {
        assert_eq!((share("5%"), share("2.5"), share("0 %")), (Ok(0.05), Ok(0.025), Ok(0.0)));
        for wrong in ["", "%", "x", "-1%", "NaN", "inf", "5%%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_size_may_have_a_unit() {
        for (text, bytes) in
            [("7", 7), ("7B", 7), ("8G", 8 << 30), ("8GiB", 8 << 30), ("8gib", 8 << 30), ("2k", 2 << 10)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!((size("500MB"), size("1kB"), size("1TB")), (Ok(500_000_000), Ok(1_000), Ok(1_000_000_000_000)));
        assert_eq!((size("3MiB"), size("3TiB")), (Ok(3 << 20), Ok(3 << 40)));
        for wrong in ["", "0", "-1", "G", "1.5G", "8 G", "8iB", "8X", "8XiB", "99999999999T", "8GB/s"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
