//! The scan of a table of this machine: a leaf of a plan. A job of 10,000 ranks has a hundred thousand small files a
//! table, so a file is read in one go, without a task and a round of requests for each, and many files make a batch. A
//! file that is damaged or foreign is left out, and the folder says so. Called by the engine; `read` reads a file.
//! Never changes a file.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result as DfResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};

use super::in_memory::InMemoryRows;
use super::read::{BATCH, Wanted};
use crate::folder::{DataFile, Folder};

/// Larger files, as `compact` makes them, are read in pieces.
const IN_ONE_GO: u64 = 16 << 20;

/// Bytes of a row and column, about, for the planner's choice of a join's smaller side.
const BYTES_PER_VALUE: usize = 8;

/// Where rows come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Files, a list for each part.
    Files(Vec<Vec<DataFile>>, Arc<Mutex<Folder>>),
    /// Memory.
    InMemory(Arc<InMemoryRows>),
}

/// Reads rows: a leaf of a plan.
#[derive(Debug)]
pub struct Scan {
    wanted: Wanted,
    source: Source,
    rows: usize,
    properties: Arc<PlanProperties>,
}

impl Scan {
    /// A scan of the files of the table, in at most `parts` parts.
    pub fn of_files(wanted: Wanted, folder: &Arc<Mutex<Folder>>, parts: usize) -> Self {
        let files: Vec<DataFile> = {
            let folder = folder.lock().unwrap_or_else(PoisonError::into_inner);
            let all = folder.files(wanted.table).iter();
            all.filter(|file| wanted.scope.as_ref().is_none_or(|scope| scope.has(file))).cloned().collect()
        };
        // A guess: the numbers that a planner compares it with are much larger or much smaller.
        let rows = files.iter().map(|file| file.bytes as usize / 32).sum();
        // Dealt out in turn: each part has files of every window.
        let parts = parts.clamp(1, files.len().max(1));
        let part = |first: usize| files.iter().skip(first).step_by(parts).cloned().collect();
        Self::new(wanted, Source::Files((0..parts).map(part).collect(), folder.clone()), parts, rows)
    }

    /// A scan of rows in memory.
    pub fn of_memory(wanted: Wanted, held: Arc<InMemoryRows>) -> Self {
        let (parts, rows) = (held.parts(), held.rows());
        Self::new(wanted, Source::InMemory(held), parts, rows)
    }

    fn new(wanted: Wanted, source: Source, parts: usize, rows: usize) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(wanted.schema.clone()),
            Partitioning::UnknownPartitioning(parts),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { wanted, source, rows, properties: Arc::new(properties) }
    }
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self.wanted.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let what = match &self.source {
            Source::Files(parts, _) => format!("{} files", parts.iter().map(Vec::len).sum::<usize>()),
            Source::InMemory(_) => format!("{} rows in memory", self.rows),
        };
        write!(f, "Scan: {}, {what}, columns=[{}]", self.wanted.table.name(), columns.join(", "))
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &str {
        "Scan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, part: usize, _: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let mut stream = RecordBatchReceiverStream::builder(self.wanted.schema.clone(), 2);
        let (sender, wanted) = (stream.tx(), self.wanted.clone());
        // A thread of its own: a slow disk holds up no other work.
        match &self.source {
            Source::Files(parts, folder) => {
                let (files, folder) = (parts.get(part).cloned().unwrap_or_default(), folder.clone());
                stream.spawn_blocking(move || {
                    read_files(&wanted, &files, &folder, &mut |batch| sender.blocking_send(Ok(batch)).is_ok())
                });
            }
            Source::InMemory(held) => {
                let held = held.clone();
                stream.spawn_blocking(move || {
                    held.send(part, &wanted, &mut |batch| sender.blocking_send(Ok(batch)).is_ok())
                });
            }
        }
        Ok(stream.build())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> DfResult<Arc<Statistics>> {
        let parts = if args.partition().is_some() { self.properties.partitioning.partition_count().max(1) } else { 1 };
        let rows = self.rows / parts;
        let mut all = Statistics::new_unknown(&self.wanted.schema);
        all.num_rows = Precision::Inexact(rows);
        all.total_byte_size = Precision::Inexact(rows * BYTES_PER_VALUE * self.wanted.schema.fields().len().max(1));
        Ok(Arc::new(all))
    }
}

/// Many files to a batch. A small file that cannot be read is left out as a whole; what a large one gave before it
/// broke is on its way already, so that is an error, and the query runs again without the file.
fn read_files(
    wanted: &Wanted,
    files: &[DataFile],
    folder: &Mutex<Folder>,
    take: &mut impl FnMut(RecordBatch) -> bool,
) -> DfResult<()> {
    let leave_out = |file: &DataFile, why: &str| {
        folder.lock().unwrap_or_else(PoisonError::into_inner).leave_out(wanted.table, file, why);
    };
    let mut coalescer = BatchCoalescer::new(wanted.schema.clone(), BATCH);
    for file in files {
        if file.bytes > IN_ONE_GO {
            let read = wanted.read_in_pieces(file, take);
            if let Err(why) = read {
                leave_out(file, &why);
                return Err(DataFusionError::Execution(format!("`{}` {why}", file.path.display())));
            }
            continue;
        }
        match wanted.read(file) {
            Ok(batches) => {
                for batch in batches {
                    coalescer.push_batch(batch)?;
                }
            }
            Err(why) => leave_out(file, &why),
        }
        while let Some(batch) = coalescer.next_completed_batch() {
            if !take(batch) {
                return Ok(());
            }
        }
    }
    coalescer.finish_buffered_batch()?;
    while let Some(batch) = coalescer.next_completed_batch() {
        if !take(batch) {
            break;
        }
    }
    Ok(())
}
