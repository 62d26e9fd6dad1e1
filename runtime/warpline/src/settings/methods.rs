//! The methods of [`SessionBuilder`] for single settings, in the order of the table.
//!
//! A method checks its value as the parser of `WARPLINE=…` does. A flag, or a value that has a form of its own in the
//! line, is set through the line.

use std::path::Path;
use std::time::Duration;

use super::addresses::{check_interval, parse_host, parse_otlp, parse_serve_at};
use super::builder::SessionBuilder;
use super::filter::Filter;
use super::values::*;
use warpline_core::catalog::Level;
use warpline_core::file_name;
use warpline_core::timing::{EndMode, GraphTiming, Timing};

impl SessionBuilder {
    /// Writes a Perfetto trace to this file. `WARPLINE=perfetto=…`.
    ///
    /// In this and every other path, `{pid}` stands for the process id, `{rank}` for the process's number in its job,
    /// which the launcher sets in the environment (0 without a launcher), `{host}` for the machine's name, and `{{` for
    /// a brace. If another session is writing the file, in this process or in another one, the trace goes to
    /// `trace.PID.pftrace`, and a line on standard error and the report say so.
    pub fn perfetto(self, path: impl AsRef<Path>) -> Self {
        self.path("perfetto", path, |config, path| config.perfetto.push(path))
    }

    /// Writes a Chrome JSON trace to this file, with the placeholders of [`perfetto`](Self::perfetto).
    /// `WARPLINE=chrome=…`.
    pub fn chrome(self, path: impl AsRef<Path>) -> Self {
        self.path("chrome", path, |config, path| config.chrome.push(path))
    }

    /// Writes tables of this rank to a folder that all ranks of a job share: steps, ranges, collectives and
    /// communicators as Parquet, window by window, and each second a small file that says what the rank is doing.
    /// `WARPLINE=ranks=FOLDER`. Needs the feature `ranks`; without it, [`start`](Self::start) fails. A thread of its
    /// own writes; if the disk is slow, full or gone, the program goes on, and the report says what was lost.
    pub fn ranks(self, folder: impl AsRef<Path>) -> Self {
        self.supported("ranks").path("ranks", folder, |config, folder| config.ranks = Some(folder))
    }

    /// With [`ranks`](Self::ranks): the length of a window (default 60 s), at least 100 ms and the same on all ranks.
    /// `WARPLINE=ranks_window=60s`.
    pub fn ranks_window(self, time: Duration) -> Self {
        self.set(format_args!("ranks_window({time:?})"), check_window(time), |config, time| {
            config.ranks_window = Some(time)
        })
    }

    /// Sends metrics of the running session to an OpenTelemetry collector: OTLP over HTTP, with `/v1/metrics` added to
    /// the URL. `WARPLINE=otlp=http://localhost:4318`. Needs the feature `otlp`; without it, [`start`](Self::start)
    /// fails. A thread of its own sends; if the collector is slow or gone, the program goes on, later exports have what
    /// was missed, and the report says what was lost.
    pub fn otlp(self, url: &str) -> Self {
        self.supported("otlp").set(format_args!("otlp={url}"), parse_otlp(url), |config, url| config.otlp = Some(url))
    }

    /// With [`otlp`](Self::otlp): the time between two exports (default 15 s), at least 100 ms.
    /// `WARPLINE=otlp_interval=15s`.
    pub fn otlp_interval(self, time: Duration) -> Self {
        let setting = format_args!("otlp_interval({time:?})");
        self.supported("otlp_interval")
            .set(setting, check_interval(time), |config, time| config.otlp_interval = Some(time))
    }

    /// Serves metrics of the running session to Prometheus, at the path `/metrics` of this address: a port of the
    /// loopback (`9464`), a range of ports of which the first free one is taken (`9464-9471`), or both with an IP
    /// address. `{rank}` stands for the process's number in its job (`946{rank}`). Another address than the loopback
    /// shows the names of ranges and groups, and how long they take, to everyone who can reach it (`0.0.0.0:9464`).
    /// `WARPLINE=prometheus=9464`. Needs the feature `prometheus`; without it, [`start`](Self::start) fails. If the
    /// address is taken, the session starts without it and says so.
    pub fn prometheus(self, address: &str) -> Self {
        let setting = format_args!("prometheus={address}");
        self.supported("prometheus").set(setting, parse_serve_at(address), |config, at| config.prometheus = Some(at))
    }

