//! A configuration of Perfetto's tracing service for what its programs and the system do beside a session of warpline.

use std::fmt::Write;

use crate::catalog::record::Records;

/// The configuration without the track events. The fields are those of `protos/perfetto/config/trace_config.proto`.
const SYSTEM: &str = r#"buffers {
  size_kb: 65536
  fill_policy: RING_BUFFER
}
builtin_data_sources {
  primary_trace_clock: BUILTIN_CLOCK_BOOTTIME
}
write_into_file: true
file_write_period_ms: 2500
flush_period_ms: 5000

# Which thread runs on which CPU, and who wakes it.
data_sources {
  config {
    name: "linux.ftrace"
    ftrace_config {
      ftrace_events: "sched/sched_switch"
      ftrace_events: "sched/sched_waking"
      ftrace_events: "sched/sched_process_exit"
      ftrace_events: "task/task_newtask"
      ftrace_events: "task/task_rename"
    }
  }
}

# The names of processes and threads.
data_sources {
  config {
    name: "linux.process_stats"
    process_stats_config {
      scan_all_processes_on_start: true
    }
  }
}
"#;

impl Records {
    /// Returns a configuration of Perfetto's tracing service as text, for `perfetto --txt -c FILE -o system.pftrace`: the scheduling
    /// of threads on CPUs, on the clock of warpline's traces, and the track events of programs that use this catalog's namespaces as
    /// categories. Delete the categories that you do not need.
    pub fn to_perfetto(&self) -> String {
        let categories = self.right_namespaces();
        let mut out = String::from(
            "# Records what the system does while a program is recorded by warpline (WARPLINE=perfetto=zones.pftrace):\n\
             # perfetto --txt -c THIS_FILE -o system.pftrace\n\
             # Both traces have one clock; open them together. The ranges themselves are in the trace of warpline.\n\n",
        );
        out.push_str(SYSTEM);
        if categories.is_empty() {
            return out;
        }
        out.push_str(
            "\n# Track events of Perfetto's SDK, in any program, whose categories are the catalog's namespaces.\n\
             data_sources {\n  config {\n    name: \"track_event\"\n    track_event_config {\n      disabled_categories: \"*\"\n",
        );
        for category in categories {
            // A namespace contains only letters, digits, `_` and dots, so that it needs no escape.
            let _ = writeln!(out, "      enabled_categories: \"{category}\"");
            let _ = writeln!(out, "      enabled_categories: \"{category}.*\"");
        }
        out.push_str("    }\n  }\n}\n");
        out
    }
}
