//! The slices of other tools: what those of PyTorch's profiler and of `warpline annotate` are, and how many of further categories there are.
//!
//! Both formats are read by this one rule, so that a trace has the same figures in each.

use std::collections::{BTreeMap, HashMap};

use warpline_core::plural::counted_as;
use warpline_core::record::Span;

use super::kinds::{Args, Kind};
use super::{Fact, Fault, Message, Rows, Slice, Visitor};
use warpline_report::names::{Name, Names};

/// The most categories that are not read and told apart.
const OTHERS: usize = 64;

/// The most calls whose work is still to come.
const CALLS: usize = 1 << 18;

/// The most pieces of work that wait for their calls.
const WAITS: usize = 1 << 15;

/// What is known of the slices of other tools.
#[derive(Default)]
pub(super) struct Others {
    /// The slices of categories that are not read, by category.
    unread: BTreeMap<Box<str>, u64>,
    /// The calls that may have submitted work, by the rank of a merged trace and the correlation: the row of the thread, and the time.
    calls: HashMap<(Name, u64), (usize, Span)>,
    /// The work whose call is still to come, by the same, and the number of such pieces.
    waiting: HashMap<(Name, u64), Vec<Work>>,
    waits: usize,
    /// Counts the pieces that ever waited.
    order: u64,
    /// The pieces that were passed on before the end of the trace, because too many waited.
    given_up: u64,
}

/// A piece of work that waits for its call.
struct Work {
    /// Their order in the file.
    number: u64,
    kind: Kind,
    name: Name,
    row: usize,
    span: Span,
    args: Args,
}

impl Work {
    fn pass_on(&self, launch: Option<(usize, Span)>, visitor: &mut impl Visitor, rows: &Rows, names: &mut Names) {
        let Work { kind, name, row, span, ref args, .. } = *self;
        visitor.slice(&Slice { kind, name, row, span, launch, args }, rows, names);
    }
}

impl Others {
    /// Returns what a slice of another tool is, and completes its arguments; none if it is in no figure.
    pub(super) fn kind(
        &mut self,
        (kind, category, name): (Kind, &str, &str),
        args: &mut Args,
        visitor: &mut impl Visitor,
        names: &mut Names,
    ) -> Result<Option<Kind>, Fault> {
        let step = step(name);
        // What all work of the profiler has is, in a session, of replays alone.
        args.has_correlation = kind == Kind::GraphZone;
        args.step = step;
        Ok(Some(match kind {
            Kind::Other if is_call(category) && name.contains("Synchronize") => Kind::Sync,
            Kind::Other if is_call(category) && args.correlation.is_some() => Kind::Call,
            Kind::Other => {
                self.count(category, names)?;
                return Ok(None);
            }
            Kind::Kernel if args.collective.is_some() => match Message::kind_of(args, names) {
                Ok(_) => {
                    args.is_kernel = true;
                    Kind::Collective
                }
                Err(unknown) => {
                    let note = format!(
                        "the collective `{unknown}` is not known, so its kernels are in no figure of collectives"
                    );
                    visitor.fact(Fact::Note(note));
                    Kind::Kernel
                }
            },
            // PyTorch's profiler repeats the steps on the streams.
            Kind::Zone if step.is_some() => return Ok(None),
            Kind::HostZone if step.is_some() => Kind::Step,
            Kind::GraphZone => Kind::Zone,
            kind => kind,
        }))
    }

