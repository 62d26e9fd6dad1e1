//! `warpline doctor` on hosts of every kind: with the stub driver, with drivers that are old, crash or hang, and with none.
#![cfg(target_os = "linux")]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::stubs;

/// A host without a driver, CUPTI, tools or settings.
struct Host {
    dir: tempfile::TempDir,
    command: Command,
}

impl Host {
    fn new() -> Host {
        let dir = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
        command.arg("doctor").current_dir(dir.path()).env("XDG_RUNTIME_DIR", dir.path());
        for variable in [
            "WARPLINE",
            "WARPLINE_CUPTI",
            "CUDA_HOME",
            "CUDA_PATH",
            "CUDA_INJECTION64_PATH",
            "NVTX_INJECTION64_PATH",
            "TRACY_PORT",
        ] {
            command.env_remove(variable);
        }
        let mut host = Host { dir, command };
        // As good as no driver, also on a machine with one.
        host.file("none/libcuda.so.1", b"this is no library");
        let none = host.dir.path().join("none");
        host.command.env("LD_LIBRARY_PATH", &none).env("WARPLINE_CUPTI", none.join("libcupti.so"));
        host
    }

    /// A host with the stub driver, whose orders these are, built with these features.
    fn with_driver(orders: &str, features: &[&str]) -> Host {
        let mut host = Host::new();
        let folder = stubs::driver(features);
        host.command.env("LD_LIBRARY_PATH", folder).env("WARPLINE_STUB_DRIVER", orders);
        host
    }

    fn with_cupti(mut self) -> Host {
        self.command.env("WARPLINE_CUPTI", stubs::cupti());
        self
    }

    fn env(mut self, variable: &str, value: impl AsRef<std::ffi::OsStr>) -> Host {
        self.command.env(variable, value);
        self
    }

    fn file(&self, name: &str, content: &[u8]) -> std::path::PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, content).expect("a file");
        path
    }

    fn text(mut self, args: &[&str]) -> (i32, String) {
        let output = self.command.args(args).output().expect("it runs");
        (status(&output), String::from_utf8(output.stdout).expect("UTF-8"))
    }

    fn json(mut self, args: &[&str]) -> Found {
        let output = self.command.args(["--format", "json"]).args(args).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(json["format"], "warpline-doctor/1");
        assert_eq!(json["works"] == true, status(&output) == 0, "the status says the same: {json:#}");
        Found(json)
    }
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it ends by itself")
}

struct Found(Value);

impl Found {
    /// The finding about a part: its state, what it says, and the remedy.
    fn part(&self, part: &str) -> (&str, &str, &str) {
        let findings = self.0["findings"].as_array().expect("findings");
        let finding = findings.iter().find(|finding| finding["part"] == part);
        let finding = finding.unwrap_or_else(|| panic!("{part}: {:#}", self.0));
        let text = |key: &str| finding[key].as_str().unwrap_or_default();
        (text("state"), text("what"), text("remedy"))
    }

    fn works(&self) -> bool {
        self.0["works"] == true
    }
}

#[test]
fn a_host_without_a_gpu_is_no_problem_before_a_setting_asks_for_one() {
    let (status, text) = Host::new().text(&[]);
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains("missing  driver        there is no CUDA driver: ") && text.contains("libcuda.so.1"),
        "{text}"
    );
    assert!(
        text.contains("-> install NVIDIA's driver") && text.contains("host streams are timed without one"),
        "{text}"
    );
    // How many parts are limited depends on the machine's clock and ports.
    let last = text.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("everything that the settings request works; ") && last.ends_with(" are limited or missing"),
        "{text}"
    );

    let (status, text) = Host::new().env("WARPLINE", "perfetto=t.pftrace,graph_timing=stamps").text(&[]);
    assert_eq!(status, 1, "{text}");
    assert!(
        text.contains("missing! driver") && text.ends_with("1 problem: see the remedies of the lines marked `!`\n"),
        "{text}"
    );
}

