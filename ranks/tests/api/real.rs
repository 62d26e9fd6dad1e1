//! Ranks that write their tables and progress files with warpline itself: processes whose in-process streams meet through a socket.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use warpline::collective::ProcessGroup;
use warpline::{HostStream, Session, collective, host_zone};
use warpline_ranks::Report;
use warpline_ranks::clocks::Options;
use warpline_ranks::hang::Hang;

const RANKS: u32 = 4;
const STEPS: u64 = 90;
/// The rank that is late, or that hangs.
const LATE: u32 = 2;
const LATE_BY: Duration = Duration::from_millis(40);
/// The steps in which it is late, and the one in which it hangs.
const LATE_AT: std::ops::Range<u64> = 40..70;
const HANGS_AT: u64 = 10;

/// Reads the next batch.
#[host_zone("test.real.load")]
fn load(takes: Duration) {
    thread::sleep(takes);
}

/// Where the ranks of a group meet.
type Others = Arc<Mutex<TcpStream>>;

/// Sums the gradients of all ranks. A rank leaves after all ranks have come with the same count.
#[collective("test.real.sync", kind = "all_reduce", count = count, dtype = f32, group = group)]
fn sync(stream: &HostStream, group: &ProcessGroup, others: &Others, count: u32) {
    let others = Arc::clone(others);
    stream.launch(move || {
        let mut others = others.lock().unwrap();
        if others.write_all(&count.to_le_bytes()).and_then(|()| others.read_exact(&mut [0])).is_err() {
            // A rank is dead: its group waits until somebody ends it.
            thread::sleep(Duration::from_secs(3600));
        }
    });
}

#[test]
#[ignore = "a rank, which the other tests start"]
fn rank() {
    let of = |name: &str| std::env::var(name).unwrap();
    let (rank, case) = (of("RANK").parse::<u32>().unwrap(), of("CASE"));
    let [dp, tp] = ["DP", "TP"].map(|hub| Arc::new(Mutex::new(TcpStream::connect(of(hub)).unwrap())));
    let mut builder = Session::builder().quiet().ranks(of("TABLES")).ranks_window(Duration::from_secs(2));
    if case == "killed" {
        let file = Path::new(&of("TABLES")).join(format!("rank{rank}.flight"));
        builder = builder.budget(1.0).control().flight_at(256 << 10, file);
    }
    let session = builder.start().unwrap();
    let (stream, all) = (HostStream::new("comm"), 0..RANKS);
    let groups = ["dp0", "tp0"].map(|name| ProcessGroup::new(name, all.clone(), rank));
    for step in 0..STEPS {
        warpline::step(step);
        let is_it = rank == LATE && step == HANGS_AT;
        load(match case.as_str() {
            "hang" | "killed" if is_it => Duration::from_secs(3600),
            "late" if rank == LATE && LATE_AT.contains(&step) => LATE_BY,
            _ => Duration::from_millis(1),
        });
        let count = if is_it && case == "mismatch" { 77 } else { 1 << 18 };
        let mut calls = [(&groups[0], &dp, count), (&groups[1], &tp, 1 << 18)];
        if is_it && case == "order" {
            calls.reverse();
        }
        calls.into_iter().for_each(|(group, others, count)| sync(&stream, group, others, count));
        stream.synchronize().unwrap();
    }
    session.finish();
}

#[test]
#[ignore = "a rank, which another test starts"]
fn alone() {
    Session::builder().quiet().ranks(std::env::var("TABLES").unwrap()).start().unwrap().finish();
}

#[test]
fn a_rank_that_is_no_number_and_a_folder_in_place_of_the_progress_are_said() {
    let tables = tempfile::tempdir().unwrap();
    let said = |rank: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "real::alone", "--ignored", "--nocapture"]).env("RANK", rank);
        command.env("TABLES", tables.path()).env("WARPLINE_RUN", "a b").env_remove("WARPLINE");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let wrong = said("-1\u{1b}");
    let why = "`RANK=-1\\u{1b}` is not a rank, so this process counts as rank 0; set RANK to a whole number from 0";
    assert!(wrong.contains(why), "{wrong}");
    let runs: Vec<_> = std::fs::read_dir(tables.path().join("progress")).unwrap().map(Result::unwrap).collect();
    let file = runs[0].path().join("rank-00000.json");
    assert!(runs.len() == 1 && file.is_file() && !runs[0].path().ends_with("run=a_b"), "{runs:?}");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let fine = said("0");
    let why = format!("the progress of this rank is not written: `{}` is a folder; remove it", file.display());
    assert!(fine.contains(&why) && !fine.contains("is not a rank"), "{fine}");
}

