//! Advances a request until its deadline passes, a client asks for its end, or the session ends.

use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use super::Connection;
use super::state::{ConnectionState, LEAVES_WITHIN, LOOKS_EVERY, Leaving, Recording};
use crate::collector::Outcome;
use crate::collector::engine::Subscriber;
use crate::control::answers;
use warpline_core::profile::error::ProfileError;
use warpline_trace::control::protocol;
use warpline_trace::control::protocol::{Kind, MAX_REPLY_BYTES, Refusal};

impl Connection {
    /// Advances the request and checks its deadlines. Needs no input from the client.
    pub(super) fn go_on(&mut self, now: Instant) {
        let ends = match &self.state {
            ConnectionState::Asking { until, .. } if now >= *until => {
                self.is_gone = true;
                return;
            }
            ConnectionState::Recording(Recording { until: Some(until), .. }) if now >= *until => Some("time"),
            ConnectionState::Recording(_) | ConnectionState::Watching(_) if self.is_gone || self.is_heard => {
                Some("asked")
            }
            _ => None,
        };
        if let Some(why) = ends {
            self.leave(why, now);
        }
        match &mut self.state {
            ConnectionState::Recording(of) => {
                let (over, is_late) = (of.subscriber.outcome(), is_late(of.leaving, now));
                let is_over = over.is_some();
                let is_sent = of.rest.is_empty() && of.pipe.is_empty() && self.out.len() == self.sent;
                if self.is_gone && (over.is_some() || is_late) {
                    self.state = ConnectionState::Telling;
                } else if let Some(over) = over.filter(|_| is_sent) {
                    let why = why(&over, of.leaving, &of.subscriber);
                    self.tell_last(&answers::ended(why, &over));
                } else if is_late && !is_over {
                    self.refuse(&Refusal::new("late", "the program's session did not end the recording in time"));
                }
            }
            ConnectionState::Watching(of) => {
                let over = of.subscriber.outcome();
                if let Some(over) = over {
                    let why = why(&over, of.leaving, &of.subscriber);
                    self.tell_last(&answers::over(why));
                } else if is_late(of.leaving, now) {
                    self.state = ConnectionState::Telling;
                } else if of.leaving.is_none() && now >= of.last + of.every {
                    let tick = of.tick(now);
                    // Backpressure: a client that has not read the last figures misses these.
                    if !self.has_to_send() {
                        self.tell(&tick);
                    }
                }
            }
            ConnectionState::Arming(_) => self.look_for_zones(now),
            ConnectionState::Dumping(of) => {
                of.next = now + LOOKS_EVERY;
                let answer = of.written.try_recv();
                if answer != Err(TryRecvError::Empty) || now >= of.until {
                    let found = answers::flight(&of.flight, answer.is_ok());
                    self.tell_last(&found);
                }
            }
            ConnectionState::Asking { .. } | ConnectionState::Telling => {}
        }
    }

    fn look_for_zones(&mut self, now: Instant) {
        if self.is_heard {
            self.is_gone = true;
        }
        let ConnectionState::Arming(of) = &mut self.state else { return };
        of.next = now + LOOKS_EVERY;
        let mut zones = Vec::new();
        // Backpressure: stop while enough unread bytes are queued.
        while self.out.len() < MAX_REPLY_BYTES {
            let Some(zone) = of.pending.try_next() else { break };
            if let Err(error @ ProfileError::NoSuchRange { .. }) = &zone {
                self.refuse(&Refusal::new("no_range", error.to_string()));
                return;
            }
            protocol::frame(Kind::Json, answers::zone(&zone).to_string().as_bytes(), &mut self.out);
            zones.push(());
        }
        let (to_come, is_late) = (of.pending.to_come(), now >= of.until);
        if zones.is_empty() && (to_come == 0 || is_late) {
            let mut end = answers::over(if to_come == 0 { "done" } else { "time" });
            if to_come > 0
                && let Some(Err(error)) = of.pending.next(Duration::ZERO)
            {
                (end["to_come"], end["text"]) = (to_come.into(), error.to_string().into());
                end["code"] = answers::why_not(&error).into();
            }
            self.tell_last(&end);
        }
    }

    pub(super) fn leave(&mut self, why: &'static str, now: Instant) {
        let (subscriber, leaving) = match &mut self.state {
            ConnectionState::Recording(of) => (&of.subscriber, &mut of.leaving),
            ConnectionState::Watching(of) => (&of.subscriber, &mut of.leaving),
            _ => return,
        };
        // A subscription that is over has ended for another reason.
        if leaving.is_none() && subscriber.outcome().is_none() {
            *leaving = Some(Leaving { since: now, why });
            subscriber.cancel();
        }
    }
}

fn is_late(leaving: Option<Leaving>, now: Instant) -> bool {
    leaving.is_some_and(|leaving| now.duration_since(leaving.since) >= LEAVES_WITHIN)
}

/// Returns the reason why the subscription ended: a request for its end, or the end of its session.
fn why(over: &Outcome, leaving: Option<Leaving>, subscriber: &Subscriber) -> &'static str {
    match leaving {
        Some(leaving) => leaving.why,
        None if over.with_session && subscriber.engine.is_held => "yielded",
        None => "session",
    }
}
