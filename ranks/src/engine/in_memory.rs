//! Rows that stay in memory, because a report asks for them again and again and a file costs more to open than to read. Packed: numbers
//! in 32 bits where a chunk's fit, texts as numbers of a dictionary. Called by the engine; `scan` unpacks what a query reads.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type, Int64Type, SchemaRef};
use datafusion::common::Result as DfResult;

use super::read::{BATCH, Wanted};
use crate::folder::Folder;

/// Rows of a chunk, whose numbers are packed alike.
const CHUNK: usize = 16 * BATCH;

/// Threads that read, for each that computes: a file of a remote disk is waited for.
const READERS: usize = 4;

/// Rows in memory.
pub struct InMemoryRows {
    schema: SchemaRef,
    parts: Vec<Vec<Chunk>>,
    rows: usize,
    bytes: usize,
}

struct Chunk {
    rows: usize,
    columns: Vec<ArrayRef>,
    /// The texts of each column; empty for a column of numbers.
    texts: Arc<Vec<Arc<StringViewArray>>>,
}

impl fmt::Debug for InMemoryRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryRows").field("rows", &self.rows).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl InMemoryRows {
    /// Reads the columns of `wanted` from all files of its table, for `parts` threads that compute. Nothing if they take more than
    /// `most_bytes`. Files that cannot be read are left out.
    pub fn load(wanted: &Wanted, folder: &Mutex<Folder>, parts: usize, most_bytes: usize) -> Option<Self> {
        let files = folder.lock().unwrap_or_else(PoisonError::into_inner).files(wanted.table).to_vec();
        let (bytes, parts) = (AtomicUsize::new(0), parts.max(1));
        let readers = (parts * READERS).min(files.len());
        let one = |first: usize| {
            let mut packer = Packer::new(wanted);
            for file in files.iter().skip(first).step_by(readers) {
                match wanted.read(file) {
                    Ok(batches) => batches.iter().for_each(|batch| packer.push(batch, &bytes)),
                    Err(why) => {
                        let mut folder = folder.lock().unwrap_or_else(PoisonError::into_inner);
                        folder.leave_out(wanted.table, file, &why);
                    }
                }
                if bytes.load(Ordering::Relaxed) > most_bytes {
                    return None;
                }
            }
            Some(packer.finish(&bytes))
        };
        let chunks: Option<Vec<Vec<Chunk>>> = std::thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> = (0..readers).map(|first| scope.spawn(move || one(first))).collect();
            // All are waited for, also if one has found too much.
            let done: Vec<Option<Vec<Chunk>>> = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            done.into_iter().collect()
        });
        let mut held = Self { schema: wanted.schema.clone(), parts: Vec::new(), rows: 0, bytes: bytes.into_inner() };
        held.parts.resize_with(parts, Vec::new);
        for (place, chunk) in chunks?.into_iter().flatten().enumerate() {
            held.rows += chunk.rows;
            held.parts[place % parts].push(chunk);
        }
        Some(held)
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The memory they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many threads may read them at once.
    pub fn parts(&self) -> usize {
        self.parts.len().max(1)
    }

    /// Whether it has all of these columns. `run` is in no file.
    pub fn has(&self, schema: &SchemaRef) -> bool {
        schema.fields().iter().all(|field| field.name() == "run" || self.schema.index_of(field.name()).is_ok())
    }

    /// Hands over the rows of a part as `wanted` has them, until `take` has enough.
    pub fn send(&self, part: usize, wanted: &Wanted, take: &mut impl FnMut(RecordBatch) -> bool) -> DfResult<()> {
        let Some(part) = self.parts.get(part) else { return Ok(()) };
        let run = Arc::new(StringViewArray::from_iter_values([&*wanted.run]));
        for chunk in part {
            for at in (0..chunk.rows).step_by(BATCH) {
                let some = BATCH.min(chunk.rows - at);
                let mut columns = Vec::with_capacity(wanted.schema.fields().len());
                for field in wanted.schema.fields() {
                    let (texts, keys) = match self.schema.index_of(field.name()) {
                        Ok(which) => (chunk.texts[which].clone(), chunk.columns[which].slice(at, some)),
                        Err(_) => (run.clone(), Arc::new(Int32Array::from_value(0, some)) as ArrayRef),
                    };
                    columns.push(match field.data_type() {
                        DataType::Utf8View => {
                            let keys = keys.as_primitive::<Int32Type>().clone();
                            cast(&DictionaryArray::try_new(keys, texts)?, &DataType::Utf8View)?
                        }
                        kind if keys.data_type() == kind => keys,
                        kind => cast(&keys, kind)?,
                    });
                }
                let options = RecordBatchOptions::new().with_row_count(Some(some));
                if !take(RecordBatch::try_new_with_options(wanted.schema.clone(), columns, &options)?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Packs the rows of one thread.
struct Packer {
    columns: Vec<Column>,
    rows: usize,
    chunks: Vec<(usize, Vec<ArrayRef>)>,
}

enum Column {
    Numbers(Vec<i64>),
    Texts { keys: Vec<i32>, known: HashMap<Box<str>, i32>, all: Vec<Box<str>> },
}

impl Packer {
    fn new(wanted: &Wanted) -> Self {
        let column = |field: &Arc<datafusion::arrow::datatypes::Field>| match field.data_type() {
            DataType::Utf8View => Column::Texts { keys: Vec::new(), known: HashMap::new(), all: Vec::new() },
            _ => Column::Numbers(Vec::new()),
        };
        Self { columns: wanted.schema.fields().iter().map(column).collect(), rows: 0, chunks: Vec::new() }
    }

    fn push(&mut self, batch: &RecordBatch, bytes: &AtomicUsize) {
        for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
            match column {
                Column::Numbers(all) => match array.data_type() {
                    DataType::Int32 => {
                        all.extend(array.as_primitive::<Int32Type>().values().iter().map(|value| i64::from(*value)));
                    }
                    _ => all.extend_from_slice(array.as_primitive::<Int64Type>().values()),
                },
                Column::Texts { keys, known, all } => {
                    let texts = array.as_string_view();
                    for row in 0..texts.len() {
                        let text = texts.value(row);
                        // Texts repeat from row to row.
                        let key = match keys.last() {
                            Some(last) if *all[*last as usize] == *text => *last,
                            _ => match known.get(text) {
                                Some(key) => *key,
                                None => {
                                    let key = all.len() as i32;
                                    known.insert(text.into(), key);
                                    all.push(text.into());
                                    key
                                }
                            },
                        };
                        keys.push(key);
                    }
                }
            }
        }
        self.rows += batch.num_rows();
        if self.rows >= CHUNK {
            self.flush(bytes);
        }
    }

    fn flush(&mut self, bytes: &AtomicUsize) {
        let packed = |column: &mut Column| -> ArrayRef {
            match column {
                Column::Numbers(all) => {
                    let mut all = std::mem::take(all);
                    all.shrink_to_fit();
                    match all.iter().map(|value| i32::try_from(*value)).collect::<Result<Vec<i32>, _>>() {
                        Ok(small) => Arc::new(Int32Array::from(small)),
                        Err(_) => Arc::new(Int64Array::from(all)),
                    }
                }
                Column::Texts { keys, .. } => Arc::new(Int32Array::from(std::mem::take(keys))),
            }
        };
        let chunk: Vec<ArrayRef> = self.columns.iter_mut().map(packed).collect();
        bytes.fetch_add(chunk.iter().map(|array| array.get_buffer_memory_size()).sum(), Ordering::Relaxed);
        if self.rows > 0 {
            self.chunks.push((self.rows, chunk));
        }
        self.rows = 0;
    }

    fn finish(mut self, bytes: &AtomicUsize) -> Vec<Chunk> {
        self.flush(bytes);
        let texts = |column: &Column| match column {
            Column::Numbers(_) => Arc::new(StringViewArray::from_iter_values(std::iter::empty::<&str>())),
            Column::Texts { all, .. } => Arc::new(StringViewArray::from_iter_values(all)),
        };
        let texts = Arc::new(self.columns.iter().map(texts).collect::<Vec<_>>());
        let chunk = |(rows, columns)| Chunk { rows, columns, texts: texts.clone() };
        self.chunks.into_iter().map(chunk).collect()
    }
}
