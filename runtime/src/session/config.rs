//! The settings of a session, and `WARPLINE=…`, which says them in one line.
//!
//! The line is `key`, `key=value` joined by commas. A key that takes a file or a pattern can stand several times. The
//! parser refuses what it does not know and says what it knows instead; it never panics, whatever the text.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::files;
use super::sizes::{parse_dump_on, parse_flight, parse_keep, parse_rotate, parse_stall};
use super::spelling::{blank_for_comma, unknown};
use super::{Ends, GraphTiming};
use crate::budget::{Wanted, may_be_sampled};
use crate::catalog::{Level, RangeSpec};
use crate::stream::ring;

/// The environment variable that says what to record.
pub(crate) const VARIABLE: &str = "WARPLINE";

/// Every setting of a session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) perfetto: Vec<PathBuf>,
    pub(crate) chrome: Vec<PathBuf>,
    /// The most bytes of a Perfetto trace's file, and how many of them stay; none for one file without a limit.
    pub(crate) rotate: Option<u64>,
    pub(crate) keep: Option<usize>,
    /// Keep the last so many bytes of zones in a file.
    pub(crate) flight: Option<FlightSettings>,
    /// A stream that finishes no zone for so long, while zones are open, is stalled.
    pub(crate) stall: Option<Duration>,
    /// Write the flight recorder out on the signal SIGUSR2.
    pub(crate) dump_on_sigusr2: bool,
    /// Show zones live in Tracy.
    pub(crate) tracy: bool,
    pub(crate) summary: bool,
    /// Emit zones as events of `tracing`.
    pub(crate) log: bool,
    pub(crate) level: Level,
    pub(crate) filters: Vec<Filter>,
    pub(crate) ring: usize,
    pub(crate) events: usize,
    pub(crate) ends: Ends,
    /// The share of a launching thread's time that the session may cost; none for whatever it costs.
    pub(crate) budget: Option<f64>,
    /// The greatest share of a range's zones that is recorded.
    pub(crate) sample: f64,
    /// Measure with a kernel what a pair of events adds to one.
    pub(crate) calibrate: bool,
    /// Record kernels through CUPTI.
    pub(crate) kernels: bool,
    /// Time captured zones in each replay.
    pub(crate) graph_timing: GraphTiming,
    /// Zones are mirrored to NVTX: as asked, not at all, or where a tool is there.
    pub(crate) nvtx: Option<bool>,
    pub(crate) finish_timeout: Duration,
    pub(crate) off: bool,
    /// Listen to the command `warpline`.
    pub(crate) control: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            perfetto: Vec::new(),
            chrome: Vec::new(),
            rotate: None,
            keep: None,
            flight: None,
            stall: None,
            dump_on_sigusr2: false,
            tracy: false,
            summary: false,
            log: false,
            level: Level::Fine,
            filters: Vec::new(),
            ring: 4096,
            events: 16_384,
            ends: Ends::Auto,
            budget: None,
            sample: 1.0,
            calibrate: false,
            kernels: false,
            graph_timing: GraphTiming::Off,
            nvtx: None,
            finish_timeout: Duration::from_secs(5),
            off: false,
            control: false,
        }
    }
}

/// The setting `flight`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlightSettings {
    pub(crate) bytes: u64,
    /// Where; none for a file in the working directory that goes with the session.
    pub(crate) path: Option<PathBuf>,
}

/// How many files a trace that is rotated keeps where nothing is said.
pub(crate) const KEPT: usize = 4;

/// A pattern over range names: `*` stands for any characters, a leading `!` leaves out what the pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pattern: String,
    leave_out: bool,
}

/// What is wrong with the text of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting, as it was written.
    setting: String,
    /// What is wrong with it and what to write instead.
    problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.setting.escape_debug(), self.problem)
    }
}

impl ConfigError {
    pub(super) fn new(setting: String, problem: String) -> ConfigError {
        ConfigError { setting, problem }
    }

    /// The setting without its value.
    pub(super) fn key(&self) -> &str {
        self.setting.split('=').next().unwrap_or_default().trim()
    }
}

