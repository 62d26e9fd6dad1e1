//! `hang` against generated progress files, and against those that no rank would write. `cases` are jobs whose one right first sentence is known.

mod cases;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use warpline_ranks::generate::{Hang as Made, Plan, progress};
use warpline_ranks::hang::Hang;

use crate::command::{text, within};

fn plan() -> Plan {
    Plan { ranks: 12, hosts: 3, ..Plan::default() }
}

fn hang(made: Made) -> Hang {
    let folder = tempfile::tempdir().unwrap();
    progress(folder.path(), &plan(), made).unwrap();
    Hang::new(folder.path(), None).unwrap()
}

#[test]
fn a_stuck_rank_is_named_with_its_source_line() {
    for rank in 0..12 {
        let hang = hang(Made::Stuck { rank, step: 17 });
        assert_eq!(hang.culprits.len(), 1, "{:#?}", hang.verdict);
        let culprit = &hang.culprits[0];
        assert_eq!((culprit.rank, culprit.step, culprit.waiting), (rank, Some(17), 11));
        let open = culprit.open.as_ref().unwrap();
        assert_eq!(open.place(), "`demo.load` at src/train.rs:12");
        assert!(hang.cycles.is_empty() && hang.differences.is_empty(), "{hang:#?}");
        // Ranks of other hosts wait in their group for its neighbours, who wait for it.
        assert_eq!(culprit.chain.len(), 2, "{:#?}", culprit.chain);
        assert!(hang.to_text().contains("src/train.rs:12"), "{}", hang.to_text());
        assert!(hang.to_text().contains("n=4"), "{}", hang.to_text());
    }
}

#[test]
fn a_call_that_differs_is_named_with_its_number() {
    for rank in 0..12 {
        let hang = hang(Made::Mismatch { rank, step: 9 });
        assert_eq!(hang.differences.len(), 1, "{:#?}", hang.verdict);
        let different = &hang.differences[0];
        assert_eq!((different.seq, different.is_first), (9, true));
        assert_eq!(different.most_called, "all_reduce of 1024 f32");
        assert_eq!(different.others, [(rank, "all_gather of 2048 f32".to_owned())]);
    }
}

#[test]
fn a_cycle_is_a_different_order() {
    for rank in 0..12 {
        let hang = hang(Made::Cycle { rank, step: 5 });
        assert_eq!(hang.cycles.len(), 1, "{:#?}", hang.verdict);
        assert!(hang.cycles[0].waits.iter().any(|wait| wait.rank == rank), "{:#?}", hang.cycles);
        assert!(hang.verdict[0].contains("different orders"), "{:?}", hang.verdict);
    }
}

#[test]
fn a_job_that_runs_does_not_hang() {
    let hang = hang(Made::Nothing { step: 30 });
    assert!(!hang.is_one(), "{:#?}", hang);
}

#[test]
fn a_rank_without_a_file_is_the_one_that_others_wait_for() {
    let folder = tempfile::tempdir().unwrap();
    progress(folder.path(), &plan(), Made::Stuck { rank: 6, step: 3 }).unwrap();
    std::fs::remove_file(folder.path().join("progress/run=generated/rank-00006.json")).unwrap();
    let hang = Hang::new(folder.path(), None).unwrap();
    assert_eq!((hang.culprits[0].rank, hang.culprits[0].is_dead), (6, true), "{:#?}", hang.verdict);
    assert_eq!(hang.missing, [6]);
}

#[test]
fn damaged_files_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Hang::new(folder.path(), None).unwrap_err().to_string().contains("no progress files"));
    progress(folder.path(), &plan(), Made::Stuck { rank: 6, step: 3 }).unwrap();
    let of_run = folder.path().join("progress/run=generated");
    std::fs::write(of_run.join("rank-00001.json"), "{\"rank\":").unwrap();
    std::fs::write(of_run.join("rank-00002.json"), "[1,2]").unwrap();
    std::fs::write(of_run.join("rank-00003.json"), vec![b' '; 100_000]).unwrap();
    let hang = Hang::new(folder.path(), None).unwrap();
    assert_eq!((hang.left_out.len(), hang.missing.as_slice()), (3, &[1, 2, 3][..]), "{:#?}", hang.left_out);
    assert!(Hang::new(folder.path(), Some("other")).unwrap_err().to_string().contains("no run `other`"));
}

