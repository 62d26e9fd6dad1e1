//! Every setting. A new one is an entry here, a field of [`Config`](super::config::Config), a method in `methods`, a
//! row in docs/settings.md, and the code that acts on it.
//!
//! The key in `WARPLINE=…`, its parser and its checks, the suggestions for misspelt keys and the line in the help
//! follow from the entry.

use super::addresses::*;
use super::filter::Filter;
use super::setting::Setting;
use super::values::*;

/// Every setting, in the order in which the help and docs/settings.md list them.
pub(super) static SETTINGS: &[Setting] = &[
    // What the session writes, and to whom.
    Setting::value("perfetto", "FILE", "write a Perfetto trace", |config, text| {
        parse_path(text).map(|path| config.perfetto.push(path))
    })
    .example("trace.pftrace")
    .repeats()
    .output(|config| !config.perfetto.is_empty())
    .paths(|config| config.perfetto.iter_mut().collect()),
    Setting::value("chrome", "FILE", "write a Chrome JSON trace", |config, text| {
        parse_path(text).map(|path| config.chrome.push(path))
    })
    .example("trace.json")
    .repeats()
    .output(|config| !config.chrome.is_empty())
    .paths(|config| config.chrome.iter_mut().collect()),
    Setting::value("ranks", "FOLDER", "write the tables of this rank to a folder of all ranks", |config, text| {
        parse_path(text).map(|path| config.ranks = Some(path))
    })
    .example("run")
    .feature("ranks", cfg!(feature = "ranks"))
    .output(|config| config.ranks.is_some()),
    Setting::value("ranks_window", "60s", "with `ranks`: the length of a window", |config, text| {
        parse_duration(text).and_then(check_window).map(|time| config.ranks_window = Some(time))
    })
    .feature("ranks", cfg!(feature = "ranks"))
    .needs("tables of ranks", "ranks=run,ranks_window=60s", |config| {
        config.ranks_window.is_none() || config.ranks.is_some()
    }),
    Setting::value("otlp", "URL", "send metrics to an OpenTelemetry collector", |config, text| {
        parse_otlp(text).map(|url| config.otlp = Some(url))
    })
    .example("http://localhost:4318")
    .feature("otlp", cfg!(feature = "otlp"))
    .output(|config| config.otlp.is_some()),
    Setting::value("otlp_interval", "15s", "with `otlp`: the time between two exports", |config, text| {
        parse_duration(text).and_then(check_interval).map(|time| config.otlp_interval = Some(time))
    })
    .feature("otlp", cfg!(feature = "otlp"))
    .needs("a collector", "otlp=http://localhost:4318,otlp_interval=15s", |config| {
        config.otlp_interval.is_none() || config.otlp.is_some()
    }),
    Setting::value("prometheus", "ADDR", "serve metrics to Prometheus at this address", |config, text| {
        parse_serve_at(text).map(|at| config.prometheus = Some(at))
    })
    .example("9464")
    .feature("prometheus", cfg!(feature = "prometheus"))
    .output(|config| config.prometheus.is_some()),
    Setting::value(
        "prometheus_hosts",
        "NAME",
        "with `prometheus`: a further name by which clients know the server",
        |config, text| parse_host(text).map(|host| config.prometheus_hosts.push(host)),
    )
    .example("node7.cluster")
    .repeats()
    .feature("prometheus", cfg!(feature = "prometheus"))
    .needs("a server", "prometheus=0.0.0.0:9464,prometheus_hosts=node7.cluster", |config| {
        config.prometheus_hosts.is_empty() || config.prometheus.is_some()
    }),
    Setting::flag("tracy", "show zones live in Tracy", |config| &mut config.tracy)
        .feature("tracy", cfg!(feature = "tracy"))
        .output(|config| config.tracy),
    Setting::optional("summary", "print the report at the end; `summary=FILE`: write it to a file", |config, text| {
        match text {
            Some("-") => config.summary = Some(Console::Output),
            Some(text) => config.summary_files.push(parse_path(text).and_then(check_summary)?),
            None => config.summary = config.summary.or(Some(Console::Error)),
        }
        Ok(())
    })
    .repeats()
    .output(|config| config.has_summary())
    .paths(|config| config.summary_files.iter_mut().collect()),
    Setting::flag("log", "emit each zone as an event of `tracing`", |config| &mut config.log)
        .feature("tracing", cfg!(feature = "tracing"))
        .output(|config| config.log),
    // Which zones it records, how many may wait, and how they are timed.
    Setting::value("level", "coarse", "leave out ranges that are finer", |config, text| {
        parse_level(text).map(|level| config.level = level)
    }),
    Setting::value("filter", "PATTERN", "record only ranges that match, or with `!` leave them out", |config, text| {
        Filter::parse(text).map(|filter| config.filters.push(filter))
    })
    .example("demo.*")
    .repeats(),
    Setting::value("ring", "4096", "the most zones of a stream that wait for their events", |config, text| {
        check_ring(text.parse().unwrap_or(0)).map(|zones| config.ring = zones)
    }),
    Setting::value("events", "16384", "the most events in one GPU context", |config, text| {
        check_events(text.parse().unwrap_or(0)).map(|events| config.events = events)
    }),
    Setting::value(
        "event_pool_capacity",
        "256",
        "the most free events that timelines keep in one GPU context",
        |config, text| {
            let events = text.parse().unwrap_or(usize::MAX);
            check_event_pool(events).map(|events| config.event_pool_capacity = Some(events))
        },
    )
    .feature("timeline", cfg!(feature = "timeline")),
    Setting::value("ends", "auto", "how ends of zones are found: auto, eager, lazy", |config, text| {
        parse_ends(text).map(|ends| config.ends = ends)
    })
    .example("lazy"),
    Setting::value("timing", "events", "the clock of GPU zones: events, kernels", |config, text| {
        parse_timing(text).map(|timing| config.timing = timing)
    })
    .example("kernels"),
    // Which part of the program it records.
    Setting::value("budget", "0.5%", "the most that recording slows the program", |config, text| {
        parse_budget(text).map(|share| config.budget = Some(share))
    }),
    Setting::value("sample", "10%", "the share of each range's zones that is recorded", |config, text| {
        parse_sample(text).map(|share| config.sample = share)
    }),
    Setting::value("active", "3", "record this many steps, then leave steps out again", |config, text| {
        check_active(text.parse().unwrap_or(0)).map(|steps| config.active = Some(steps))
    })
    .check_with(|config| match (config.active, config.budget) {
        (Some(_), Some(share)) if share < 1.0 => {
            Err("chooses the steps that are recorded, and so does `budget`; leave one of them out".to_owned())
        }
        _ => Ok(()),
    }),
    Setting::value("wait", "10", "with `active`: leave out this many steps first", |config, text| {
        parse_steps(text).map(|steps| config.wait = Some(steps))
    })
    .needs("steps to record", "wait=10,active=3", |config| config.wait.is_none() || config.active.is_some()),
    Setting::value("warmup", "2", "with `active`: record this many steps and throw them away", |config, text| {
        parse_steps(text).map(|steps| config.warmup = Some(steps))
    })
    .needs("steps to record", "wait=10,warmup=2,active=3", |config| config.warmup.is_none() || config.active.is_some()),
    Setting::value("repeat", "1", "with `active`: record this many cycles of steps", |config, text| {
        parse_steps(text).map(|cycles| config.repeat = Some(cycles))
    })
    .needs("steps to record", "wait=10,active=3,repeat=1", |config| config.repeat.is_none() || config.active.is_some()),
    // What it records of devices, and the mirrors of zones in other tools.
    Setting::flag("calibrate", "measure what a pair of events adds to a kernel", |config| &mut config.calibrate),
    Setting::flag("kernels", "record kernels and copies through CUPTI", |config| &mut config.kernels)
        .feature("cupti", cfg!(feature = "cupti")),
    Setting::flag("synchronizations", "record waits of threads for the device through CUPTI", |config| {
        &mut config.synchronizations
    })
    .feature("cupti", cfg!(feature = "cupti")),
    Setting::value(
        "graph_timing",
        "stamps",
        "time zones in replays of CUDA graphs: off, stamps, launch-order-stamps",
        |config, text| parse_graph_timing(text).map(|timing| config.graph_timing = timing),
    ),
    Setting::optional("nvtx", "mirror zones to NVTX; `nvtx=off`: never", |config, text| {
        parse_mirror("nvtx", text).map(|wish| config.nvtx = wish_mirror(config.nvtx, wish))
    })
    .repeats(),
    Setting::optional("roctx", "mirror zones to roctx; `roctx=off`: never", |config, text| {
        parse_mirror("roctx", text).map(|wish| config.roctx = wish_mirror(config.roctx, wish))
    })
    .repeats(),
    // Its end, rotated traces and the flight recorder.
    Setting::value("timeout", "5s", "the longest that `finish` waits", |config, text| {
        parse_duration(text).map(|time| config.finish_timeout = time)
    }),
    Setting::value(
        "rotate",
        "256MiB",
        "write each Perfetto trace to files of this size, one after the other",
        |config, text| parse_rotate(text).map(|bytes| config.rotate = Some(bytes)),
    )
    .needs("a Perfetto trace to rotate", "perfetto=trace.pftrace,rotate=256MiB", |config| {
        config.rotate.is_none() || !config.perfetto.is_empty()
    }),
    Setting::value("keep", "4", "with `rotate`: how many files stay", |config, text| {
        parse_keep(text).map(|files| config.keep = Some(files))
    })
    .needs("files to keep some of", "perfetto=trace.pftrace,rotate=256MiB,keep=4", |config| {
        config.keep.is_none() || config.rotate.is_some()
    }),
    Setting::value(
        "flight",
        "64MiB",
        "keep the last zones in a file; `flight=64MiB:FILE`: in this one",
        |config, text| parse_flight(text).map(|flight| config.flight = Some(flight)),
    )
    .output(|config| config.flight.is_some())
    .check_with(|config| match config.flight {
        Some(_) if cfg!(not(unix)) => Err("works on Unix only; leave it out".to_owned()),
        _ => Ok(()),
    })
    .paths(|config| config.flight.iter_mut().filter_map(|flight| flight.path.as_mut()).collect()),
    Setting::value(
        "stall",
        "10s",
        "with `flight`: write a trace when a stream is stalled for this long",
        |config, text| parse_stall(text).map(|time| config.stall = Some(time)),
    )
    .needs("a flight recorder to write out", "flight=64MiB,stall=10s", |config| {
        config.stall.is_none() || config.flight.is_some()
    }),
    Setting::value("dump_on", "sigusr2", "with `flight`: write a trace on SIGUSR2", |config, text| {
        parse_dump_on(text).map(|is_on| config.dump_on_sigusr2 = is_on)
    })
    .needs("a flight recorder to write out", "flight=64MiB,dump_on=sigusr2", |config| {
        !config.dump_on_sigusr2 || config.flight.is_some()
    }),
    // Whether it records, who controls it and what it prints.
    Setting::flag("off", "record nothing", |config| &mut config.off),
    Setting::flag("control", "let the command `warpline` control this process", |config| &mut config.control)
        .only_if(cfg!(target_os = "linux")),
    Setting::flag("quiet", "do not print where traces are", |config| &mut config.quiet),
    Setting::value(
        "finish_on_signal",
        "off",
        "let SIGINT and SIGTERM end the program without finishing the session",
        |config, text| parse_switch("finish_on_signal", text).map(|is_on| config.finish_on_signal = is_on),
    ),
    Setting::flag("help", "print this list and record nothing", |config| &mut config.help),
];

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");

    #[test]
    fn the_page_has_a_row_for_each_setting_and_each_method() {
        let page = std::fs::read_to_string(PAGE).expect("the guide is part of the package");
        let head = "| `WARPLINE` | builder | default | means |\n|---|---|---|---|\n";
        let (_, rest) = page.split_once(head).expect("the page has the table");
        let rows = rest.lines().take_while(|line| !line.is_empty());
        let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
        let forms = SETTINGS.iter().map(|setting| format!("`{}`", setting.form()));
        // The last row is the builder's method that has no setting.
        assert_eq!(rows.iter().map(|row| row[1]).collect::<Vec<_>>(), forms.chain([String::new()]).collect::<Vec<_>>());
        for row in &rows {
            assert!(row.len() == 6 && row[2].is_empty() == row[3].is_empty() && !row[4].is_empty(), "{row:?}");
        }
        let methods = include_str!("methods.rs").lines().filter_map(|line| line.trim().strip_prefix("pub fn "));
        for method in methods.filter_map(|method| method.split('(').next()) {
            let is_in = |row: &Vec<&str>| [row[2], row[4]].concat().contains(&format!("`.{method}("));
            assert!(rows.iter().any(is_in), "`{method}` is not on the page");
        }
    }

    #[test]
    fn each_setting_has_a_key_of_its_own() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert!(SETTINGS[..index].iter().all(|other| other.key != setting.key), "{}", setting.key);
        }
    }
}
