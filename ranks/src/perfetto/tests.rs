//! Two hosts whose clocks are half a millisecond apart and drift, with traces of three ranks and none of the fourth: the archive has all on
//! one time line, where truth says.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use warpline_judge::tables::Table;
use warpline_trace::read::Packets;
use warpline_trace::read::parts::{Packet, TrackEvent};
use warpline_trace::write::perfetto::proto::clock::{BOOTTIME, REALTIME};
use warpline_trace::write::perfetto::proto::{Buffer, clock, defaults, event, packet, track};

use super::*;
use crate::generate::{HostClock, Plan as Job, generate, write_table};

const STEP: i64 = 7;
/// A session's begin, before the first step.
const EARLY_NS: i64 = 3_000_000_000;

/// The offset of the clocks of the two hosts is about this.
const APART_NS: f64 = 500_000.0;

fn job() -> (Job, Vec<HostClock>) {
    let of = |seed| Job { ranks: 4, hosts: 2, steps: 40, seed, step_ns: 100_000_000, ..Job::default() };
    let is_wanted =
        |job: &Job| (job.clocks()[1].offset_ns as f64 - job.clocks()[0].offset_ns as f64 - APART_NS).abs() < 50_000.0;
    let job = (1..).map(of).find(is_wanted).expect("one of many seeds");
    let clocks = job.clocks();
    (job, clocks)
}

/// A collective of a rank, on the rank's clock.
#[derive(Debug, Clone)]
struct Call {
    name: String,
    seq: i64,
    begin_ns: i64,
    end_ns: i64,
}

fn calls(engine: &Engine, rank: i64) -> Vec<Call> {
    let sql = format!("SELECT comm, seq, begin_ns, dur_ns FROM collectives WHERE rank = {rank} ORDER BY begin_ns");
    let rows = engine.query("calls", &sql).unwrap();
    let (comm, seq) = (rows.texts("comm").unwrap(), rows.ints("seq").unwrap());
    let (begin, dur) = (rows.ints("begin_ns").unwrap(), rows.ints("dur_ns").unwrap());
    let name = |row: usize| comm[row].split('#').next().unwrap_or_default().to_owned();
    let call =
        |row: usize| Call { name: name(row), seq: seq[row], begin_ns: begin[row], end_ns: begin[row] + dur[row] };
    (0..rows.len()).map(call).collect()
}