#[test]
fn a_job_that_goes_on_between_two_looks_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let write = |step| progress(folder.path(), &plan(), Made::Stuck { rank: 6, step }).unwrap();
    write(3);
    let watched = || Hang::watched(folder.path(), None, std::time::Duration::from_millis(300)).unwrap();
    let still = watched();
    assert_eq!((still.culprits[0].rank, still.moved), (6, 0), "{:#?}", still.verdict);
    let hang = std::thread::scope(|scope| {
        let looking = scope.spawn(watched);
        std::thread::sleep(std::time::Duration::from_millis(150));
        write(4);
        looking.join().unwrap()
    });
    assert!(!hang.is_one() && hang.moved == 12, "{hang:#?}");
    assert!(hang.to_text().contains("12 ranks made progress between two reads of the files"), "{}", hang.to_text());
}

/// Writes the file of a rank.
fn rank(folder: &Path, rank: u32, comms: &[Value], more: &Value) {
    let of_run = folder.join("progress/run=1");
    std::fs::create_dir_all(&of_run).unwrap();
    let mut file = json!({ "rank": rank, "host": "node", "comms": comms, "updated_realtime_ns": 1 });
    file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    std::fs::write(of_run.join(format!("rank-{rank:05}.json")), file.to_string()).unwrap();
}

/// What `hang` prints as JSON, and the CPU time that it takes, where it may have 2 GB.
fn judged(folder: &Path) -> (Value, f64) {
    let output = within(2_000_000, &["hang", folder.to_str().unwrap(), "--between", "0", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let seconds = |line: &str| line.split_once(' ').and_then(|(_, seconds)| seconds.parse::<f64>().ok());
    let times = text(&output.stderr);
    let times = times.lines().filter(|line| line.starts_with("user ") || line.starts_with("sys "));
    (serde_json::from_slice(&output.stdout).unwrap(), times.filter_map(seconds).sum())
}

#[test]
fn a_few_files_with_many_long_groups_cost_little_and_what_is_left_out_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let groups = |file: u32| -> Vec<Value> {
        let group = |number: u32| {
            let members = format!("{}-1048575", number % 7);
            json!({ "comm": format!("g{file}.{number}"), "members": members, "entered": 7, "completed": 6, "first": 0 })
        };
        (0..400).map(group).collect()
    };
    (0..10).for_each(|file| rank(folder.path(), file, &groups(file), &json!({})));
    let (hang, _) = judged(folder.path());
    assert_eq!(hang["ranks"], 10);
    let left_out = &hang["left_out"][0];
    assert_eq!(left_out["file"], "3998 groups", "{left_out}");
    assert!(left_out["why"].as_str().unwrap().contains("more members than the 2097152"), "{left_out}");
    // Those that are followed have the ranks that wrote no file.
    assert_eq!(hang["culprits"].as_array().unwrap().len(), 256);
    assert_eq!(hang["missing"].as_array().unwrap().len() as u64, (1 << 20) - 10);
    // The ranks with a file are in collectives of their own.
    assert_eq!(hang["more_culprits"], (1 << 20) - 10 - 256);
}

/// A job in which the first half of a group waits for the second half, each rank in a number of its own.
fn half_waits(ranks: u32) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let members = format!("0-{}", ranks - 1);
    for number in 0..ranks {
        let (entered, completed) = if number < ranks / 2 { (number + 2, number + 1) } else { (0, 0) };
        let group =
            json!({ "comm": "world", "members": members, "entered": entered, "completed": completed, "first": 0 });
        rank(folder.path(), number, &[group], &json!({}));
    }
    let (hang, seconds) = judged(folder.path());
    // Rank 0 waits for the second half in number 2, in which all other waiting ranks are already; the others wait for it, too.
    let (half, first) = (ranks / 2, &hang["culprits"][0]);
    assert_eq!((&hang["waiting"], &first["waiting"], &first["rank"]), (&json!(half), &json!(half), &json!(half)));
    assert_eq!(hang["more_culprits"].as_u64().unwrap(), u64::from(half) - 256);
    seconds
}

