//! The tables of a window, and what is left out so that they fit the budget: rows of ranges by step first, then stages, then collectives
//! (each time a quarter of the sample stays, the same on every rank), then sketches. Nothing is left out silently: `windows.coarsened` names it.

use parquet::data_type::ByteArray;
use parquet::errors::Result;

use super::identity::Identity;
use super::sampling;
use super::table::{Column, Table, repeated, texts};
use super::window::Window;

/// The most bytes on the disk for each step of a rank.
pub(super) const BYTES_A_STEP: usize = 2048;

/// A window without steps, or with few, has the budget of this many.
const LEAST_STEPS: usize = 10;

/// How often the sample of the collectives may be made coarser.
const MOST_ROUNDS: u32 = 8;

/// A file that is to be written.
pub(super) struct TableFile {
    pub(super) table: &'static str,
    pub(super) bytes: Vec<u8>,
}

/// What a window leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Coarsened {
    ranges: bool,
    stages: bool,
    /// The power of four by which fewer collectives stay.
    collectives: u32,
    sketches: bool,
    is_over: bool,
}

impl Coarsened {
    fn told(&self, window: &Window) -> String {
        let mut told = Vec::new();
        if self.ranges {
            told.push("ranges".to_owned());
        }
        if self.stages || window.closed.stages_left_out > 0 {
            told.push("stages".to_owned());
        }
        if self.collectives > 0 {
            told.push(format!("collectives/{}", 4_u64.pow(self.collectives)));
        }
        if self.sketches {
            told.push("sketches".to_owned());
        }
        if self.is_over {
            told.push("over budget".to_owned());
        }
        told.join(",")
    }
}

/// Returns the files of a window, `windows` last: where that is there, the others are.
pub(super) fn files(window: &Window, identity: &Identity) -> Result<Vec<TableFile>> {
    let budget = window.closed.steps.len().max(LEAST_STEPS) * BYTES_A_STEP;
    let layout = Layout { window, identity };
    let mut coarsened = Coarsened { ranges: window.closed.ranges_left_out, ..Coarsened::default() };
    let fixed = [encode_some(&layout.steps())?, encode_some(&layout.comms())?];
    let mut ranges = encode_some(&layout.ranges(true))?;
    let mut stages = encode_some(&layout.stages())?;
    let mut collectives = encode_some(&layout.collectives(0))?;
    let mut sketches = encode_some(&layout.sketches())?;
    let mut windows = encode(&layout.windows(&coarsened))?;
    loop {
        let parts = [&ranges, &stages, &collectives, &sketches];
        let all = fixed.iter().chain(parts).flatten().map(|file| file.bytes.len());
        if all.sum::<usize>() + windows.bytes.len() <= budget {
            break;
        }
        if !coarsened.ranges && !window.closed.ranges.is_empty() {
            coarsened.ranges = true;
            ranges = encode_some(&layout.ranges(false))?;
        } else if !coarsened.stages && stages.is_some() {
            coarsened.stages = true;
            stages = None;
        } else if collectives.is_some() && coarsened.collectives < MOST_ROUNDS {
            coarsened.collectives += 1;
            collectives = encode_some(&layout.collectives(coarsened.collectives))?;
        } else if !coarsened.sketches && sketches.is_some() {
            coarsened.sketches = true;
            sketches = None;
        } else {
            coarsened.is_over = true;
        }
        windows = encode(&layout.windows(&coarsened))?;
        if coarsened.is_over {
            break;
        }
    }
    let parts = [ranges, stages, collectives, sketches, Some(windows)];
    Ok(fixed.into_iter().chain(parts).flatten().collect())
}

fn encode(table: &Table) -> Result<TableFile> {
    Ok(TableFile { table: table.name, bytes: table.to_parquet()? })
}

/// Returns the file of a table, or none if it has no rows.
fn encode_some(table: &Table) -> Result<Option<TableFile>> {
    (table.rows > 0).then(|| encode(table)).transpose()
}

/// Makes the tables of a window.
struct Layout<'a> {
    window: &'a Window,
    identity: &'a Identity,
}