/// A trace as warpline writes it: facts first, then a sequence for each row, with times since the session's begin.
fn trace(process: &Process, calls: &[Call], wall_ns: i64) -> Vec<u8> {
    let begin = calls[0].begin_ns - EARLY_NS;
    let mut trace = Buffer::default();
    let snapshot = |packet: &mut Buffer, clocks: [(u64, i64); 2], primary: bool| {
        packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
            for (clock, time) in clocks {
                snapshot.message(clock::CLOCKS, |one| {
                    one.uint(clock::ID, clock);
                    one.int(clock::TIMESTAMP, time);
                });
            }
            if primary {
                snapshot.uint(clock::PRIMARY, BOOTTIME);
            }
        });
    };
    trace.packet(|packet| {
        packet.int(packet::TIMESTAMP, begin);
        packet.uint(packet::SEQUENCE_ID, 5);
        packet.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
        snapshot(packet, [(BOOTTIME, begin), (REALTIME, begin + wall_ns)], true);
    });
    let facts = [("warpline.version", "0.1.0"), ("warpline.boot_id", &*process.boot_id)];
    cut::attributes(&facts.map(|(key, value)| (key.to_owned(), value.to_owned())), &mut trace);
    let describe = |trace: &mut Buffer, fill: &dyn Fn(&mut Buffer)| {
        trace.packet(|packet| {
            packet.uint(packet::SEQUENCE_ID, 5);
            packet.message(packet::TRACK_DESCRIPTOR, fill);
        });
    };
    describe(&mut trace, &|descriptor| {
        descriptor.uint(track::UUID, 11);
        descriptor.message(track::PROCESS, |named| {
            named.int(track::PROCESS_PID, process.pid);
            named.text(track::PROCESS_NAME, "train");
        });
    });
    describe(&mut trace, &|descriptor| {
        descriptor.uint(track::UUID, 12);
        descriptor.message(track::THREAD, |thread| {
            thread.int(track::PROCESS_PID, process.pid);
            thread.int(track::THREAD_TID, process.pid);
        });
    });
    describe(&mut trace, &|descriptor| {
        descriptor.uint(track::UUID, 13);
        descriptor.uint(track::PARENT_UUID, 11);
        descriptor.text(track::NAME, "comm");
    });
    for (sequence, track) in [(6, 12), (7, 13)] {
        trace.packet(|packet| {
            packet.uint(packet::SEQUENCE_ID, sequence);
            packet.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            snapshot(packet, [(64, 0), (BOOTTIME, begin)], false);
            packet.message(packet::DEFAULTS, |defaults| {
                defaults.uint(defaults::TIMESTAMP_CLOCK_ID, 64);
                defaults.message(defaults::TRACK_EVENT, |event| event.uint(defaults::TRACK_UUID, track));
            });
        });
    }
    for (number, call) in (0_u64..).zip(calls) {
        // Launched on the thread before it runs: each arrow leads from one to the other.
        let launch = (call.begin_ns - 3_000, call.begin_ns - 1_000);
        let rows = [
            (6, "launch".to_owned(), launch, event::FLOW_IDS),
            (7, format!("{} {}", call.name, call.seq), (call.begin_ns, call.end_ns), event::TERMINATING_FLOW_IDS),
        ];
        for (sequence, name, (from, to), flow) in rows {
            for (kind, at) in [(event::SLICE_BEGIN, from), (event::SLICE_END, to)] {
                trace.packet(|packet| {
                    packet.int(packet::TIMESTAMP, at - begin);
                    packet.uint(packet::SEQUENCE_ID, sequence);
                    packet.uint(packet::SEQUENCE_FLAGS, 2);
                    packet.message(packet::TRACK_EVENT, |event| {
                        event.uint(event::TYPE, kind);
                        if kind == event::SLICE_BEGIN {
                            event.text(event::CATEGORIES, "zone");
                            event.text(event::NAME, &name);
                            event.fixed(flow, process.pid as u64 * 1_000 + number + 1);
                        }
                    });
                });
            }
        }
    }
    trace.into_bytes()
}

/// The time that is true, from what the clock of a host reads.
fn truth(clock: &HostClock, own_ns: i64) -> f64 {
    (own_ns - clock.boot_ns - clock.offset_ns) as f64 / (1.0 + clock.drift)
}

/// The slices of a member, by name: their begins and ends on the time line.
fn slices(trace: &[u8]) -> BTreeMap<String, (i64, i64)> {
    let (mut packets, mut zero, mut open) = (Packets::new(trace), HashMap::new(), HashMap::new());
    let mut found = BTreeMap::new();
    while let Some(bytes) = packets.next_packet().unwrap() {
        let packet = Packet::read(bytes).unwrap();
        if let Some(begin) = packet.clocks().unwrap().zero_ns() {
            zero.insert(packet.sequence, begin);
        }
        let Some(event) = packet.event.map(|event| TrackEvent::read(event).unwrap()) else { continue };
        let at = packet.timestamp.unwrap() as i64 + zero.get(&packet.sequence).copied().unwrap_or(0);
        match event.kind {
            event::SLICE_BEGIN => {
                open.insert(packet.sequence, (event.name.unwrap().into_owned(), at));
            }
            event::SLICE_END => {
                let (name, begin) = open.remove(&packet.sequence).unwrap();
                found.insert(name, (begin, at));
            }
            _ => {}
        }
    }
    found
}

fn members(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(std::fs::File::open(archive).unwrap());
    let member = |mut entry: tar::Entry<'_, std::fs::File>| {
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    };
    archive.entries().unwrap().map(|entry| member(entry.unwrap())).collect()
}

