//! The calls of the sink to Tracy, and their effect in a viewer.
//!
//! [`Viewer`] handles each call as Tracy's server does (`server/TracyWorker.cpp`, `ProcessGpu…`), and fails where that would crash or show
//! something else.

mod rows;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::contexts::Ids;
use super::order::{MOST, Order, PATIENCE};
use super::{Lost, Show, TracySink};
use crate::tracy::Location;
use crate::tracy::gpu::{Calls, Plot};
use crate::tracy::names::Name;
use warpline_core::catalog::RangeSpec;
use warpline_core::record::{Span, StreamInfo, ZoneRecord};
use warpline_report::fixture::{BEGIN_NS, COPY, LOAD, STEP, report, session, span, stream, thread, zone};
use warpline_report::sink::{Batch, Progress, Sink};

impl Location {
    /// Returns a location for the test double.
    fn new(number: u64) -> Location {
        Location(number)
    }

    /// Returns the location's number.
    fn number(self) -> u64 {
        self.0
    }
}

/// A zone as a viewer shows it: context, depth, location, begin, end.
type Shown = (u8, usize, Location, i64, i64);

/// The part of Tracy's server that handles GPU zones.
#[derive(Default)]
struct Viewer {
    contexts: BTreeMap<u8, ViewedContext>,
    zones: Vec<Shown>,
}

#[derive(Default)]
struct ViewedContext {
    /// The indices of the open zones.
    stack: Vec<usize>,
    /// The index of the zone that waits for a time, by query.
    queries: HashMap<u16, usize>,
    is_synced: bool,
    last_ns: i64,
}

/// Begin and end of a zone before their times are known.
const UNKNOWN: i64 = -1;

impl Viewer {
    fn context(&mut self, id: u8) -> &mut ViewedContext {
        self.contexts.get_mut(&id).expect("the context has been made")
    }

    fn begin(&mut self, id: u8, query: u16, location: Location) {
        let at = self.zones.len();
        let context = self.context(id);
        assert!(context.is_synced, "context {id} was not synchronised");
        let depth = context.stack.len();
        context.stack.push(at);
        assert_eq!(context.queries.insert(query, at), None, "query {query} is in use");
        self.zones.push((id, depth, location, UNKNOWN, UNKNOWN));
    }

    fn end(&mut self, id: u8, query: u16) {
        let context = self.context(id);
        let at = context.stack.pop().expect("a zone is open");
        assert_eq!(context.queries.insert(query, at), None, "query {query} is in use");
    }

    fn time(&mut self, id: u8, query: u16, ns: i64) {
        let context = self.context(id);
        assert!(ns >= context.last_ns, "time runs backwards on context {id}");
        context.last_ns = ns;
        let at = context.queries.remove(&query).expect("a zone waits for its time");
        let (.., begin, end) = &mut self.zones[at];
        *if *begin == UNKNOWN { begin } else { end } = ns;
    }

    /// Returns the zones, sorted. None may be open.
    fn zones(mut self) -> Vec<Shown> {
        assert!(self.contexts.values().all(|context| context.stack.is_empty() && context.queries.is_empty()));
        self.zones.sort_by_key(|&(.., location, begin, end)| (location.number(), begin, end));
        self.zones
    }
}

/// The first number of a name that is no range's.
const FIRST_NAME: u64 = 1_000;

/// The double of Tracy's client: it notes the calls, and has a viewer or none.
struct Double {
    log: Vec<String>,
    made: Vec<u8>,
    viewer: Option<Viewer>,
    /// The viewers that have disconnected.
    gone: Vec<Viewer>,
    connection: u64,
    /// The numbers of looks until the next changes of viewers, in reverse order.
    changes: Vec<usize>,
    /// Whether the viewer was checked since the last event.
    is_checked: bool,
    /// The names that are no range's: name, text and line. Their numbers come after those of ranges.
    names: Vec<(String, String, u32)>,
    /// The most of these.
    most_names: usize,
}

impl Double {
    fn new() -> Double {
        Double {
            log: Vec::new(),
            made: Vec::new(),
            viewer: Some(Viewer::default()),
            gone: Vec::new(),
            connection: 0,
            changes: Vec::new(),
            is_checked: false,
            names: Vec::new(),
            most_names: usize::MAX,
        }
    }

    /// Disconnects the viewer. Every other time, the next one connects at once.
    fn change(&mut self) {
        let was_there = self.viewer.take().map(|viewer| self.gone.push(viewer)).is_some();
        if !was_there || self.connection.is_multiple_of(2) {
            self.connection += 1;
            let contexts = self.made.iter().map(|id| (*id, ViewedContext::default())).collect();
            self.viewer = Some(Viewer { contexts, zones: Vec::new() });
        }
    }