impl std::error::Error for ConfigError {}

pub(super) const KEYS: [&str; 24] = [
    "perfetto",
    "chrome",
    "tracy",
    "summary",
    "log",
    "level",
    "filter",
    "ring",
    "events",
    "ends",
    "budget",
    "sample",
    "calibrate",
    "kernels",
    "graph_timing",
    "nvtx",
    "timeout",
    "rotate",
    "keep",
    "flight",
    "stall",
    "dump_on",
    "off",
    "control",
];

/// What `log` needs.
pub(super) const NO_TRACING: &str = "this program was built without warpline's feature `tracing`: turn it on";
/// What `kernels` needs.
pub(super) const NO_CUPTI: &str = "this program was built without warpline's feature `cupti`; build it with that";
/// Where `control` is not to be had.
pub(super) const NO_CONTROL: &str = "a program listens to `warpline` on Linux alone; leave it out here";
/// What `graph_timing` needs.
pub(super) const NO_CUDA: &str = "this program was built without warpline's feature `cuda`; build it with that";
/// What to do where Tracy is not built in.
const NO_TRACY: &str = "this program was built without warpline's feature `tracy`; build it with that, or write a trace \
                        with `perfetto=FILE`";

impl Config {
    /// Adds a line of settings to these.
    ///
    /// # Errors
    /// The first setting that is not one.
    pub(crate) fn add(&mut self, line: &str) -> Result<(), ConfigError> {
        for setting in line.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let (key, value) = match setting.split_once('=') {
                Some((key, value)) => (key.trim(), Some(value.trim())),
                None => (setting, None),
            };
            let wrong = |problem: String| ConfigError { setting: setting.to_owned(), problem };
            let needs = |what: &str| {
                let example = format!("needs a value, as in `{key}={what}`");
                value.filter(|value| !value.is_empty()).ok_or_else(|| wrong(example))
            };
            if let Some(problem) = blank_for_comma(setting) {
                return Err(wrong(problem));
            }
            match key {
                "perfetto" => self.perfetto.push(needs("trace.pftrace")?.into()),
                "chrome" => self.chrome.push(needs("trace.json")?.into()),
                "level" => self.level = parse_level(needs("coarse")?).map_err(wrong)?,
                "filter" => self.filters.push(Filter::parse(needs("demo.*")?).map_err(wrong)?),
                "ring" => self.ring = parse_ring(needs("4096")?).map_err(wrong)?,
                "events" => self.events = parse_events(needs("16384")?).map_err(wrong)?,
                "ends" => self.ends = parse_ends(needs("lazy")?).map_err(wrong)?,
                "budget" => self.budget = Some(parse_budget(needs("0.5%")?).map_err(wrong)?),
                "sample" => self.sample = parse_sample(needs("10%")?).map_err(wrong)?,
                "graph_timing" => self.graph_timing = parse_graph_timing(needs("stamps")?).map_err(wrong)?,
                "nvtx" => self.wish_nvtx(parse_nvtx(value).map_err(wrong)?),
                "rotate" => self.rotate = Some(parse_rotate(needs("256MiB")?).map_err(wrong)?),
                "keep" => self.keep = Some(parse_keep(needs("4")?).map_err(wrong)?),
                "flight" => self.flight = Some(parse_flight(needs("64MiB")?).map_err(wrong)?),
                "stall" => self.stall = Some(parse_stall(needs("10s")?).map_err(wrong)?),
                "dump_on" => self.dump_on_sigusr2 = parse_dump_on(needs("sigusr2")?).map_err(wrong)?,
                "timeout" => self.finish_timeout = parse_duration(needs("5s")?).map_err(wrong)?,
                "tracy" if cfg!(not(feature = "tracy")) => return Err(wrong(NO_TRACY.to_owned())),
                "kernels" if cfg!(not(feature = "cupti")) => return Err(wrong(NO_CUPTI.to_owned())),
                "control" if cfg!(not(target_os = "linux")) => return Err(wrong(NO_CONTROL.to_owned())),
                "summary" | "log" | "calibrate" | "kernels" | "tracy" | "off" | "control" => {
                    if value.is_some() {
                        return Err(wrong(format!("takes no value; write `{key}`")));
                    }
                    *match key {
                        "off" => &mut self.off,
                        "control" => &mut self.control,
                        "calibrate" => &mut self.calibrate,
                        "kernels" => &mut self.kernels,
                        "log" if cfg!(feature = "tracing") => &mut self.log,
                        "log" => return Err(wrong(NO_TRACING.to_owned())),
                        "tracy" => &mut self.tracy,
                        _ => &mut self.summary,
                    } = true;
                }
                _ => return Err(wrong(unknown(setting, key))),
            }
        }
        Ok(())
    }

    /// Whether the settings go with one another.
    ///
    /// # Errors
    /// The first that needs another one.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let needs = |is_there: bool, setting: &str, other: &str, example: &str| match is_there {
            true => Ok(()),
            false => Err(ConfigError::new(setting.to_owned(), format!("needs {other}, as in `{example}`"))),
        };
        if self.rotate.is_some() {
            let example = "perfetto=trace.pftrace,rotate=256MiB";
            needs(!self.perfetto.is_empty(), "rotate", "a Perfetto trace to rotate", example)?;
        }
        if self.keep.is_some() {
            let example = "perfetto=trace.pftrace,rotate=256MiB,keep=4";
            needs(self.rotate.is_some(), "keep", "files to keep some of", example)?;
        }
        if self.stall.is_some() {
            needs(self.flight.is_some(), "stall", "a flight recorder to write out", "flight=64MiB,stall=10s")?;
        }
        if self.dump_on_sigusr2 {
            let example = "flight=64MiB,dump_on=sigusr2";
            needs(self.flight.is_some(), "dump_on", "a flight recorder to write out", example)?;
        }
        if cfg!(not(unix)) && self.flight.is_some() {
            return Err(ConfigError::new("flight".to_owned(), "there is one on Unix only; leave it out".to_owned()));
        }
        files::apart(self)
    }

    /// Of several wishes, the one to leave it wins.
    pub(crate) fn wish_nvtx(&mut self, wish: bool) {
        self.nvtx = Some(wish && self.nvtx != Some(false));
    }

    /// What a session with these settings records of a range.
    pub(crate) fn wants(&self, range: &RangeSpec) -> Wanted {
        match self.budget {
            _ if self.leaves_out(range) => Wanted::None,
            _ if !may_be_sampled(range) => Wanted::All,
            Some(_) => Wanted::Paid(self.sample),
            None if self.sample < 1.0 => Wanted::Share(self.sample),
            None => Wanted::All,
        }
    }

    /// Whether a session with these settings leaves the range out.
    fn leaves_out(&self, range: &RangeSpec) -> bool {
        if range.level() > self.level {
            return true;
        }
        !lets_through(&self.filters, range.name())
    }

    /// Whether what is recorded is for something, other than for who asks from outside.
    pub(crate) fn has_output(&self) -> bool {
        let Config { perfetto, chrome, tracy, summary, log, flight, .. } = self;
        !perfetto.is_empty() || !chrome.is_empty() || *tracy || *summary || *log || flight.is_some()
    }
}

