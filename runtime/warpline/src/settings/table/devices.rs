//! The settings for what is recorded of devices, and the mirrors of zones in other tools.
//!
//! The macro adds its entries to those of the groups before it and calls the next group; `table` has the order.

macro_rules! devices {
    ({ $($before:tt)* } $next:ident $($then:ident)*) => { $next! { { $($before)*

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
        /// launched it: [`Batch::Kernels`](warpline_report::sink::Batch::Kernels). This needs the feature `cupti` and NVIDIA's CUPTI on the
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

    Setting::flag("synchronizations", "record waits of threads for the device through CUPTI", |config| {
        &mut config.synchronizations
    })
    .only_if(cfg!(feature = "cupti"), NO_CUPTI)
    .row(
        "`.synchronizations(true)`",
        "no",
        "record [synchronisations](kernels.md#synchronisations): which thread waited for the device, for how long and in which zone, and \
         which stream was made to wait for an event; needs feature `cupti`",
    );
    // CUPTI makes launches of graphs slower for the rest of the process, so only the program's own session may turn it on.
    own { synchronizations: bool = false }
    methods {
        /// Sets whether calls that wait are recorded: `cuStreamSynchronize`, `cuEventSynchronize`, `cuCtxSynchronize` and
        /// `cuStreamWaitEvent`, each with its thread and its zone: [`Batch::Synchronizations`](warpline_report::sink::Batch::Synchronizations).
        /// This needs the feature `cupti` and NVIDIA's CUPTI on the machine; without `kernels`, CUPTI records no work of the device. If CUPTI
        /// is missing, or another tool uses it, the report says so. `WARPLINE=synchronizations`. CUPTI makes launches of CUDA graphs slower:
        /// see [`kernels`](Self::kernels).
        pub fn synchronizations(mut self, record: bool) -> Self {
            if record {
                return self.line("synchronizations");
            }
            self.config.synchronizations = false;
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
        /// [`Batch::Replays`](warpline_report::sink::Batch::Replays). Graphs that were captured before do not change. Stamps need a module in
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
        parse_mirror("nvtx", text).map(|wish| config.nvtx = wish_mirror(config.nvtx, wish))
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
            self.config.nvtx = wish_mirror(self.config.nvtx, mirror);
            self
        }
    }

    Setting::optional("roctx", "mirror zones to roctx; `roctx=off`: never", |config, text| {
        parse_mirror("roctx", text).map(|wish| config.roctx = wish_mirror(config.roctx, wish))
    })
    .repeats()
    .row(
        "`.roctx(true)`",
        "if it is loaded",
        "mirror zones to [roctx](hip.md#roctx), and open its library; `roctx=off`, `.roctx(false)`: never; needs feature `hip`",
    );
    shared {
        /// Whether zones are mirrored to roctx; none if they are mirrored when its library is loaded.
        roctx: Option<bool> = None,
    }
    methods {
        /// Sets whether zones are mirrored to roctx, for `rocprofv3` and other tools of ROCm. Without this setting, they are mirrored if the
        /// program has loaded the marker library, as `rocprofv3 --marker-trace` makes it do. With `false`, they are never mirrored. With
        /// `true`, the library is opened, and a note says if there is none. It needs feature `hip`. `WARPLINE=roctx`, `roctx=off`; if both
        /// are given, off wins. The setting applies to all zones of the process, until another session starts.
        pub fn roctx(mut self, mirror: bool) -> Self {
            self.config.roctx = wish_mirror(self.config.roctx, mirror);
            self
        }
    }

    } $($then)* } };
}
