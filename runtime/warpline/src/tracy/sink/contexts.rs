//! Shows zones on GPU contexts of Tracy: one for each stream, one for each kind of work beside it (`rows`), and further ones for
//! overlapping zones.
//!
//! Tracy has 256 contexts in a process and never releases one. [`Ids`] counts them over all sessions, and a context that a session no
//! longer uses serves the next stream of the same name. Times on a context never go backwards.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Lost;
use super::order::Zone;
use crate::tracy::gpu::Calls;
use warpline_core::lock::lock;

/// The lowest context that is used. Contexts are taken from the last one downwards, because `tracy-client` numbers the application's own
/// from 0.
const FIRST: u8 = 64;

/// The number of unused contexts that are reserved for the zones of streams.
const OF_ZONES: u8 = 64;

/// The maximum number of contexts of a timeline that is not a stream's.
const FEW: usize = 4;

/// The interval after which a context's clock is paired with Tracy's again, because the two drift apart by about 1 µs a second. Pairing
/// moves later zones by the drift, so it is done after a longer rest of the stream, or rarely if the stream never rests.
const SYNC_EVERY: Duration = Duration::from_secs(1);
const REST_NS: i64 = 10_000;
const SYNC_WITHOUT_REST: Duration = Duration::from_secs(10);

/// The contexts of a process.
pub(super) struct Ids(Mutex<Made>);

struct Made {
    /// The next context that was never used; none if there is none left.
    next: Option<u8>,
    /// Contexts that no session uses, by name.
    free: HashMap<String, Vec<Context>>,
}

/// A context, which at most one session uses.
#[derive(Debug)]
struct Context {
    id: u8,
    /// The next query. The time of a query follows it directly, so no query is in use twice.
    query: u16,
    /// The end of the last zone on it.
    end_ns: i64,
    /// The listener for which the clock was paired last, and when.
    synced: Option<(u64, Instant)>,
}

impl Ids {
    pub(super) fn new() -> Ids {
        Ids(Mutex::new(Made { next: Some(u8::MAX), free: HashMap::new() }))
    }

    /// Returns the contexts of this process.
    pub(super) fn of_process() -> &'static Ids {
        static IDS: std::sync::LazyLock<Ids> = std::sync::LazyLock::new(Ids::new);
        &IDS
    }

    /// Returns a context of this name; none if all that it may take are in use.
    fn take(&self, name: &str, is_of_zones: bool, calls: &mut dyn Calls) -> Option<Context> {
        let mut made = lock(&self.0);
        if let Some(context) = made.free.get_mut(name).and_then(Vec::pop) {
            return Some(context);
        }
        let id = made.next.filter(|id| is_of_zones || *id >= FIRST + OF_ZONES)?;
        made.next = (id > FIRST).then(|| id - 1);
        drop(made);
        calls.new_context(id, name);
        Some(Context { id, query: 0, end_ns: i64::MIN, synced: None })
    }

    /// Returns whether no context is left for this name.
    pub(super) fn are_used_up(&self, name: &str) -> bool {
        let made = lock(&self.0);
        made.next.is_none() && made.free.get(name).is_none_or(Vec::is_empty)
    }

    fn give(&self, name: String, context: Context) {
        lock(&self.0).free.entry(name).or_default().push(context);
    }
}

/// The contexts of one stream, or of what is shown beside it.
pub(super) struct Stage {
    name: String,
    ids: &'static Ids,
    rows: Vec<LaneContexts>,
    is_of_zones: bool,
}

/// The contexts of a stream's own row, or of the row of one lane's ranges.
struct LaneContexts {
    lane: Option<&'static str>,
    name: String,
    contexts: Vec<Stack>,
}

/// A context, and the ends of the zones that are open on it, the innermost last, with whether each is a record.
struct Stack {
    context: Context,
    open: Vec<(i64, bool)>,
}

/// The error that the listener has disconnected.
struct Gone;

/// The calls for one listener.
struct Talk<'a> {
    calls: &'a mut dyn Calls,
    listener: u64,
    now: Instant,
    /// The number of records that were shown completely.
    shown: u64,
}

impl Stage {
    pub(super) fn new(name: String, ids: &'static Ids) -> Stage {
        Stage { name, ids, rows: Vec::new(), is_of_zones: true }
    }

    /// For what is shown beside the zones of a stream: it takes few contexts, and none of those that zones may need.
    pub(super) fn beside(name: String, ids: &'static Ids) -> Stage {
        Stage { name, ids, rows: Vec::new(), is_of_zones: false }
    }