    /// Gives work the call that submitted it: a launch of a graph submits several pieces. A profiler does not write in
    /// the order of time, so work whose call is still to come waits for it. Returns the slice that the visitor gets
    /// now; none for a call and for work that waits. If there are too many calls, the earlier ones are forgotten.
    pub(super) fn launched<'a>(
        &mut self,
        rank: Name,
        slice: Slice<'a>,
        visitor: &mut impl Visitor,
        (rows, names): (&Rows, &mut Names),
    ) -> Option<Slice<'a>> {
        let Slice { kind, row, span, args, .. } = slice;
        let is_work = matches!(kind, Kind::Kernel | Kind::Copy | Kind::Collective) && slice.launch.is_none();
        let key = match args.correlation {
            Some(correlation) if is_work || kind == Kind::Call => (rank, correlation),
            _ => return (kind != Kind::Call).then_some(slice),
        };
        if kind == Kind::Call {
            for work in self.waiting.remove(&key).into_iter().flatten() {
                self.waits -= 1;
                work.pass_on(Some((row, span)), visitor, rows, names);
            }
            if self.calls.len() >= CALLS {
                self.calls.clear();
            }
            self.calls.insert(key, (row, span));
            return None;
        }
        if let Some(call) = self.calls.get(&key) {
            return Some(Slice { launch: Some(*call), ..slice });
        }
        let (number, name) = (self.order, slice.name);
        self.waiting.entry(key).or_default().push(Work { number, kind, name, row, span, args: args.clone() });
        self.order += 1;
        self.waits += 1;
        if self.waits >= WAITS {
            self.given_up += self.waits as u64;
            self.pass_on(visitor, rows, names);
        }
        None
    }

    /// Passes on the work whose call did not come, in the order of the file.
    fn pass_on(&mut self, visitor: &mut impl Visitor, rows: &Rows, names: &mut Names) {
        let mut waiting: Vec<_> = std::mem::take(&mut self.waiting).into_values().flatten().collect();
        waiting.sort_by_key(|work| work.number);
        self.waits = 0;
        waiting.iter().for_each(|work| work.pass_on(None, visitor, rows, names));
    }

    /// Counts a slice that is not read.
    pub(super) fn count(&mut self, category: &str, names: &mut Names) -> Result<(), Fault> {
        if is_call(category) || matches!(category, "python_function" | "Trace") {
            return Ok(());
        }
        let category = if category.is_empty() { "(none)" } else { category };
        if let Some(slices) = self.unread.get_mut(category) {
            *slices += 1;
        } else if self.unread.len() < OTHERS {
            names.spend(category.len())?;
            self.unread.insert(category.into(), 1);
        }
        Ok(())
    }

    /// Passes on what is left at the end of the trace.
    pub(super) fn finish(mut self, visitor: &mut impl Visitor, rows: &Rows, names: &mut Names) {
        self.pass_on(visitor, rows, names);
        // Without a call, the trace has no launches at all.
        if self.given_up > 0 && !self.calls.is_empty() {
            visitor.fact(Fact::Note(format!(
                "{} have no launch, because more than {WAITS} waited for their calls; the critical path lacks those",
                counted_as(self.given_up, "piece of work", "pieces of work")
            )));
        }
        self.unread.into_iter().for_each(|(category, slices)| visitor.fact(Fact::Other(category.into(), slices)));
    }
}

/// Whether a slice of this category is a call of the runtime or the driver on a thread, also of HIP's.
pub(super) fn is_call(category: &str) -> bool {
    matches!(category, "cuda_runtime" | "cuda_driver")
}

/// The number in the name of a step of PyTorch's profiler, as a session's Chrome trace has it, too.
pub(super) fn step(name: &str) -> Option<u64> {
    name.strip_prefix("ProfilerStep#").and_then(|number| number.parse().ok())
}

/// The members of an annotation of PyTorch that name its scope; the first that there is counts.
const NAMES: [&str; 3] = ["name", "module_fqn", "module_name"];

/// The most kernels of graphs whose scopes wait for the others of their replays.
const WAITING: usize = 1 << 18;

/// What a kernel of a graph says that PyTorch annotated itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Annotated {
    /// The number of the member of [`NAMES`], and its value.
    scope: Option<(usize, Name)>,
    node: Option<u64>,
}

impl Annotated {
    /// Takes an argument. The text is without quotes.
    pub(super) fn argument(&mut self, key: &str, text: &str, names: &mut Names) -> Result<(), Fault> {
        if key == "graph node id" {
            self.node = text.parse().ok();
        } else if let Some(rank) = NAMES.iter().position(|name| *name == key)
            && self.scope.is_none_or(|(known, _)| rank <= known)
        {
            self.scope = Some((rank, names.number(text)?));
        }
        Ok(())
    }

    /// Returns the scope of a node; none for other work.
    pub(super) fn scope(&self) -> Option<Name> {
        self.scope.filter(|_| self.node.is_some()).map(|(_, name)| name)
    }
}

/// A kernel of a replay, in a scope. Sorted, the nodes of a replay follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    row: usize,
    correlation: u64,
    id: u64,
    scope: Name,
    begin_ns: i64,
    end_ns: i64,
}

/// The kernels of replays that wait to become zones. `row` is that of the zones of their device.
#[derive(Default)]
pub(super) struct Scopes(Vec<Node>);