#[test]
fn collectives_of_hosts_with_other_clocks_lie_where_truth_says() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::env::var_os("WARPLINE_GATE_DIR").map_or(folder.path().to_owned(), PathBuf::from);
    let (tables, traces) = (root.join("tables"), root.join("traces"));
    let (job, clocks) = job();
    generate(&tables, &job).unwrap();
    std::fs::create_dir_all(&traces).unwrap();
    let engine = Engine::open(&tables, None).unwrap();
    let processes = find::processes(&engine).unwrap();
    for process in &processes[..3] {
        let wall_ns = engine.query("wall", "SELECT MAX(realtime_offset_ns) AS ns FROM windows WHERE rank = 0").unwrap();
        let mut trace = trace(process, &calls(&engine, process.rank), wall_ns.ints("ns").unwrap()[0]);
        if process.rank == 1 {
            // A packet that is malformed.
            trace.extend(b"\x0A\x04\x55\0\0\0");
        }
        std::fs::write(traces.join(format!("run.{}.pftrace", process.rank)), trace).unwrap();
    }
    // No trace of the run, and no trace.
    let other = Process { boot_id: "another".into(), ..processes[0].clone() };
    std::fs::write(traces.join("old.pftrace"), trace(&other, &calls(&engine, 0), 0)).unwrap();
    std::fs::write(traces.join("torn.pftrace"), b"\x0A\xFF").unwrap();
    let output = root.join("step.tar");
    let plan = Plan {
        folder: tables,
        run: None,
        window: Window { from: STEP, to: STEP },
        ranks: None,
        traces: Some(traces),
        output: output.clone(),
        options: Options::default(),
    };
    let merged = merge(&plan).unwrap();
    assert_eq!(
        (merged.from_traces, merged.from_tables, merged.unused.len(), merged.unplaced, merged.damaged),
        (3, 1, 2, 0, 1),
        "{merged:?}"
    );
    assert!(merged.worst_err_ns > 0.0 && merged.worst_err_ns < 60_000.0 && merged.apart.is_empty(), "{merged:?}");
    assert_eq!(merged.reference, clocks[0].host);

    let members = members(&output);
    let names: Vec<&str> = members.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "perfetto_manifest.json",
            "rank-00000.pftrace",
            "rank-00001.pftrace",
            "rank-00002.pftrace",
            "rank-00003.tables.pftrace"
        ]
    );
    let manifest = &members["perfetto_manifest.json"];
    assert!(manifest.starts_with(b"{\"perfetto_manifest\""), "Perfetto knows it by its begin");
    let manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap();
    let manifest = &manifest["perfetto_manifest"];
    assert_eq!(
        (&manifest["version"], &manifest["files"][2]["machine"]["name"]),
        (&1.into(), &clocks[1].host.as_str().into())
    );
    let clock = &manifest["attributes"][format!("warpline.clock.{}", clocks[1].host)];
    assert!(clock.as_str().is_some_and(|text| text.contains("ahead of that of node0000, ± ")), "{clock}");

    // Of the traces: where each slice of the step lies, against the true time. The time line has an origin of its own, which rank 0 gives.
    let mut rows = Vec::new();
    let mut origin = None;
    for rank in 0..3_i64 {
        let clock = &clocks[(rank / 2) as usize];
        let slices = slices(&members[&format!("rank-{rank:05}.pftrace")]);
        let expected: Vec<Call> = calls(&engine, rank).into_iter().filter(|call| call.seq == STEP).collect();
        assert_eq!(expected.len(), 2, "an all-reduce in the host and one between hosts");
        for call in expected {
            let name = format!("{} {}", call.name, call.seq);
            let (begin, end) = *slices.get(&name).unwrap_or_else(|| panic!("no {name} of rank {rank} in {slices:?}"));
            let longer_ns = (end - begin) - (call.end_ns - call.begin_ns);
            assert!(longer_ns.abs() < 100, "the length stays, but for the drift: {longer_ns}");
            let apart = begin as f64 - truth(clock, call.begin_ns);
            let origin = *origin.get_or_insert(apart);
            assert!((apart - origin).abs() < 20_000.0, "{name} of rank {rank} lies {} ns off", apart - origin);
            rows.push((rank, name, (origin + truth(clock, call.begin_ns)).round() as i64));
        }
        // Only the neighbours of the step are there as well: slices that overlap it.
        assert!(slices.len() <= 8 && slices.keys().all(|name| !name.ends_with(" 12")), "{slices:?}");
    }
    // Uncorrected, the hosts were half a millisecond apart.
    let offset = clocks[1].error_ns(0) - clocks[0].error_ns(0);
    assert!((offset - APART_NS).abs() < 50_000.0, "{offset}");
    // Of the tables.
    let made = slices(&members["rank-00003.tables.pftrace"]);
    assert!(made.contains_key(&format!("step {STEP}")) && made.contains_key("demo.tp"), "{made:?}");
    if let Some(gate) = std::env::var_os("WARPLINE_GATE_DIR") {
        expectations(Path::new(&gate), &rows, &clocks);
    }
}