    fn look(&mut self) -> Option<u64> {
        match self.changes.last_mut() {
            Some(0) => {
                self.changes.pop();
                self.change();
            }
            Some(looks) => *looks -= 1,
            None => {}
        }
        self.viewer.is_some().then_some(self.connection)
    }

    /// Returns the viewer for an event.
    fn viewer(&mut self) -> &mut Viewer {
        assert!(std::mem::take(&mut self.is_checked), "another viewer may be there by now");
        self.viewer.as_mut().expect("a viewer")
    }
}

impl Calls for Double {
    fn location(&self, range: &'static RangeSpec) -> Option<Location> {
        (!std::ptr::eq(range, &raw const LOAD)).then(|| Location::new(u64::from(range.line())))
    }

    fn named(&mut self, name: &Name<'_>) -> Option<Location> {
        let line = name.range.map_or(0, RangeSpec::line);
        let name = (name.name.to_owned(), name.text.to_owned(), line);
        let known = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        (known < self.most_names).then(|| Location::new(FIRST_NAME + known as u64))
    }

    fn listener(&mut self) -> Option<u64> {
        self.look()
    }

    fn is_still(&mut self, listener: u64) -> bool {
        self.is_checked = self.look() == Some(listener);
        self.is_checked
    }

    fn new_context(&mut self, context: u8, name: &str) {
        self.log.push(format!("context {context} {name}"));
        assert!(!self.made.contains(&context), "context {context} was made twice");
        self.made.push(context);
        if let Some(viewer) = &mut self.viewer {
            viewer.contexts.insert(context, ViewedContext::default());
        }
    }

    fn sync(&mut self, context: u8) {
        self.log.push(format!("sync {context}"));
        if let Some(viewer) = &mut self.viewer {
            let context = viewer.context(context);
            assert!(context.stack.is_empty() && context.queries.is_empty(), "a length would change");
            context.is_synced = true;
        }
    }

    fn begin(&mut self, context: u8, query: u16, location: Location) {
        self.log.push(format!("begin {context} q{query} line {}", location.number()));
        self.viewer().begin(context, query, location);
    }

    fn end(&mut self, context: u8, query: u16) {
        self.log.push(format!("end {context} q{query}"));
        self.viewer().end(context, query);
    }

    fn time(&mut self, context: u8, query: u16, ns: i64) {
        self.log.push(format!("time {context} q{query} {}", ns - BEGIN_NS));
        self.viewer().time(context, query, ns);
    }

    fn plot(&mut self, plot: Plot, value: i64) {
        self.log.push(format!("plot {plot:?} {value}"));
    }
}

fn show() -> Show {
    Show::new(Box::leak(Box::new(Ids::new())))
}

fn record(range: &'static RangeSpec, on: &Arc<StreamInfo>, sequence: u64, gpu: Span) -> ZoneRecord {
    let mut record = zone(range, Some(on), &thread(1, None), gpu, Some(gpu));
    record.sequence = sequence;
    record
}

#[test]
fn a_zone_goes_out_around_those_in_it() {
    let (mut show, mut tracy, now) = (show(), Double::new(), Instant::now());
    let compute = stream(1, "compute");
    let inner = record(&STEP, &compute, 1, span(20, 30));
    let copy = record(&COPY, &compute, 2, span(40, 50));
    let outer = record(&STEP, &compute, 0, span(10, 60));
    show.records(&mut tracy, &[inner, copy], now);
    assert!(tracy.log.is_empty(), "the zone around them is missing");
    show.records(&mut tracy, &[outer], now);
    let expected = [
        "context 255 host: compute",
        "sync 255",
        "begin 255 q0 line 10",
        "time 255 q0 10",
        "begin 255 q1 line 10",
        "time 255 q1 20",
        // The ranges of a lane have a separate context.
        "context 254 host: compute, copies",
        "sync 254",
        "begin 254 q0 line 30",
        "time 254 q0 40",
        "end 255 q2",
        "time 255 q2 30",
        "end 255 q3",
        "time 255 q3 60",
        "end 254 q1",
        "time 254 q1 50",
    ];
    assert_eq!(tracy.log, expected);
    let mut other = record(&COPY, &compute, 3, span(70, 80));
    other.fields.set_lane(format_args!("loader {}", 3));
    show.records(&mut tracy, &[other], now);
    assert_eq!(tracy.log[expected.len()], "context 253 host: compute, loader 3", "the zone's own lane");
    assert_eq!(show.lost, Lost::default());
}

