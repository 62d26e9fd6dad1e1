//! Jobs that hang, or do not, each with the one sentence that whoever is woken up should read first, and the exit
//! status. `README.md` lists them.
//!
//! A job is what its ranks wrote, as docs/ranks-tables.md states it, with processes of this machine where a case is
//! about them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;
use warpline_ranks::Engine;
use warpline_ranks::generate::{Plan, generate};
use warpline_trace::control::protocol::{Kind, frame};
use warpline_trace::control::socket::SocketOwner;

use crate::bounds::{ints, rewrite, with};
use crate::command::{command, text};

/// When the ranks wrote last, by the clock of each host.
const NOW_NS: i64 = 1_000_000_000_000;

/// What the ranks of a job wrote.
struct Job {
    folder: TempDir,
    /// By rank.
    files: BTreeMap<u32, Value>,
    /// Files with another text, of so many ranks at most.
    texts: Vec<(u32, String)>,
    /// Files that were changed so many seconds before the others.
    aged: Vec<(u32, u64)>,
    /// The files are read twice, and this is what ranks write between the two.
    later: Option<fn(&mut BTreeMap<u32, Value>)>,
    /// The process that a sentence is about.
    pid: u32,
    processes: Vec<Child>,
}

impl Drop for Job {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Ranks of which all are in number 5 of the group `dp0`, so many on each host.
fn job(ranks: u32, of_host: u32) -> Job {
    let file = |rank: u32| {
        let host = format!("node{}", rank / of_host);
        let file = json!({
            "version": 1, "rank": rank, "host": host, "boot_id": host, "pid": 4000 + rank, "process": null, "flight": null,
            "updated_boottime_ns": NOW_NS, "updated_realtime_ns": NOW_NS, "ended": false, "step": 5,
            "comms": [], "open": sync("dp0", 5), "truncated": false,
        });
        (rank, file)
    };
    let mut job = Job {
        folder: tempfile::tempdir().unwrap(),
        files: (0..ranks).map(file).collect(),
        texts: Vec::new(),
        aged: Vec::new(),
        later: None,
        pid: 0,
        processes: Vec::new(),
    };
    job.all(|file| at(file, "dp0", &format!("0-{}", ranks - 1), 5, 4));
    job
}

/// Two hosts with four ranks each.
fn eight() -> Job {
    job(8, 4)
}

impl Job {
    fn all(&mut self, change: impl Fn(&mut Value)) {
        self.files.values_mut().for_each(change);
    }

    /// Changes what ranks wrote.
    fn with(mut self, ranks: impl IntoIterator<Item = u32>, change: impl Fn(&mut Value)) -> Self {
        ranks.into_iter().for_each(|rank| change(self.files.get_mut(&rank).unwrap()));
        self
    }

    fn each(mut self, change: impl Fn(&mut Value)) -> Self {
        self.all(change);
        self
    }

    fn without(mut self, ranks: impl IntoIterator<Item = u32>) -> Self {
        ranks.into_iter().for_each(|rank| drop(self.files.remove(&rank)));
        self
    }

    fn text(mut self, rank: u32, text: impl Into<String>) -> Self {
        self.texts.push((rank, text.into()));
        self
    }

    fn aged(mut self, ranks: impl IntoIterator<Item = u32>, seconds: u64) -> Self {
        self.aged.extend(ranks.into_iter().map(|rank| (rank, seconds)));
        self
    }

    fn later(mut self, change: fn(&mut BTreeMap<u32, Value>)) -> Self {
        self.later = Some(change);
        self
    }

    /// Makes ranks processes of this machine; of one that has ended, the number stays.
    fn here(mut self, ranks: impl IntoIterator<Item = u32>, has_ended: bool) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        for rank in ranks {
            let mut process = Command::new("sleep").arg("600").spawn().unwrap();
            self.pid = process.id();
            let owner = SocketOwner::read(&process.id().to_string()).unwrap().text();
            if has_ended {
                process.kill().unwrap();
                process.wait().unwrap();
            } else {
                self.processes.push(process);
            }
            let file = self.files.get_mut(&rank).unwrap();
            (file["boot_id"], file["pid"], file["process"]) = (boot.trim().into(), self.pid.into(), owner.into());
        }
        self
    }

    /// Writes the files.
    fn write(&self) {
        let of_run = self.folder.path().join("progress/run=1");
        std::fs::create_dir_all(&of_run).unwrap();
        let path = |rank: u32| of_run.join(format!("rank-{rank:05}.json"));
        self.files.iter().for_each(|(rank, file)| std::fs::write(path(*rank), file.to_string()).unwrap());
        self.texts.iter().for_each(|(rank, text)| std::fs::write(path(*rank), text).unwrap());
        let now = SystemTime::now();
        for rank in self.files.keys() {
            let age = self.aged.iter().find(|(aged, _)| aged == rank).map_or(0, |(_, seconds)| *seconds);
            let file = std::fs::File::options().write(true).open(path(*rank)).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
        }
    }

