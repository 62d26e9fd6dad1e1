//! The settings of a session as the program says them, one method each.
//!
//! Applications call it, and [`Session`](super::Session) makes one from the environment. It only gathers: what is wrong is kept
//! until [`start`](SessionBuilder::start), in `start`, says it, and no file, thread or device is touched before.

use std::fmt;
use std::path::{Path, PathBuf};
#[cfg(feature = "enable")]
use std::sync::Arc;
use std::time::Duration;

use super::config::{Config, FlightSettings};
use super::environment::Environment;
use super::error::{ConfigError, Error, PROGRAM};
use super::filter::Filter;
use super::line::{VARIABLE, help};
use super::values::{
    check_budget, check_events, check_flight, check_graph_timing, check_keep, check_ring, check_rotate, check_sample,
    check_stall,
};
use super::{Ends, GraphTiming};
use crate::catalog::Level;
#[cfg(feature = "enable")]
use crate::collector::Inbox;
use crate::environment;
use crate::files::name;
use crate::sink::Sink;
use crate::sink::held::HeldSinks;
use crate::tell::tell_lines;

/// Puts a session together.
///
/// ```
/// use warpline::{Level, Session};
///
/// let session = Session::builder().level(Level::Coarse).filter("demo.*").start()?;
/// # session.finish();
/// # Ok::<(), warpline::Error>(())
/// ```
#[derive(Default)]
pub struct SessionBuilder {
    pub(super) config: Config,
    pub(super) sinks: HeldSinks,
    /// How sinks come later.
    #[cfg(feature = "enable")]
    pub(super) guests: Arc<Inbox>,
    /// What `WARPLINE` said, where it is set.
    pub(super) environment: Option<Environment>,
    /// The first setting that is none.
    wrong: Option<ConfigError>,
}

impl SessionBuilder {
    /// Adds the settings that the environment variable `WARPLINE` says, or `settings` when it is not set. So a program
    /// can have sinks of its own beside what its user asks for. In a program with raised privileges no variable counts, which a line
    /// on standard error says.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::NotUnicode`].
    pub fn env_or(self, settings: &str) -> Result<Self, Error> {
        environment::tell_if_ignored(VARIABLE);
        match environment::var(VARIABLE) {
            Ok(line) if line.trim().is_empty() => self.add("off", VARIABLE),
            Ok(line) => self.add_environment(line, settings),
            Err(environment::VarError::NotPresent) => self.add(settings, PROGRAM),
            Err(environment::VarError::NotUnicode(_)) => Err(Error::NotUnicode),
        }
    }