#[test]
fn a_driver_is_asked_for_its_version_symbols_and_devices_and_no_context_is_made() {
    let host = Host::with_driver("", &[]).with_cupti();
    let kept = tempfile::tempdir().expect("a folder");
    let log = kept.path().join("calls");
    let orders = format!("devices=2,log={}", log.display());
    let found = host
        .env("WARPLINE_STUB_DRIVER", orders)
        .json(&["--settings", "perfetto=t.pftrace,kernels,graph_timing=stamps"]);
    assert!(found.works(), "{:#}", found.0);
    let (state, what, _) = found.part("driver");
    assert!(state == "works" && what.starts_with("CUDA 13.0 (") && what.contains("/libcuda.so.1"), "{what}");
    assert_eq!(found.part("devices").1, "2 devices: Stub GPU 0, Stub GPU 1");
    assert_eq!((found.part("event times").0, found.part("captures").0), ("works", "works"));
    assert!(found.part("CUPTI").1.contains("warpline_stub_cupti"), "{:#}", found.0);
    let facts = &found.0["driver"]["found"];
    assert_eq!((&facts["version"], &facts["tells_ids"]), (&Value::from(13_000), &Value::from(false)));
    let calls = fs::read_to_string(&log).expect("the stub has written its calls");
    assert!(calls.contains("cuInit") && calls.contains("cuDeviceGetName"), "{calls}");
    assert!(!calls.contains("Ctx") && !calls.contains("cuStream"), "{calls}");
    assert_eq!(
        found.part("settings").1.rsplit_once("; ").expect("two parts").1,
        "the program needs warpline's features `enable`, `cupti`, `cuda`"
    );
}

#[test]
fn whether_ids_of_graph_nodes_can_be_told_depends_on_the_driver_and_on_cupti() {
    let found = Host::with_driver("version=13010", &[]).json(&[]);
    assert_eq!(found.part("graph ids").0, "works");
    let found = Host::with_driver("version=13000", &[]).with_cupti().json(&[]);
    let (state, what, remedy) = found.part("graph ids");
    assert!(
        state == "limited" && what.contains("CUDA 13.0 does not report the ids") && remedy.contains("`kernels`"),
        "{what} {remedy}"
    );
    let found = Host::with_driver("", &[]).json(&[]);
    let (state, what, remedy) = found.part("graph ids");
    assert!(state == "missing" && what.starts_with("the ids of graph nodes are unknown"), "{what}");
    assert!(remedy.contains("--by order") && remedy.contains("13.1"), "{remedy}");
    assert!(found.works(), "no setting asks for ids");
}

#[test]
fn a_driver_that_is_too_old_or_lacks_symbols_is_a_problem() {
    let found = Host::with_driver("version=11080", &[]).json(&[]);
    let (state, what, remedy) = found.part("driver");
    assert!(state == "broken" && what.contains("CUDA 11.8") && remedy.contains("12.0"), "{what}: {remedy}");
    assert!(!found.works());
    let found = Host::with_driver("version=12000", &["old"]).json(&[]);
    let (state, what, _) = found.part("driver");
    assert!(state == "broken" && what.contains("cuStreamGetId"), "{what}");
    let found = Host::with_driver("", &["elapsed-v1"]).json(&[]);
    let (state, what, remedy) = found.part("event times");
    assert!(state == "limited" && what.contains("cuEventElapsedTime_v2") && remedy.contains("12.8"), "{what}");
    assert!(found.works());
}

#[test]
fn a_driver_without_a_device_says_where_to_look() {
    let found = Host::with_driver("devices=0", &[]).env("CUDA_VISIBLE_DEVICES", "").json(&[]);
    let (state, what, remedy) = found.part("devices");
    assert!(state == "missing" && what.contains("CUDA_ERROR_NO_DEVICE"), "{what}");
    assert!(remedy.starts_with("CUDA_VISIBLE_DEVICES=``"), "{remedy}");
    assert!(found.works(), "nothing asks for a device");
}

#[test]
fn a_driver_that_crashes_or_hangs_is_reported_and_the_rest_is_examined() {
    let found = Host::with_driver("crash=cuInit", &[]).json(&[]);
    let (state, what, remedy) = found.part("driver");
    assert!(state == "broken" && what.contains("it ended the child process that called it (signal 6)"), "{what}");
    assert!(remedy.contains("nvidia-smi"), "{remedy}");
    assert!(!found.works() && !found.part("clock").1.is_empty() && found.part("CUPTI").0 == "missing");
    let began = std::time::Instant::now();
    let found = Host::with_driver("hang=cuInit", &[]).json(&["--within", "500ms"]);
    assert!(found.part("driver").1.contains("it did not return within 0.5 s"), "{:#}", found.0);
    assert!(began.elapsed().as_secs() < 20, "the command does not wait for the driver");
}

