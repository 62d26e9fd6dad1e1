//! From the engine's meetings to the table `clocks`, on which the views build that compare hosts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use serde::Serialize;
use warpline_judge::clocks::{Clock, MAX_DRIFT_PPM, Meeting, SEGMENT_NS, Seen, all};

use crate::engine::Engine;
use crate::error::Error;

/// Texts by the host's number.
type Names = Vec<Arc<str>>;

/// About how many rows of collectives are enough: sampled evenly beyond.
const ENOUGH: i64 = 2_000_000;

/// The user's options.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The maximum rate at which two clocks drift apart, for the certified bounds.
    pub max_drift_ppm: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_drift_ppm: MAX_DRIFT_PPM }
    }
}

/// The clocks of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Clocks {
    /// The hosts' names, by number. A name twice is a host that was booted again.
    pub hosts: Vec<Arc<str>>,
    /// Their boots.
    pub boots: Vec<Arc<str>>,
    /// Each host in each segment.
    pub clocks: Vec<Clock>,
    /// One in this many collectives was used.
    pub one_in: i64,
}

impl Clocks {
    /// Pairs of hosts that never met, not even through others: the hosts of each such group.
    pub fn apart(&self) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut best: HashMap<usize, usize> = HashMap::new();
        for clock in &self.clocks {
            let least = best.entry(clock.host).or_insert(clock.beside);
            *least = clock.beside.min(*least);
        }
        for (host, beside) in best {
            groups.entry(beside).or_default().insert(host);
        }
        groups.into_values().map(|hosts| hosts.into_iter().collect()).collect()
    }

    /// The worst error of an estimate.
    pub fn worst_err_ns(&self) -> f64 {
        self.clocks.iter().filter(|clock| clock.meetings > 0).map(|clock| clock.err_ns).fold(0.0, f64::max)
    }
}

/// Finds the clocks, and makes them the table `clocks` of the engine.
pub fn clocks(engine: &Engine, options: Options) -> Result<Clocks, Error> {
    let placed = engine.keep("placed")?;
    let (hosts, boots) = hosts(&placed)?;
    let number: HashMap<Arc<str>, usize> = boots.iter().cloned().zip(0..).collect();
    let rows = engine.query("rows", "SELECT COUNT(*) AS n FROM collectives")?.ints("n")?;
    let one_in = (rows.first().copied().unwrap_or(0) / ENOUGH).max(1);
    let mut segments: BTreeMap<i64, Vec<Meeting>> = BTreeMap::new();
    if boots.len() > 1 {
        let sql = crate::views::find("meetings").map_or("", |view| view.sql);
        let sampled = format!("SELECT * FROM (\n{sql}\n) m WHERE m.seq % {one_in} = 0");
        let rows = engine.query("meetings", &sampled)?;
        let (comm, seq, boot) = (rows.texts("comm")?, rows.ints("seq")?, rows.texts("boot_id")?);
        let (begin, end, err) = (rows.ints("begin_ns")?, rows.ints("end_ns")?, rows.ints("err_ns")?);
        let early = rows.ints("early_ns")?;
        // Sorted here: an engine counts texts that rows share once for each batch, and soon has no memory for a sort.
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by(|a, b| (&comm[*a], seq[*a], &boot[*a]).cmp(&(&comm[*b], seq[*b], &boot[*b])));
        for met in order.chunk_by(|a, b| comm[*a] == comm[*b] && seq[*a] == seq[*b]) {
            let seen = |row: &usize| {
                let host = *number.get(&boot[*row])?;
                let (begin_ns, end_ns, err_ns, early_ns) = (begin[*row], end[*row], err[*row], early[*row]);
                Some(Seen { host, begin_ns, end_ns, err_ns, early_ns })
            };
            let meeting = Meeting { seen: met.iter().filter_map(seen).collect() };
            if meeting.seen.len() > 1 {
                segments.entry(end[met[0]].div_euclid(SEGMENT_NS)).or_default().push(meeting);
            }
        }
    }
    let (first, last) = extent(engine)?;
    let of_run = (first..=last).map(|number| (number, segments.remove(&number).unwrap_or_default())).collect();
    let found = Clocks { hosts, clocks: all(of_run, boots.len(), options.max_drift_ppm), boots, one_in };
    let run = engine.folder().run;
    let (schema, batch) = table(&found, &run).map_err(|error| Error::query("clocks", error.into()))?;
    engine.insert("clocks", schema, vec![batch])?;
    Ok(found)
}

