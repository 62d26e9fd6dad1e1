//! The table of settings. A new setting changes only this table and the code that acts on it.
//!
//! An entry defines the field of [`Config`], the key in `WARPLINE=…` with its parser and its checks, the suggestions for misspelt keys, the
//! line in the help, the row in docs/sessions.md and the methods of [`SessionBuilder`]. After a change here,
//! `WARPLINE_WRITE_DOCS=1 cargo test -p warpline --lib the_page` rewrites the rows of the page.

use std::path::PathBuf;
use std::time::Duration;

use super::filter::Filter;
use super::setting::{self, needs};
use super::values::*;
use warpline_core::catalog::Level;
use warpline_core::timing::{EndMode, GraphTiming, Timing};

/// An entry of the table.
pub(super) type Setting = setting::Setting<Config>;

settings! {
    Setting::value("perfetto", "perfetto=FILE", "write a Perfetto trace", "trace.pftrace", |config, text| {
        parse_path(text).map(|path| config.perfetto.push(path))
    })
    .repeats()
    .output(|config| !config.perfetto.is_empty())
    .paths(|config| config.perfetto.iter_mut().collect())
    .row(
        "`.perfetto(path)`",
        "none",
        "write a Perfetto trace; open it at <https://ui.perfetto.dev>; may appear several times",
    );
    own { perfetto: Vec<PathBuf> = Vec::new() }
    methods {
        /// Writes a Perfetto trace to this file. `WARPLINE=perfetto=…`.
        ///
        /// In this and every other path, `{pid}` stands for the process id, `{rank}` for the process's number in its job, which the
        /// launcher sets in the environment (0 without a launcher), `{host}` for the machine's name, and `{{` for a brace. If another
        /// session is writing the file, in this process or in another one, the trace goes to `trace.PID.pftrace`, and a line on standard
        /// error and the report say so.
        pub fn perfetto(mut self, path: impl AsRef<Path>) -> Self {
            let path = self.checked_path("perfetto", path.as_ref());
            self.config.perfetto.extend(path);
            self
        }
    }

    Setting::value("chrome", "chrome=FILE", "write a Chrome JSON trace", "trace.json", |config, text| {
        parse_path(text).map(|path| config.chrome.push(path))
    })
    .repeats()
    .output(|config| !config.chrome.is_empty())
    .paths(|config| config.chrome.iter_mut().collect())
    .row("`.chrome(path)`", "none", "write a Chrome JSON trace; may appear several times");
    own { chrome: Vec<PathBuf> = Vec::new() }
    methods {
        /// Writes a Chrome JSON trace to this file, with the placeholders of [`perfetto`](Self::perfetto). `WARPLINE=chrome=…`.
        pub fn chrome(mut self, path: impl AsRef<Path>) -> Self {
            let path = self.checked_path("chrome", path.as_ref());
            self.config.chrome.extend(path);
            self
        }
    }

    Setting::flag("tracy", "show zones live in Tracy", |config| &mut config.tracy)
    .only_if(cfg!(feature = "tracy"), NO_TRACY)
    .output(|config| config.tracy)
    .row("`.tracy()`", "no", "show zones live in [Tracy](tracy.md); needs feature `tracy`");
    own { tracy: bool = false }
    methods {
        /// Shows zones live in [Tracy](https://github.com/wolfpld/tracy). `WARPLINE=tracy`. Needs the feature `tracy`; without it,
        /// [`start`](Self::start) fails.
        pub fn tracy(self) -> Self {
            self.line("tracy")
        }
    }

    Setting::flag("summary", "print the report at the end", |config| &mut config.summary)
    .output(|config| config.summary)
    .row("`.summary()`", "off", "`finish` prints the report on standard output");
    own { summary: bool = false }
    methods {
        /// Prints the report at the end. `WARPLINE=summary`.
        pub fn summary(self) -> Self {
            self.line("summary")
        }
    }

    Setting::flag("log", "emit each zone as an event of `tracing`", |config| &mut config.log)
    .only_if(cfg!(feature = "tracing"), NO_TRACING)
    .output(|config| config.log)
    .row(
        "`.log()`",
        "off",
        "emit each zone as an event of `tracing`, for machines with logs and no trace UI; needs the feature `tracing` \
         ([spans](tracing.md))",
    );
    own { log: bool = false }
    methods {
        /// Emits each complete zone as an event of `tracing` with its namespace as target, for programs that have logs and no trace UI. The
        /// events go to the subscriber of the thread that starts the session, or to the global one if that thread has none. Needs the
        /// feature `tracing`. `WARPLINE=log`.
        pub fn log(self) -> Self {
            self.line("log")
        }
    }

    Setting::value("level", "level=coarse", "leave out ranges that are finer", "coarse", |config, text| {
        parse_level(text).map(|level| config.level = level)
    })
    .row("`.level(Level::Coarse)`", "`fine`", "leave out ranges that are finer");
    shared { level: Level = Level::Fine }
    methods {
        /// Leaves out ranges that are finer than this (default [`Level::Fine`], which leaves none out). `WARPLINE=level=…`.
        pub fn level(mut self, level: Level) -> Self {
            self.config.level = level;
            self
        }
    }

    Setting::value(
        "filter",
        "filter=PATTERN",
        "record only ranges that match, or with `!` leave them out",
        "demo.*",
        |config, text| Filter::parse(text).map(|filter| config.filters.push(filter)),
    )
    .repeats()
    .row("`.filter(\"…\")`", "all", "record only ranges that match (below); may appear several times");
    shared { filters: Vec<Filter> = Vec::new() }
    methods {
        /// Records only ranges whose name matches the pattern (`demo.*`), or leaves them out (`!demo.mlp`). With several patterns, a range
        /// must match one of the first kind, if there is any, and none of the second. `WARPLINE=filter=…`.
        pub fn filter(mut self, pattern: &str) -> Self {
            let filter = self.checked(format_args!("filter={pattern}"), Filter::parse(pattern));
            self.config.filters.extend(filter);
            self
        }
    }

    Setting::value("ring", "ring=4096", "the most zones of a stream that wait for their events", "4096", |config, text| {
        parse_ring(text).map(|zones| config.ring = zones)
    })
    .row("`.ring(n)`", "4096", "the most zones of one stream that may wait for their events; at most 1,048,575");
    shared { ring: usize = 4096 }
    methods {
        /// Sets the maximum number of zones of one stream that wait for their events (default 4,096). `WARPLINE=ring=…`.
        pub fn ring(mut self, zones: usize) -> Self {
            if let Some(zones) = self.checked(format_args!("ring({zones})"), check_ring(zones)) {
                self.config.ring = zones;
            }
            self
        }
    }

    Setting::value("events", "events=16384", "the most events in one GPU context", "16384", |config, text| {
        parse_events(text).map(|events| config.events = events)
    })
    .row(
        "`.event_budget(n)`",
        "16384",
        "the most events that the session holds in one GPU context; each waiting zone needs two",
    );
    shared { events: usize = 16_384 }
    methods {
        /// Sets the maximum number of events that the session holds in one GPU context, two for each waiting zone (default 16,384).
        /// `WARPLINE=events=…`.
        pub fn event_budget(mut self, events: usize) -> Self {
            if let Some(events) = self.checked(format_args!("event_budget({events})"), check_events(events)) {
                self.config.events = events;
            }
            self
        }
    }

    Setting::value(
        "event_pool_capacity",
        "event_pool_capacity=256",
        "the most free events that timelines keep in one GPU context",
        "256",
        |config, text| parse_event_pool(text).map(|events| config.event_pool_capacity = Some(events)),
    )
    .only_if(cfg!(feature = "timeline"), NO_TIMELINE)
    .row(
        "`.event_pool_capacity(n)`",
        "no limit",
        "the most free events that [timelines](timelines.md#the-rules) keep in one GPU context, beside up to 32 of each thread; for the whole \
         process, also after the session; needs feature `timeline`",
    );
    own { event_pool_capacity: Option<usize> = None }
    methods {
        /// The most free events that timelines keep in the pool of one GPU context, beside up to 32 that each thread keeps; no limit by
        /// default. Surplus events are destroyed by threads that signal on streams. It holds for the whole process from the session's
        /// start, also after its end; `warpline::timeline::set_event_pool_capacity` sets it without a session. The events of
        /// zones have [`event_budget`](Self::event_budget). It needs feature `timeline`. `WARPLINE=event_pool_capacity=256`.
        pub fn event_pool_capacity(mut self, events: usize) -> Self {
            let setting = format!("event_pool_capacity({events})");
            if let Some(events) = self.checked(setting, check_event_pool(events)) {
                return self.line(&format!("event_pool_capacity={events}"));
            }
            self
        }
    }

    Setting::value("ends", "ends=auto", "how ends of zones are found: auto, eager, lazy", "lazy", |config, text| {
        parse_ends(text).map(|ends| config.ends = ends)
    })
    .row(
        "`.ends(…)`",
        "`auto`",
        "how the end of a zone on a GPU stream is found: `eager`, `lazy` or `auto` ([CUDA streams](cuda.md#ends))",
    );
    shared { ends: EndMode = EndMode::Auto }
    methods {
        /// Sets how the end of a zone on a GPU stream is found (default [`EndMode::Auto`]). `WARPLINE=ends=…`.
        pub fn ends(mut self, ends: EndMode) -> Self {
            self.config.ends = ends;
            self
        }
    }

    Setting::value("timing", "timing=events", "the clock of GPU zones: events, kernels", "kernels", |config, text| {
        parse_timing(text).map(|timing| config.timing = timing)
    })
    .row(
        "`.timing(Timing::Kernels)`",
        "`events`",
        "the clock of zones on GPU streams: CUDA `events`, or with `kernels` CUPTI's records, which put nothing on a stream \
         ([which timing](cuda.md#which-timing)); `kernels` needs feature `cupti`",
    );
    // CUPTI makes launches of graphs slower for the rest of the process, so only the program's own session may turn it on.
    own { timing: Timing = Timing::Events }
    methods {
        /// Sets the clock of zones on GPU streams (default [`Timing::Events`]). With [`Timing::Kernels`], a zone lasts from the begin of
        /// the first work that its thread launches in it to the end of the last, and [`ends`](Self::ends) has no effect. This needs the
        /// feature `cupti` and NVIDIA's CUPTI on the machine. If CUPTI is missing, or another tool uses it, zones are timed by events with
        /// lazy ends, and a note of the report says why. CUPTI makes launches of CUDA graphs slower: see [`kernels`](Self::kernels).
        /// `WARPLINE=timing=kernels`.
        pub fn timing(mut self, timing: Timing) -> Self {
            if let Some(timing) = self.checked("timing", check_timing(timing)) {
                self.config.timing = timing;
            }
            self
        }
    }

    Setting::value(
        "budget",
        "budget=0.5%",
        "the most that recording slows the program",
        "0.5%",
        |config, text| parse_budget(text).map(|share| config.budget = Some(share)),
    )
    .row(
        "`.budget(0.005)`",
        "1 % for the flight recorder alone and for recordings from outside, otherwise none",
        "the share of its time that recording may cost the program; the session then records [windows](#sampling-and-budgets), in \
         which steps are complete; `100%`: every zone is recorded",
    );
    shared {
        /// The share of its time that the session may cost the program; none for no limit.
        budget: Option<f64> = None,
    }
    methods {
        /// Sets the share of its time that the session may cost the program, above 0 and up to 1. The session then records windows of its
        /// time, chosen at random, in which each root zone is recorded with all zones inside it. It measures how much slower the program
        /// runs in windows, and chooses the gaps between them accordingly. `WARPLINE=budget=0.5%`. A session whose only output is a flight
        /// recorder, and recordings from outside, have a budget of 1 % by default; 1 lets them record every zone.
        pub fn budget(mut self, share: f64) -> Self {
            self.config.budget = self.checked(format_args!("budget({share})"), check_budget(share));
            self
        }
    }

    Setting::value("sample", "sample=10%", "the share of each range's zones that is recorded", "10%", |config, text| {
        parse_sample(text).map(|share| config.sample = share)
    })
    .row(
        "`.sample(0.1)`",
        "all",
        "the share of each range's zones that is recorded, chosen at random; collectives are recorded completely",
    );
    shared {
        /// The share of a range's zones that is recorded.
        sample: f64 = 1.0,
    }
    methods {
        /// Sets the share of each range's zones that is recorded, above 0 and up to 1. Each zone is chosen at random, independently of the
        /// others, and its record contains the share ([`ZoneRecord::sample_share`](warpline_core::record::ZoneRecord::sample_share)).
        /// Collectives are always recorded, because ranks match them by number. With a budget, the share applies inside windows.
        /// `WARPLINE=sample=10%`.
        pub fn sample(mut self, share: f64) -> Self {
            if let Some(share) = self.checked(format_args!("sample({share})"), check_sample(share)) {
                self.config.sample = share;
            }
            self
        }
    }

    Setting::flag("calibrate", "measure what a pair of events adds to a kernel", |config| &mut config.calibrate)
    .row(
        "`.calibrate()`",
        "no",
        "measure with a kernel what a pair of events adds to one ([CUDA streams](cuda.md#what-is-measured))",
    );
    // For a recording from outside, it would launch a kernel in the middle of the program's work.
    own { calibrate: bool = false }
    methods {
        /// Measures with a kernel what a pair of events adds to a kernel, which brings
        /// [`ZoneRecord::gpu_ns_corrected`](warpline_core::record::ZoneRecord::gpu_ns_corrected) nearer to the kernel's own time. The
        /// measurement runs when the session starts, in that thread's CUDA context if it has one. Otherwise it runs on the session's own
        /// thread, when the first zone in a context has been collected. It takes some ms and may wait for work in the context.
        /// `WARPLINE=calibrate`.
        pub fn calibrate(self) -> Self {
            self.line("calibrate")
        }
    }

    Setting::flag("kernels", "record kernels and copies through CUPTI", |config| &mut config.kernels)
    .only_if(cfg!(feature = "cupti"), NO_CUPTI)
    .row(
        "`.kernels(true)`",
        "no",
        "record [kernels and copies](kernels.md), each with its zone; needs feature `cupti`. \
         [Costly](kernels.md#what-it-costs): a replay of a graph of 100 small kernels took 90 % longer on an H100; to time \
         zones in graphs, use `graph_timing=stamps`",
    );
    own { kernels: bool = false }
    methods {
        /// Sets whether kernels, copies and memory sets are also recorded, each with its exact time on the device and with the zone that
        /// launched it: [`Batch::Kernels`](warpline_core::sink::Batch::Kernels). This needs the feature `cupti` and NVIDIA's CUPTI on the
        /// machine. If CUPTI is missing, or another tool uses it, the report says so and zones are recorded without kernels.
        /// `WARPLINE=kernels`.
        ///
        /// CUPTI makes launches slower, those of CUDA graphs most: a graph of 100 small kernels took 90 % longer on an H100. To time zones
        /// inside graphs, use [`GraphTiming::Stamps`]. At the end of the session, CUPTI is ended if that is safe; otherwise a note of the
        /// report says what remains.
        pub fn kernels(mut self, record: bool) -> Self {
            if record {
                return self.line("kernels");
            }
            self.config.kernels = false;
            self
        }
    }

    Setting::value(
        "graph_timing",
        "graph_timing=stamps",
        "time zones in replays of CUDA graphs: off, stamps, launch-order-stamps",
        "stamps",
        |config, text| parse_graph_timing(text).map(|timing| config.graph_timing = timing),
    )
    .row(
        "`.graph_timing(GraphTiming::Stamps)`",
        "`off`",
        "time zones that are captured into CUDA graphs [in each replay](graphs.md#timing-inside-replays); adds stamps to \
         graphs (the same graph took 22 % longer); `launch-order-stamps` [cost less and ask more](graphs.md#stamps-by-launch-order); \
         needs feature `cuda`",
    );
    shared { graph_timing: GraphTiming = GraphTiming::Off }
    methods {
        /// Sets how zones that are captured into CUDA graphs are timed in each replay without a profiler (default [`GraphTiming::Off`]):
        /// [`Batch::Replays`](warpline_core::sink::Batch::Replays). Graphs that were captured before do not change. Stamps need a module in
        /// each context, which takes some ms to load. It is loaded when the session starts, in the calling thread's context if it has one.
        /// In other contexts it is loaded on the session's own thread, or on the capturing thread if a capture comes first. Loading may
        /// wait for work in the context, so start the session before the program queues work. Stamps need the feature `cuda`.
        /// `WARPLINE=graph_timing=stamps`.
        pub fn graph_timing(mut self, timing: GraphTiming) -> Self {
            if let Some(timing) = self.checked("graph_timing", check_graph_timing(timing)) {
                self.config.graph_timing = timing;
            }
            self
        }
    }

    Setting::optional("nvtx", "mirror zones to NVTX; `nvtx=off`: never", |config, text| {
        parse_nvtx(text).map(|wish| config.nvtx = wish_nvtx(config.nvtx, wish))
    })
    .repeats()
    .row(
        "`.nvtx(true)`",
        "if a tool is attached",
        "mirror zones to [NVTX](nvtx.md), also to the library of old toolkits; `nvtx=off`, `.nvtx(false)`: never",
    );
    shared {
        /// Whether zones are mirrored to NVTX; none if they are mirrored when a tool is attached.
        nvtx: Option<bool> = None,
    }
    methods {
        /// Sets whether zones are mirrored to NVTX, for Nsight and other tools. Without this setting, they are mirrored if a tool is
        /// attached. With `false`, they are never mirrored. With `true`, they are also mirrored to the library of an old toolkit, and a
        /// note says if there is no tool. `WARPLINE=nvtx`, `nvtx=off`; if both are given, off wins. The setting applies to all zones of the
        /// process, with and without a session, until another session starts.
        pub fn nvtx(mut self, mirror: bool) -> Self {
            self.config.nvtx = wish_nvtx(self.config.nvtx, mirror);
            self
        }
    }

    Setting::value("timeout", "timeout=5s", "the longest that `finish` waits", "5s", |config, text| {
        parse_duration(text).map(|time| config.finish_timeout = time)
    })
    .row("`.finish_timeout(…)`", "5 s", "the longest that `finish` waits; `ms`, `s`, `m` or `h`");
    shared { finish_timeout: Duration = Duration::from_secs(5) }
    methods {
        /// Sets the longest time that [`Session::finish`](crate::Session::finish) waits (default 5 s). `WARPLINE=timeout=…`.
        pub fn finish_timeout(mut self, timeout: Duration) -> Self {
            self.config.finish_timeout = timeout;
            self
        }
    }

    Setting::value(
        "rotate",
        "rotate=256MiB",
        "write each Perfetto trace to files of this size, one after the other",
        "256MiB",
        |config, text| parse_rotate(text).map(|bytes| config.rotate = Some(bytes)),
    )
    .check(|config| {
        let goes = config.rotate.is_none() || !config.perfetto.is_empty();
        needs(goes, "a Perfetto trace to rotate", "perfetto=trace.pftrace,rotate=256MiB")
    })
    .row(
        "`.rotate(256 << 20)`",
        "no",
        "write each Perfetto trace to [files that follow one another](flight.md#traces-in-files-that-follow-one-another), \
         each of at most this size (64 KiB or more); `KB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`",
    );
    own {
        /// The maximum size of a Perfetto trace's file in bytes; none for one file without a limit.
        rotate: Option<u64> = None,
    }
    methods {
        /// Writes each Perfetto trace to consecutive files of at most `bytes` bytes each, and keeps the newest: `trace.pftrace` becomes
        /// `trace.0001.pftrace` and so on. Each file can be read alone. See [`keep`](Self::keep). `WARPLINE=rotate=256MiB`.
        pub fn rotate(mut self, bytes: u64) -> Self {
            self.config.rotate = self.checked(format_args!("rotate({bytes})"), check_rotate(bytes));
            self
        }
    }

    Setting::value("keep", "keep=4", "with `rotate`: how many files stay", "4", |config, text| {
        parse_keep(text).map(|files| config.keep = Some(files))
    })
    .check(|config| {
        let goes = config.keep.is_none() || config.rotate.is_some();
        needs(goes, "files to keep some of", "perfetto=trace.pftrace,rotate=256MiB,keep=4")
    })
    .row("`.keep(4)`", "4", "with `rotate`: how many of the files stay");
    own { keep: Option<usize> = None }
    methods {
        /// Sets how many files of a trace written with [`rotate`](Self::rotate) are kept, including the one that is being written (default
        /// 4). Only files that the session created are removed. `WARPLINE=keep=4`.
        pub fn keep(mut self, files: usize) -> Self {
            self.config.keep = self.checked(format_args!("keep({files})"), check_keep(files));
            self
        }
    }

    Setting::value(
        "flight",
        "flight=64MiB",
        "keep the last zones in a file; `flight=64MiB:FILE`: in this one",
        "64MiB",
        |config, text| parse_flight(text).map(|flight| config.flight = Some(flight)),
    )
    .output(|config| config.flight.is_some())
    .check(|config| match config.flight {
        Some(_) if cfg!(not(unix)) => Err("works on Unix only; leave it out".to_owned()),
        _ => Ok(()),
    })
    .paths(|config| config.flight.iter_mut().filter_map(|flight| flight.path.as_mut()).collect())
    .row(
        "`.flight(64 << 20)`",
        "no",
        "keep the last zones in a file that [survives a killed program](flight.md); `flight=64MiB:FILE`, `.flight_at(…)`: in \
         this file",
    );
    own { flight: Option<FlightSettings> = None }
    methods {
        /// Keeps the last `bytes` bytes of zones in a file that survives the program. `warpline recover` writes a trace from the file of a
        /// killed program, and [`Session::dump`](crate::Session::dump) writes one in a running program. A trace is also written when a
        /// thread panics, when a stream fails, and for [`stall`](Self::stall) and [`dump_on_sigusr2`](Self::dump_on_sigusr2). Works on Unix
        /// only.
        ///
        /// The file is `warpline-PID.flight` in the working directory, and is removed when the session finishes;
        /// [`flight_at`](Self::flight_at) names another file, which stays. `WARPLINE=flight=64MiB`.
        pub fn flight(self, bytes: u64) -> Self {
            self.flight_in(bytes, None)
        }

        /// Works like [`flight`](Self::flight), with this file, which stays when the session finishes. The path may contain the
        /// placeholders of [`perfetto`](Self::perfetto). The file of an earlier session is renamed to `FILE.previous`.
        /// `WARPLINE=flight=64MiB:FILE`.
        pub fn flight_at(mut self, bytes: u64, path: impl AsRef<Path>) -> Self {
            let path = self.checked_path("flight", path.as_ref());
            self.flight_in(bytes, path)
        }

        fn flight_in(mut self, bytes: u64, path: Option<PathBuf>) -> Self {
            let checked = self.checked(format_args!("flight({bytes})"), check_flight(bytes));
            self.config.flight = checked.map(|bytes| FlightSettings { bytes, path });
            self
        }
    }

    Setting::value(
        "stall",
        "stall=10s",
        "with `flight`: write a trace when a stream is stalled for this long",
        "10s",
        |config, text| parse_stall(text).map(|time| config.stall = Some(time)),
    )
    .check(|config| {
        let goes = config.stall.is_none() || config.flight.is_some();
        needs(goes, "a flight recorder to write out", "flight=64MiB,stall=10s")
    })
    .row("`.stall(…)`", "no", "with `flight`: write a trace when a stream is stalled for this long");
    own { stall: Option<Duration> = None }
    methods {
        /// Writes the flight recorder's trace when a stream has open zones and finishes none for this long, at least 100 ms.
        /// `WARPLINE=stall=10s`.
        pub fn stall(mut self, time: Duration) -> Self {
            self.config.stall = self.checked(format_args!("stall({time:?})"), check_stall(time));
            self
        }
    }

    Setting::value("dump_on", "dump_on=sigusr2", "with `flight`: write a trace on SIGUSR2", "sigusr2", |config, text| {
        parse_dump_on(text).map(|is_on| config.dump_on_sigusr2 = is_on)
    })
    .check(|config| {
        let goes = !config.dump_on_sigusr2 || config.flight.is_some();
        needs(goes, "a flight recorder to write out", "flight=64MiB,dump_on=sigusr2")
    })
    .row("`.dump_on_sigusr2()`", "no", "with `flight`: write a trace on SIGUSR2");
    own { dump_on_sigusr2: bool = false }
    methods {
        /// Writes the flight recorder's trace when the signal SIGUSR2 arrives. A handler that the program installed before is also called.
        /// `WARPLINE=dump_on=sigusr2`.
        pub fn dump_on_sigusr2(self) -> Self {
            self.line("dump_on=sigusr2")
        }
    }

    Setting::flag("off", "record nothing", |config| &mut config.off)
    .row("", "", "record nothing, whatever the other settings are; the NVTX mirror has its own `nvtx=off`");
    own { off: bool = false }
    methods {}

    Setting::flag("control", "let the command `warpline` control this process", |config| &mut config.control)
    .only_if(cfg!(target_os = "linux"), NO_CONTROL)
    .row(
        "`.control()`",
        "no",
        "let the command `warpline` [control the program from outside](control.md); without an output, record only what it requests; Linux",
    );
    own { control: bool = false }
    methods {
        /// Lets the command `warpline` (`ps`, `record`, `top`, …) request this process's state, a trace or single zones during the session.
        /// The command must run as the same user on the same machine. Without an output, the session records only what the command
        /// requests. If the socket's directory is not safe, no client can connect, standard error and the report say so, and the session
        /// continues. Linux only; elsewhere [`start`](Self::start) fails. `WARPLINE=control`.
        pub fn control(self) -> Self {
            self.line("control")
        }
    }

    Setting::flag("quiet", "do not print where traces are", |config| &mut config.quiet)
    .row("`.quiet()`", "no", "do not print [where the files are](#files)");
    shared { quiet: bool = false }
    methods {
        /// Turns off the list of written files at the end of the session. Warnings and errors are still printed. `WARPLINE=quiet`.
        pub fn quiet(self) -> Self {
            self.line("quiet")
        }
    }

    Setting::flag("help", "print this list and record nothing", |config| &mut config.help)
    .row("", "", "print the settings on standard error and record nothing");
    shared { help: bool = false }
    methods {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sessions.md");

    /// The row of the builder's method that has no setting.
    const SINK: &str = "| | `.sink(sink)` | none | also hand the records to a sink of your own |";

    fn rows() -> String {
        let cell = |text: &str| if text.is_empty() { String::new() } else { format!("{text} ") };
        let row = |setting: &Setting| {
            let [builder, default, means] = setting.row.map(cell);
            format!("| `{}` | {builder}| {default}| {means}|\n", setting.form)
        };
        SETTINGS.iter().map(row).chain([format!("{SINK}\n")]).collect()
    }

    /// Compares the page with the table. With `WARPLINE_WRITE_DOCS` set, it writes the rows to the page.
    #[test]
    fn the_page_has_the_rows_of_the_table() {
        let page = std::fs::read_to_string(PAGE).expect("the guide is part of the package");
        let head = "| `WARPLINE` | builder | default | means |\n|---|---|---|---|\n";
        let (before, rest) = page.split_once(head).expect("the page has the table");
        let (rows_there, after) = rest.split_once("\n\n").expect("the table ends");
        if std::env::var_os("WARPLINE_WRITE_DOCS").is_some() {
            let page = format!("{before}{head}{}\n{after}", rows());
            return std::fs::write(PAGE, page).expect("the page can be written");
        }
        let remedy = "`WARPLINE_WRITE_DOCS=1 cargo test -p warpline --lib the_page` writes the rows";
        assert_eq!(format!("{rows_there}\n"), rows(), "{remedy}");
    }

    #[test]
    fn each_setting_has_a_row_and_a_key_of_its_own() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert!(!setting.row[2].is_empty() && setting.form.starts_with(setting.key), "{}", setting.key);
            assert!(SETTINGS[..index].iter().all(|other| other.key != setting.key), "{}", setting.key);
        }
    }
}
