//! What is known of communicators across windows: their names, and how long their collectives take, by which some are kept because they
//! are slow.

use std::collections::HashMap;
use std::sync::Arc;

use super::sampling;
use super::window::{CollectiveRow, Comm, Window};
use crate::step_times::StepTimes;
use warpline_core::catalog::Kind;
use warpline_core::collective::{CollectiveKind, ProcessGroup};
use warpline_core::record::ZoneRecord;

/// The most collectives that a window keeps, and the most that are kept because they were slow.
const MOST_COLLECTIVES: usize = 1 << 15;
const MOST_SLOW: usize = 256;

/// The most communicators that are known at once.
const MOST_COMMS: usize = 4096;

/// The most kinds and sizes of the collectives of a communicator whose lengths are known.
const MOST_LENGTHS: usize = 256;

/// A collective is slow here if it takes this many times the mean of those before it, of which there are at least so many.
const SLOW: i64 = 4;
const LEAST_BEFORE: i64 = 16;

/// The lengths of the collectives of a communicator, kind and size so far.
struct Lengths {
    kind: CollectiveKind,
    /// The number of bits of the size.
    size: u32,
    n: i64,
    mean_ns: i64,
}

impl Lengths {
    /// Adds a length, and returns whether it is slow here.
    fn add(&mut self, ns: i64) -> bool {
        let is_slow = self.n >= LEAST_BEFORE && ns > self.mean_ns.saturating_mul(SLOW);
        self.n += 1;
        // Of the last ones, so that a program that changes is judged by what it does now.
        self.mean_ns += (ns - self.mean_ns) / self.n.min(64);
        is_slow
    }
}

/// A communicator.
struct Known {
    name: Arc<str>,
    /// The hash of the name, by which its collectives are sampled.
    hash: u64,
    lengths: Vec<Lengths>,
    /// The begin of the last window in which it was used, and its place in the communicators of that window.
    place: Option<(i64, usize)>,
}

impl Known {
    /// Adds a length, and returns whether it is slow here.
    fn is_slow(&mut self, kind: CollectiveKind, bytes: u64, ns: i64) -> bool {
        let size = u64::BITS - bytes.leading_zeros();
        let place = self.lengths.iter().position(|known| (known.kind, known.size) == (kind, size));
        let place = place.unwrap_or_else(|| {
            if self.lengths.len() >= MOST_LENGTHS {
                self.lengths.clear();
            }
            self.lengths.push(Lengths { kind, size, n: 0, mean_ns: 0 });
            self.lengths.len() - 1
        });
        self.lengths[place].add(ns)
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Communicators {
    known: Vec<Known>,
    /// Their places by the id of a group, and the group that was used last.
    by_id: HashMap<u64, usize>,
    last: Option<(u64, usize)>,
}

impl Communicators {
    fn place(&mut self, group: &ProcessGroup) -> usize {
        let id = group.id();
        if let Some((last, place)) = self.last
            && last == id
        {
            return place;
        }
        if self.by_id.len() >= MOST_COMMS {
            *self = Communicators::default();
        }
        let known = &mut self.known;
        let place = *self.by_id.entry(id).or_insert_with(|| {
            let name = group.comm();
            // Another handle of the same communicator.
            known.iter().position(|known| &*known.name == name).unwrap_or_else(|| {
                known.push(Known { name: name.into(), hash: sampling::hash(name), lengths: Vec::new(), place: None });
                known.len() - 1
            })
        });
        self.last = Some((id, place));
        place
    }

    /// Adds a collective to the window, if it is one.
    pub(super) fn add(&mut self, zone: &ZoneRecord, times: &StepTimes, window: &mut Window) {
        if zone.range.kind() != Kind::Collective {
            return;
        }
        let Some(message) = &zone.message else { return };
        window.collectives_begun += 1;
        let Some((group, seq)) = message.group.as_ref().zip(message.seq) else { return };
        group.complete(seq);
        let place = self.place(group);
        let known = &mut self.known[place];
        let k = sampling::share(message);
        use_in(known, window, group, seq, k);
        let bytes = message.bytes().unwrap_or(0);
        let span = zone.gpu.unwrap_or(zone.host);
        // A bound says nothing of how slow it is.
        let is_slow = !zone.is_bounded() && known.is_slow(message.kind, bytes, span.duration_ns());
        let is_sample = sampling::is_kept(known.hash, seq, k);
        let has_room = window.collectives.len() < MOST_COLLECTIVES;
        let keeps_slow = !is_sample && is_slow && window.slow < MOST_SLOW;
        if !has_room || !(is_sample || keeps_slow) {
            return;
        }
        window.slow += usize::from(keeps_slow);
        window.collectives.push(CollectiveRow {
            comm: Arc::clone(&known.name),
            seq,
            kind: message.kind.as_str(),
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            begin_ns: span.begin_ns,
            dur_ns: span.duration_ns(),
            wait_ns: times.waited_within(span),
            end_early_ns: zone.end_early_by_ns,
            range: zone.range.name(),
            k: is_sample.then_some(k),
        });
    }
}

/// Notes that a window has a collective of the communicator.
fn use_in(known: &mut Known, window: &mut Window, group: &ProcessGroup, seq: u64, k: u64) {
    let of_window = known.place.filter(|(begin_ns, _)| *begin_ns == window.begin_ns);
    if let Some(comm) = of_window.and_then(|(_, place)| window.comms.get_mut(place)) {
        comm.sampling = comm.sampling.max(k);
        comm.last_seq = comm.last_seq.max(seq);
    } else if window.comms.len() < MOST_COMMS {
        let is_new = known.place.is_none();
        known.place = Some((window.begin_ns, window.comms.len()));
        let (name, group) = (Arc::clone(&known.name), group.clone());
        window.comms.push(Comm { name, group, sampling: k, last_seq: seq, is_new });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::catalog::RangeSpec;
    use warpline_core::collective::{DataType, Message};
    use warpline_core::record::EndSource;
    use warpline_report::fixture::{range, span, stream, thread, zone};

    static SUM: RangeSpec = range("demo.sum\0", Kind::Collective, None, 50);

    #[test]
    fn a_length_that_is_only_a_bound_neither_is_slow_nor_says_what_is() {
        let group = ProcessGroup::new("dp", [0, 1], 0);
        let (mut all, mut window) = (Communicators::default(), Window::default());
        let mut add = |window: &mut Window, seq: u64, ns: i64, early_by_ns: i64| {
            let mut sum = zone(&SUM, Some(&stream(1, "comm")), &thread(1, None), span(0, 1), Some(span(0, ns)));
            sum.message = Some(Box::new(Message {
                seq: Some(seq),
                ..Message::new(CollectiveKind::AllReduce).count(16).dtype(DataType::F32).group(&group)
            }));
            (sum.end, sum.end_early_by_ns) = (EndSource::Observed, early_by_ns);
            all.add(&sum, &StepTimes::default(), window);
        };
        for seq in 0..64 {
            add(&mut window, seq, 1_000, 0);
            // On a stream that rests.
            add(&mut window, 1_000 + seq, 5_000_000, 4_999_000);
        }
        assert_eq!(window.slow, 0);
        // The bounds are not in the mean.
        (2_000..2_064).for_each(|seq| add(&mut window, seq, 10_000, 0));
        assert!(window.slow > 0);
        assert!(window.collectives.iter().all(|row| row.k.is_some() || row.end_early_ns == 0));
    }
}