    /// With [`prometheus`](Self::prometheus): a further name by which clients may know the server, such as
    /// `node7.cluster` or the address of a proxy, without a port. The server refuses a request that names another host,
    /// because a page in a browser could read the metrics otherwise. The names of the loopback, the address that the
    /// client connects to and, with another address than the loopback, the name of this machine need no such setting.
    /// May be called several times. `WARPLINE=prometheus_hosts=node7.cluster`.
    pub fn prometheus_hosts(self, name: &str) -> Self {
        let setting = format_args!("prometheus_hosts={name}");
        self.supported("prometheus_hosts")
            .set(setting, parse_host(name), |config, host| config.prometheus_hosts.push(host))
    }

    /// Shows zones live in [Tracy](https://github.com/wolfpld/tracy). `WARPLINE=tracy`. Needs the feature `tracy`;
    /// without it, [`start`](Self::start) fails.
    pub fn tracy(self) -> Self {
        self.line("tracy")
    }

    /// Prints the report on standard error at the end. `WARPLINE=summary`; `summary=-` prints it on standard output.
    pub fn summary(self) -> Self {
        self.line("summary")
    }

    /// Writes the report to this file at the end: as a page, JSON or Markdown, if the name ends with `.html`, `.json`
    /// or `.md`. It may have the placeholders of [`perfetto`](Self::perfetto). `WARPLINE=summary=report.html`.
    pub fn summary_file(self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let checked = file_name::check(path).and_then(|()| check_summary(path.to_owned()));
        self.set(format_args!("summary={}", path.display()), checked, |config, path| config.summary_files.push(path))
    }

    /// Emits each complete zone as an event of `tracing` with its namespace as target, for programs that have logs and
    /// no trace UI. The events go to the subscriber of the thread that starts the session, or to the global one if that
    /// thread has none. Needs the feature `tracing`. `WARPLINE=log`.
    pub fn log(self) -> Self {
        self.line("log")
    }

    /// Leaves out ranges that are finer than this (default [`Level::Fine`], which leaves none out). `WARPLINE=level=…`.
    pub fn level(mut self, level: Level) -> Self {
        self.config.level = level;
        self
    }

    /// Records only ranges whose name matches the pattern (`demo.*`), or leaves them out (`!demo.mlp`). With several
    /// patterns, a range must match one of the first kind, if there is any, and none of the second.
    /// `WARPLINE=filter=…`.
    pub fn filter(self, pattern: &str) -> Self {
        self.set(format_args!("filter={pattern}"), Filter::parse(pattern), |config, filter| config.filters.push(filter))
    }

    /// Sets the maximum number of zones of one stream that wait for their events (default 4,096). `WARPLINE=ring=…`.
    pub fn ring(self, zones: usize) -> Self {
        self.set(format_args!("ring({zones})"), check_ring(zones), |config, zones| config.ring = zones)
    }

    /// Sets the maximum number of events that the session holds in one GPU context, two for each waiting zone (default
    /// 16,384). `WARPLINE=events=…`.
    pub fn event_budget(self, events: usize) -> Self {
        self.set(format_args!("event_budget({events})"), check_events(events), |config, events| config.events = events)
    }

    /// The most free events that timelines keep in the pool of one GPU context, beside up to 32 that each thread keeps;
    /// no limit by default. Surplus events are destroyed by threads that signal on streams. It holds for the whole
    /// process from the session's start, also after its end; `warpline::timeline::set_event_pool_capacity` sets it
    /// without a session. The events of zones have [`event_budget`](Self::event_budget). It needs feature `timeline`.
    /// `WARPLINE=event_pool_capacity=256`.
    pub fn event_pool_capacity(self, events: usize) -> Self {
        let setting = format_args!("event_pool_capacity({events})");
        self.supported("event_pool_capacity")
            .set(setting, check_event_pool(events), |config, events| config.event_pool_capacity = Some(events))
    }