/// What Perfetto's reader must find in the archive.
fn expectations(folder: &Path, rows: &[(i64, String, i64)], clocks: &[HostClock]) {
    let values: Vec<String> = rows
        .iter()
        .map(|(rank, name, begin)| {
            format!("('rank {rank} · {} · train', '{name}', {begin})", clocks[(*rank / 2) as usize].host)
        })
        .collect();
    let sql = format!(
        "with truth(process, name, ts) as (values {}) \
         select count(*), max(abs(s.ts - t.ts)) < 20000 from truth t join process p on p.name = t.process \
         join process_track k on k.upid = p.upid join slice s on s.track_id = k.id and s.name = t.name",
        values.join(", ")
    );
    let processes =
        [0, 1, 2].map(|rank| serde_json::json!([format!("rank {rank} · {} · train", clocks[rank / 2].host)]));
    let made = serde_json::json!([format!("rank 3 · {} · from the tables", clocks[1].host)]);
    let flows = "select count(*) > 0, sum(a.name <> 'launch') from flow join slice a on a.id = slice_out join slice b on b.id = slice_in";
    let expected = serde_json::json!([
        {"what": "the collectives of all hosts lie where truth says", "sql": [sql], "rows": [[rows.len(), 1]]},
        {"what": "a process for each rank", "sql": ["select name from process where pid > 0 order by name"],
         "rows": processes.into_iter().chain([made]).collect::<Vec<_>>()},
        {"what": "arrows lead from launches to zones", "sql": [flows], "rows": [[1, 0]]},
        {"what": "the archive has the step and not much else", "sql": ["select (end_ts - start_ts) < 200000000 from trace_bounds"], "rows": [[1]]},
    ]);
    std::fs::write(folder.join("step.expected.json"), serde_json::to_vec_pretty(&expected).unwrap()).unwrap();
}

/// Files the last step of each window in the next one, as versions did that filed a step when it was closed, up to a second after its end.
fn file_late(folder: &Path, ranks: u32) {
    let mut windows: Vec<_> =
        std::fs::read_dir(folder.join("steps/run=generated")).unwrap().map(|entry| entry.unwrap().path()).collect();
    windows.sort();
    for rank in 0..ranks {
        let mut kept = None;
        for (number, window) in windows.iter().enumerate() {
            let path = window.join(format!("rank-{rank:05}.parquet"));
            let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
            let rows = reader.with_batch_size(10_000).build().unwrap().next().unwrap().unwrap();
            let last = usize::from(number + 1 < windows.len());
            let whole = rows.slice(0, rows.num_rows() - last);
            let batches: Vec<_> = kept.take().into_iter().chain([whole]).collect();
            kept = (last > 0).then(|| rows.slice(rows.num_rows() - 1, 1));
            write_table(&path, Table::Steps, &batches, Vec::new()).unwrap();
        }
    }
}

fn of_tables(folder: &Path, window: &str) -> Plan {
    Plan {
        folder: folder.to_owned(),
        run: None,
        window: window.parse().unwrap(),
        ranks: None,
        traces: Some(folder.to_owned()),
        output: folder.join("out.tar"),
        options: Options::default(),
    }
}

#[test]
fn a_step_that_is_filed_in_the_next_window_is_found() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Job { ranks: 4, hosts: 2, steps: 130, ..Job::default() }).unwrap();
    let length = |step: i64| {
        let merged = merge(&of_tables(folder.path(), &step.to_string()));
        let merged = merged.unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert_eq!((merged.from_tables, &merged.missing[..]), (4, &[][..]), "step {step}");
        merged.length_ns
    };
    let engine = Engine::open(folder.path(), None).unwrap();
    let last = engine.query("last", "SELECT MAX(step) AS last FROM steps GROUP BY win ORDER BY 1").unwrap();
    let last = last.ints("last").unwrap();
    assert_eq!(last.len(), 3);
    let before: Vec<i64> = last.iter().map(|step| length(*step)).collect();
    file_late(folder.path(), 4);
    let lag = "SELECT COUNT(*) AS n FROM steps s JOIN windows w ON s.win = w.win AND s.rank = w.rank \
               WHERE s.begin_ns + s.wall_ns <= w.begin_ns";
    assert_eq!(Engine::open(folder.path(), None).unwrap().query("lag", lag).unwrap().ints("n").unwrap(), [8]);
    assert_eq!(last.iter().map(|step| length(*step)).collect::<Vec<_>>(), before);
}