/// Ends the ranks when it is dropped.
struct Ranks(Vec<Child>);

impl Ranks {
    fn start(tables: &Path, case: &str) -> Ranks {
        let (dp, tp) = (hub(), hub());
        let start = |rank: u32| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "real::rank", "--ignored"])
                .env("RANK", rank.to_string())
                .env("DP", &dp)
                .env("TP", &tp);
            command.env("TABLES", tables).env("CASE", case).env("WARPLINE_RUN", "real");
            command.env_remove("WARPLINE").stdout(std::process::Stdio::null()).spawn().unwrap()
        };
        Ranks((0..RANKS).map(start).collect())
    }
}

/// Where the ranks of a group meet. After they have come with different counts, it answers no rank.
fn hub() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut ranks: Vec<TcpStream> = (0..RANKS).map(|_| listener.accept().unwrap().0).collect();
        let count = |rank: &mut TcpStream| {
            let mut count = [0; 4];
            rank.read_exact(&mut count).ok().map(|()| u32::from_le_bytes(count))
        };
        while let Some(counts) = ranks.iter_mut().map(count).collect::<Option<Vec<_>>>() {
            if counts.iter().all(|count| *count == counts[0]) {
                ranks.iter_mut().for_each(|rank| drop(rank.write_all(&[1])));
            }
        }
    });
    address
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

#[test]
fn the_late_rank_of_a_real_job_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut ranks = Ranks::start(folder.path(), "late");
    for rank in &mut ranks.0 {
        assert!(rank.wait().unwrap().success());
    }
    let report = Report::new(folder.path(), None, Options::default()).unwrap();
    assert_eq!(report.size.ranks, i64::from(RANKS), "{:?}", report.size);
    assert!(report.left_out.is_empty(), "{:?}", report.left_out);
    let text = report.to_text();
    // On a busy machine other ranks come late, too: for a few milliseconds, or once, while the processes start.
    let late = &report.late[0];
    assert_eq!(late.rank, i64::from(LATE), "{text}");
    assert!(report.late[1..].iter().all(|other| other.total_ns < late.total_ns / 4), "{text}");
    assert_eq!(&*late.stage, "test.real.load", "{text}");
    // Sleeps last longer on a busy machine.
    assert!((30_000_000..80_000_000).contains(&late.median_ns), "{text}");
    assert!((25..=45).contains(&late.steps) && late.last_step >= 65, "{text}");
}

/// What is said of a job that hangs, once it is as expected.
fn hang(folder: &Path, what: &str, is_expected: impl Fn(&Hang) -> bool) -> Hang {
    let begin = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(500));
        match Hang::watched(folder, None, Duration::from_millis(2500)) {
            Ok(hang) if is_expected(&hang) => return hang,
            other if begin.elapsed() > Duration::from_secs(90) => panic!("{what}: {other:#?}"),
            _ => {}
        }
    }
}

/// All ranks wait for one, of which the zone is known.
fn all_wait(hang: &Hang) -> bool {
    hang.culprits.iter().any(|culprit| culprit.open.is_some() && culprit.waiting == RANKS as usize - 1)
}

/// The rank that is in its input, for which all others wait.
#[track_caller]
fn is_in_its_input(hang: &Hang) {
    let text = hang.to_text();
    let [culprit] = &hang.culprits[..] else { panic!("{text}") };
    assert_eq!((culprit.rank, culprit.step), (LATE, Some(HANGS_AT as i64)), "{text}");
    assert_eq!(culprit.waiting, RANKS as usize - 1, "{text}");
    let open = culprit.open.as_ref().unwrap();
    assert!(open.name == "test.real.load" && open.place().contains("real.rs:"), "{text}");
    assert!(open.thread.contains("rank") && text.contains("`test.real.load`"), "{text}");
    assert!(hang.cycles.is_empty() && hang.differences.is_empty(), "{text}");
}

#[test]
fn the_rank_that_hangs_in_a_real_job_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let _ranks = Ranks::start(folder.path(), "hang");
    let hang = hang(folder.path(), "a rank hangs", all_wait);
    is_in_its_input(&hang);
    assert!(!hang.culprits[0].is_dead && hang.answered == 0, "{}", hang.to_text());
}