    /// Sets how the end of a zone on a GPU stream is found (default [`EndMode::Auto`]). `WARPLINE=ends=…`.
    pub fn ends(mut self, ends: EndMode) -> Self {
        self.config.ends = ends;
        self
    }

    /// Sets the clock of zones on GPU streams (default [`Timing::Events`]). With [`Timing::Kernels`], a zone lasts from
    /// the begin of the first work that its thread launches in it to the end of the last, and [`ends`](Self::ends) has
    /// no effect. This needs the feature `cupti` and NVIDIA's CUPTI on the machine. If CUPTI is missing, or another
    /// tool uses it, zones are timed by events, as [`ends`](Self::ends) says, and a note of the report says why. CUPTI
    /// makes launches of CUDA graphs slower: see [`kernels`](Self::kernels). `WARPLINE=timing=kernels`.
    pub fn timing(self, timing: Timing) -> Self {
        self.set("timing", check_timing(timing), |config, timing| config.timing = timing)
    }

    /// Sets the share of its time that the session may cost the program, above 0 and up to 1. The session then records
    /// windows of its time, chosen at random, in which each root zone is recorded with all zones inside it. It measures
    /// how much slower the program runs in windows, and chooses the gaps between them accordingly.
    /// `WARPLINE=budget=0.5%`. A session whose only output is a flight recorder, and recordings from outside, have a
    /// budget of 1 % by default; 1 lets them record every zone.
    pub fn budget(self, share: f64) -> Self {
        self.set(format_args!("budget({share})"), check_budget(share), |config, share| config.budget = Some(share))
    }

    /// Sets the share of each range's zones that is recorded, above 0 and up to 1. Each zone is chosen at random,
    /// independently of the others, and its record contains the share
    /// ([`ZoneRecord::sample_share`](warpline_core::record::ZoneRecord::sample_share)). Collectives are always
    /// recorded, because ranks match them by number. With a budget, the share applies inside windows.
    /// `WARPLINE=sample=10%`.
    pub fn sample(self, share: f64) -> Self {
        self.set(format_args!("sample({share})"), check_sample(share), |config, share| config.sample = share)
    }

    /// Records only some of the program's steps ([`step`](crate::step())), in cycles as PyTorch's profiler does:
    /// nothing in the steps of [`wait`](Self::wait), then the steps of [`warmup`](Self::warmup), whose records are
    /// thrown away, then this many steps, which are recorded. Nothing is recorded before the first step. The report
    /// says how many steps were left out. `WARPLINE=active=3`.
    pub fn active(self, steps: u64) -> Self {
        self.set(format_args!("active({steps})"), check_active(steps), |config, steps| config.active = Some(steps))
    }

    /// With [`active`](Self::active): the steps of each cycle in which nothing is recorded.
    /// `WARPLINE=wait=10,active=3`.
    pub fn wait(mut self, steps: u64) -> Self {
        self.config.wait = Some(steps);
        self
    }

    /// With [`active`](Self::active): the steps of each cycle, after those of [`wait`](Self::wait), whose records are
    /// thrown away. They pay for what the first zones of a stream create. The report does not count their zones.
    /// `WARPLINE=warmup=2,active=3`.
    pub fn warmup(mut self, steps: u64) -> Self {
        self.config.warmup = Some(steps);
        self
    }

    /// With [`active`](Self::active): the number of cycles, after which nothing is recorded; 0, the default, for no
    /// limit. `WARPLINE=active=3,repeat=1`.
    pub fn repeat(mut self, cycles: u64) -> Self {
        self.config.repeat = Some(cycles);
        self
    }