#[test]
fn a_zone_that_stays_open_holds_nothing_up_for_long() {
    let (mut show, mut tracy, now) = (show(), Double::new(), Instant::now());
    let compute = stream(1, "compute");
    show.records(&mut tracy, &[record(&STEP, &compute, 1, span(20, 30))], now);
    show.release(&mut tracy, |order, ready| order.give_up_waiting(now + PATIENCE - Duration::from_nanos(1), ready));
    assert!(tracy.log.is_empty());
    show.release(&mut tracy, |order, ready| order.give_up_waiting(now + PATIENCE, ready));
    assert!(tracy.log.contains(&"time 255 q1 30".to_owned()));
    // Later zones are not held back again, and the late one goes to another context.
    show.records(&mut tracy, &[record(&STEP, &compute, 2, span(30, 40)), record(&STEP, &compute, 0, span(5, 50))], now);
    show.records(&mut tracy, &[record(&STEP, &compute, 3, span(60, 70))], now);
    let zones: Vec<_> = tracy.viewer.expect("a viewer").zones();
    let places: Vec<_> = zones.iter().map(|&(context, depth, _, begin, end)| (context, depth, end - begin)).collect();
    assert_eq!(places, [(254, 0, 45), (255, 0, 10), (255, 0, 10), (255, 0, 10)]);
}

#[test]
fn a_stream_that_was_met_anew_counts_anew() {
    let (mut order, now, mut ready) = (Order::default(), Instant::now(), Vec::new());
    let zone =
        |sequence| super::Zone { location: Location::new(1), span: span(0, 1), sequence, lane: None, is_record: true };
    for sequence in [0, 1, 3, 0, 2, 1] {
        order.add(zone(sequence), now, &mut ready);
    }
    let sequences: Vec<_> = ready.iter().map(|zone| zone.sequence).collect();
    assert_eq!(sequences, [0, 1, 3, 0, 1, 2]);
    // The number of waiting zones is bounded.
    for sequence in 10..10 + 2 * MOST as u64 {
        order.add(zone(sequence), now, &mut ready);
    }
    assert_eq!(ready.len(), 6 + 2 * MOST);
}

#[test]
fn contexts_are_used_again_and_never_more_than_there_are() {
    let ids: &'static Ids = Box::leak(Box::new(Ids::new()));
    let mut tracy = Double::new();
    let now = Instant::now();
    for (begin, streams) in [(0, 300), (1_000, 300), (2_000, 100)] {
        let mut show = Show::new(ids);
        for id in 1..=streams {
            let on = stream(id, &format!("stream {id}"));
            show.records(&mut tracy, &[record(&STEP, &on, 0, span(begin, begin + 10))], now);
        }
        assert_eq!(show.lost.no_context, u64::from(streams.saturating_sub(192)));
    }
    assert_eq!(tracy.made.len(), 192);
    assert_eq!(tracy.made.iter().min(), Some(&64));
    assert_eq!(tracy.viewer.expect("a viewer").zones().len(), 192 + 192 + 100);
}

#[test]
fn streams_of_one_name_that_come_and_go_share_its_contexts() {
    let (mut tracy, mut show, now) = (Double::new(), show(), Instant::now());
    for id in 1..=2_000 {
        let begin = 100 * i64::from(id);
        show.records(&mut tracy, &[record(&STEP, &stream(id, "short"), 0, span(begin, begin + 10))], now);
        assert!(show.streams.len() <= super::STREAMS, "{} streams", show.streams.len());
    }
    assert_eq!(show.lost, Lost::default());
    assert!(tracy.made.len() <= 192);
    assert_eq!(tracy.viewer.expect("a viewer").zones().len(), 2_000);
}

#[test]
fn what_is_not_shown_is_counted_and_said() {
    let mut sink = TracySink { calls: Some(Box::new(Double::new())), show: show() };
    let compute = stream(1, "compute");
    let unknown = record(&LOAD, &compute, 0, span(0, 10));
    sink.start(&session()).expect("it has its calls");
    sink.write(Batch::Zones(&[unknown, record(&STEP, &compute, 1, span(20, 30))])).expect("taken");
    sink.progress(&Progress { fullest_ring: 0.255, ..Progress::default() }).expect("plotted");
    let error = sink.finish(&report()).expect_err("one is not shown").to_string();
    assert_eq!(error, "zones that Tracy does not show: 1 because Tracy can hold no more ranges");
    assert_eq!(sink.lost(), 1);
    assert!(sink.write(Batch::Zones(&[])).is_err(), "it is over");
}

/// Zones on a stream: the begin, the length, and whether the zone was dropped and never comes.
fn zones() -> impl Strategy<Value = Vec<(i64, i64, bool)>> {
    prop::collection::vec((0_i64..300, 0_i64..60, prop::bool::weighted(0.1)), 0..120)
}

