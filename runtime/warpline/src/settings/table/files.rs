//! The settings for the end of a session, rotated traces and the flight recorder.
//!
//! The macro adds its entries to those of the groups before it and calls the next group; `table` has the order.

macro_rules! files {
    ({ $($before:tt)* } $next:ident $($then:ident)*) => { $next! { { $($before)*

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

    } $($then)* } };
}