    /// Measures with a kernel what a pair of events adds to a kernel, which brings
    /// [`ZoneRecord::gpu_ns_corrected`](warpline_core::record::ZoneRecord::gpu_ns_corrected) nearer to the kernel's own
    /// time. The measurement runs when the session starts, in that thread's CUDA context if it has one. Otherwise it
    /// runs on the session's own thread, when the first zone in a context has been collected. It takes some ms and may
    /// wait for work in the context. `WARPLINE=calibrate`.
    pub fn calibrate(self) -> Self {
        self.line("calibrate")
    }

    /// Sets whether kernels, copies and memory sets are also recorded, each with its exact time on the device and with
    /// the zone that launched it: [`Batch::Kernels`](warpline_report::sink::Batch::Kernels). This needs the feature
    /// `cupti` and NVIDIA's CUPTI on the machine. If CUPTI is missing, or another tool uses it, the report says so and
    /// zones are recorded without kernels. `WARPLINE=kernels`.
    ///
    /// CUPTI makes launches slower, those of CUDA graphs most: a graph of 100 small kernels took 90 % longer on an
    /// H100. To time zones inside graphs, use [`GraphTiming::Stamps`]. At the end of the session, CUPTI is ended if
    /// that is safe; otherwise a note of the report says what remains.
    pub fn kernels(mut self, record: bool) -> Self {
        if record {
            return self.line("kernels");
        }
        self.config.kernels = false;
        self
    }

    /// Sets whether calls that wait are recorded: `cuStreamSynchronize`, `cuEventSynchronize`, `cuCtxSynchronize` and
    /// `cuStreamWaitEvent`, each with its thread and its zone:
    /// [`Batch::Synchronizations`](warpline_report::sink::Batch::Synchronizations). This needs the feature `cupti` and
    /// NVIDIA's CUPTI on the machine; without `kernels`, CUPTI records no work of the device. If CUPTI is missing, or
    /// another tool uses it, the report says so. `WARPLINE=synchronizations`. CUPTI makes launches of CUDA graphs
    /// slower: see [`kernels`](Self::kernels).
    pub fn synchronizations(mut self, record: bool) -> Self {
        if record {
            return self.line("synchronizations");
        }
        self.config.synchronizations = false;
        self
    }

    /// Sets how zones that are captured into CUDA graphs are timed in each replay without a profiler (default
    /// [`GraphTiming::Off`]): [`Batch::Replays`](warpline_report::sink::Batch::Replays). Graphs that were captured
    /// before do not change. Stamps need a module in each context, which takes some ms to load. It is loaded when the
    /// session starts, in the calling thread's context if it has one. In other contexts it is loaded on the session's
    /// own thread, or on the capturing thread if a capture comes first. Loading may wait for work in the context, so
    /// start the session before the program queues work. Stamps need the feature `cuda`.
    /// `WARPLINE=graph_timing=stamps`.
    pub fn graph_timing(self, timing: GraphTiming) -> Self {
        self.set("graph_timing", check_graph_timing(timing), |config, timing| config.graph_timing = timing)
    }

    /// Sets whether zones are mirrored to NVTX, for Nsight and other tools. Without this setting, they are mirrored if
    /// a tool is attached. With `false`, they are never mirrored. With `true`, they are also mirrored to the library of
    /// an old toolkit, and a note says if there is no tool. `WARPLINE=nvtx`, `nvtx=off`; if both are given, off wins.
    /// The setting applies to all zones of the process, with and without a session, until another session starts.
    pub fn nvtx(mut self, mirror: bool) -> Self {
        self.config.nvtx = wish_mirror(self.config.nvtx, mirror);
        self
    }

    /// Sets whether zones are mirrored to roctx, for `rocprofv3` and other tools of ROCm. Without this setting, they
    /// are mirrored if the program has loaded the marker library, as `rocprofv3 --marker-trace` makes it do. With
    /// `false`, they are never mirrored. With `true`, the library is opened, and a note says if there is none. It needs
    /// feature `hip`. `WARPLINE=roctx`, `roctx=off`; if both are given, off wins. The setting applies to all zones of
    /// the process, until another session starts.
    pub fn roctx(mut self, mirror: bool) -> Self {
        self.config.roctx = wish_mirror(self.config.roctx, mirror);
        self
    }

