//! The settings for which zones a session records, how many may wait, and how they are timed.
//!
//! The macro adds its entries to those of the groups before it and calls the next group; `table` has the order.

macro_rules! zones {
    ({ $($before:tt)* } $next:ident $($then:ident)*) => { $next! { { $($before)*

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
        /// feature `cupti` and NVIDIA's CUPTI on the machine. If CUPTI is missing, or another tool uses it, zones are timed by events, as
        /// [`ends`](Self::ends) says, and a note of the report says why. CUPTI makes launches of CUDA graphs slower: see [`kernels`](Self::kernels).
        /// `WARPLINE=timing=kernels`.
        pub fn timing(mut self, timing: Timing) -> Self {
            if let Some(timing) = self.checked("timing", check_timing(timing)) {
                self.config.timing = timing;
            }
            self
        }
    }

    } $($then)* } };
}