#[test]
fn four_times_the_ranks_of_a_group_take_about_four_times_the_time() {
    let best = |ranks| (0..2).map(|_| half_waits(ranks)).fold(f64::INFINITY, f64::min);
    let [once, four_times] = [best(3_000), best(12_000)];
    // A quadratic cost takes sixteen times as long. Below the first bound, the start of the process is more than the work.
    assert!(four_times < 0.3 || four_times < 9.0 * once, "{once} s, {four_times} s");
}

#[test]
fn waits_are_followed_as_if_each_were_a_wait_of_its_own() {
    // Against a model that has every single wait, over random jobs.
    let mut seed = 7_u64;
    let mut below = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    let (mut chains, mut rounds) = (0, 0);
    for _ in 0..2_000 {
        let ranks = 2 + below(6) as u32;
        let groups: Vec<Vec<u32>> = (0..1 + below(3)).map(|_| (0..ranks).filter(|_| below(3) > 0).collect()).collect();
        let mut files = std::collections::BTreeMap::new();
        let mut states = std::collections::BTreeMap::new();
        // The oldest open zones: of a group, or other work, on the device or on a thread.
        let mut opens: std::collections::BTreeMap<u32, Result<usize, bool>> = std::collections::BTreeMap::new();
        for rank in (0..ranks).filter(|_| below(8) > 0).collect::<Vec<_>>() {
            let mut comms = Vec::new();
            for (number, members) in groups.iter().enumerate().filter(|(_, members)| members.contains(&rank)) {
                let completed = below(3) as i64;
                let entered = completed + below(2) as i64;
                states.insert((rank, number), (entered, completed));
                let members: Vec<String> = members.iter().map(u32::to_string).collect();
                comms.push(json!({
                    "comm": format!("g{number}"), "members": members.join(","), "entered": entered, "completed": completed, "first": 0,
                }));
            }
            let is_pending =
                |group: &usize| states.get(&(rank, *group)).is_some_and(|(entered, completed)| entered > completed);
            match below(5) {
                0 => drop(opens.insert(rank, Err(true))),
                1 => drop(opens.insert(rank, Err(false))),
                2 => {}
                first => opens
                    .extend((0..3).map(|n| (n + first as usize) % 3).find(is_pending).map(|group| (rank, Ok(group)))),
            }
            let open = opens.get(&rank).map(|open| match open {
                Ok(group) => {
                    json!({ "name": "sync", "launched": true, "comm": format!("g{group}"), "seq": states[&(rank, *group)].1 + 1 })
                }
                Err(launched) => json!({ "name": "work", "launched": launched }),
            });
            let file = json!({ "rank": rank, "comms": comms, "open": open });
            files.insert(rank, serde_json::from_value(file).unwrap());
        }
        // In which groups a rank is: in that of its oldest open zone, and in none if that is other work on the device.
        let is_pending = |rank: u32, group: usize| {
            let is_there =
                states.get(&(rank, group)).is_some_and(|(entered, completed): &(i64, i64)| entered > completed);
            is_there
                && opens.get(&rank).is_none_or(|open| matches!(open, Ok(open) if *open == group) || *open == Err(false))
        };
        let is_behind = |from: u32, to: u32, group: usize| {
            let theirs = states.get(&(to, group)).map(|(entered, _)| *entered);
            groups[group].contains(&to) && theirs.is_none_or(|theirs| theirs <= states[&(from, group)].1)
        };
        // Its device is in an earlier number of the group, in another group or in other work, and has not completed this number.
        let is_elsewhere = |from: u32, to: u32, group: usize| {
            let Some((_, completed)) = states.get(&(to, group)).filter(|_| groups[group].contains(&to)) else {
                return false;
            };
            let at = match opens.get(&to) {
                Some(Ok(open)) if *open == group => completed + 1,
                Some(Ok(_) | Err(true)) => *completed,
                _ => return false,
            };
            opens.get(&from) == Some(&Ok(group)) && at < states[&(from, group)].1 + 1
        };
        let waits_in = |from: u32, to: u32, group: usize| {
            let all_are_there = || !(0..ranks).any(|other| is_behind(from, other, group));
            is_pending(from, group) && (is_behind(from, to, group) || all_are_there() && is_elsewhere(from, to, group))
        };
        let waits = |from: u32, to: u32| (0..groups.len()).any(|group| waits_in(from, to, group));
        let reaches = |from: u32, to: u32| {
            let (mut seen, mut next) = (vec![false; ranks as usize], vec![from]);
            while let Some(at) = next.pop() {
                for other in (0..ranks).filter(|other| waits(at, *other)) {
                    if !std::mem::replace(&mut seen[other as usize], true) {
                        next.push(other);
                    }
                }
            }
            seen[to as usize]
        };
        let is_waiting = |rank: u32| (0..ranks).any(|other| waits(rank, other));
        // Who is in a number and waits for nobody there, and who of them is left behind by others.
        let is_in =
            |rank: u32, group: usize| is_pending(rank, group) && !(0..ranks).any(|other| waits_in(rank, other, group));
        let is_left = |rank: u32, group: usize| {
            let completed = |rank: u32| states.get(&(rank, group)).map(|(_, completed)| *completed);
            is_in(rank, group) && (0..ranks).any(|other| completed(other) > completed(rank))
        };
        let is_alone = |rank: u32, group: usize| {
            let left = (0..ranks).filter(|other| is_left(*other, group)).count();
            is_left(rank, group) && 2 * left < groups[group].len()
        };
        let any = |is: &dyn Fn(usize) -> bool| (0..groups.len()).any(is);
        let mut sinks: Vec<(usize, u32)> = (0..ranks)
            .filter(|rank| !is_waiting(*rank))
            .map(|rank| ((0..ranks).filter(|other| *other != rank && reaches(*other, rank)).count(), rank))
            .filter(|(waiting, rank)| match any(&|group| is_in(*rank, group)) {
                true => any(&|group| is_alone(*rank, group)),
                false => *waiting > 0,
            })
            .collect();
        // Those of which nothing is known come last.
        let order = |(waiting, rank): &(usize, u32)| (!files.contains_key(rank), std::cmp::Reverse(*waiting), *rank);
        sinks.sort_by_key(order);
        let hang = Hang::of("1".to_owned(), &files, Vec::new());
        let found: Vec<(usize, u32)> = hang.culprits.iter().map(|culprit| (culprit.waiting, culprit.rank)).collect();
        assert_eq!(found, sinks, "{groups:?} {states:?} {opens:?}");
        for culprit in &hang.culprits {
            chains += usize::from(culprit.chain.len() > 1);
            assert!(culprit.chain.iter().all(|wait| waits(wait.rank, wait.waits_for)), "{:?}", culprit.chain);
            assert!(culprit.chain.windows(2).all(|two| two[0].waits_for == two[1].rank), "{:?}", culprit.chain);
            assert_eq!(culprit.chain.last().map_or(culprit.rank, |wait| wait.waits_for), culprit.rank);
        }
        // A cycle for each set of ranks that wait for each other.
        let set = |rank: u32| (0..ranks).filter(|other| reaches(rank, *other) && reaches(*other, rank)).min();
        let sets: std::collections::BTreeSet<u32> = (0..ranks).filter_map(set).collect();
        let of_cycles: Vec<u32> = hang.cycles.iter().filter_map(|cycle| set(cycle.waits[0].rank)).collect();
        assert_eq!(of_cycles, sets.into_iter().collect::<Vec<_>>(), "{groups:?} {states:?}");
        for waits_of in hang.cycles.iter().map(|cycle| &cycle.waits) {
            rounds += 1;
            let ends = [waits_of.last().unwrap().waits_for, waits_of[0].rank];
            assert!(ends[0] == ends[1] && waits_of.iter().all(|wait| waits(wait.rank, wait.waits_for)), "{waits_of:?}");
        }
    }
    assert!(chains > 100 && rounds > 100, "{chains} chains, {rounds} cycles");
}