/// Whether a name fits one of the filters without `!`, if there is any, and none with it.
pub(crate) fn lets_through(filters: &[Filter], name: &str) -> bool {
    let mut wanted = filters.iter().filter(|filter| !filter.leave_out).peekable();
    let is_wanted = wanted.peek().is_none() || wanted.any(|filter| filter.matches(name));
    is_wanted && !filters.iter().any(|filter| filter.leave_out && filter.matches(name))
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.leave_out { "!" } else { "" }, self.pattern)
    }
}

impl Filter {
    /// Several patterns, joined by commas.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Filter>, ConfigError> {
        let patterns = text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        let wrong = |pattern: &str, problem| ConfigError::new(format!("filter={pattern}"), problem);
        patterns.map(|pattern| Filter::parse(pattern).map_err(|problem| wrong(pattern, problem))).collect()
    }

    pub(crate) fn parse(text: &str) -> Result<Filter, String> {
        let (leave_out, pattern) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let legal = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '.' | '*');
        if pattern.is_empty() || !pattern.chars().all(legal) {
            return Err(
                "a filter is a range name with `*` for any characters, as in `demo.*` or `!demo.mlp`; in a shell, quote the \
                 `!`: 'filter=!demo.mlp'"
                    .to_owned(),
            );
        }
        Ok(Filter { pattern: pattern.to_owned(), leave_out })
    }

    pub(super) fn pattern(&self) -> &str {
        &self.pattern
    }

    pub(super) fn leaves_out(&self) -> bool {
        self.leave_out
    }

    /// Whether the whole name fits the pattern: linear in both, however many stars there are.
    pub(super) fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.pattern.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        // Where to go on when the characters after the last star do not fit.
        let mut retry = None;
        while n < name.len() {
            if pattern.get(p) == Some(&b'*') {
                retry = Some((p + 1, n));
                p += 1;
            } else if pattern.get(p) == Some(&name[n]) {
                p += 1;
                n += 1;
            } else if let Some((after_star, from)) = retry {
                retry = Some((after_star, from + 1));
                (p, n) = (after_star, from + 1);
            } else {
                return false;
            }
        }
        pattern[p..].iter().all(|&byte| byte == b'*')
    }
}

