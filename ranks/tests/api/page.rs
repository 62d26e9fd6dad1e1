//! The report as a page: what is in it, and that no name of a rank becomes markup. With `WARPLINE_PAGES=FOLDER` it leaves its pages there,
//! for `tests/pages/ranks.test.mjs`, which opens them in a browser.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use warpline_ranks::clocks::Options;
use warpline_ranks::generate::{Late, Plan, Slow, Stage, generate};
use warpline_ranks::report::{Cells, HeatMap};
use warpline_ranks::{Engine, Report};

/// 64 ranks on 8 hosts, two windows. Rank 42 is late in its input, rank 7 is slow from step 90 on, and a window of rank 20 is missing.
fn plan() -> Plan {
    Plan {
        ranks: 64,
        hosts: 8,
        steps: 120,
        ranks_per_file: 8,
        late: vec![Late { rank: 42, stage: Stage::Load, ns: 100_000_000, from: 30, to: 59 }],
        slow: vec![Slow { rank: 7, percent: 6.0, from: 90 }],
        missing: vec![(20, 1)],
        ..Plan::default()
    }
}

/// The report of that job, read once for all tests.
static REPORT: LazyLock<Report> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &plan()).unwrap();
    let engine = Engine::open(folder.path(), None).unwrap();
    Report::of(&engine, Options::default()).unwrap().with_heat_map(&engine).unwrap()
});

/// Writes a page into the folder that `WARPLINE_PAGES` names, if it is set.
fn keep(name: &str, page: &str) {
    if let Some(folder) = std::env::var_os("WARPLINE_PAGES") {
        std::fs::write(PathBuf::from(folder).join(name), page).unwrap();
    }
}

fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// As the page reads it.
fn ns(code: u16) -> Option<i64> {
    let us = i64::from(code & 0x3ff) << ((code >> 10) & 0x1f);
    (code != 0x8000).then_some(if code & 0x8000 == 0 { us } else { -us } * 1_000)
}

#[test]
fn the_page_has_what_is_true() {
    let report = &*REPORT;
    let map = report.heat_map.as_ref().unwrap();
    assert_eq!((&*map.ranks, map.hosts.len(), map.rank_block), (&[[0, 63, 1]][..], 8, 1));
    assert_eq!(map.steps, [[0, 119, 1]]);
    let beyond = |rank: usize, step: usize| ns(map.cells.beyond[rank * 120 + step]);
    for step in 0..60 {
        let late = beyond(42, step).unwrap();
        let expected = if step < 30 { -30_000_000..30_000_000 } else { 80_000_000..120_000_000 };
        assert!(expected.contains(&late), "step {step}: {late} ns");
    }
    for step in 92..120 {
        assert!(beyond(7, step).unwrap() > 15_000_000, "step {step}: {:?} ns", beyond(7, step));
    }
    assert!((64..120).all(|step| beyond(20, step).is_none()), "the tables have no row of it");
    let blamed: Vec<_> = report.blame.iter().filter(|one| one.rank == 42).collect();
    assert!(blamed.len() >= 28, "{}", blamed.len());
    assert!(blamed.iter().all(|one| (30..=60).contains(&one.step) && one.chain.iter().all(|link| link.rank == 42)));
    assert_eq!(report.clocks.by_host.len(), 8);
    let page = report.to_html().unwrap();
    let data = data(&page);
    assert_eq!(data["report"]["blame"].as_array().unwrap().len(), report.blame.len());
    let printed: serde_json::Value = serde_json::from_str(&serde_json::to_string(report).unwrap()).unwrap();
    assert_eq!(data["report"], printed, "the page has the report as `--json` prints it");
    assert_eq!(data["heat_map"]["ranks"], serde_json::json!([[0, 63, 1]]));
    assert!(data["heat_map"]["cells"]["beyond"].as_str().unwrap().len() >= 64 * 120 * 2);
    assert_eq!(data["heat_map"]["cells"]["uncertain"], "", "all ends are timed");
    keep("ranks.html", &page);
}

#[test]
fn a_name_is_no_markup() {
    let mut report = REPORT.clone();
    let clean = report.to_html().unwrap();
    let hostile = r#"</script><script>alert(1)</script><img src=x onerror="alert(1)"><!-- &amp; '{{DATA}}' "#;
    report.run = hostile.to_owned();
    report.verdict[0] = format!("rank 42 {hostile}");
    report.late[0].stage = hostile.into();
    report.not_judged.push(hostile.to_owned());
    report.bandwidth[0].kind = hostile.into();
    report.clocks.by_host[0].host = hostile.into();
    report.clocks.apart = vec![hostile.into(), "other".into()];
    for one in &mut report.blame {
        one.stage = hostile.into();
        one.chain.iter_mut().for_each(|link| link.comm = hostile.into());
    }
    report.slow[0].host = hostile.into();
    report.heat_map.as_mut().unwrap().hosts = (0..8).map(|host| format!("{host}{hostile}").into()).collect();
    let page = report.to_html().unwrap();
    for word in ["</script", "<script", "<img", "<!--"] {
        assert_eq!(page.matches(word).count(), clean.matches(word).count(), "{word}");
    }
    assert_eq!(data(&page)["report"]["late"][0]["stage"], hostile);
    keep("ranks-hostile.html", &page);
}