#[test]
fn only_files_of_the_folder_are_read_and_what_is_in_their_place_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let group = json!({ "comm": "world", "members": "0-9", "entered": 2, "completed": 1, "first": 0 });
    let run = folder.path().join("progress/run=1");
    let name = |rank: u32| run.join(format!("rank-{rank:05}.json"));
    rank(folder.path(), 0, &[group], &json!({}));
    let elsewhere = tempfile::tempdir().unwrap();
    rank(elsewhere.path(), 1, &[], &json!({}));
    symlink(elsewhere.path().join("progress/run=1/rank-00001.json"), name(1)).unwrap();
    symlink("/proc/kmsg", name(2)).unwrap();
    symlink("/dev/zero", name(3)).unwrap();
    std::fs::create_dir(name(4)).unwrap();
    assert!(Command::new("mkfifo").arg(name(5)).status().unwrap().success());
    let said = || {
        let output = within(2_000_000, &["hang", folder.path().to_str().unwrap(), "--between", "0"]);
        text(&output.stdout).replace('\n', " ") + &text(&output.stderr)
    };
    let shown = said();
    assert!(shown.contains("1 ranks wrote their progress"), "{shown}");
    for (rank, what) in [(1, "link"), (2, "link"), (3, "link"), (4, "folder")] {
        let line = format!("rank-{rank:05}.json: is a {what}, and a rank writes a file; remove it");
        assert!(shown.contains(&line), "no “{line}” in {shown}");
    }
    assert!(shown.contains("rank-00005.json: is not a file; remove it"), "{shown}");
    // Where nothing else is there, too.
    std::fs::remove_file(name(0)).unwrap();
    (1..4).for_each(|rank| std::fs::remove_file(name(rank)).unwrap());
    let shown = said();
    let why = "has no progress files that can be read: `progress/run=1/rank-00004.json` is a folder, and a rank writes a \
               file; remove it, and 1 more";
    assert!(shown.contains(why), "{shown}");
    // Nor are folders followed that lead elsewhere.
    std::fs::rename(&run, folder.path().join("progress/of")).unwrap();
    symlink(elsewhere.path().join("progress/run=1"), &run).unwrap();
    let shown = said();
    assert!(shown.contains("`progress/run=1` is a link, which no rank creates"), "{shown}");
}

