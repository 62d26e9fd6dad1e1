//! What was asked for is begun, or refused: called once a connection, when its request is whole.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use super::progress::staying;
use super::sink::RecordSink;
use super::state::{Arming, Dumping, Recording, State, Watching};
use super::{Connection, Shared};
use crate::collector::left_out::not_sampled;
use crate::collector::{NewSubscription, SubscriptionHandle};
use crate::control::answers;
use crate::control::host::{self, Seat};
use crate::control::live_stats::{LiveStats, LiveStatsSink};
use crate::control::pipe::Pipe;
use crate::profile;
use crate::settings::{Filter, unmatched};
use warpline_core::sink::{SessionInfo, Sink};
use warpline_trace::control::protocol::{Refusal, Request};

/// A collector comes to it within this time; a sink of the program's may keep it from that.
const WRITES_WITHIN: Duration = Duration::from_secs(1);

/// The most recordings and watchers at one time, so that their memory is bounded.
const SEATS: usize = 4;

impl Connection {
    pub(super) fn carry_out<'a>(
        &mut self,
        request: Request,
        now: Instant,
        shared: &Shared,
        others: impl Iterator<Item = &'a Connection> + Clone,
    ) {
        let begun = match request {
            Request::Status => {
                let recordings = others.clone().filter(|other| matches!(other.state, State::Recording(_))).count();
                let watchers = others.filter(|other| matches!(other.state, State::Watching(_))).count();
                self.tell_last(&answers::status(host::current().as_ref(), recordings, watchers));
                Ok(())
            }
            Request::Stop => {
                let ends = others.filter(|other| other.seat().is_some() || matches!(other.state, State::Arming(_)));
                self.tell_last(&json!({"is": "stopped", "ended": ends.count()}));
                Ok(())
            }
            Request::Record { for_ms, filter, kernels } => {
                let until = for_ms.map(|ms| now + Duration::from_millis(ms));
                self.record(until, &filter, kernels, shared, others)
            }
            Request::Watch { every_ms } => self.watch(Duration::from_millis(every_ms), now, shared, others),
            Request::Arm { range, zones, for_ms } => {
                let pending = profile::range(range.as_str(), zones);
                self.tell(&json!({"is": "armed"}));
                self.state = State::Arming(Arming { pending, until: now + Duration::from_millis(for_ms), next: now });
                Ok(())
            }
            Request::Dump => self.dump(now),
        };
        if let Err(refusal) = begun {
            self.refuse(&refusal);
        }
    }

    fn record<'a>(
        &mut self,
        until: Option<Instant>,
        filter: &str,
        kernels: bool,
        shared: &Shared,
        others: impl Iterator<Item = &'a Connection> + Clone,
    ) -> Result<(), Refusal> {
        let filters = Filter::parse_all(filter).map_err(|error| Refusal::new("filter", error.to_string()))?;
        let unmatched = unmatched(&filters);
        let pipe = Pipe::new(Arc::clone(&shared.waker));
        let seat = take_seat(Box::new(RecordSink::new(&pipe)), filters, kernels, shared, others)?;
        let session = seat.session();
        let mut notes = Vec::new();
        let mut note = |text: &str| notes.push(text.to_owned());
        if !session.is_held && !session.is_recording() {
            note("the program's own session is stopped: nothing comes until the program starts it again");
        }
        if kernels {
            match (&session.kernels, session.is_held) {
                (Some(Ok(())), _) => {}
                (Some(Err(why)), _) => note(&format!("no kernels are recorded: {why}")),
                (None, _) if cfg!(not(feature = "cupti")) => {
                    note("no kernels are recorded: this program was built without warpline's feature `cupti`");
                }
                (None, true) => {
                    note("no kernels are recorded: another recording without them is on; try again when it is over");
                }
                (None, false) => {
                    note("no kernels are recorded: the program's own session records none; start it with `kernels`");
                }
            }
        }
        unmatched.iter().for_each(|text| note(text));
        self.tell(&answers::started(session, &notes));
        self.state = State::Recording(Recording { seat, pipe, until, leaving: None, rest: Vec::new() });
        Ok(())
    }

    /// Has the collector write down what it knows. Who asked reads the file then; this process copies nothing.
    fn dump(&mut self, now: Instant) -> Result<(), Refusal> {
        let flight = host::current().and_then(|session| session.flight);
        let flight = flight.ok_or_else(|| {
            Refusal::new("no_flight", "it has no flight recorder; start it with `control,flight=64MiB`")
        })?;
        let written = flight.ask_for_all();
        self.state = State::Dumping(Dumping { flight, written, until: now + WRITES_WITHIN, next: now });
        Ok(())
    }

    fn watch<'a>(
        &mut self,
        every: Duration,
        now: Instant,
        shared: &Shared,
        others: impl Iterator<Item = &'a Connection> + Clone,
    ) -> Result<(), Refusal> {
        let watch = Arc::<Mutex<LiveStats>>::default();
        let seat = take_seat(Box::new(LiveStatsSink(Arc::clone(&watch))), Vec::new(), false, shared, others)?;
        self.tell(&answers::started(seat.session(), &[]));
        self.state =
            State::Watching(Watching { seat, watch, every, last: now, passed_over: not_sampled(), leaving: None });
        Ok(())
    }
}

fn take_seat<'a>(
    sink: Box<dyn Sink>,
    filters: Vec<Filter>,
    kernels: bool,
    shared: &Shared,
    others: impl Iterator<Item = &'a Connection> + Clone,
) -> Result<Seat, Refusal> {
    if others.clone().filter(|other| other.seat().is_some()).count() >= SEATS {
        let text =
            format!("{SEATS} recordings and watchers are on already; `warpline stop {}` ends them", std::process::id());
        return Err(Refusal::new("busy", text));
    }
    let waker = Arc::clone(&shared.waker);
    let tie = SubscriptionHandle::new(move || waker.wake());
    let info = SessionInfo::now();
    host::seat(
        NewSubscription { sink, filters, info, handle: tie },
        &shared.base,
        shared.hold,
        kernels,
        &staying(others),
    )
}