/// What `WARPLINE` wants of the mirror, with a session or without one. What is wrong in it, the session says.
pub(crate) fn nvtx_of_environment() -> Option<bool> {
    let mut config = Config::default();
    let _ = config.add(&std::env::var(VARIABLE).ok()?);
    config.nvtx
}

fn parse_level(text: &str) -> Result<Level, String> {
    match text {
        "coarse" => Ok(Level::Coarse),
        "fine" => Ok(Level::Fine),
        _ => Err("a level is `coarse` or `fine`".to_owned()),
    }
}

fn parse_ring(text: &str) -> Result<usize, String> {
    let most = ring::MAX_CAPACITY;
    let zones = text.parse().ok().filter(|zones| (1..=most).contains(zones));
    zones.ok_or_else(|| format!("a ring holds 1 to {most} zones a stream, as in `ring=4096`"))
}

fn parse_events(text: &str) -> Result<usize, String> {
    let most = ring::MAX_CAPACITY;
    let events = text.parse().ok().filter(|events| (2..=most).contains(events));
    events.ok_or_else(|| format!("a GPU context has 2 to {most} events, two a zone, as in `events=16384`"))
}

fn parse_ends(text: &str) -> Result<Ends, String> {
    match text {
        "auto" => Ok(Ends::Auto),
        "eager" => Ok(Ends::Eager),
        "lazy" => Ok(Ends::Lazy),
        _ => Err("ends are `auto`, `eager` or `lazy`".to_owned()),
    }
}

fn parse_graph_timing(text: &str) -> Result<GraphTiming, String> {
    match text {
        "off" => Ok(GraphTiming::Off),
        "stamps" | "events" if cfg!(not(feature = "cuda")) => Err(NO_CUDA.to_owned()),
        "stamps" => Ok(GraphTiming::Stamps),
        "events" => Ok(GraphTiming::Events),
        _ => Err("replays of graphs are timed by `stamps` or `events`, or `off`".to_owned()),
    }
}

fn parse_nvtx(value: Option<&str>) -> Result<bool, String> {
    match value {
        None => Ok(true),
        Some("off") => Ok(false),
        Some(_) => Err("the mirror is `nvtx`, or `nvtx=off`".to_owned()),
    }
}

fn parse_budget(text: &str) -> Result<f64, String> {
    parse_share(text)
        .ok_or_else(|| "a budget is a share of the launching thread's time, as in `budget=0.5%`".to_owned())
}

