//! The cases: a fault, the rank that has it, and where.

use std::time::Duration;

/// Buckets of gradients: all-reduces of the group `dp` in a step.
pub const BUCKETS: u32 = 3;

/// Elements of a bucket: 1 MiB, of which every rank keeps every call.
pub const COUNT: usize = 1 << 18;

/// What is wrong with one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing.
    Clean,
    /// Its thread is held up before one collective.
    Late,
    /// Its device is busy with something else.
    SlowGpu,
    /// Its input takes longer from the middle of the run on.
    SlowStage,
    /// The job is killed and started again. Both lives have a slow stage: the first one of the rank before it, the last one of this rank.
    Restart,
    /// It never comes to a collective.
    Hang,
    /// It calls a collective with another count.
    Mismatch,
    /// It calls the collectives of two groups in the other order.
    Cycle,
}

impl Fault {
    pub const ALL: [Fault; 8] = [
        Fault::Clean,
        Fault::Late,
        Fault::SlowGpu,
        Fault::SlowStage,
        Fault::Restart,
        Fault::Hang,
        Fault::Mismatch,
        // Last: it ends with communicators that are made again.
        Fault::Cycle,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::Clean => "clean",
            Fault::Late => "late",
            Fault::SlowGpu => "slow-gpu",
            Fault::SlowStage => "slow-stage",
            Fault::Restart => "restart",
            Fault::Hang => "hang",
            Fault::Mismatch => "mismatch",
            Fault::Cycle => "cycle",
        }
    }

    /// Whether the ranks stand still until they are let go on.
    pub fn stops(self) -> bool {
        matches!(self, Fault::Hang | Fault::Mismatch | Fault::Cycle)
    }
}

/// A run of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub index: u32,
    pub fault: Fault,
    /// The rank that has the fault.
    pub rank: u32,
    /// The step in which it has it, or from which on.
    pub step: u64,
    pub bucket: u32,
    /// Runs before it with the same groups: numbers go on.
    pub runs: u64,
}

impl Case {
    /// The cases of these faults: other ranks, steps and buckets in turns.
    pub fn all(faults: &[Fault], repeat: u32, ranks: u32, size: &Size) -> Vec<Case> {
        let cases = faults.iter().flat_map(|fault| (0..repeat).map(move |number| (*fault, number)));
        let case = |(index, (fault, number)): (u32, (Fault, u32))| Case {
            index,
            fault,
            rank: number % ranks,
            step: match fault {
                Fault::Clean | Fault::SlowGpu => 0,
                // Soon: the time before it is of no use.
                _ if fault.stops() => 3 + u64::from(number) % 5,
                // It lasts to the end of the run.
                Fault::SlowStage | Fault::Restart => size.steps / 2 + u64::from(number) % 5,
                _ => size.steps / 3 + u64::from(number) * 7 % (size.steps / 2),
            },
            bucket: number % BUCKETS,
            runs: 0,
        };
        (0..).zip(cases).map(case).collect()
    }

    /// What the two lives of a job have that is started again.
    pub fn lives(&self, ranks: u32) -> [Case; 2] {
        let life = |rank| Case { fault: Fault::SlowStage, rank, ..self.clone() };
        [life((self.rank + ranks - 1) % ranks), life(self.rank)]
    }

    /// The number of the group `norm` in the step of the fault.
    pub fn norm_seq(&self, size: &Size) -> u64 {
        self.runs * size.steps + self.step
    }

    /// The number of the group `dp` of the first collective in that step.
    pub fn first_seq(&self, size: &Size) -> u64 {
        self.norm_seq(size) * u64::from(BUCKETS)
    }

    /// The number of that group at which the fault is.
    pub fn seq(&self, size: &Size) -> u64 {
        self.first_seq(size) + u64::from(self.bucket)
    }

    /// The number of the last bucket of the step, where a cycle is: the other group's collective follows it.
    pub fn last_seq(&self, size: &Size) -> u64 {
        self.first_seq(size) + u64::from(BUCKETS) - 1
    }

    /// As the driver says it to the ranks.
    pub fn to_text(&self) -> String {
        let Case { index, fault, rank, step, bucket, runs } = self;
        format!("{index} {} {rank} {step} {bucket} {runs}", fault.name())
    }

    pub fn from_text(text: &str) -> Option<Case> {
        let [index, fault, rank, step, bucket, runs] = text.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        Some(Case {
            index: index.parse().ok()?,
            fault: Fault::ALL.into_iter().find(|known| known.name() == fault)?,
            rank: rank.parse().ok()?,
            step: step.parse().ok()?,
            bucket: bucket.parse().ok()?,
            runs: runs.parse().ok()?,
        })
    }
}

/// How long the parts of a step take, and how large the faults are.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub steps: u64,
    pub load: Duration,
    /// Work of the device. Two devices of one kind differ by a few percent, and a rank that is late by 50 µs in most steps is named: there is
    /// not too much of it between two collectives.
    pub forward_us: u64,
    pub backward_us: u64,
    /// Equally long on all devices.
    pub optimizer_us: u64,
    /// How long the thread of a late rank is held up.
    pub late: Duration,
    /// How much longer the input of a slow stage takes.
    pub slow: Duration,
}

impl Size {
    /// A thread runs a step ahead of its device, so a delay of less than a step is not seen.
    pub fn of(host: bool) -> Size {
        let ms = Duration::from_millis;
        match host {
            false => Size {
                steps: 96,
                load: Duration::from_micros(200),
                forward_us: 700,
                backward_us: 150,
                optimizer_us: 1_000,
                late: ms(10),
                slow: ms(6),
            },
            // Beside whatever else a machine without GPUs does.
            true => Size {
                steps: 30,
                load: ms(1),
                forward_us: 8_000,
                backward_us: 4_000,
                optimizer_us: 2_000,
                late: ms(1000),
                slow: ms(150),
            },
        }
    }

    /// The work of a step that another program on the device delays.
    pub fn work_us(&self) -> u64 {
        self.forward_us + u64::from(BUCKETS) * self.backward_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_what_the_ranks_are_told() {
        let size = Size::of(true);
        let cases = Case::all(&Fault::ALL, 20, 4, &size);
        assert_eq!(cases.len(), 160);
        for case in &cases {
            assert_eq!(Case::from_text(&case.to_text()).as_ref(), Some(case));
            assert!(case.rank < 4 && case.step < size.steps && case.bucket < BUCKETS, "{case:?}");
        }
        // Each rank has each fault.
        for fault in Fault::ALL {
            let ranks: std::collections::BTreeSet<u32> =
                cases.iter().filter(|case| case.fault == fault).map(|case| case.rank).collect();
            assert_eq!(ranks.len(), 4, "{fault:?}");
        }
        assert_eq!(Case::from_text("1 nothing 0 0 0 0"), None);
    }
}
