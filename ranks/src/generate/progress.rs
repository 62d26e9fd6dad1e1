//! Progress files of a job that hangs.

use std::path::Path;

use warpline_core::hashing::{fnv1a64, splitmix64};
use warpline_judge::progress::{Call, Group, Open, Progress};

use super::simulate::Comm;
use super::{Error, Plan, replace_file};

/// Why a generated job hangs, at `step`.
#[derive(Debug, Clone, Copy)]
pub enum Hang {
    /// A rank stays in its input, and its host and then all wait for it.
    Stuck {
        /// The rank.
        rank: u32,
        /// In this step.
        step: i64,
    },
    /// A rank calls another operation than the others: all ranks enter it, and none completes it.
    Mismatch {
        /// The rank.
        rank: u32,
        /// In this step.
        step: i64,
    },
    /// A rank and one of the next host call the collective across hosts before that of their own host, and the others
    /// after it.
    Cycle {
        /// The first of the two.
        rank: u32,
        /// In this step.
        step: i64,
    },
    /// Nothing hangs.
    Nothing {
        /// All are in this step.
        step: i64,
    },
}

/// Writes the file of each rank. Ranks that the hang does not concern are in the all-reduce of their host in `step`.
pub fn progress(folder: &Path, plan: &Plan, hang: Hang) -> Result<(), Error> {
    plan.check()?;
    let clocks = plan.clocks();
    for rank in 0..plan.ranks {
        let (host, place) = (rank / plan.local(), rank % plan.local());
        let (tp, dp) = (Comm::tp(plan, host), Comm::dp(plan, host / plan.of_stage(), place));
        let clock = &clocks[host as usize];
        let (step, faulty) = match hang {
            Hang::Stuck { rank, step } | Hang::Mismatch { rank, step } | Hang::Cycle { rank, step } => (step, rank),
            Hang::Nothing { step } => (step, u32::MAX),
        };
        let beside = faulty / plan.local() == host;
        let (hosts, local) = (plan.hosts, plan.local());
        let second = ((faulty / local).wrapping_add(1) % hosts, (faulty % local + 1) % local);
        let is_cycle = matches!(hang, Hang::Cycle { .. });
        let is_it = rank == faulty || is_cycle && (host, place) == second;
        let beside = beside || is_cycle && host == second.0;
        // Entered and completed in each group, the group that it waits in, and what it called there.
        let (tp_at, dp_at, open) = match hang {
            Hang::Stuck { .. } if is_it => ((step - 1, step - 1), (step - 1, step - 1), None),
            Hang::Stuck { .. } if beside => ((step, step - 1), (step - 1, step - 1), Some((&tp, step))),
            Hang::Mismatch { .. } if beside => ((step, step - 1), (step - 1, step - 1), Some((&tp, step))),
            Hang::Cycle { .. } if is_it => ((step - 1, step - 1), (step, step - 1), Some((&dp, step))),
            Hang::Cycle { .. } if beside => ((step, step - 1), (step - 1, step - 1), Some((&tp, step))),
            Hang::Nothing { .. } => ((step, step), (step, step), None),
            _ => ((step, step), (step, step - 1), Some((&dp, step))),
        };
        let called = |comm: &Comm, seq: i64| match hang {
            Hang::Mismatch { .. } if is_it && comm.name == tp.name && seq >= step => ("all_gather", 2048),
            _ => ("all_reduce", 1024),
        };
        let group = |comm: &Comm, (entered, completed): (i64, i64)| {
            let mut recent = Vec::new();
            let mut rolling = fnv1a64(comm.name.as_bytes());
            for seq in 0..=entered {
                let (kind, items) = called(comm, seq);
                rolling = splitmix64(rolling ^ fnv1a64(format!("{seq} {kind} f32 {items}").as_bytes()));
                let signature = format!("{rolling:016x}");
                recent.push(Call(seq, kind.to_owned(), Some("f32".to_owned()), Some(items), None, signature));
            }
            Group {
                comm: comm.name.clone(),
                size: comm.size,
                members: Some(comm.members.clone()),
                entered: Some(entered),
                started: Some(completed),
                completed: Some(completed),
                first: Some(0),
                signature: format!("{rolling:016x}"),
                recent: recent.split_off(recent.len().saturating_sub(8)),
            }
        };
        let now = step * plan.step_ns;
        let zone = |name: &str, line: u32, collective: Option<(&Comm, i64)>| Open {
            name: name.to_owned(),
            file: Some("src/train.rs".to_owned()),
            line: Some(line),
            thread: "main".to_owned(),
            since_ns: clock.reads(now),
            fields: [("n".to_owned(), "4".to_owned())].into(),
            comm: collective.map(|(comm, _)| comm.name.clone()),
            seq: collective.map(|(_, seq)| seq),
            ..Open::default()
        };
        let open = match (hang, open) {
            (Hang::Nothing { .. }, _) => None,
            (Hang::Stuck { .. }, None) => Some(zone("demo.load", 12, None)),
            (_, Some((comm, seq))) if comm.name == tp.name => Some(zone("demo.tp", 34, Some((comm, seq)))),
            (_, Some((comm, seq))) => Some(zone("demo.dp", 56, Some((comm, seq)))),
            (_, None) => None,
        };
        let file = Progress {
            version: 1,
            rank,
            host: clock.host.clone(),
            pid: i64::from(4000 + rank),
            boot_id: clock.boot_id.clone(),
            updated_boottime_ns: clock.reads(now + 30_000_000_000),
            updated_realtime_ns: super::BEGIN_NS + now + 30_000_000_000,
            step: Some(step),
            comms: vec![group(&tp, tp_at), group(&dp, dp_at)],
            open,
            ..Progress::default()
        };
        let path = folder.join(format!("progress/run={}/rank-{rank:05}.json", plan.run));
        let text = serde_json::to_vec(&file).map_err(|error| Error::write(&path, error))?;
        replace_file(&path, &text)?;
    }
    Ok(())
}