fn parse_sample(text: &str) -> Result<f64, String> {
    parse_share(text).ok_or_else(|| "a sample is a share of each range's zones, as in `sample=10%`".to_owned())
}

/// Above 0 and up to 1.
fn parse_share(text: &str) -> Option<f64> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    percent.map(|percent| percent / 100.0).filter(|share| is_share(*share))
}

/// Whether a session can record this share of something.
pub(super) fn is_share(share: f64) -> bool {
    share > 0.0 && share <= 1.0
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let number_len = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let seconds = match unit {
        "h" => Some(3600.0),
        "m" => Some(60.0),
        "s" => Some(1.0),
        "ms" => Some(1e-3),
        _ => None,
    };
    let value = number.parse::<f64>().ok().zip(seconds).map(|(number, seconds)| number * seconds);
    value
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a time is a number with `ms`, `s`, `m` or `h`, as in `5s` or `250ms`".to_owned())
}

/// Levenshtein distance of two short words; long ones are simply far.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    if a.len() > 128 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config.add(line).map(|()| config)
    }

    fn problem(line: &str) -> String {
        parse(line).expect_err(line).to_string()
    }

    #[test]
    fn reads_every_setting() {
        let line = " perfetto=a.pftrace, chrome=a.json,summary,level=coarse,filter=demo.*,filter=!demo.mlp,ring=64,events=128,ends=lazy,budget=0.5%,sample=10%,timeout=250ms,";
        let config = parse(line).expect("a good line");
        assert_eq!(config.perfetto, [PathBuf::from("a.pftrace")]);
        assert_eq!(config.chrome, [PathBuf::from("a.json")]);
        assert!(config.summary && config.level == Level::Coarse && config.ring == 64);
        assert_eq!((config.events, config.ends, config.budget), (128, Ends::Lazy, Some(0.005)));
        assert_eq!((config.filters.len(), config.sample), (2, 0.1));
        assert_eq!(config.finish_timeout, Duration::from_millis(250));
        assert_eq!(parse("").expect("empty"), Config::default());
        let nvtx = |line: &str| parse(line).expect(line).nvtx;
        let timing = |line: &str| parse(line).map(|config| config.graph_timing);
        assert_eq!((timing(""), timing("graph_timing=off")), (Ok(GraphTiming::Off), Ok(GraphTiming::Off)));
        match cfg!(feature = "cuda") {
            true => {
                assert_eq!(timing("graph_timing=stamps"), Ok(GraphTiming::Stamps));
                assert_eq!(timing("graph_timing=events"), Ok(GraphTiming::Events));
            }
            false => assert!(problem("graph_timing=stamps").contains(NO_CUDA)),
        }
        assert!(problem("graph_timing=cupti").contains("`stamps` or `events`, or `off`"));
        assert_eq!((nvtx("summary"), nvtx("nvtx"), nvtx("nvtx=off,nvtx")), (None, Some(true), Some(false)));
        #[cfg(target_os = "linux")]
        assert!(parse("control").is_ok_and(|config| config.control && !config.has_output()));
        assert!(parse("summary,off").expect("off").off && parse("calibrate").expect("a flag").calibrate);
    }

    #[test]
    fn says_what_to_write_instead() {
        assert_eq!(
            problem("summary,perfeto=a"),
            "`perfeto=a`: there is no setting `perfeto`; did you mean `perfetto`? \
             (there are perfetto, chrome, tracy, summary, log, level, filter, ring, events, ends, budget, sample, calibrate, kernels, graph_timing, nvtx, timeout, rotate, keep, flight, stall, dump_on, off, control)"
        );
        assert_eq!(problem("perfetto="), "`perfetto=`: needs a value, as in `perfetto=trace.pftrace`");
        assert_eq!(problem("level=medium"), "`level=medium`: a level is `coarse` or `fine`");
        if cfg!(feature = "tracy") {
            assert!(parse("tracy").expect("it is built in").tracy);
        } else {
            assert!(problem("tracy").contains("without warpline's feature `tracy`; build it with that"));
        }
        assert_eq!(problem("summary=yes"), "`summary=yes`: takes no value; write `summary`");
        assert_eq!(problem("ring=0"), "`ring=0`: a ring holds 1 to 1048575 zones a stream, as in `ring=4096`");
        assert_eq!(problem("ends=late"), "`ends=late`: ends are `auto`, `eager` or `lazy`");
        assert_eq!(problem("nvtx=on"), "`nvtx=on`: the mirror is `nvtx`, or `nvtx=off`");
        assert!(problem("budget=0.5").contains("as in `budget=0.5%`") && problem("budget=0%").contains("a share"));
        assert!(problem("sample=0%").contains("as in `sample=10%`"));
        assert!(problem("events=1").contains("as in `events=16384`"));
        assert_eq!(
            problem("timeout=5"),
            "`timeout=5`: a time is a number with `ms`, `s`, `m` or `h`, as in `5s` or `250ms`"
        );
        match parse("kernels") {
            Ok(config) => assert!(config.kernels && cfg!(feature = "cupti")),
            Err(error) => assert_eq!(error.to_string(), format!("`kernels`: {NO_CUPTI}")),
        }
        match parse("log") {
            Ok(config) => assert!(config.log && cfg!(feature = "tracing")),
            Err(error) => assert_eq!(error.to_string(), format!("`log`: {NO_TRACING}")),
        }
        assert!(
            problem("filter=Demo").contains("as in `demo.*`")
                && problem("filter=\\!demo").contains("'filter=!demo.mlp'")
        );
        assert_eq!(
            problem("filter=demo.*,!demo.mlp"),
            "`!demo.mlp`: is a pattern; each takes its own `filter=`: write `filter=!demo.mlp`"
        );
        assert!(problem("filter=demo.*,demo.mlp").contains("write `filter=demo.mlp`"));
        assert_eq!(problem("a.json"), "`a.json`: is a file; write `chrome=a.json`");
        assert!(problem("a.pftrace").contains("write `perfetto=a.pftrace`"));
        for far in ["on", "foo", "x", "verbose", "Demo.Step"] {
            assert!(!problem(far).contains("did you mean"), "{}", problem(far));
        }
        for (near, meant) in [("log2", "log"), ("of", "off"), ("kep=3", "keep"), ("sumary", "summary")] {
            assert!(problem(near).contains(&format!("did you mean `{meant}`?")), "{}", problem(near));
        }
        assert!(problem("timeout=-1s").contains("a time is") && problem("timeout=NaNs").contains("a time is"));
    }

    #[test]
    fn a_blank_is_no_comma() {
        assert_eq!(
            problem("perfetto=t.pftrace filter=demo.*"),
            "`perfetto=t.pftrace filter=demo.*`: settings are joined by commas: write `perfetto=t.pftrace,filter=demo.*`"
        );
        assert!(problem("summary level=coarse").contains("write `summary,level=coarse`"));
        assert!(problem("chrome=my trace.json  summary").contains("write `chrome=my trace.json,summary`"));
        let path = |line: &str| parse(line).expect(line).perfetto;
        assert_eq!(path("perfetto=my summary.pftrace"), [PathBuf::from("my summary.pftrace")]);
        assert_eq!(path("perfetto=the log of it.pftrace, summary"), [PathBuf::from("the log of it.pftrace")]);
    }

    #[test]
    fn two_traces_in_one_file_are_refused() {
        let folder = std::env::temp_dir().join(format!("warpline-one-file-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("below")).expect("a folder");
        let at = |name: &str| folder.join(name).display().to_string();
        let check = |line: &str| parse(line).expect(line).check();
        let (a, again, b) = (at("a"), at("below/../a"), at("b"));
        for line in [
            format!("perfetto={a},perfetto={a}"),
            format!("perfetto={a},chrome={again}"),
            format!("perfetto={a},flight=1MiB:{again}"),
            format!("perfetto={a},perfetto={again},rotate=1MiB"),
        ] {
            let error = check(&line).expect_err(&line).to_string();
            assert!(error.ends_with("is named twice; each trace needs a file of its own"), "{error}");
        }
        assert_eq!(check(&format!("perfetto={a},chrome={b},flight=1MiB:{}", at("c"))), Ok(()));
        #[cfg(unix)]
        {
            assert_eq!(check("perfetto=/dev/null,chrome=/dev/null"), Ok(()));
            std::os::unix::fs::symlink("a", folder.join("link")).expect("a link");
            let by_link = format!("perfetto={a},chrome={}", at("link"));
            check(&by_link).expect_err("a link to what is not there yet");
            std::fs::write(folder.join("a"), "").expect("a file");
            std::fs::hard_link(folder.join("a"), folder.join("hard")).expect("a link");
            check(&by_link).expect_err("a link");
            check(&format!("perfetto={a},chrome={}", at("hard"))).expect_err("the same file by another name");
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn sizes_and_what_goes_with_them_are_checked() {
        let config = parse("perfetto=a.pftrace,rotate=256MiB,keep=4,flight=64MiB:/tmp/a:b,stall=10s,dump_on=sigusr2");
        let config = config.expect("a good line");
        assert_eq!(
            (config.rotate, config.keep, config.stall),
            (Some(256 << 20), Some(4), Some(Duration::from_secs(10)))
        );
        assert_eq!(config.flight, Some(FlightSettings { bytes: 64 << 20, path: Some("/tmp/a:b".into()) }));
        assert!(config.dump_on_sigusr2 && config.check().is_ok());
        assert_eq!(parse("flight=1GiB").expect("a size").flight.expect("it").path, None);
        let rotate = |size: &str| parse(&format!("rotate={size}")).expect(size).rotate;
        assert_eq!(
            (rotate("256MB"), rotate("8GB"), rotate("99KB")),
            (Some(256_000_000), Some(8_000_000_000), Some(99_000))
        );
        let timeout = |time: &str| parse(&format!("timeout={time}")).expect(time).finish_timeout.as_secs();
        assert_eq!((timeout("2m"), timeout("1.5h")), (120, 5_400));
        for (line, says) in [
            ("rotate=256", "as in `rotate=256MiB`"),
            ("rotate=256Mb", "`KB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`"),
            ("rotate=1KiB", "at least `64KiB`"),
            ("rotate=65KB", "at least `64KiB`"),
            ("rotate=99999999999GiB", "as in `rotate=256MiB`"),
            ("keep=0", "`keep=0`: at least one file stays"),
            ("keep=some", "as in `keep=4`"),
            ("flight=64", "as in `flight=64MiB`"),
            ("flight=1KiB", "from `256KiB` to `64GiB`"),
            ("flight=64MiB:", "names no file"),
            ("stall=1ms", "at least `100ms`"),
            ("stall=soon", "as in `stall=10s`"),
            ("dump_on=sigint", "write `dump_on=sigusr2`"),
        ] {
            assert!(problem(line).contains(says), "{}", problem(line));
        }
        for (line, says) in [
            ("rotate=1MiB", "`rotate`: needs a Perfetto trace to rotate"),
            ("perfetto=a,keep=2", "`keep`: needs files to keep some of"),
            ("stall=10s", "`stall`: needs a flight recorder to write out, as in `flight=64MiB,stall=10s`"),
            ("dump_on=sigusr2", "`dump_on`: needs a flight recorder"),
        ] {
            let error = parse(line).expect(line).check().expect_err(line).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_star_matches_any_characters() {
        let matches = |pattern: &str, name: &str| Filter::parse(pattern).expect(pattern).matches(name);
        assert!(matches("demo.*", "demo.add") && matches("*", "demo.add") && matches("*.add", "demo.add"));
        assert!(matches("d*o.*d", "demo.add") && matches("demo.add", "demo.add") && matches("demo.add*", "demo.add"));
        assert!(!matches("demo.*", "demos.add") && !matches("demo", "demo.add") && !matches("*.mul", "demo.add"));
        let stars = "*a".repeat(40);
        assert!(!matches(&stars, &"b".repeat(120)));
    }
}