#[test]
fn steps_and_ranks_that_are_not_in_the_tables_are_said() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Job { ranks: 4, hosts: 2, steps: 130, ..Job::default() }).unwrap();
    let said = |window: &str, ranks: Option<&str>| {
        let ranks = ranks.map(|ranks| ranks.parse().unwrap());
        let merged = merge(&Plan { ranks, ..of_tables(folder.path(), window) }).unwrap();
        merged.to_text(Path::new("out.tar"))
    };
    let text = said("127-140", None);
    assert!(text.contains("\nnot in the tables: 11 of the 14 steps; they have steps from 127 to 129\n"), "{text}");
    assert!(!said("127-129", None).contains("not in the tables"));
    let huge = said(&format!("0-{}", i64::MAX), None);
    assert!(huge.contains("they have steps from 0 to 129\n"), "{huge}");
    let window =
        std::fs::read_dir(folder.path().join("steps/run=generated")).unwrap().map(|entry| entry.unwrap().path()).max();
    std::fs::remove_file(window.unwrap().join("rank-00002.parquet")).unwrap();
    let text = said("127", None);
    assert!(text.contains("\nnot in the tables: these steps of rank 2\n"), "{text}");
    assert!(!said("127", Some("0-1")).contains("not in the tables"));
}

#[test]
fn what_cannot_be_merged_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (job, _) = job();
    generate(folder.path(), &Job { steps: 12, ..job }).unwrap();
    let plan = |step: i64, ranks: Option<&str>| Plan {
        folder: folder.path().to_owned(),
        run: None,
        window: Window { from: step, to: step },
        ranks: ranks.map(|ranks| ranks.parse().unwrap()),
        traces: Some(folder.path().to_owned()),
        output: folder.path().join("out.tar"),
        options: Options::default(),
    };
    let refusal = |plan: &Plan| merge(plan).unwrap_err().to_string();
    assert_eq!(refusal(&plan(99, None)), "the tables have no step in 99 to 99; they have steps from 0 to 11");
    assert!(refusal(&plan(3, Some("17"))).starts_with("the tables have none of these ranks in these steps"));
    let missing = Plan { traces: Some("/nowhere/at/all".into()), ..plan(3, None) };
    assert!(refusal(&missing).starts_with("cannot read `/nowhere/at/all`"), "{}", refusal(&missing));
    // Without a trace, all comes from the tables; and only of the ranks that were asked for.
    let merged = merge(&plan(3, Some("1-2"))).unwrap();
    assert_eq!((merged.from_traces, merged.from_tables), (0, 2), "{merged:?}");
    assert!(merged.to_text(Path::new("out.tar")).starts_with("out.tar: 0 ranks from traces and 2 ranks from tables, "));
}

#[test]
fn steps_and_ranks_are_parsed() {
    assert_eq!("7".parse(), Ok(Window { from: 7, to: 7 }));
    assert_eq!("7-9".parse(), Ok(Window { from: 7, to: 9 }));
    for wrong in ["", "9-7", "a", "1-", "1-2-3"] {
        assert!(wrong.parse::<Window>().is_err(), "{wrong}");
    }
    let ranks: Ranks = "0-7,16".parse().unwrap();
    assert!(ranks.has(0) && ranks.has(7) && ranks.has(16) && !ranks.has(8));
    assert!("0-7,".parse::<Ranks>().is_err());
}

#[test]
fn no_two_processes_have_one_id() {
    use std::collections::HashSet;
    let process = |boot: &str, pid| Process { rank: pid, boot_id: boot.into(), pid, host: boot.into() };
    let all = [process("a", 10), process("b", 10), process("b", 11), process("c", 0)];
    let pids = pids(all.iter());
    let ids: HashSet<i64> = pids.values().copied().collect();
    assert_eq!((ids.len(), pids[&all[0]], pids[&all[2]]), (4, 10, 11), "{pids:?}");
}