    /// The first sentence, and the exit status.
    fn asked(mut self) -> (String, i32) {
        self.write();
        let between = if self.later.is_some() { "1" } else { "0" };
        let mut command = command(&["hang", self.folder.path().to_str().unwrap(), "--between", between, "--json"]);
        // Where the sockets of processes would be.
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        let asks = std::thread::spawn(move || command.output().unwrap());
        if let Some(later) = self.later {
            std::thread::sleep(Duration::from_millis(500));
            later(&mut self.files);
            self.write();
        }
        let output = asks.join().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let said = json["verdict"][0].as_str().map_or_else(|| text(&output.stderr), str::to_owned);
        let said = said.replace(&format!("{}", self.folder.path().display()), "DIR");
        (said.trim().replace(&format!("process {}", self.pid), "process 4711"), output.status.code().unwrap())
    }
}

/// A zone of a collective.
fn sync(comm: &str, seq: i64) -> Value {
    json!({
        "name": "demo.sync", "file": "sync.rs", "line": 7, "thread": "main", "since_ns": 1, "fields": {}, "launched": true,
        "comm": comm, "seq": seq, "kind": null, "peer": null,
    })
}

/// A zone of other work, on the device or on a thread.
fn work(name: &str, launched: bool) -> Value {
    json!({
        "name": name, "file": "train.rs", "line": 12, "thread": "main", "since_ns": 1, "fields": { "n": "4" },
        "launched": launched, "comm": null, "seq": null, "kind": null, "peer": null,
    })
}

/// A transfer of `pp0`.
fn transfer(kind: &str, seq: i64, peer: u32) -> Value {
    let mut open = sync("pp0", seq);
    (open["name"], open["kind"], open["peer"]) = ("demo.transfer".into(), kind.into(), peer.into());
    open
}

/// Says how far a rank is in a group, in which it calls the same as the others.
fn at(file: &mut Value, comm: &str, members: &str, entered: i64, completed: impl Into<Option<i64>>) {
    called(file, comm, members, (entered, completed.into()), |_| ("all_reduce", 1024));
}

/// The same where it may call something else.
fn called(
    file: &mut Value,
    comm: &str,
    members: &str,
    (entered, completed): (i64, Option<i64>),
    call: impl Fn(i64) -> (&'static str, i64),
) {
    let mut hash = DefaultHasher::new();
    let call = |seq: i64| {
        call(seq).hash(&mut hash);
        json!([seq, call(seq).0, "f32", call(seq).1, null, format!("{:016x}", hash.finish())])
    };
    let recent: Vec<Value> = (0..=entered).map(call).collect();
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        last.parse::<u32>().unwrap() - first.parse::<u32>().unwrap() + 1
    };
    let size: u32 = members.split(',').map(count).sum();
    let group = json!({
        "comm": comm, "size": size, "members": members, "entered": entered, "started": completed, "completed": completed,
        "first": 0, "signature": "", "recent": recent[recent.len().saturating_sub(8)..],
    });
    let comms = file["comms"].as_array_mut().unwrap();
    comms.retain(|known| known["comm"] != comm);
    comms.push(group);
}

/// A group of which the ranks send to each other, with this many calls.
fn sends(file: &mut Value, members: &str, entered: i64) {
    file["comms"] = json!([{
        "comm": "pp0", "size": 4, "members": members, "entered": entered, "started": entered - 1, "completed": entered - 1,
        "first": null, "signature": "0000000000000000", "recent": [],
    }]);
}

/// It has not come to number 5 of `dp0`, and is in work of its own.
fn in_work(file: &mut Value, name: &str) {
    let members = file["comms"][0]["members"].as_str().unwrap().to_owned();
    at(file, "dp0", &members, 4, 4);
    file["open"] = work(name, false);
}

fn in_input(file: &mut Value) {
    in_work(file, "demo.load");
}

/// Its device is in work of its own, and its thread has run ahead as those of the others.
fn in_kernel(file: &mut Value) {
    file["open"] = work("demo.backward", true);
}

fn runs_ahead(file: &mut Value) {
    at(file, "dp0", "0-7", 9, 4);
}

/// It wrote last 50 s before the others of its host.
fn dead(file: &mut Value) {
    file["updated_boottime_ns"] = (NOW_NS - 50_000_000_000).into();
}