    /// Adds settings in the form that `WARPLINE` has: `perfetto=a.pftrace,level=coarse`.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn settings(self, line: &str) -> Result<Self, Error> {
        self.add(line, PROGRAM)
    }

    /// Writes a Perfetto trace to this file. `WARPLINE=perfetto=…`.
    ///
    /// In the path, here and in every setting that has one, `{pid}` stands for the process id, `{rank}` for the process's number
    /// in its job, as its launcher says it in the environment (0 without a launcher), `{host}` for the machine's name, and `{{`
    /// for a brace. A file that another session is writing, in another process too, is left alone: the trace then goes to
    /// `trace.PID.pftrace`, which a line on standard error and the report say.
    pub fn perfetto(mut self, path: impl AsRef<Path>) -> Self {
        let path = self.checked_path("perfetto", path.as_ref());
        self.config.perfetto.extend(path);
        self
    }

    /// Writes a Chrome JSON trace to this file, with the placeholders of [`perfetto`](Self::perfetto). `WARPLINE=chrome=…`.
    pub fn chrome(mut self, path: impl AsRef<Path>) -> Self {
        let path = self.checked_path("chrome", path.as_ref());
        self.config.chrome.extend(path);
        self
    }

    /// Writes each Perfetto trace to one file after the other, of at most `bytes` bytes each, and keeps the newest:
    /// `trace.pftrace` becomes `trace.0001.pftrace` and so on. Each file can be read alone. See [`keep`](Self::keep).
    /// `WARPLINE=rotate=256MiB`.
    pub fn rotate(mut self, bytes: u64) -> Self {
        self.config.rotate = self.checked(format_args!("rotate({bytes})"), check_rotate(bytes));
        self
    }

    /// How many files of a trace stay that is written with [`rotate`](Self::rotate), with the one that is being written;
    /// 4 by default. No file is removed that the session has not made. `WARPLINE=keep=4`.
    pub fn keep(mut self, files: usize) -> Self {
        self.config.keep = self.checked(format_args!("keep({files})"), check_keep(files));
        self
    }

    /// Keeps the last `bytes` bytes of zones in a file, whatever becomes of the program: `warpline recover` makes a trace
    /// of the file of a program that was killed, and [`Session::dump`](crate::Session::dump) one of a program that runs. One is
    /// written as well when a thread panics, when a stream fails, and for [`stall`](Self::stall) and
    /// [`dump_on_sigusr2`](Self::dump_on_sigusr2). On Unix.
    ///
    /// The file lies in the working directory, as `warpline-PID.flight`, and goes when the session finishes;
    /// [`flight_at`](Self::flight_at) says another place, where it stays. `WARPLINE=flight=64MiB`.
    pub fn flight(self, bytes: u64) -> Self {
        self.flight_in(bytes, None)
    }

    /// As [`flight`](Self::flight), in this file, which stays when the session finishes. The path may have the placeholders of
    /// [`perfetto`](Self::perfetto). The file of an earlier session is put aside as `FILE.previous`. `WARPLINE=flight=64MiB:FILE`.
    pub fn flight_at(mut self, bytes: u64, path: impl AsRef<Path>) -> Self {
        let path = self.checked_path("flight", path.as_ref());
        self.flight_in(bytes, path)
    }

    /// Writes the flight recorder out when a stream has open zones and finishes none for so long, at least 100 ms.
    /// `WARPLINE=stall=10s`.
    pub fn stall(mut self, time: Duration) -> Self {
        self.config.stall = self.checked(format_args!("stall({time:?})"), check_stall(time));
        self
    }

    /// Writes the flight recorder out when the signal SIGUSR2 comes. A handler of the program's own that was there before
    /// is called, too. `WARPLINE=dump_on=sigusr2`.
    pub fn dump_on_sigusr2(mut self) -> Self {
        self.config.dump_on_sigusr2 = true;
        self
    }

    /// Shows zones live in [Tracy](https://github.com/wolfpld/tracy). `WARPLINE=tracy`. It needs feature `tracy`; without it
    /// [`start`](Self::start) says so.
    pub fn tracy(self) -> Self {
        self.flag("tracy")
    }

    /// Prints the report at the end. `WARPLINE=summary`.
    pub fn summary(mut self) -> Self {
        self.config.summary = true;
        self
    }

    /// Does not print, at the end of the session, which files it wrote. Warnings and errors are printed. `WARPLINE=quiet`.
    pub fn quiet(mut self) -> Self {
        self.config.quiet = true;
        self
    }

    /// Emits each zone, when it is complete, as an event of `tracing` with its namespace as target, for programs that have
    /// logs and no trace UI. They go to the subscriber of the thread that starts the session, or to the global one where it
    /// has none. Needs feature `tracing`. `WARPLINE=log`.
    pub fn log(self) -> Self {
        self.flag("log")
    }

    /// Leaves out ranges that are finer than this. `WARPLINE=level=…`; `fine` by default, which leaves none out.
    pub fn level(mut self, level: Level) -> Self {
        self.config.level = level;
        self
    }

    /// Records only ranges whose name fits the pattern (`demo.*`), or leaves those out (`!demo.mlp`). Of several, a range
    /// must fit one of the first kind, if there is any, and none of the second. `WARPLINE=filter=…`.
    pub fn filter(mut self, pattern: &str) -> Self {
        let filter = self.checked(format_args!("filter={pattern}"), Filter::parse(pattern));
        self.config.filters.extend(filter);
        self
    }

    /// The most zones of one stream that may wait for their events; 4,096 by default. `WARPLINE=ring=…`.
    pub fn ring(mut self, zones: usize) -> Self {
        if let Some(zones) = self.checked(format_args!("ring({zones})"), check_ring(zones)) {
            self.config.ring = zones;
        }
        self
    }

    /// How the end of a zone on a GPU stream is found; [`Ends::Auto`] by default. `WARPLINE=ends=…`.
    pub fn ends(mut self, ends: Ends) -> Self {
        self.config.ends = ends;
        self
    }

    /// The most events that the session may hold in one GPU context, two for each zone that waits; 16,384 by default.
    /// `WARPLINE=events=…`.
    pub fn event_budget(mut self, events: usize) -> Self {
        if let Some(events) = self.checked(format_args!("event_budget({events})"), check_events(events)) {
            self.config.events = events;
        }
        self
    }

    /// The share of a launching thread's time that the session may cost it, above 0 and up to 1: of the zones of frequent
    /// ranges only an unbiased sample is recorded then. `WARPLINE=budget=0.5%`; without one all zones are.
    pub fn budget(mut self, share: f64) -> Self {
        self.config.budget = self.checked(format_args!("budget({share})"), check_budget(share));
        self
    }

    /// The share of each range's zones that is recorded, above 0 and up to 1, each zone by chance on its own;
    /// [`ZoneRecord::sample_share`](crate::ZoneRecord::sample_share) says it. Collectives are recorded whole: ranks match
    /// them by number. With a budget, this is the most of a range that it pays for. `WARPLINE=sample=10%`.
    pub fn sample(mut self, share: f64) -> Self {
        if let Some(share) = self.checked(format_args!("sample({share})"), check_sample(share)) {
            self.config.sample = share;
        }
        self
    }

    /// Measures with a kernel what a pair of events adds to a kernel:
    /// [`ZoneRecord::gpu_ns_corrected`](crate::ZoneRecord::gpu_ns_corrected) is nearer to the kernel's own time then. It measures when
    /// the session starts, in that thread's CUDA context if it has one, and otherwise on the session's own thread, when the first
    /// zone in a context has been collected. It takes some ms and may wait for work in the context. `WARPLINE=calibrate`.
    pub fn calibrate(mut self) -> Self {
        self.config.calibrate = true;
        self
    }

    /// Whether kernels, copies and memory sets are recorded, too, each with its exact time on the device and with the zone
    /// that launched it: [`Sink::kernels`]. It needs feature `cupti` and NVIDIA's CUPTI on the machine; where that cannot be
    /// had, or another tool has it, the report says so and zones are recorded all the same. `WARPLINE=kernels`.
    ///
    /// CUPTI makes launches slower, those of CUDA graphs most: a graph of 100 small kernels took 90 % longer on an H100. To time
    /// zones inside graphs, use [`GraphTiming::Stamps`]. When the session is over, CUPTI is ended where that is safe; otherwise a
    /// note of the report says what stays.
    pub fn kernels(mut self, record: bool) -> Self {
        if record {
            return self.flag("kernels");
        }
        self.config.kernels = false;
        self
    }

    /// How zones that are captured into CUDA graphs are timed in each replay without a profiler: [`Sink::replays`];
    /// [`GraphTiming::Off`] by default. Graphs that were captured before keep what they have. Stamps need a module in each context,
    /// which takes some ms to load: when the session starts, in the calling thread's context if it has one; in other contexts on the
    /// session's own thread, or on the capturing thread where a capture comes first. Loading may wait for work in the context, so
    /// start the session before the program is under way. It needs feature `cuda`.
    /// `WARPLINE=graph_timing=stamps`.
    pub fn graph_timing(mut self, timing: GraphTiming) -> Self {
        if let Some(timing) = self.checked("graph_timing", check_graph_timing(timing)) {
            self.config.graph_timing = timing;
        }
        self
    }

    /// Whether zones are mirrored to NVTX, for Nsight and other tools. Without this setting they are where a tool is
    /// attached; with `false` not even there; with `true` also to the library of an old toolkit, and it is said when there
    /// is no tool at all. `WARPLINE=nvtx`, `nvtx=off`; of several wishes, off wins. It holds for all zones of the process, with
    /// a session or without, until another session starts.
    pub fn nvtx(mut self, mirror: bool) -> Self {
        self.config.wish_nvtx(mirror);
        self
    }

    /// Lets the command `warpline` ask this process for its state, for a trace or for single zones, as long as the session is
    /// there: `warpline ps`, `record`, `top`, … of the same user on the same machine. With nowhere to write to, the session
    /// records only what is asked for. Where the socket's directory is not safe nobody can ask: it is said on standard error and
    /// in the report, and all else goes on. Linux only; elsewhere [`start`](Self::start) says so. `WARPLINE=control`.
    pub fn control(self) -> Self {
        self.flag("control")
    }

    /// The longest that [`Session::finish`](crate::Session::finish) waits; 5 s by default. `WARPLINE=timeout=…`.
    pub fn finish_timeout(mut self, timeout: Duration) -> Self {
        self.config.finish_timeout = timeout;
        self
    }

    /// Hands the records to a sink of your own, too.
    pub fn sink(mut self, sink: impl Sink + 'static) -> Self {
        self.sinks.push(Box::new(sink));
        self
    }

    /// The settings of a session that is held for those who ask from outside.
    #[cfg(all(feature = "enable", target_os = "linux"))]
    pub(super) fn held(config: Config, guests: Arc<Inbox>) -> SessionBuilder {
        SessionBuilder { config, guests, ..SessionBuilder::default() }
    }

    fn add(mut self, line: &str, origin: &'static str) -> Result<Self, Error> {
        self.config.add(line).map_err(|source| Error::Config { origin, source })?;
        Ok(self)
    }

    /// Adds what the variable says in place of the program's `settings`.
    fn add_environment(mut self, line: String, settings: &str) -> Result<Self, Error> {
        self = self.add(&line, VARIABLE)?;
        self.environment = Some(Environment::new(line, settings));
        Ok(self)
    }

    /// Whether a session can start with these settings. Their paths are final then: placeholders are replaced.
    ///
    /// # Errors
    /// The first that is none, or that needs another one.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        if let Some(source) = &self.wrong {
            return Err(Error::of_program(source.clone()));
        }
        if self.config.help {
            tell_lines(help());
            self.config.off = true;
        }
        // A user who wants nothing has said so.
        if self.config.off {
            return Ok(());
        }
        #[cfg(feature = "enable")]
        let expanded = self.config.expand_paths();
        #[cfg(not(feature = "enable"))]
        let expanded = Ok(());
        expanded.and_then(|()| self.config.check()).map_err(|source| {
            let origin = Environment::origin(self.environment.as_ref(), &source);
            Error::Config { origin, source }
        })
    }

    /// Keeps the path, or what is wrong with it.
    fn checked_path(&mut self, setting: &str, path: &Path) -> Option<PathBuf> {
        let checked = name::check(path).map(|()| path.to_owned());
        self.checked(format_args!("{setting}={}", path.display()), checked)
    }

    /// Keeps the value, or what is wrong with it.
    fn checked<T>(&mut self, setting: impl fmt::Display, value: Result<T, String>) -> Option<T> {
        value.map_err(|problem| self.wrong.get_or_insert(ConfigError::new(setting.to_string(), problem))).ok()
    }

    /// Adds a setting that takes no value, or keeps what is wrong with it.
    fn flag(mut self, setting: &str) -> Self {
        if let Err(wrong) = self.config.add(setting) {
            self.wrong.get_or_insert(wrong);
        }
        self
    }

    fn flight_in(mut self, bytes: u64, path: Option<PathBuf>) -> Self {
        let checked = self.checked(format_args!("flight({bytes})"), check_flight(bytes));
        self.config.flight = checked.map(|bytes| FlightSettings { bytes, path });
        self
    }
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_needs_another_one_is_told_where_it_stands() {
        let of_user = |line: &str| SessionBuilder::default().add_environment(line.to_owned(), "");
        let says = |builder: SessionBuilder| builder.start().expect_err("a trace is missing").to_string();
        let of_program = of_user("summary").expect("settings").rotate(1 << 20);
        let missing = "has a setting that cannot be used: `rotate`: needs a Perfetto trace";
        assert!(says(of_program).starts_with(&format!("the program {missing}")));
        assert!(says(of_user("summary,rotate=1MiB").expect("settings")).starts_with(&format!("WARPLINE {missing}")));
    }

    #[test]
    fn the_builder_refuses_the_sizes_that_the_variable_does() {
        let says = |builder: SessionBuilder| builder.start().expect_err("it is no size").to_string();
        assert!(says(SessionBuilder::default().ring(0)).contains("`ring(0)`: a ring holds 1 to "));
        assert!(says(SessionBuilder::default().event_budget(1)).contains("`event_budget(1)`: a GPU context has 2 to "));
    }

    #[test]
    fn a_user_who_wants_nothing_need_not_give_what_the_programs_settings_need() {
        let builder =
            SessionBuilder::default().add_environment("off".to_owned(), "").expect("settings").rotate(1 << 20);
        assert!(!builder.start().expect("nothing is started").is_recording());
    }
}