#[test]
fn settings_are_checked_as_a_session_checks_them() {
    let (status, text) = Host::new().env("WARPLINE", "perfeto=t.pftrace").text(&[]);
    assert_eq!(status, 1);
    assert!(text.starts_with("broken!  settings "), "{text}");
    assert!(
        text.contains("WARPLINE has a setting that cannot be used: `perfeto=t.pftrace`: there is no setting `perfeto`"),
        "{text}"
    );
    let found = Host::new().env("WARPLINE", "perfeto=t").json(&["--settings", "off"]);
    assert!(found.works() && found.part("settings").1.contains("records nothing"), "the option counts");
    let output =
        Command::new(env!("CARGO_BIN_EXE_warpline")).args(["doctor", "--format", "yaml"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "wrong usage");
}

#[test]
fn files_and_sockets_need_folders_that_can_be_written() {
    let found = Host::new().json(&["--settings", "perfetto=none/t.pftrace,chrome=nowhere/t.json"]);
    let findings = found.0["findings"].as_array().expect("findings");
    let files: Vec<_> = findings.iter().filter(|finding| finding["part"] == "trace files").collect();
    assert_eq!((&files[0]["state"], &files[1]["state"]), (&"works".into(), &"missing".into()));
    assert!(files[1]["what"].as_str().expect("a text").starts_with("`nowhere/t.json` is not writable"), "{files:?}");
    assert!(!found.works());

    let host = Host::new();
    let runtime = host.file("not-a-folder", b"");
    let found = host.env("XDG_RUNTIME_DIR", &runtime).json(&["--settings", "control"]);
    let (state, what, remedy) = found.part("control");
    assert!(
        state == "missing" && what.contains("cannot create sockets") && remedy.contains("XDG_RUNTIME_DIR"),
        "{what}"
    );
    assert!(!found.works());

    let mut host = Host::new();
    assert_eq!(host.command.output().expect("it runs").status.code(), Some(0));
    let left: Vec<_> =
        fs::read_dir(host.dir.path()).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["none"], "nothing is left behind");
}

#[test]
fn an_nvtx_tool_is_read_and_not_loaded() {
    let host = Host::new();
    let missing = host.dir.path().join("tool.so");
    let found = host.env("NVTX_INJECTION64_PATH", &missing).json(&[]);
    assert_eq!(found.part("NVTX").0, "missing");
    assert!(!found.works() && found.part("NVTX").2.contains("NVTX_INJECTION64_PATH"));
    let found = Host::new().env("NVTX_INJECTION64_PATH", stubs::cupti()).json(&[]);
    assert!(found.part("NVTX").1.contains("has no InitializeInjectionNvtx2"), "{:#}", found.0);
    let found = Host::new().env("NVTX_INJECTION64_PATH", stubs::nvtx()).json(&[]);
    let (state, what, _) = found.part("NVTX");
    assert!((state, found.works()) == ("untried", true) && what.contains("is not loaded here"), "{:#}", found.0);
    let (status, text) = Host::new().env("NVTX_INJECTION64_PATH", stubs::nvtx()).text(&[]);
    assert!(status == 0 && text.contains("\nuntried  NVTX ") && !text.contains("everything works\n"), "{text}");
    let found = Host::new().env("NVTX_INJECTION64_PATH", "./.").json(&[]);
    assert_eq!((found.part("NVTX").0, found.works()), ("off", true));
}

#[test]
fn a_tool_that_is_injected_into_cuda_programs_holds_cupti() {
    let host = || Host::new().with_cupti().env("CUDA_INJECTION64_PATH", "/opt/tool.so");
    assert_eq!(host().json(&[]).part("CUPTI").0, "limited");
    let found = Host::with_driver("", &[]).with_cupti().env("CUDA_INJECTION64_PATH", "/opt/tool.so");
    let found = found.json(&["--settings", "summary,kernels"]);
    let (state, what, _) = found.part("CUPTI");
    assert!(state == "missing" && what.contains("/opt/tool.so") && !found.works(), "{what}");
}

#[test]
fn a_port_of_tracys_that_is_taken_is_seen() {
    let taken = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let found = Host::new().env("TRACY_PORT", &port).json(&["--settings", "tracy"]);
    let (state, what, remedy) = found.part("Tracy");
    assert!(state == "missing" && what.contains(&port) && remedy.contains("TRACY_PORT"), "{what}: {remedy}");
    assert!(!found.works());
    drop(taken);
    let found = Host::new().env("TRACY_PORT", &port).json(&["--settings", "tracy"]);
    assert!(found.part("Tracy").0 == "works" && found.part("Tracy").1.ends_with("the program needs feature `tracy`"));
}

