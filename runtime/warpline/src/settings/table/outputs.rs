//! The settings for what a session writes, and to whom.
//!
//! The macro adds its entries to those of the groups before it and calls the next group; `table` has the order.

macro_rules! outputs {
    ({ $($before:tt)* } $next:ident $($then:ident)*) => { $next! { { $($before)*

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

    Setting::value("ranks", "ranks=FOLDER", "write the tables of this rank to a folder of all ranks", "run", |config, text| {
        parse_path(text).map(|path| config.ranks = Some(path))
    })
    .only_if(cfg!(feature = "ranks"), NO_RANKS)
    .output(|config| config.ranks.is_some())
    .row(
        "`.ranks(path)`",
        "none",
        "write Parquet tables of this rank's steps, ranges and collectives, and what it is doing now, to a [folder of all ranks](ranks.md#tables-of-all-ranks); needs feature `ranks`",
    );
    own { ranks: Option<PathBuf> = None }
    methods {
        /// Writes tables of this rank to a folder that all ranks of a job share: steps, ranges, collectives and communicators as Parquet, window by
        /// window, and each second a small file that says what the rank is doing. `WARPLINE=ranks=FOLDER`. Needs the feature `ranks`; without
        /// it, [`start`](Self::start) fails. A thread of its own writes; if the disk is slow, full or gone, the program goes on, and the report says
        /// what was lost.
        pub fn ranks(mut self, folder: impl AsRef<Path>) -> Self {
            let folder = self.checked_path("ranks", folder.as_ref());
            match folder {
                Some(folder) if cfg!(feature = "ranks") => self.config.ranks = Some(folder),
                Some(_) => return self.line("ranks=run"),
                None => {}
            }
            self
        }
    }

    Setting::value("ranks_window", "ranks_window=60s", "with `ranks`: the length of a window", "60s", |config, text| {
        parse_window(text).map(|time| config.ranks_window = Some(time))
    })
    .only_if(cfg!(feature = "ranks"), NO_RANKS)
    .check(|config| {
        let goes = config.ranks_window.is_none() || config.ranks.is_some();
        needs(goes, "tables of ranks", "ranks=run,ranks_window=60s")
    })
    .row(
        "`.ranks_window(…)`",
        "60 s",
        "with `ranks`: the length of a window, the same on all ranks; a window has at least 10 steps where steps are marked; at least 100 ms; needs feature `ranks`",
    );
    own { ranks_window: Option<Duration> = None }
    methods {
        /// With [`ranks`](Self::ranks): the length of a window (default 60 s), at least 100 ms and the same on all ranks. `WARPLINE=ranks_window=60s`.
        pub fn ranks_window(mut self, time: Duration) -> Self {
            if let Some(time) = self.checked(format_args!("ranks_window({time:?})"), check_window(time)) {
                self.config.ranks_window = Some(time);
            }
            self
        }
    }

    Setting::value("otlp", "otlp=URL", "send metrics to an OpenTelemetry collector", "http://localhost:4318", |config, text| {
        parse_otlp(text).map(|url| config.otlp = Some(url))
    })
    .only_if(cfg!(feature = "otlp"), NO_OTLP)
    .output(|config| config.otlp.is_some())
    .row(
        "`.otlp(url)`",
        "none",
        "send [metrics](metrics.md) to an OpenTelemetry collector while the session runs; needs feature `otlp`",
    );
    own {
        /// The URL to which metrics are posted.
        otlp: Option<String> = None,
    }
    methods {
        /// Sends metrics of the running session to an OpenTelemetry collector: OTLP over HTTP, with `/v1/metrics` added to the URL.
        /// `WARPLINE=otlp=http://localhost:4318`. Needs the feature `otlp`; without it, [`start`](Self::start) fails. A thread of its own sends; if
        /// the collector is slow or gone, the program goes on, later exports have what was missed, and the report says what was lost.
        pub fn otlp(mut self, url: &str) -> Self {
            if cfg!(not(feature = "otlp")) {
                return self.line("otlp=http://localhost:4318");
            }
            self.config.otlp = self.checked(format_args!("otlp={url}"), parse_otlp(url));
            self
        }
    }

    Setting::value("otlp_interval", "otlp_interval=15s", "with `otlp`: the time between two exports", "15s", |config, text| {
        parse_duration(text).and_then(check_interval).map(|time| config.otlp_interval = Some(time))
    })
    .only_if(cfg!(feature = "otlp"), NO_OTLP)
    .check(|config| {
        let goes = config.otlp_interval.is_none() || config.otlp.is_some();
        needs(goes, "a collector", "otlp=http://localhost:4318,otlp_interval=15s")
    })
    .row(
        "`.otlp_interval(…)`",
        "15 s",
        "with `otlp`: the time between two exports, at least 100 ms; needs feature `otlp`",
    );
    own { otlp_interval: Option<Duration> = None }
    methods {
        /// With [`otlp`](Self::otlp): the time between two exports (default 15 s), at least 100 ms. `WARPLINE=otlp_interval=15s`.
        pub fn otlp_interval(mut self, time: Duration) -> Self {
            if let Some(time) = self.checked(format_args!("otlp_interval({time:?})"), check_interval(time)) {
                match cfg!(feature = "otlp") {
                    true => self.config.otlp_interval = Some(time),
                    false => return self.line("otlp_interval=15s"),
                }
            }
            self
        }
    }

    Setting::value("prometheus", "prometheus=ADDR", "serve metrics to Prometheus at this address", "9464", |config, text| {
        parse_serve_at(text).map(|at| config.prometheus = Some(at))
    })
    .only_if(cfg!(feature = "prometheus"), NO_PROMETHEUS)
    .output(|config| config.prometheus.is_some())
    .row(
        "`.prometheus(address)`",
        "none",
        "serve [metrics](metrics.md) to Prometheus: `9464` at the loopback, `9464-9471` at the first free port, `0.0.0.0:9464` at every \
         interface; needs feature `prometheus`",
    );
    own { prometheus: Option<ServeAt> = None }
    methods {
        /// Serves metrics of the running session to Prometheus, at the path `/metrics` of this address: a port of the loopback (`9464`), a range
        /// of ports of which the first free one is taken (`9464-9471`), or both with an IP address. `{rank}` stands for the process's number in its
        /// job (`946{rank}`). Another address than the loopback
        /// shows the names of ranges and groups, and how long they take, to everyone who can reach it (`0.0.0.0:9464`).
        /// `WARPLINE=prometheus=9464`. Needs the feature `prometheus`; without it, [`start`](Self::start) fails. If the address is taken, the
        /// session starts without it and says so.
        pub fn prometheus(mut self, address: &str) -> Self {
            if cfg!(not(feature = "prometheus")) {
                return self.line("prometheus=9464");
            }
            self.config.prometheus = self.checked(format_args!("prometheus={address}"), parse_serve_at(address));
            self
        }
    }

    Setting::value(
        "prometheus_hosts",
        "prometheus_hosts=NAME",
        "with `prometheus`: a further name by which clients know the server",
        "node7.cluster",
        |config, text| parse_host(text).map(|host| config.prometheus_hosts.push(host)),
    )
    .repeats()
    .only_if(cfg!(feature = "prometheus"), NO_PROMETHEUS)
    .check(|config| {
        let goes = config.prometheus_hosts.is_empty() || config.prometheus.is_some();
        needs(goes, "a server", "prometheus=0.0.0.0:9464,prometheus_hosts=node7.cluster")
    })
    .row(
        "`.prometheus_hosts(name)`",
        "none",
        "with `prometheus`: a further name by which clients [may know the server](metrics.md#prometheus), without a port; may appear several times; \
         needs feature `prometheus`",
    );
    own {
        /// Further names by which clients may know the server of metrics.
        prometheus_hosts: Vec<String> = Vec::new(),
    }
    methods {
        /// With [`prometheus`](Self::prometheus): a further name by which clients may know the server, such as `node7.cluster` or the address of a
        /// proxy, without a port. The server refuses a request that names another host, because a page in a browser could read the metrics
        /// otherwise. The names of the loopback, the address that the client connects to and, with another address than the loopback, the name of
        /// this machine need no such setting. May be called several times. `WARPLINE=prometheus_hosts=node7.cluster`.
        pub fn prometheus_hosts(mut self, name: &str) -> Self {
            let host = self.checked(format_args!("prometheus_hosts={name}"), parse_host(name));
            match host {
                Some(host) if cfg!(feature = "prometheus") => self.config.prometheus_hosts.push(host),
                Some(_) => return self.line("prometheus_hosts=node7.cluster"),
                None => {}
            }
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

    Setting::optional("summary", "print the report at the end; `summary=FILE`: write it to a file", |config, text| match text {
        Some("-") => {
            config.summary = Some(Console::Output);
            Ok(())
        }
        Some(text) => parse_summary(text).map(|path| config.summary_files.push(path)),
        None => {
            config.summary = config.summary.or(Some(Console::Error));
            Ok(())
        }
    })
    .repeats()
    .output(|config| config.has_summary())
    .paths(|config| config.summary_files.iter_mut().collect())
    .row(
        "`.summary()`, `.summary_file(path)`",
        "off",
        "`finish` prints the report on standard error, or with `summary=-` on standard output; `summary=FILE`: it writes the report [to a file](#the-report-in-a-file), as its ending says: \
         `.html`, `.json` or `.md`; may appear several times",
    );
    own {
        summary: Option<Console> = None,
        /// The files to which the report is written.
        summary_files: Vec<PathBuf> = Vec::new(),
    }
    methods {
        /// Prints the report on standard error at the end. `WARPLINE=summary`; `summary=-` prints it on standard output.
        pub fn summary(self) -> Self {
            self.line("summary")
        }

        /// Writes the report to this file at the end: as a page, JSON or Markdown, if the name ends with `.html`, `.json` or `.md`. It may have the
        /// placeholders of [`perfetto`](Self::perfetto). `WARPLINE=summary=report.html`.
        pub fn summary_file(mut self, path: impl AsRef<Path>) -> Self {
            let path = path.as_ref();
            let checked = file_name::check(path).and_then(|()| check_summary(path.to_owned()));
            let checked = self.checked(format_args!("summary={}", path.display()), checked);
            self.config.summary_files.extend(checked);
            self
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

    } $($then)* } };
}