/// It wrote last after number 2.
fn old(file: &mut Value) {
    at(file, "dp0", "0-7", 2, 2);
    file["open"] = Value::Null;
}

/// Four stages that send to each other: the one before sends activations, the one behind sends gradients back.
fn pipeline(opens: [Value; 4]) -> Job {
    let mut job = job(4, 2);
    for ((rank, file), open) in job.files.iter_mut().zip(opens) {
        // Those in the middle send and receive twice as often.
        sends(file, "0-3", if *rank % 3 == 0 { 10 } else { 20 });
        file["open"] = open;
    }
    job
}

/// Ranks whose calls of number `at` of `dp0` are other ones, in a group that is in number 12.
fn old_difference(rank: u32, at: i64) -> Job {
    eight()
        .each(|file| {
            file["open"] = sync("dp0", 12);
            called(file, "dp0", "0-7", (12, Some(11)), |_| ("all_reduce", 1024));
        })
        .with([rank], |file| {
            called(file, "dp0", "0-7", (12, Some(11)), |seq| ("all_reduce", if seq == at { 77 } else { 1024 }));
        })
}

/// The same, where the tables have the number: of a group of the first host of a job that was generated.
fn old_difference_in_tables() -> Job {
    let job = old_difference(3, 2);
    let folder = job.folder.path();
    let plan = Plan { run: "1".to_owned(), ranks: 8, hosts: 2, steps: 20, ..Plan::default() };
    generate(folder, &plan).unwrap();
    let engine = Engine::open(folder, Some("1")).unwrap();
    let rows =
        engine.query("collectives", "SELECT MIN(comm) AS comm FROM collectives WHERE rank = 3 AND comm LIKE 'tp%'");
    let comm = rows.unwrap().texts("comm").unwrap()[0].to_string();
    rewrite(&folder.join("collectives"), |batch| {
        let (ranks, seqs, bytes) = (ints(&batch, "rank"), ints(&batch, "seq"), ints(&batch, "bytes"));
        let comms = datafusion::arrow::compute::cast(
            batch.column_by_name("comm").unwrap(),
            &datafusion::arrow::datatypes::DataType::Utf8,
        );
        let comms = comms.unwrap();
        let comms = datafusion::arrow::array::AsArray::as_string::<i32>(&comms).clone();
        let is_it = |at: usize| ranks[at] == 3 && seqs[at] == 2 && comms.value(at) == comm;
        let bytes = (0..bytes.len()).map(|at| if is_it(at) { 308 } else { bytes[at] }).collect();
        with(&batch, &[("bytes", bytes)])
    });
    let mut job = job.without(4..8);
    job.all(|file| {
        file["comms"][0]["comm"] = comm.as_str().into();
        file["comms"][0]["members"] = "0-3".into();
        file["open"]["comm"] = comm.as_str().into();
    });
    job
}

/// A rank whose disk is full, so that its file is old, and that answers by its socket.
fn answers() -> Job {
    let job = eight().with([5], in_input);
    let owner = SocketOwner::read("self").unwrap();
    let mut answer = job.files[&3].clone();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for (key, value) in [
        ("boot_id", boot.trim().into()),
        ("pid", owner.process.into()),
        ("process", owner.text().into()),
        ("is", "progress".into()),
    ] {
        answer[key] = value;
    }
    let folder: PathBuf = job.folder.path().join("warpline");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    let listener = UnixListener::bind(folder.join(owner.socket_name())).unwrap();
    let mut reply = Vec::new();
    frame(Kind::Json, answer.to_string().as_bytes(), &mut reply);
    std::thread::spawn(move || {
        let (mut asked, _) = listener.accept().unwrap();
        let _ = asked.read(&mut [0; 1024]);
        asked.write_all(&reply).unwrap();
    });
    // What the file says is of long before.
    job.with([3], |file| {
        *file = answer.clone();
        old(file);
    })
    .aged([3], 90)
}

/// What happens, the exit status, the first sentence, and the job.
type Case = (&'static str, i32, &'static str, fn() -> Job);

const ALL_HAVE_ENTERED: &str = "no rank can be named: all 8 ranks have entered number 5 of dp0, and none has completed it; the network, a device, or \
                                work that is in no zone holds them up";

const IN_INPUT: &str = "7 ranks wait for rank 3 on node0 (process 4003), which has not entered number 5 of dp0 and is in `demo.load` at train.rs:12 \
                        (n=4), thread `main`";

const IN_KERNEL: &str = "7 ranks wait for rank 3 on node0 (process 4003), whose thread has entered number 5 of dp0 and whose device is in \
                         `demo.backward` at train.rs:12 (n=4), thread `main`";