#[test]
fn processes_are_asked_by_their_sockets_and_dead_ones_have_a_recorder() {
    let folder = tempfile::tempdir().unwrap();
    let mut ranks = Ranks::start(folder.path(), "killed");
    let alive = hang(folder.path(), "a rank hangs", |hang| all_wait(hang) && hang.answered == RANKS as usize);
    is_in_its_input(&alive);
    assert!(!alive.culprits[0].is_dead && alive.gone.is_empty(), "{}", alive.to_text());
    // What a process says counts, and not its file.
    let file = |rank: u32| folder.path().join(format!("progress/run=real/rank-{rank:05}.json"));
    let text = std::fs::read_to_string(file(LATE)).unwrap();
    ranks.0[LATE as usize].kill().unwrap();
    ranks.0[LATE as usize].wait().unwrap();
    // The recorder is newer than the file, which says nothing of where the rank was.
    let mut said: serde_json::Value = serde_json::from_str(&text).unwrap();
    said["open"] = serde_json::Value::Null;
    said.as_object_mut().unwrap().remove("check");
    std::fs::write(file(LATE), said.to_string()).unwrap();
    let dead = hang(folder.path(), "the rank is dead", |hang| hang.gone == [LATE] && all_wait(hang));
    is_in_its_input(&dead);
    let (culprit, text) = (&dead.culprits[0], dead.to_text().replace('\n', " "));
    assert!(culprit.is_dead && culprit.flight.is_some() && dead.answered == RANKS as usize - 1, "{text}");
    assert!(text.contains("has ended") && text.contains("flight recorder"), "{text}");
    // Of recorders that cannot be read, the reason is said, and the rest stays.
    let recorder = folder.path().join(format!("rank{LATE}.flight"));
    let whole = std::fs::read(&recorder).unwrap();
    let other = std::fs::read(folder.path().join("rank0.flight")).unwrap();
    for (bytes, why) in [
        (&whole[..40], "damaged"),
        (&whole[..4100], "cut off"),
        (&b"PAR1 is another format"[..], "is not a flight recorder's file"),
        (&b""[..], "is empty"),
        (&other[..], "is of process"),
    ] {
        std::fs::write(&recorder, bytes).unwrap();
        let hang = Hang::new(folder.path(), None).unwrap();
        assert_eq!((hang.culprits[0].rank, hang.culprits[0].is_dead), (LATE, true), "{why}");
        assert!(hang.left_out.iter().any(|left_out| left_out.why.contains(why)), "{why}: {:?}", hang.left_out);
        assert!(hang.culprits[0].flight.is_none() && hang.culprits[0].open.is_none(), "{why}");
    }
}

#[test]
fn a_call_with_another_count_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let _ranks = Ranks::start(folder.path(), "mismatch");
    let hang =
        hang(folder.path(), "the counts differ", |hang| !hang.differences.is_empty() && hang.waiting == RANKS as usize);
    let text = hang.to_text();
    let [different] = &hang.differences[..] else { panic!("{text}") };
    assert_eq!((different.seq, different.is_first), (HANGS_AT as i64, true), "{text}");
    assert!(different.comm.starts_with("dp0#"), "{text}");
    assert_eq!(different.most_called, "all_reduce of 262144 f32", "{text}");
    assert_eq!(different.others, [(LATE, "all_reduce of 77 f32".to_owned())], "{text}");
    assert!(hang.culprits.is_empty() && hang.cycles.is_empty(), "{text}");
}

#[test]
fn calls_in_another_order_are_a_cycle() {
    let folder = tempfile::tempdir().unwrap();
    let _ranks = Ranks::start(folder.path(), "order");
    let hang =
        hang(folder.path(), "the orders differ", |hang| !hang.cycles.is_empty() && hang.waiting == RANKS as usize);
    let text = hang.to_text();
    assert!(text.contains("different orders"), "{text}");
    let waits = |rank: u32, comm: &str| {
        let all = hang.cycles.iter().flat_map(|cycle| &cycle.waits);
        all.clone().any(|wait| wait.rank == rank && wait.comm.starts_with(comm) && wait.seq == HANGS_AT as i64)
    };
    assert!(waits(LATE, "tp0#") && (0..RANKS).any(|rank| rank != LATE && waits(rank, "dp0#")), "{text}");
    assert!(hang.culprits.is_empty() && hang.differences.is_empty(), "{text}");
}