    /// Sets the longest time that [`Session::finish`](crate::Session::finish) waits (default 5 s).
    /// `WARPLINE=timeout=…`.
    pub fn finish_timeout(mut self, timeout: Duration) -> Self {
        self.config.finish_timeout = timeout;
        self
    }

    /// Writes each Perfetto trace to consecutive files of at most `bytes` bytes each, and keeps the newest:
    /// `trace.pftrace` becomes `trace.0001.pftrace` and so on. Each file can be read alone. See [`keep`](Self::keep).
    /// `WARPLINE=rotate=256MiB`.
    pub fn rotate(self, bytes: u64) -> Self {
        self.set(format_args!("rotate({bytes})"), check_rotate(bytes), |config, bytes| config.rotate = Some(bytes))
    }

    /// Sets how many files of a trace written with [`rotate`](Self::rotate) are kept, including the one that is being
    /// written (default 4). Only files that the session created are removed. `WARPLINE=keep=4`.
    pub fn keep(self, files: usize) -> Self {
        self.set(format_args!("keep({files})"), check_keep(files), |config, files| config.keep = Some(files))
    }

    /// Keeps the last `bytes` bytes of zones in a file that survives the program. `warpline recover` writes a trace
    /// from the file of a killed program, and [`Session::dump`](crate::Session::dump) writes one in a running program.
    /// A trace is also written when a thread panics, when a stream fails, and for [`stall`](Self::stall) and
    /// [`dump_on_sigusr2`](Self::dump_on_sigusr2). Works on Unix only.
    ///
    /// The file is `warpline-PID.flight` in the working directory, and is removed when the session finishes;
    /// [`flight_at`](Self::flight_at) names another file, which stays. `WARPLINE=flight=64MiB`.
    pub fn flight(self, bytes: u64) -> Self {
        self.set(format_args!("flight({bytes})"), check_flight(bytes), |config, bytes| {
            config.flight = Some(FlightSettings { bytes, path: None });
        })
    }

    /// Works like [`flight`](Self::flight), with this file, which stays when the session finishes. The path may contain
    /// the placeholders of [`perfetto`](Self::perfetto). The file of an earlier session is renamed to `FILE.previous`.
    /// `WARPLINE=flight=64MiB:FILE`.
    pub fn flight_at(self, bytes: u64, path: impl AsRef<Path>) -> Self {
        self.flight(bytes).path("flight", path, |config, path| {
            if let Some(flight) = &mut config.flight {
                flight.path = Some(path);
            }
        })
    }

    /// Writes the flight recorder's trace when a stream has open zones and finishes none for this long, at least 100
    /// ms. `WARPLINE=stall=10s`.
    pub fn stall(self, time: Duration) -> Self {
        self.set(format_args!("stall({time:?})"), check_stall(time), |config, time| config.stall = Some(time))
    }

    /// Writes the flight recorder's trace when the signal SIGUSR2 arrives. A handler that the program installed before
    /// is also called. `WARPLINE=dump_on=sigusr2`.
    pub fn dump_on_sigusr2(self) -> Self {
        self.line("dump_on=sigusr2")
    }

    /// Lets the command `warpline` (`ps`, `record`, `top`, …) request this process's state, a trace or single zones
    /// during the session. The command must run as the same user on the same machine. Without an output, the session
    /// records only what the command requests. If the socket's directory is not safe, no client can connect, standard
    /// error and the report say so, and the session continues. Linux only; elsewhere [`start`](Self::start) fails.
    /// `WARPLINE=control`.
    pub fn control(self) -> Self {
        self.line("control")
    }

    /// Turns off the list of written files at the end of the session. Warnings and errors are still printed.
    /// `WARPLINE=quiet`.
    pub fn quiet(self) -> Self {
        self.line("quiet")
    }

    /// Sets whether SIGINT and SIGTERM finish the session before they end the program. It is the default, and applies
    /// only to signals that the program does not handle. `WARPLINE=finish_on_signal=off`.
    pub fn finish_on_signal(mut self, finishes: bool) -> Self {
        self.config.finish_on_signal = finishes;
        self
    }
}
