//! External subscriptions: to the running engine, or to one that is held for them.
//!
//! `control` calls this module. A held engine records what its subscriptions take, and no more than the program's own settings allow.
//! `control` ends it with its last subscription. It also ends when the program starts a session.

use std::ptr;
use std::sync::Arc;

use super::Engine;
use super::current::{ENGINES, current};
use super::start::{CollectorThread, EngineBuilder};
use crate::collector::subscriptions::{NewSubscription, Outcome, SubscriptionHandle};
use crate::error::Error;
use crate::settings::{Config, lets_through};
use warpline_core::lock::lock;
use warpline_report::sink::SessionInfo;
use warpline_report::sink::held::HeldSinks;

/// An external subscriber and its engine.
pub(crate) struct Subscriber {
    pub(crate) engine: Arc<Engine>,
    handle: Arc<SubscriptionHandle>,
}

impl Subscriber {
    /// Returns how the subscription ended, once it is over.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.handle.outcome()
    }

    /// Cancels the subscription. It ends when everything that began before is delivered, or after a time limit.
    pub(crate) fn cancel(&self) {
        self.engine.inbox.cancel(&self.handle);
        self.engine.follow_subscriptions();
        self.engine.collector.unpark();
    }
}

/// Subscribes to the running engine, or to one that starts with these settings.
///
/// # Errors
/// The reason why none starts; [`Error::AlreadyRecording`] if the program is starting or ending a session.
pub(crate) fn subscribe(mut new: NewSubscription, config: &Config) -> Result<Subscriber, Error> {
    let handle = Arc::clone(&new.handle);
    for _ in 0..3 {
        let engine = match current() {
            Some(engine) => {
                if let Err(back) = engine.inbox.admit(new) {
                    new = *back;
                    continue;
                }
                engine
            }
            None => {
                let _turn = lock(&ENGINES.turn);
                let builder = match EngineBuilder::reserve(config, true) {
                    Err(Error::AlreadyRecording) => continue,
                    reserved => reserved?,
                };
                let thread = CollectorThread::spawn("warpline").map_err(Error::Thread)?;
                // Before the collector runs, so that no zone is collected before its subscription exists.
                if let Err(back) = builder.inbox.admit(new) {
                    new = *back;
                    continue;
                }
                let config = Config { budget: config.budget(false), ..config.clone() };
                builder.run(thread, config, HeldSinks::default(), &SessionInfo::now())
            }
        };
        engine.follow_subscriptions();
        engine.collector.unpark();
        return Ok(Subscriber { engine, handle });
    }
    Err(Error::AlreadyRecording)
}

impl Engine {
    /// Sets a held engine to record the ranges that one of its subscriptions takes. Without subscriptions, nothing new begins, and
    /// zones in flight have time to arrive.
    fn follow_subscriptions(&self) {
        if !self.is_held {
            return;
        }
        let _turn = lock(&ENGINES.turn);
        // After its end, the ranges and the switch belong to the program's session.
        if !current().is_some_and(|engine| ptr::eq(&*engine, self)) {
            return;
        }
        let filters = self.inbox.filters();
        if filters.is_empty() {
            return self.stop();
        }
        self.choose_ranges(&lock(&self.config), move |name| filters.iter().any(|filters| lets_through(filters, name)));
        self.start();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::Session;
    use crate::collector::engine::end_held;
    use warpline_core::switch;
    use warpline_report::sink::MemorySink;

    /// There is one engine.
    static ALONE: Mutex<()> = Mutex::new(());

    fn subscribe_to_all() -> Subscriber {
        let (sink, handle) = (Box::new(MemorySink::new(1)), SubscriptionHandle::new(|| {}));
        let new = NewSubscription { sink, filters: Vec::new(), info: SessionInfo::now(), handle };
        subscribe(new, &Config::default()).expect("nothing else records")
    }

    #[test]
    fn a_recording_that_ends_before_a_window_opens_says_so() {
        let _alone = lock(&ALONE);
        let subscriber = subscribe_to_all();
        subscriber.cancel();
        let outcome = loop {
            match subscriber.outcome() {
                Some(outcome) => break outcome,
                None => std::thread::yield_now(),
            }
        };
        end_held();
        let notes = &outcome.report.notes;
        assert!(
            notes.iter().any(|note| note.starts_with("no window of the budget opened before the end")),
            "{notes:?}"
        );
    }

    #[test]
    fn a_subscription_that_is_cancelled_after_the_engines_end_turns_nothing_on() {
        let _alone = lock(&ALONE);
        let [one, two] = [subscribe_to_all(), subscribe_to_all()];
        assert!(one.engine.is_on() && Arc::ptr_eq(&one.engine, &two.engine));
        one.cancel();
        assert!(two.engine.is_on(), "there is another one");
        let three = subscribe_to_all();
        end_held();
        assert!(switch::epoch().is_none() && three.outcome().is_some_and(|outcome| outcome.with_session));
        two.cancel();
        assert!(switch::epoch().is_none(), "the third was not cancelled, and its engine is over");
    }

    /// Whoever watches a program subscribes again at once when an engine ends.
    #[test]
    fn a_session_takes_the_place_of_an_engine_however_soon_others_subscribe_again() {
        let _alone = lock(&ALONE);
        let is_over = AtomicBool::new(false);
        let subscribe_again = || {
            while !is_over.load(Ordering::Relaxed) {
                let (sink, handle) = (Box::new(MemorySink::new(1)), SubscriptionHandle::new(|| {}));
                let new = NewSubscription { sink, filters: Vec::new(), info: SessionInfo::now(), handle };
                drop(subscribe(new, &Config::default()));
            }
        };
        thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(subscribe_again)));
            let refused = (0..200)
                .filter(|_| match Session::builder().quiet().start() {
                    Ok(session) => {
                        drop(session);
                        false
                    }
                    Err(_) => true,
                })
                .count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(refused, 0, "of 200 sessions");
        });
        end_held();
    }
}