#[test]
fn names_on_the_host_cannot_forge_lines() {
    let host = Host::new();
    let path = host.dir.path().join("a\nworks    driver\u{1b}[2J");
    let (status, text) = host.env("NVTX_INJECTION64_PATH", Path::new(&path)).text(&[]);
    assert_eq!(status, 1);
    assert!(!text.contains('\u{1b}') && !text.contains("\nworks    driver"), "{text:?}");
}

/// Not run on hardware, like everything of HIP.
#[cfg(feature = "hip")]
#[test]
fn the_hip_runtime_is_named_with_its_devices_and_what_it_lacks() {
    let line = |text: &str| text.lines().find(|line| line.contains(" HIP ")).map(str::to_owned).expect("a line on HIP");
    let on = |features: &[&str]| Host::new().env("LD_LIBRARY_PATH", stubs::hip(features)).text(&[]);
    let (status, text) = on(&[]);
    let current = line(&text);
    assert!(current.starts_with("works ") && current.contains("HIP 7.0") && current.contains("2 devices"), "{text}");
    assert_eq!(status, 0, "{text}");
    let old = line(&on(&["old"]).1);
    assert!(old.starts_with("limited") && old.contains("hipStreamGetId"), "{old}");
    let host = Host::new();
    for name in ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"] {
        host.file(&format!("none/{name}"), b"this is no library");
    }
    let (status, text) = host.text(&[]);
    assert!(line(&text).starts_with("missing") && text.contains("install ROCm"), "{text}");
    assert_eq!(status, 0, "nothing asks for it: {text}");
}

#[test]
fn peaks_are_measured_where_that_is_asked_for_and_kept_for_reports() {
    let cache = tempfile::tempdir().expect("a folder");
    let file = cache.path().join("warpline/peaks.tsv");
    let host = || Host::with_driver("devices=2", &[]).env("XDG_CACHE_HOME", cache.path());
    let found = host().json(&[]);
    assert!(found.0.get("peaks").is_none() && !file.exists(), "{:#}", found.0);

    let found = host().json(&["--measure-peak"]);
    assert!(found.works(), "{:#}", found.0);
    let devices = found.0["peaks"]["found"]["devices"].as_array().expect("devices");
    assert_eq!(devices.iter().map(|device| &device["device"]).collect::<Vec<_>>(), ["Stub GPU 0", "Stub GPU 1"]);
    // The stub's kernels take 1 ms each: eight copies of 1 GiB, read and written, and a launch of multiply-adds.
    let near = |value: &Value, wanted: f64| (value.as_f64().expect("a rate") / wanted - 1.0).abs() < 0.05;
    let flops = 2.0 * (16 * 8 * 8_192) as f64 * f64::from(132 * 8 * 256) * 1e3;
    for device in devices {
        assert!(near(&device["bytes_per_s"], 2.0 * 1.073_741_824e12), "{device}");
        assert!(near(&device["f32_flops_per_s"], flops) && device["failed"].is_null(), "{device}");
    }
    let (state, what, _) = found.part("peak");
    assert!(state == "works" && what.starts_with("Stub GPU 0: 2.") && what.contains(" TB/s of a copy, "), "{what}");
    assert!(!what.contains('%'), "no vendor states a peak for it: {what}");
    assert!(found.part("peak file").1.contains("peaks.tsv"), "{:#}", found.0);
    let kept = fs::read_to_string(&file).expect("it was written");
    let rows: Vec<Vec<&str>> = kept.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.iter().map(|row| (row[0], row.len())).collect::<Vec<_>>(), [("Stub GPU 0", 5), ("Stub GPU 1", 5)]);
    assert!(rows[0][3].len() == 10 && rows[0][4].starts_with("CUDA 13.0"), "{kept}");

    // No device, no memory for a file, and a device that hangs are problems, because a measurement was asked for.
    let found = Host::with_driver("devices=0", &[]).env("XDG_CACHE_HOME", cache.path()).json(&["--measure-peak"]);
    assert!(!found.works() && found.part("peak").0 == "missing", "{:#}", found.0);
    let found = host().env("XDG_CACHE_HOME", "/proc/none").json(&["--measure-peak"]);
    assert!(
        !found.works() && found.part("peak file").1.starts_with("cannot write `/proc/none/warpline/"),
        "{:#}",
        found.0
    );
    let orders = "devices=2,hang=cuLaunchKernel";
    let found = host().env("WARPLINE_STUB_DRIVER", orders).json(&["--measure-peak", "--within", "2s"]);
    assert!(!found.works() && found.part("peak").1.contains("did not return within 2 s"), "{:#}", found.0);
    assert_eq!(fs::read_to_string(&file).expect("it stays"), kept);
}