const DEAD: &str = "7 ranks wait for rank 6 on node1 (process 4006), which has not completed number 5 of dp0 and has written nothing for 50 s: it or \
                    its host died; it was last in `demo.sync` at sync.rs:7, thread `main`";

const KILLED: &str = "7 ranks wait for rank 3 on node0 (process 4711), which has not completed number 5 of dp0 and is dead: its process has ended; it \
                      was last in `demo.sync` at sync.rs:7, thread `main`";

const UNREADABLE: &str =
    "the rank that 7 ranks wait for in number 5 of dp0 is unknown: the file of rank 5 cannot be read";

const CASES: &[Case] = &[
    // A rank has not come.
    ("a rank stays in its input", 3, IN_INPUT, || eight().with([3], in_input)),
    (
        "a rank is in no zone",
        3,
        "7 ranks wait for rank 3 on node0 (process 4003), which has not entered number 5 of dp0 and is in no zone: a debugger on its process shows where",
        || {
            eight().with([3], |file| {
                in_input(file);
                file["open"] = Value::Null;
            })
        },
    ),
    (
        "rank 0 writes a checkpoint",
        3,
        "7 ranks wait for rank 0 on node0 (process 4000), which has not entered number 5 of dp0 and is in `demo.checkpoint` at train.rs:12 (n=4), \
         thread `main`",
        || eight().with([0], |file| in_work(file, "demo.checkpoint")),
    ),
    (
        "a rank has ended its session early",
        3,
        "7 ranks wait for rank 3 on node0 (process 4003), which has not entered number 5 of dp0 and has ended its session",
        || {
            eight().with([3], |file| {
                in_input(file);
                (file["open"], file["ended"]) = (Value::Null, true.into());
            })
        },
    ),
    (
        "one of two ranks stays in its input",
        3,
        "1 rank waits for rank 1 on node0 (process 4001), which has not entered number 5 of dp0 and is in `demo.load` at train.rs:12 (n=4), thread `main`",
        || job(2, 2).with([1], in_input),
    ),
    (
        "all ranks of a host stay in their input",
        3,
        "4 ranks wait for all 4 ranks of host node1, which have not entered number 5 of dp0 and are in `demo.load` at train.rs:12",
        || eight().with(4..8, in_input),
    ),
    (
        "two ranks of two hosts stay in their input",
        3,
        "6 ranks wait for rank 2 on node0 (process 4002), which has not entered number 5 of dp0 and is in `demo.load` at train.rs:12 (n=4), thread `main`",
        || eight().with([2, 5], in_input),
    ),
    (
        "a rank of 64 stays in its input: its host waits in its own group, and the others for that host",
        3,
        "63 ranks wait for rank 42 on node5 (process 4042), which has not entered number 5 of tp5 and is in `demo.load` at train.rs:12 (n=4), thread `main`",
        || {
            let mut job = job(64, 8);
            for (rank, file) in &mut job.files {
                let (host, place) = (rank / 8, rank % 8);
                let of_place: Vec<String> = (0..8).map(|host| (8 * host + place).to_string()).collect();
                let is_before = host == 5;
                file["comms"] = json!([]);
                at(file, &format!("dp{place}"), &of_place.join(","), if is_before { 4 } else { 5 }, 4);
                let entered = if *rank == 42 { 4 } else { 5 };
                at(
                    file,
                    &format!("tp{host}"),
                    &format!("{}-{}", 8 * host, 8 * host + 7),
                    entered,
                    if is_before { 4 } else { 5 },
                );
                file["open"] = match *rank {
                    42 => work("demo.load", false),
                    _ if is_before => sync(&format!("tp{host}"), 5),
                    _ => sync(&format!("dp{place}"), 5),
                };
            }
            job
        },
    ),
    (
        "a rank of 512 stays in its input",
        3,
        "511 ranks wait for rank 300 on node37 (process 4300), which has not entered number 5 of dp0 and is in `demo.load` at train.rs:12 (n=4), thread `main`",
        || job(512, 8).with([300], in_input),
    ),
    (
        "a rank is late, and makes progress",
        3,
        "7 ranks wait for rank 3 on node0 (process 4003), which has not entered number 5 of dp0 and makes progress: it is late, and does not hang",
        || eight().with([3], in_input).later(|files| files.get_mut(&3).unwrap()["step"] = 6.into()),
    ),
    ("the clocks of two hosts are ten minutes apart, and a rank stays in its input", 3, IN_INPUT, || {
        eight().with([3], in_input).with(4..8, |file| {
            file["updated_realtime_ns"] = (NOW_NS + 600_000_000_000).into();
            file["updated_boottime_ns"] = 77_000_000_000_i64.into();
        })
    }),
    // Threads run ahead of their devices.
    ("a kernel hangs on one device, and all threads run ahead", 3, IN_KERNEL, || {
        eight().each(runs_ahead).with([3], in_kernel)
    }),
    ("the same, beside a second group in which threads are differently far", 3, IN_KERNEL, || {
        let mut job = eight().each(runs_ahead).with([3], in_kernel);
        job.files.iter_mut().for_each(|(rank, file)| at(file, "norm", "0-7", 6 + i64::from(*rank) % 3, 4));
        job
    }),
    (
        "kernels hang on all devices of a host",
        3,
        "4 ranks wait for all 4 ranks of host node1, whose threads have entered number 5 of dp0 and whose devices are in `demo.backward` at train.rs:12",
        || eight().each(runs_ahead).with(4..8, in_kernel),
    ),
    ("all are in one collective, and none completes it", 3, ALL_HAVE_ENTERED, eight),
    ("the same, beside a second group that some threads have not entered", 3, ALL_HAVE_ENTERED, || {
        let mut job = eight().each(runs_ahead);
        job.files.iter_mut().for_each(|(rank, file)| at(file, "norm", "0-7", 4 + i64::from(*rank) % 3, 4));
        job
    }),
    ("the same, while loader threads of some ranks are in zones of their own", 3, ALL_HAVE_ENTERED, || {
        eight().each(runs_ahead).with([1, 2], |file| file["open"] = work("demo.prefetch", false))
    }),
    (
        "the first collectives of a new group, of which threads have launched differently many, while loaders are in zones",
        3,
        "no rank can be named: all 8 ranks have entered number 0 of new, and none has completed it; the network, a device, or work that is in no zone \
         holds them up",
        || {
            let mut job = eight();
            for (rank, file) in &mut job.files {
                (file["comms"], file["open"]) = (json!([]), sync("new", 0));
                at(file, "new", "0-7", i64::from(*rank) % 3, None);
            }
            job.with([1, 2], |file| file["open"] = work("demo.prefetch", false))
        },
    ),
    (
        "one device does not leave a collective that the others have left",
        3,
        "7 ranks wait for rank 3 on node0 (process 4003), whose device is still in number 5 of dp0, which others have completed",
        || {
            let ahead = |file: &mut Value| {
                at(file, "dp0", "0-7", 9, 5);
                file["open"] = sync("dp0", 6);
            };
            eight().each(ahead).with([3], |file| {
                runs_ahead(file);
                file["open"] = sync("dp0", 5);
            })
        },
    ),
    (
        "the same, before another rank waits",
        3,
        "no rank waits yet for rank 3 on node0 (process 4003), whose device is still in number 5 of dp0, which others have completed",
        || {
            let done = |file: &mut Value| {
                at(file, "dp0", "0-7", 5, 5);
                file["open"] = work("demo.optimizer", false);
            };
            eight().with([0, 1, 2, 4, 5, 6, 7], done)
        },
    ),
    (
        "the devices of one host do not leave a collective that the others have left",
        3,
        "no rank can be named: all 8 ranks have entered number 5 of dp0, and ranks 4-7 have not completed it; the network, a device, or work that is in \
         no zone holds them up",
        || {
            eight().with(0..4, |file| {
                at(file, "dp0", "0-7", 6, 5);
                file["open"] = sync("dp0", 6);
            })
        },
    ),
    // Dead ranks.
    ("a rank died in the collective", 3, DEAD, || eight().with([6], dead)),
    ("a rank died, and all threads had run ahead", 3, DEAD, || eight().each(runs_ahead).with([6], dead)),
    (
        "a rank died in its input, beside a second group",
        3,
        "7 ranks wait for rank 6 on node1 (process 4006), which has not entered number 5 of dp0 and has written nothing for 50 s: it or its host died; \
         it was last in `demo.load` at train.rs:12 (n=4), thread `main`",
        || {
            let mut job = eight().with([6], |file| {
                in_input(file);
                dead(file);
            });
            job.files.iter_mut().for_each(|(rank, file)| at(file, "norm", "0-7", if *rank == 6 { 3 } else { 4 }, 3));
            job
        },
    ),
    (
        "a host of a job of 64 died: each of its ranks is in a group of its own",
        3,
        "56 ranks wait for all 8 ranks of host node3, which have written nothing for 60 s: they or their host died",
        || {
            let mut job = job(64, 8).aged(24..32, 60);
            for (rank, file) in &mut job.files {
                let place = rank % 8;
                let members: Vec<String> = (0..8).map(|host| (8 * host + place).to_string()).collect();
                file["comms"] = json!([]);
                at(file, &format!("dp{place}"), &members.join(","), 5 + i64::from(place), 4 + i64::from(place));
                // Each writes at a time of its own within the second.
                file["updated_boottime_ns"] = (NOW_NS - i64::from(place) * 150_000_000).into();
                file["open"] = sync(&format!("dp{place}"), 5 + i64::from(place));
            }
            job
        },
    ),
    ("a process of this machine was killed", 3, KILLED, || eight().here([3], true)),
    ("another process has its number since", 3, KILLED, || {
        let mut job = eight().here([3], false);
        let owner = job.files[&3]["process"].as_str().unwrap().to_owned();
        let [pid, started, namespace] = owner.split('-').collect::<Vec<_>>()[..] else { panic!("{owner}") };
        let before: u64 = started.parse::<u64>().unwrap() - 1;
        job.files.get_mut(&3).unwrap()["process"] = format!("{pid}-{before}-{namespace}").into();
        job
    }),
    (
        "a process was killed, and then all others",
        3,
        "7 ranks waited for rank 3 on node0 (process 4711), which has not completed number 5 of dp0 and is dead: its process has ended; it was last in \
         `demo.sync` at sync.rs:7, thread `main`",
        || eight().here([0, 1, 2, 4, 5, 6, 7], true).here([3], true).with([3], dead),
    ),
    (
        "all processes were killed, and none waited",
        3,
        "no process of the job runs any more, and no rank waited for another",
        || eight().each(|file| at(file, "dp0", "0-7", 5, 5)).here(0..8, true),
    ),
    (
        "a process was killed, and no rank waits for it yet",
        3,
        "rank 3 is dead: its process has ended, and no rank waits for it",
        || {
            let goes_on = |file: &mut Value| {
                at(file, "dp0", "0-7", 5, 5);
                file["open"] = work("demo.optimizer", false);
            };
            eight().each(goes_on).here([3], true)
        },
    ),
    (
        "a process is stopped",
        3,
        "7 ranks wait for rank 3 on node0 (process 4711), which has not entered number 5 of dp0 and has written nothing for 50 s, although its process \
         runs: it is stopped, or its disk stalls; it was last in `demo.load` at train.rs:12 (n=4), thread `main`",
        || eight().with([3], in_input).here([3], false).aged([3], 50),
    ),
    (
        "the disk of rank 3 stalls, so that its file is old, and rank 5 stays in its input",
        3,
        "6 ranks wait for rank 5 on node1 (process 4005), which has not entered number 5 of dp0 and is in `demo.load` at train.rs:12 (n=4), thread `main`",
        || eight().with([5], in_input).with([3], old).here([3], false).aged([3], 50),
    ),
    (
        "the same, where rank 3 answers by its socket",
        3,
        "7 ranks wait for rank 5 on node1 (process 4005), which has not entered number 5 of dp0 and is in `demo.load` at train.rs:12 (n=4), thread `main`",
        answers,
    ),
    // An earlier job of the same id.
    ("an earlier, larger job of the same id left files", 3, IN_INPUT, || {
        let mut job = job(12, 4).each(|file| file["boot_id"] = "node0".into());
        job.files.iter_mut().filter(|(rank, _)| **rank < 8).for_each(|(_, file)| {
            file["comms"] = json!([]);
            at(file, "dp0", "0-7", 5, 4);
        });
        job.with([3], in_input).with(8..12, dead)
    }),
    ("the same, a few seconds after its processes have ended", 3, IN_INPUT, || {
        let mut job = job(12, 4);
        job.files.iter_mut().filter(|(rank, _)| **rank < 8).for_each(|(_, file)| {
            file["comms"] = json!([]);
            at(file, "dp0", "0-7", 5, 4);
        });
        job.with([3], in_input).here(8..12, true)
    }),
    // Other calls.
    (
        "a rank calls another operation",
        3,
        "in number 5 of dp0, rank 3 called all_gather of 2048 f32, and the 7 others called all_reduce of 1024 f32",
        || {
            eight().with([3], |file| {
                called(file, "dp0", "0-7", (5, Some(4)), |seq| {
                    if seq == 5 { ("all_gather", 2048) } else { ("all_reduce", 1024) }
                });
            })
        },
    ),
    (
        "half of the ranks call another operation",
        3,
        "the calls differ in number 5 of dp0, and no side has more ranks: ranks 0-3 called all_reduce of 1024 f32, ranks 4-7 called all_gather of 1024 f32",
        || {
            eight().with(4..8, |file| {
                called(file, "dp0", "0-7", (5, Some(4)), |seq| {
                    (if seq == 5 { "all_gather" } else { "all_reduce" }, 1024)
                });
            })
        },
    ),
    (
        "a rank called something else long ago",
        3,
        "rank 3 called something else than the 7 others of dp0 before number 5: the last calls are equal, and neither the files nor the tables have the \
         number",
        || old_difference(3, 2),
    ),
    (
        "the same, and the tables have the number",
        3,
        "in number 2 of tp0#4e1c6318, rank 3 called all_reduce of 308 bytes, and the 3 others called all_reduce of 1048576 bytes, as the tables say",
        old_difference_in_tables,
    ),
    (
        "a rank called something else, the job went on, and another rank died",
        3,
        "7 ranks wait for rank 6 on node1 (process 4006), which has not completed number 12 of dp0 and has written nothing for 50 s: it or its host died; \
         it was last in `demo.sync` at sync.rs:7, thread `main`",
        || old_difference(3, 9).with([6], dead),
    ),
    (
        "two ranks call the collectives of two groups in different orders",
        3,
        "the ranks call collectives in different orders: rank 0 waits in number 5 of dp0 for rank 1, rank 1 waits in number 5 of tp0 for rank 0",
        || {
            let mut job = job(2, 2);
            for (rank, file) in &mut job.files {
                let (dp, tp) = if *rank == 0 { (5, 4) } else { (4, 5) };
                at(file, "dp0", "0-1", dp, 4);
                at(file, "tp0", "0-1", tp, 4);
                file["open"] = sync(if *rank == 0 { "dp0" } else { "tp0" }, 5);
            }
            job
        },
    ),
    // Pipelines.
    (
        "a stage of a pipeline stays in its forward pass",
        3,
        "3 ranks wait for rank 1 on node0 (process 4001), which is not in the transfer with rank 2 in pp0 and is in `demo.forward` at train.rs:12 (n=4), \
         thread `main`",
        || {
            pipeline([
                transfer("recv", 10, 1),
                work("demo.forward", false),
                transfer("recv", 20, 1),
                transfer("recv", 10, 2),
            ])
        },
    ),
    (
        "a stage of a pipeline died",
        3,
        "3 ranks wait for rank 1 on node0 (process 4001), which is not in the transfer with rank 2 in pp0 and has written nothing for 50 s: it or its \
         host died; it was last in `demo.transfer` at sync.rs:7, thread `main`",
        || {
            pipeline([
                transfer("recv", 10, 1),
                transfer("send", 20, 2),
                transfer("recv", 20, 1),
                transfer("recv", 10, 2),
            ])
            .with([1], dead)
        },
    ),
    (
        "two stages are at both ends of a transfer",
        3,
        "no rank can be named: ranks 1-2 are at both ends of a transfer in pp0, and it does not complete; the network, a device, or work that is in no \
         zone holds them up",
        || {
            pipeline([
                transfer("recv", 10, 1),
                transfer("send", 20, 2),
                transfer("recv", 20, 1),
                transfer("recv", 10, 2),
            ])
        },
    ),
    (
        "two stages both receive from each other",
        3,
        "the ranks wait for each other: rank 1 waits in a recv of pp0 for rank 2, rank 2 waits in a recv of pp0 for rank 1",
        || {
            pipeline([
                transfer("recv", 10, 1),
                transfer("recv", 20, 2),
                transfer("recv", 20, 1),
                transfer("recv", 10, 2),
            ])
        },
    ),
    (
        "stages are in transfers whose marks do not give the other end",
        3,
        "the rank that ranks 0-3 wait for in pp0 is unknown: the ranks of the group also send to each other, and number their calls separately",
        || pipeline([sync("pp0", 10), sync("pp0", 20), sync("pp0", 20), sync("pp0", 10)]),
    ),
    (
        "a rank of a stage stays in its input, and the pipeline waits for that stage",
        3,
        "3 ranks wait for rank 1 on node0 (process 4001), which has not entered number 5 of dp0 and is in `demo.load` at train.rs:12 (n=4), thread `main`",
        || {
            // Ranks 0 and 1 are the first stage, 2 and 3 the second: rank 0 sums with rank 1, and the others receive.
            let mut job = job(4, 2);
            for (rank, file) in &mut job.files {
                let pair = format!("{},{}", rank % 2, rank % 2 + 2);
                (file["comms"], file["open"]) = (json!([]), transfer("recv", 7, rank % 2));
                at(file, "pp0", &pair, if *rank < 2 { 6 } else { 7 }, 6);
            }
            let in_group = |file: &mut Value| {
                at(file, "dp0", "0-1", 5, 4);
                file["open"] = sync("dp0", 5);
            };
            job.with([0, 1], in_group).with([1], |file| {
                at(file, "dp0", "0-1", 4, 4);
                file["open"] = work("demo.load", false);
            })
        },
    ),
    // Files that are not there, or do not say it.
    ("a file is damaged", 3, UNREADABLE, || eight().text(5, "{\"rank\": 5, \"comms\": [[]]}")),
    ("a file is cut off", 3, UNREADABLE, || {
        let job = eight();
        let text = job.files[&5].to_string();
        let half = text[..text.len() / 2].to_owned();
        job.text(5, half)
    }),
    ("a file is empty", 3, UNREADABLE, || eight().text(5, "")),
    (
        "a rank wrote no file",
        3,
        "7 ranks wait for rank 5, which has written no file: it never started, or writes to another folder",
        || eight().without([5]),
    ),
    (
        "a rank wrote no file, and another stays in its input",
        3,
        "6 ranks wait for rank 6 on node1 (process 4006), which has not entered number 5 of dp0 and is in `demo.load` at train.rs:12 (n=4), thread `main`",
        || eight().without([5]).with([6], in_input),
    ),
    (
        "a host wrote no files",
        3,
        "4 ranks wait for ranks 4-7, which have written no file: they never started, or write to another folder",
        || eight().without(4..8),
    ),
    (
        "no rank wrote a file",
        1,
        "warpline-ranks: `DIR` has no progress files: it should contain `progress/run=ID/rank-*.json`, which ranks write each second while they run",
        || eight().without(0..8),
    ),
    (
        "no file had room for a group",
        1,
        "it is unknown whether a rank waits: the files of 8 of 8 ranks had no room for any of their groups",
        || {
            eight().each(|file| {
                (file["comms"], file["open"], file["truncated"]) = (json!([]), Value::Null, true.into());
            })
        },
    ),
    (
        "the file of a rank had no room for the group",
        3,
        "the rank that 7 ranks wait for in number 5 of dp0 is unknown: the file of rank 5 had no room for the group",
        || eight().with([5], |file| (file["comms"], file["truncated"]) = (json!([]), true.into())),
    ),
    (
        "files had no room for all groups, and those that they have are completed",
        0,
        "no rank waits in a collective: ranks 0-7 are in `demo.optimizer` at train.rs:12",
        || {
            eight().each(|file| {
                at(file, "dp0", "0-7", 5, 5);
                (file["open"], file["truncated"]) = (work("demo.optimizer", false), true.into());
            })
        },
    ),
    // Nothing hangs, or nothing waits.
    (
        "a job goes on between the two reads",
        0,
        "no rank waits in a collective: ranks 0-7 are in `demo.sync` at sync.rs:7",
        || {
            eight().with([3], in_input).later(|files| {
                files.values_mut().for_each(|file| {
                    at(file, "dp0", "0-7", 6, 5);
                    file["open"] = sync("dp0", 6);
                });
            })
        },
    ),
    (
        "all ranks stay in their input",
        3,
        "no rank waits for another, and none has moved between two reads of the files: ranks 0-7 are in `demo.load` at train.rs:12",
        || eight().each(in_input).later(|_| ()),
    ),
    ("all ranks have ended their sessions", 0, "all 8 ranks have ended their sessions", || {
        eight().each(|file| {
            at(file, "dp0", "0-7", 5, 5);
            (file["open"], file["ended"]) = (Value::Null, true.into());
        })
    }),
];

/// As the documentation shows it.
fn row((what, exit, sentence, _): &Case) -> String {
    format!("| {what} | {exit} | {sentence} |\n")
}

#[test]
fn each_job_has_its_one_right_first_sentence() {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((what, exit, sentence, job)) =
                    CASES.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let (said, code) = job().asked();
                    if (said.as_str(), code) != (*sentence, *exit) {
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("{what}:\n  right: {exit}: {sentence}\n  said:  {code}: {said}\n"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), CASES.len(), wrong.concat());
}

#[test]
fn the_list_has_each_job_and_the_page_some_of_them() {
    let rows: String = CASES.iter().map(row).collect();
    let list = include_str!("README.md");
    assert!(list.contains(&rows), "README.md lacks these rows, or has other ones:\n{rows}");
    let page = include_str!("../../../../docs/ranks.md");
    let (_, table) = page.split_once("| what happens | exit | first sentence |\n|---|---|---|\n").expect("a table");
    let (table, _) = table.split_once("\n\n").expect("its end");
    assert!(table.lines().count() > 5, "{table}");
    for shown in table.lines() {
        assert!(rows.contains(&format!("{shown}\n")), "docs/ranks.md has a row of no job:\n{shown}");
    }
}