    /// Shows zones whose enclosing zones are known, and empties the list.
    pub(super) fn show(&mut self, calls: &mut dyn Calls, zones: &mut Vec<Zone>, lost: &mut Lost) {
        if zones.is_empty() {
            return;
        }
        // Outer zones come before the zones in them.
        zones.sort_unstable_by_key(|zone| (zone.span.begin_ns, Reverse(zone.span.end_ns), zone.sequence));
        let mut without_context = 0;
        let mut shown = 0;
        if let Some(listener) = calls.listener() {
            let mut talk = Talk { calls, listener, now: Instant::now(), shown: 0 };
            let outcome = zones
                .iter()
                .try_for_each(|zone| {
                    without_context += u64::from(!self.begin(zone, &mut talk)? && zone.is_record);
                    Ok(())
                })
                .and_then(|()| self.stacks().try_for_each(|stack| stack.end_until(i64::MAX, &mut talk)));
            shown = talk.shown;
            if let Err(Gone) = outcome {
                self.stacks().for_each(|stack| stack.open.clear());
            }
        }
        lost.no_context += without_context;
        let records = zones.iter().filter(|zone| zone.is_record).count() as u64;
        lost.no_viewer += records - shown - without_context;
        zones.clear();
    }

    /// Begins a zone on a context where it nests. Returns false if no context is left for it.
    fn begin(&mut self, zone: &Zone, talk: &mut Talk<'_>) -> Result<bool, Gone> {
        let at = self.rows.iter().position(|row| row.lane == zone.lane).unwrap_or_else(|| {
            let name = zone.lane.map_or_else(|| self.name.clone(), |lane| format!("{}, {lane}", self.name));
            self.rows.push(LaneContexts { lane: zone.lane, name, contexts: Vec::new() });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        for stack in &mut row.contexts {
            // All later zones begin at this time or after it.
            stack.end_until(zone.span.begin_ns, talk)?;
            if stack.can_hold(zone) {
                stack.begin(zone, talk)?;
                return Ok(true);
            }
        }
        loop {
            if !self.is_of_zones && row.contexts.len() >= FEW {
                return Ok(false);
            }
            let name = row.name_of(row.contexts.len());
            let Some(context) = self.ids.take(&name, self.is_of_zones, talk.check()?) else { return Ok(false) };
            row.contexts.push(Stack { context, open: Vec::new() });
            // A context that another stream of this name has used may have later times on it.
            if let Some(stack) = row.contexts.last_mut().filter(|stack| stack.can_hold(zone)) {
                stack.begin(zone, talk)?;
                return Ok(true);
            }
        }
    }

    fn stacks(&mut self) -> impl Iterator<Item = &mut Stack> {
        self.rows.iter_mut().flat_map(|row| &mut row.contexts)
    }
}

impl Stage {
    /// Releases the contexts. The stage takes others when it needs them.
    pub(super) fn give_back(&mut self) {
        for row in &mut self.rows {
            for (at, stack) in std::mem::take(&mut row.contexts).into_iter().enumerate() {
                self.ids.give(row.name_of(at), stack.context);
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl LaneContexts {
    /// Returns the name of the row's first context, or of a further one for overlapping zones.
    fn name_of(&self, at: usize) -> String {
        if at == 0 { self.name.clone() } else { format!("{} ({})", self.name, at + 1) }
    }
}

impl Stack {
    /// Returns whether a zone that begins after all others nests here.
    fn can_hold(&self, zone: &Zone) -> bool {
        match self.open.last() {
            Some((around, _)) => zone.span.end_ns <= *around,
            None => zone.span.begin_ns >= self.context.end_ns,
        }
    }

    fn begin(&mut self, zone: &Zone, talk: &mut Talk<'_>) -> Result<(), Gone> {
        let context = &mut self.context;
        if self.open.is_empty() {
            context.sync(zone.span.begin_ns, talk)?;
        }
        let query = context.query();
        self.open.push((zone.span.end_ns, zone.is_record));
        talk.check()?.begin(context.id, query, zone.location);
        talk.check()?.time(context.id, query, zone.span.begin_ns);
        Ok(())
    }

    /// Ends the zones that end at this time or before it.
    fn end_until(&mut self, ns: i64, talk: &mut Talk<'_>) -> Result<(), Gone> {
        while let Some((end_ns, is_record)) = self.open.pop_if(|(end_ns, _)| *end_ns <= ns) {
            let query = self.context.query();
            talk.check()?.end(self.context.id, query);
            talk.check()?.time(self.context.id, query, end_ns);
            self.context.end_ns = end_ns;
            talk.shown += u64::from(is_record);
        }
        Ok(())
    }
}

impl Context {
    fn query(&mut self) -> u16 {
        let query = self.query;
        self.query = query.wrapping_add(1);
        query
    }

    /// Pairs the clocks before a zone that begins at this time, unless they were paired recently for this listener.
    fn sync(&mut self, begin_ns: i64, talk: &mut Talk<'_>) -> Result<(), Gone> {
        let rested = begin_ns.saturating_sub(self.end_ns) >= REST_NS;
        let every = if rested { SYNC_EVERY } else { SYNC_WITHOUT_REST };
        let is_known = self
            .synced
            .is_some_and(|(listener, when)| listener == talk.listener && talk.now.duration_since(when) < every);
        if !is_known {
            talk.check()?.sync(self.id);
            self.synced = Some((talk.listener, talk.now));
        }
        Ok(())
    }
}

impl Talk<'_> {
    /// Returns the calls if the listener is still the same.
    #[inline]
    fn check(&mut self) -> Result<&mut dyn Calls, Gone> {
        if self.calls.is_still(self.listener) { Ok(self.calls) } else { Err(Gone) }
    }
}