impl Layout<'_> {
    fn table(&self, name: &'static str, rows: usize) -> Table {
        Table::new(name, rows, self.identity.rank, &self.identity.host)
    }

    fn windows(&self, coarsened: &Coarsened) -> Table {
        let Window { counts, .. } = self.window;
        let one = |value: i64| Column::Long(vec![value]);
        let count = |value: u64| one(i64::try_from(value).unwrap_or(i64::MAX));
        let kept = self.kept(coarsened.collectives).count() as u64;
        let begun = self.window.collectives_begun;
        self.table("windows", 1)
            .with("boot_id", repeated(&self.identity.boot_id, 1))
            .with("pid", one(i64::from(self.identity.process_id)))
            .with("begin_ns", one(self.window.begin_ns))
            .with("end_ns", one(self.window.end_ns))
            .with("realtime_offset_ns", one(self.window.realtime_offset_ns))
            .with("clock_err_ns", one(self.window.clock_err_ns))
            .with("steps", one(self.window.closed.steps.len() as i64))
            .with("steps_dropped", count(counts.steps_dropped))
            .with("zones_begun", count(counts.begun))
            .with("zones_recorded", count(counts.recorded))
            .with("zones_captured", count(counts.captured))
            .with("zones_dropped", count(counts.dropped))
            .with("collectives_begun", count(begun))
            .with("collectives_kept", count(kept))
            .with("collectives_left_out", count(begun.saturating_sub(kept)))
            .with("coarsened", repeated(&coarsened.told(self.window), 1))
            .with("version", repeated(env!("CARGO_PKG_VERSION"), 1))
    }

    fn steps(&self) -> Table {
        let steps = &self.window.closed.steps;
        let clock_ns = self.window.clock_err_ns;
        self.table("steps", steps.len())
            .longs("step", steps.iter().map(|row| row.step))
            .longs("begin_ns", steps.iter().map(|row| row.begin_ns))
            .longs("wall_ns", steps.iter().map(|row| row.wall_ns))
            .longs("compute_ns", steps.iter().map(|row| row.parts.compute_ns))
            .longs("comm_ns", steps.iter().map(|row| row.parts.comm_ns))
            .longs("comm_hidden_ns", steps.iter().map(|row| row.parts.comm_hidden_ns))
            .longs("wait_ns", steps.iter().map(|row| row.parts.wait_ns))
            .longs("idle_ns", steps.iter().map(|row| row.parts.idle_ns))
            .longs("uncertain_ns", steps.iter().map(|row| row.parts.uncertain_ns))
            .longs("launch_ns", steps.iter().map(|row| row.launch_ns))
            .longs("zones", steps.iter().map(|row| row.zones))
            .longs("dropped", steps.iter().map(|row| row.dropped))
            .longs("clock_err_ns", steps.iter().map(|row| clock_ns + row.end_early_ns))
    }

    fn stages(&self) -> Table {
        let stages = &self.window.closed.stages;
        let table = self.table("stages", stages.len()).longs("step", stages.iter().map(|row| row.step));
        let table = table.with("idx", Column::Int(stages.iter().map(|row| row.idx).collect()));
        let table = table.with("name", texts(stages.iter().map(|row| row.name)));
        let table = table.longs("dur_ns", stages.iter().map(|row| row.dur_ns));
        table.longs("end_early_ns", stages.iter().map(|row| row.end_early_ns))
    }

    /// The figures of the window, and with `by_step` those of each step before them.
    fn ranges(&self, by_step: bool) -> Table {
        let of_steps = self.window.closed.ranges.iter().filter(|_| by_step);
        let of_steps = of_steps.map(|(step, name, figures)| (Some(*step), *name, figures));
        let of_window = self.window.ranges.by_name();
        let of_window = of_window.iter().map(|range| (None, range.name, &range.figures));
        let rows: Vec<_> = of_steps.chain(of_window).collect();
        let table = self.table("ranges", rows.len());
        let table = table.with("step", Column::OptionalLong(rows.iter().map(|(step, ..)| *step).collect()));
        let table = table.with("name", texts(rows.iter().map(|(_, name, _)| *name)));
        table
            .longs("n", rows.iter().map(|(.., row)| row.n))
            .longs("sum_ns", rows.iter().map(|(.., row)| row.sum_ns))
            .longs("min_ns", rows.iter().map(|(.., row)| row.min_ns))
            .longs("max_ns", rows.iter().map(|(.., row)| row.max_ns))
            .longs("launch_ns", rows.iter().map(|(.., row)| row.launch_ns))
            .longs("bounded", rows.iter().map(|(.., row)| row.bounded))
            .longs("bounded_sum_ns", rows.iter().map(|(.., row)| row.bounded_sum_ns))
            .longs("bounded_least_ns", rows.iter().map(|(.., row)| row.bounded_least_ns))
    }

    fn sketches(&self) -> Table {
        let ranges = self.window.ranges.by_name();
        let rows: Vec<_> =
            ranges.iter().flat_map(|range| range.sketch.counts().map(|(bucket, n)| (range.name, bucket, n))).collect();
        let table = self.table("sketches", rows.len()).with("name", texts(rows.iter().map(|(name, ..)| *name)));
        let table = table.with("bucket", Column::Int(rows.iter().map(|(_, bucket, _)| *bucket).collect()));
        table.longs("n", rows.iter().map(|(.., n)| *n))
    }

    /// The collectives that stay if a sample is made coarser by a power of four. Those that were slow stay.
    fn kept(&self, coarser: u32) -> impl Iterator<Item = &super::window::CollectiveRow> {
        let factor = 4_u64.pow(coarser);
        self.window.collectives.iter().filter(move |row| {
            coarser == 0
                || row.k.is_none_or(|k| sampling::is_kept(sampling::hash(&row.comm), row.seq, k.saturating_mul(factor)))
        })
    }

    fn collectives(&self, coarser: u32) -> Table {
        let rows: Vec<_> = self.kept(coarser).collect();
        let clock_ns = self.window.clock_err_ns;
        let table = self.table("collectives", rows.len()).with("comm", texts(rows.iter().map(|row| &*row.comm)));
        let table = table.longs("seq", rows.iter().map(|row| i64::try_from(row.seq).unwrap_or(i64::MAX)));
        let table = table.with("kind", texts(rows.iter().map(|row| row.kind)));
        let table = table
            .longs("bytes", rows.iter().map(|row| row.bytes))
            .longs("begin_ns", rows.iter().map(|row| row.begin_ns))
            .longs("dur_ns", rows.iter().map(|row| row.dur_ns))
            .longs("wait_ns", rows.iter().map(|row| row.wait_ns))
            .longs("err_ns", rows.iter().map(|row| clock_ns + row.end_early_ns))
            .longs("end_early_ns", rows.iter().map(|row| row.end_early_ns));
        let table = table.with("range", texts(rows.iter().map(|row| row.range)));
        let why = |k: Option<u64>| if k.is_some() { "sample" } else { "slow" };
        table.with("why", texts(rows.iter().map(|row| why(row.k))))
    }

    fn comms(&self) -> Table {
        let mut rows: Vec<_> = self.window.comms.iter().collect();
        rows.sort_unstable_by_key(|comm| &*comm.name);
        let entered: Vec<_> = rows
            .iter()
            .map(|comm| match comm.group.entered() {
                Some(entered) => (entered.entered, format!("{:016x}", entered.signature)),
                None => (comm.last_seq, String::new()),
            })
            .collect();
        let members = rows.iter().map(|comm| comm.is_new.then(|| ByteArray::from(comm.group.members().as_str())));
        let table = self.table("comms", rows.len()).with("comm", texts(rows.iter().map(|comm| &*comm.name)));
        let table = table.with("members", Column::OptionalText(members.collect()));
        let size = |comm: &super::window::Comm| i32::try_from(comm.group.size()).unwrap_or(i32::MAX);
        let table = table.with("size", Column::Int(rows.iter().map(|comm| size(comm)).collect()));
        let table = table
            .longs("sampling", rows.iter().map(|comm| comm.sampling as i64))
            .longs("last_seq", entered.iter().map(|(seq, _)| i64::try_from(*seq).unwrap_or(i64::MAX)));
        table.with("signature", texts(entered.iter().map(|(_, signature)| signature.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use warpline_core::collective::ProcessGroup;
    use warpline_judge::tables::{Kind, Table as Contract};
    use warpline_report::fixture;

    use super::super::steps::StepRow;
    use super::super::window::{CollectiveRow, Comm};
    use super::*;

    #[test]
    fn the_columns_of_each_table_are_those_that_readers_know() {
        let (comm, kind, range): (Arc<str>, _, _) = ("dp#1".into(), "all_reduce", "demo.sum");
        let mut window = Window::new(1, fixture::BEGIN_NS);
        window.closed.steps.push(StepRow::default());
        window.comms.push(Comm {
            name: comm.clone(),
            group: ProcessGroup::new("dp", [0, 1], 0),
            sampling: 1,
            last_seq: 0,
            is_new: true,
        });
        let (seq, bytes, begin_ns, dur_ns, wait_ns, end_early_ns) = (0, 4, 0, 1, 0, 0);
        let k = Some(1);
        let call = CollectiveRow { comm, seq, kind, bytes, begin_ns, dur_ns, wait_ns, end_early_ns, range, k };
        window.collectives.push(call);
        let identity = Identity::new(Path::new("."), &fixture::session());
        let layout = Layout { window: &window, identity: &identity };
        let mut written = vec![layout.windows(&Coarsened::default())];
        let others = [layout.steps(), layout.stages(), layout.ranges(true), layout.sketches(), layout.collectives(0)];
        written.extend(others.into_iter().chain([layout.comms()]));
        let names: Vec<&str> = written.iter().map(|table| table.name).collect();
        assert_eq!(names, Contract::ALL.map(Contract::name));
        for (table, contract) in written.iter().zip(Contract::ALL) {
            let columns: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
            let known: Vec<&str> = contract.columns().iter().map(|(name, _)| *name).collect();
            assert_eq!(columns, known, "{}", table.name);
            for ((name, column), (_, kind)) in table.columns.iter().zip(contract.columns()) {
                let fits = match column {
                    Column::Int(_) => *kind == Kind::I32,
                    Column::Long(_) => matches!(kind, Kind::I64 | Kind::Added),
                    Column::OptionalLong(_) => *kind == Kind::MaybeI64,
                    Column::Text(_) => *kind == Kind::Text,
                    Column::OptionalText(_) => *kind == Kind::MaybeText,
                };
                assert!(fits, "{}.{name}: {kind:?}", table.name);
            }
        }
    }
}