#[test]
fn a_recorder_that_a_file_names_is_a_file_that_has_something() {
    let folder = tempfile::tempdir().unwrap();
    let group = json!({ "comm": "world", "members": "0-4", "entered": 2, "completed": 1, "first": 0 });
    rank(folder.path(), 0, &[group], &json!({ "updated_boottime_ns": 1_000_000_000_000_u64, "boot_id": "b" }));
    let link = folder.path().join("link.flight");
    symlink("/proc/kmsg", &link).unwrap();
    let pipe = folder.path().join("pipe.flight");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (number, flight) in (1..).zip([Path::new("/proc/kmsg"), Path::new("/proc/self/maps"), &link, &pipe]) {
        rank(folder.path(), number, &[], &json!({ "flight": flight, "updated_boottime_ns": 1, "boot_id": "b" }));
    }
    let (hang, _) = judged(folder.path());
    let of = |path: &Path| {
        let all = hang["left_out"].as_array().unwrap();
        all.iter().find(|one| one["file"] == path.to_str().unwrap()).map_or("", |one| one["why"].as_str().unwrap())
    };
    assert_eq!(of(Path::new("/proc/self/maps")), "is empty", "{hang}");
    assert_eq!(of(&link), "is a link, and a rank writes a file; remove it", "{hang}");
    assert_eq!(of(&pipe), "is not a file; remove it", "{hang}");
    // Only root may open it.
    assert!(["is empty", "cannot be read"].iter().any(|why| of(Path::new("/proc/kmsg")).starts_with(why)), "{hang}");
}