impl Scopes {
    /// Takes a kernel. Returns whether there are so many that [`Scopes::zones`] must be asked for.
    pub(super) fn add(
        &mut self,
        row: usize,
        (of, correlation): (&Annotated, Option<u64>),
        Span { begin_ns, end_ns }: Span,
    ) -> bool {
        if let (Some(scope), Some(correlation), Some(id)) = (of.scope(), correlation, of.node) {
            self.0.push(Node { row, correlation, id, scope, begin_ns, end_ns });
        }
        self.0.len() >= WAITING
    }

    /// Returns the zones of the replays so far, each with its row: nodes of one scope whose ids follow one another are one zone, as `warpline annotate`
    /// has it.
    pub(super) fn zones(&mut self) -> Vec<(usize, Name, Span)> {
        let mut nodes = std::mem::take(&mut self.0);
        nodes.sort_unstable();
        let is_one = |one: &Node, next: &Node| {
            (one.row, one.correlation, one.scope, one.id.saturating_add(1))
                == (next.row, next.correlation, next.scope, next.id)
        };
        let zone = |nodes: &[Node]| {
            let first = nodes.first()?;
            let begin_ns = nodes.iter().map(|node| node.begin_ns).min()?;
            let end_ns = nodes.iter().map(|node| node.end_ns).max()?;
            Some((first.row, first.scope, Span { begin_ns, end_ns }))
        };
        let mut zones: Vec<_> = nodes.chunk_by(is_one).filter_map(zone).collect();
        zones.sort_by_key(|(.., span)| (span.begin_ns, -span.end_ns));
        zones
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the begins of slices, and whether they have a launch; and the notes.
    #[derive(Default)]
    struct Seen {
        slices: Vec<(i64, bool)>,
        notes: Vec<String>,
    }

    impl Visitor for Seen {
        fn slice(&mut self, slice: &Slice<'_>, _: &Rows, _: &mut Names) {
            self.slices.push((slice.span.begin_ns, slice.launch.is_some()));
        }

        fn fact(&mut self, fact: Fact) {
            if let Fact::Note(note) = fact {
                self.notes.push(note);
            }
        }
    }

    /// Reads calls and kernels by their correlation. A kernel begins when its number says.
    fn seen(events: impl IntoIterator<Item = (Kind, u64)>) -> Seen {
        let (mut others, mut seen) = (Others::default(), Seen::default());
        let (rows, mut names) = (Rows::default(), Names::default());
        for (kind, correlation) in events {
            let args = Args { correlation: Some(correlation), ..Args::default() };
            let span = Span { begin_ns: correlation as i64, end_ns: correlation as i64 + 1 };
            let slice = Slice { kind, name: Name::default(), row: 0, span, launch: None, args: &args };
            let passed = others.launched(Name::default(), slice, &mut seen, (&rows, &mut names));
            if let Some(slice) = passed {
                seen.slice(&slice, &rows, &mut names);
            }
        }
        others.finish(&mut seen, &rows, &mut names);
        seen
    }

    #[test]
    fn work_waits_for_its_call_and_what_has_none_keeps_the_order_of_the_file() {
        let kernels = |numbers: std::ops::Range<u64>| numbers.map(|number| (Kind::Kernel, number));
        let calls = [1, 2, 9].map(|number| (Kind::Call, number));
        let again = [(Kind::Kernel, 9)];
        let events = kernels(1..40).chain(calls).chain(kernels(40..60)).chain(again);
        let found = seen(events).slices;
        let launched = [1, 2, 9, 9].map(|begin| (begin, true));
        let rest = (1..60).filter(|begin| ![1, 2, 9].contains(begin)).map(|begin| (begin, false));
        assert_eq!(found, launched.into_iter().chain(rest).collect::<Vec<_>>());
    }

    #[test]
    fn work_that_comes_too_early_is_in_the_figures_and_is_said() {
        let most = WAITS as u64;
        let kernels = (0..most + 10).map(|number| (Kind::Kernel, number));
        let calls = (0..most + 10).map(|number| (Kind::Call, number));
        let found = seen(kernels.clone().chain(calls));
        assert_eq!(found.slices.len() as u64, most + 10);
        assert_eq!(found.slices.iter().filter(|(_, is_launched)| *is_launched).count(), 10);
        assert!(
            found.notes.len() == 1 && found.notes[0].starts_with("32768 pieces of work have no launch"),
            "{:?}",
            found.notes
        );
        // A trace without calls has no launches to miss.
        assert_eq!((seen(kernels.clone()).slices.len() as u64, seen(kernels).notes.len()), (most + 10, 0));
    }
}