/// Returns the batches that the collector passes on: sequences in the order of begins, batches in the order of ends, cut anywhere.
fn batches(zones: &[(i64, i64, bool)], cut: usize) -> Vec<Vec<ZoneRecord>> {
    let compute = stream(1, "compute");
    let mut zones = zones.to_vec();
    zones.sort_by_key(|(begin, ..)| *begin);
    let mut records: Vec<_> = zones
        .iter()
        .enumerate()
        .filter(|(_, (.., is_dropped))| !is_dropped)
        .map(|(sequence, (begin, length, _))| record(&STEP, &compute, sequence as u64, span(*begin, begin + length)))
        .collect();
    records.sort_by_key(|record| record.gpu.map(|gpu| gpu.end_ns));
    records.chunks(cut).map(<[_]>::to_vec).collect()
}

fn spans(batches: &[Vec<ZoneRecord>]) -> Vec<(i64, i64)> {
    let mut spans: Vec<_> =
        batches.iter().flatten().filter_map(|record| record.gpu).map(|gpu| (gpu.begin_ns, gpu.end_ns)).collect();
    spans.sort_unstable();
    spans
}

proptest! {
    /// Each zone is shown with its times, however zones of several threads overlap on a stream and whichever are dropped.
    #[test]
    fn every_zone_is_shown_as_it_was(zones in zones(), cut in 1_usize..40, impatient in any::<bool>()) {
        let (mut show, mut tracy, mut now) = (show(), Double::new(), Instant::now());
        let batches = batches(&zones, cut);
        for batch in &batches {
            show.records(&mut tracy, batch, now);
            now += if impatient { PATIENCE / 2 } else { Duration::ZERO };
        }
        show.release(&mut tracy, Order::finish);
        let shown: Vec<_> = tracy.viewer.expect("a viewer").zones().iter().map(|&(.., begin, end)| (begin, end)).collect();
        prop_assert_eq!(shown, spans(&batches));
        prop_assert_eq!(show.lost, Lost::default());
    }

    /// Zones of one thread nest, and need only one context, at their own depth.
    #[test]
    fn what_nests_stays_on_one_context(depths in prop::collection::vec((0_usize..5, 0_i64..2), 1..150), cut in 1_usize..40) {
        let compute = stream(1, "compute");
        let (mut open, mut ended, mut ns) = (Vec::new(), Vec::new(), 0);
        let end_above = |depth: usize, open: &mut Vec<(usize, i64)>, ended: &mut Vec<_>, ns: &mut i64| {
            while open.len() > depth && let Some((sequence, begin)) = open.pop() {
                *ns += 1;
                ended.push((record(&STEP, &compute, sequence as u64, span(begin, *ns)), open.len()));
            }
        };
        for (sequence, (depth, gap)) in depths.iter().enumerate() {
            end_above(*depth, &mut open, &mut ended, &mut ns);
            ns += gap;
            open.push((sequence, ns));
        }
        end_above(0, &mut open, &mut ended, &mut ns);
        let (mut show, mut tracy) = (show(), Double::new());
        for batch in ended.chunks(cut) {
            let batch: Vec<_> = batch.iter().map(|(record, _)| record.clone()).collect();
            show.records(&mut tracy, &batch, Instant::now());
        }
        show.release(&mut tracy, Order::finish);
        let mut expected: Vec<_> = ended.iter().map(|(record, depth)| {
            let gpu = record.gpu.unwrap_or_default();
            (255, *depth, Location::new(10), gpu.begin_ns, gpu.end_ns)
        }).collect();
        expected.sort_by_key(|(.., begin, _)| *begin);
        prop_assert_eq!(tracy.viewer.expect("a viewer").zones(), expected);
    }

    /// Viewers connect and disconnect at any moment. None gets the rest of a zone whose begin it has not seen, and no zone is lost without
    /// being counted.
    #[test]
    fn viewers_come_and_go(zones in zones(), cut in 1_usize..40, changes in prop::collection::vec(0_usize..60, 0..20)) {
        let (mut show, mut tracy) = (show(), Double::new());
        tracy.changes = changes;
        let batches = batches(&zones, cut);
        for batch in &batches {
            show.records(&mut tracy, batch, Instant::now());
        }
        show.release(&mut tracy, Order::finish);
        tracy.gone.extend(tracy.viewer);
        let whole = tracy.gone.iter().flat_map(|viewer| &viewer.zones).filter(|&&(.., end)| end != UNKNOWN).count();
        prop_assert_eq!(whole as u64 + show.lost.total(), spans(&batches).len() as u64);
        let of_records = spans(&batches);
        for viewer in &tracy.gone {
            prop_assert!(viewer.zones.iter().all(|&(.., begin, end)| end == UNKNOWN || of_records.contains(&(begin, end))));
        }
    }
}