fn hosts(placed: &crate::engine::Rows) -> Result<(Names, Names), Error> {
    let (names, boots, ranks) = (placed.texts("host")?, placed.texts("boot_id")?, placed.ints("rank")?);
    let mut first: BTreeMap<Arc<str>, (i64, Arc<str>)> = BTreeMap::new();
    for ((name, boot), rank) in names.into_iter().zip(boots).zip(ranks) {
        let known = first.entry(boot).or_insert((rank, name.clone()));
        if rank < known.0 {
            *known = (rank, name);
        }
    }
    // In the order of ranks: the host of rank 0 is the one that others are compared with.
    let mut order: Vec<_> = first.into_iter().map(|(boot, (rank, name))| (rank, name, boot)).collect();
    order.sort();
    Ok(order.into_iter().map(|(_, name, boot)| (name, boot)).unzip())
}

/// The first and the last segment of the run.
fn extent(engine: &Engine) -> Result<(i64, i64), Error> {
    let sql = "SELECT MIN(w.begin_ns + p.base_ns) AS first, MAX(w.end_ns + p.base_ns) AS last FROM windows w \
               JOIN placed p ON w.run = p.run AND w.win = p.win AND w.rank = p.rank";
    let rows = engine.query("extent", sql)?;
    let of = |column: &str| Ok::<_, Error>(rows.ints(column)?.first().copied().unwrap_or(0).div_euclid(SEGMENT_NS));
    let (first, last) = (of("first")?, of("last")?);
    // A wall clock that was a year off at the begin makes no half a million segments.
    Ok((first - 1, last.min(first + 20_000) + 1))
}

fn table(clocks: &Clocks, run: &str) -> Result<(Arc<Schema>, RecordBatch), datafusion::arrow::error::ArrowError> {
    let all = &clocks.clocks;
    let text = |values: Vec<&str>| Arc::new(StringArray::from(values)) as ArrayRef;
    let int = |value: &dyn Fn(&Clock) -> i64| {
        Arc::new(all.iter().map(|c| Some(value(c))).collect::<Int64Array>()) as ArrayRef
    };
    let float =
        |value: &dyn Fn(&Clock) -> Option<f64>| Arc::new(all.iter().map(value).collect::<Float64Array>()) as ArrayRef;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("run", text(vec![run; all.len()])),
        ("host", text(all.iter().map(|clock| &*clocks.hosts[clock.host]).collect())),
        ("boot_id", text(all.iter().map(|clock| &*clocks.boots[clock.host]).collect())),
        ("beside", text(all.iter().map(|clock| &*clocks.hosts[clock.beside]).collect())),
        ("segment", int(&|clock| clock.segment)),
        ("mid_ns", int(&|clock| clock.mid_ns)),
        ("meetings", int(&|clock| clock.meetings as i64)),
        ("offset_ns", float(&|clock| Some(clock.offset_ns))),
        ("drift", float(&|clock| Some(clock.drift))),
        ("err_ns", int(&|clock| clock.err_ns.ceil() as i64)),
        ("least_ns", float(&|clock| clock.certified.map(|bounds| bounds.0))),
        ("most_ns", float(&|clock| clock.certified.map(|bounds| bounds.1))),
    ];
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    debug_assert_eq!(schema.field(0).data_type(), &DataType::Utf8);
    let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, array)| array).collect())?;
    Ok((schema, batch))
}