/// A map of that size, in which one cell stands out.
fn map(rows: usize, steps: usize, rank_block: usize) -> HeatMap {
    let noise = |at: usize| ((at.wrapping_mul(2_654_435_761) >> 7) & 0x3ff) as u16;
    let column = |of: &dyn Fn(usize) -> u16| (0..rows * steps).map(of).collect::<Vec<u16>>();
    let mut beyond = column(&|at| (noise(at) & 0x1ff) | if noise(at) & 0x200 == 0 { 0 } else { 0x8000 });
    beyond.iter_mut().filter(|code| **code == 0x8000).for_each(|code| *code = 0);
    // 500 ms: 1,000 times 2^9 us, nearly.
    beyond[rows / 2 * steps + steps / 3] = (9 << 10) | 1_000;
    let blocks = if rank_block > 1 { column(&|at| (at % rank_block) as u16) } else { Vec::new() };
    HeatMap {
        ranks: vec![[0, (rows * rank_block) as i64 - 1, 1]],
        steps: vec![[0, steps as i64 - 1, 1]],
        hosts: vec!["node".into()],
        host_of: vec![0; rows * rank_block],
        rank_block,
        step_block: 1,
        one_in: 1,
        wall_ns: vec![1_000_000_000; steps],
        mean_ns: vec![Some(0); rows],
        cells: Cells {
            beyond,
            compute: column(&|at| (10 << 10) | (700 + noise(at) % 100)),
            idle: column(&|at| (8 << 10) | (512 + noise(at) % 64)),
            waiting: column(&|at| (7 << 10) | (512 + noise(at) % 400)),
            uncertain: Vec::new(),
            flags: vec![8; rows * steps],
            step_in_block: vec![0; blocks.len()],
            rank_in_block: blocks,
        },
    }
}

#[test]
fn large_jobs_have_pages_too() {
    let mut report = REPORT.clone();
    for (name, map, most_mb) in
        [("ranks-1000.html", map(1_000, 600, 1), 8), ("ranks-10000.html", map(1_667, 600, 6), 19)]
    {
        report.heat_map = Some(map);
        let page = report.to_html().unwrap();
        assert!(page.len() < most_mb << 20, "{name} has {} bytes", page.len());
        keep(name, &page);
    }
}

#[test]
fn the_command_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Plan { ranks: 4, hosts: 2, steps: 20, ..Plan::default() }).unwrap();
    let run = |output: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-ranks"));
        command.arg("report").arg(folder.path()).arg("-o").arg(output).output().unwrap()
    };
    let path = folder.path().join("r.html");
    let done = run(&path);
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("no rank stands out"), "{done:?}");
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(data(&page)["report"]["size"]["steps"], 20);
    keep("ranks-small.html", &page);
    // A file where a folder should be.
    let failed = run(&path.join("r.html"));
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("cannot write"), "{failed:?}");
}

#[test]
fn a_report_with_a_step_of_a_minute_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let late = Late { rank: 3, stage: Stage::Load, ns: 75_000_000_000, from: 12, to: 12 };
    generate(folder.path(), &Plan { ranks: 8, hosts: 1, steps: 40, late: vec![late], ..Plan::default() }).unwrap();
    let engine = Engine::open(folder.path(), None).unwrap();
    let report = Report::of(&engine, Options::default()).unwrap().with_heat_map(&engine).unwrap();
    assert!(report.verdict[0].starts_with("rank 3 was late in step 12 by 75.0 s"), "{:?}", report.verdict);
    keep("ranks-hang.html", &report.to_html().unwrap());
}

#[test]
fn a_report_without_steps_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Plan { ranks: 4, hosts: 2, steps: 20, ..Plan::default() }).unwrap();
    for table in ["steps", "stages"] {
        std::fs::remove_dir_all(folder.path().join(table)).unwrap();
    }
    let engine = Engine::open(folder.path(), None).unwrap();
    let report = Report::of(&engine, Options::default()).unwrap().with_heat_map(&engine).unwrap();
    assert!(report.heat_map.as_ref().unwrap().steps.is_empty());
    keep("ranks-no-steps.html", &report.to_html().unwrap());
}
