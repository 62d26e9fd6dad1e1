//! Starts or refuses a connection's request. The connection calls it once, when the request is complete.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use super::sink::RecordSink;
use super::state::{Arming, ConnectionState, Dumping, Recording, Watching};
use super::{Connection, Shared};
use crate::collector::engine::{self, Subscriber};
use crate::collector::left_out::not_sampled;
use crate::collector::{NewSubscription, SubscriptionHandle};
use crate::control::answers;
use crate::control::live_stats::{LiveStats, LiveStatsSink};
use crate::control::pipe::Pipe;
use crate::error::Error;
use crate::profile;
use crate::settings::{Config, Filter, unmatched};
use warpline_report::sink::{SessionInfo, Sink};
use warpline_trace::control::protocol::{CHANGING, ControlRequest, Refusal};

/// How long a dump waits for the collector's flush. A slow sink of the program can make the collector miss it.
const WRITES_WITHIN: Duration = Duration::from_secs(1);

/// The maximum number of recordings and watchers, which bounds their memory.
const SUBSCRIPTIONS: usize = 4;

/// Upper limit for the finish timeout of an engine that was started for a client.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

impl Connection {
    pub(super) fn carry_out<'a>(
        &mut self,
        request: ControlRequest,
        now: Instant,
        shared: &Shared,
        others: impl Iterator<Item = &'a Connection> + Clone,
    ) {
        let begun = match request {
            ControlRequest::Status => {
                let recordings =
                    others.clone().filter(|other| matches!(other.state, ConnectionState::Recording(_))).count();
                let watchers = others.filter(|other| matches!(other.state, ConnectionState::Watching(_))).count();
                self.tell_last(&answers::status(engine::current().as_deref(), recordings, watchers));
                Ok(())
            }
            ControlRequest::Stop => {
                let ends = others
                    .filter(|other| other.subscriber().is_some() || matches!(other.state, ConnectionState::Arming(_)));
                self.tell_last(&json!({"is": "stopped", "ended": ends.count()}));
                Ok(())
            }
            ControlRequest::Record { for_ms, filter, kernels } => {
                let until = for_ms.map(|ms| now + Duration::from_millis(ms));
                self.record(until, &filter, kernels, shared, others)
            }
            ControlRequest::Watch { every_ms } => self.watch(Duration::from_millis(every_ms), now, shared, others),
            ControlRequest::Arm { range, zones, for_ms } => {
                let pending = profile::range(range.as_str(), zones);
                self.tell(&json!({"is": "armed"}));
                self.state =
                    ConnectionState::Arming(Arming { pending, until: now + Duration::from_millis(for_ms), next: now });
                Ok(())
            }
            ControlRequest::Dump => self.dump(now),
            ControlRequest::Progress => {
                answers::progress(engine::current().as_deref()).map(|answer| self.tell_last(&answer))
            }
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
        let subscriber = subscribe(Box::new(RecordSink::new(&pipe)), filters, kernels, shared, others)?;
        let engine = &subscriber.engine;
        let mut notes = Vec::new();
        let mut note = |text: &str| notes.push(text.to_owned());
        if !engine.is_held && !engine.is_on() {
            note("the program's own session is stopped: nothing is recorded until the program starts it again");
        }
        if kernels {
            match (&engine.kernels, engine.is_held) {
                (Some(Ok(())), _) => {}
                (Some(Err(why)), _) => note(&format!("no kernels are recorded: {why}")),
                (None, _) if cfg!(not(feature = "cupti")) => {
                    note("no kernels are recorded: this program was built without warpline's feature `cupti`");
                }
                (None, true) => {
                    note(
                        "no kernels are recorded: another recording without kernels is running; try again when it has ended",
                    );
                }
                (None, false) => {
                    note("no kernels are recorded: the program's own session records none; start it with `kernels`");
                }
            }
        }
        unmatched.iter().for_each(|text| note(text));
        self.tell(&answers::started(engine, &notes));
        self.state = ConnectionState::Recording(Recording { subscriber, pipe, until, leaving: None, rest: Vec::new() });
        Ok(())
    }

    /// Asks the collector to flush to the recorder's file. The client then reads the file; this process copies nothing.
    fn dump(&mut self, now: Instant) -> Result<(), Refusal> {
        let flight = engine::current().and_then(|engine| engine.flight.clone());
        let flight = flight.ok_or_else(|| {
            Refusal::new("no_flight", "it has no flight recorder; start it with `control,flight=64MiB`")
        })?;
        let written = flight.request(None);
        self.state = ConnectionState::Dumping(Dumping { flight, written, until: now + WRITES_WITHIN, next: now });
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
        let sink = Box::new(LiveStatsSink(Arc::clone(&watch)));
        let subscriber = subscribe(sink, Vec::new(), false, shared, others)?;
        self.tell(&answers::started(&subscriber.engine, &[]));
        let passed_over = not_sampled();
        self.state =
            ConnectionState::Watching(Watching { subscriber, watch, every, last: now, passed_over, leaving: None });
        Ok(())
    }
}

fn subscribe<'a>(
    sink: Box<dyn Sink>,
    filters: Vec<Filter>,
    kernels: bool,
    shared: &Shared,
    others: impl Iterator<Item = &'a Connection>,
) -> Result<Subscriber, Refusal> {
    if others.filter(|other| other.subscriber().is_some()).count() >= SUBSCRIPTIONS {
        let text = format!(
            "{SUBSCRIPTIONS} recordings and watchers are running already; `warpline stop {}` ends them",
            std::process::id()
        );
        return Err(Refusal::new("busy", text));
    }
    let waker = Arc::clone(&shared.waker);
    let handle = SubscriptionHandle::new(move || waker.wake());
    // An engine that is started for a client records no more than the program's own settings allow.
    let config = Config {
        kernels: kernels && cfg!(feature = "cupti"),
        finish_timeout: shared.base.finish_timeout.min(ENDS_WITHIN),
        ..shared.base.shared()
    };
    engine::subscribe(NewSubscription { sink, filters, info: SessionInfo::now(), handle }, &config).map_err(|error| {
        match error {
            Error::AlreadyRecording => {
                let text = "the program is starting or ending a session at this moment; try again".to_owned();
                Refusal::new(CHANGING, text)
            }
            error => Refusal::new("session", error.to_string()),
        }
    })
}

impl Config {
    /// Returns these settings for a recording from outside: those that apply only to the program's own session have
    /// their defaults. Among them are settings that would slow the program for good, as CUPTI does with launches of
    /// graphs, and `calibrate`, which launches a kernel.
    fn shared(&self) -> Config {
        Config {
            level: self.level,
            filters: self.filters.clone(),
            ring: self.ring,
            events: self.events,
            ends: self.ends,
            budget: self.budget,
            sample: self.sample,
            graph_timing: self.graph_timing,
            nvtx: self.nvtx,
            roctx: self.roctx,
            finish_timeout: self.finish_timeout,
            quiet: self.quiet,
            help: self.help,
            ..Config::default()
        }
    }
}
