//! The settings for which part of the program is recorded: budgets, samples and steps.
//!
//! The macro adds its entries to those of the groups before it and calls the next group; `table` has the order.

macro_rules! shares {
    ({ $($before:tt)* } $next:ident $($then:ident)*) => { $next! { { $($before)*

    Setting::value(
        "budget",
        "budget=0.5%",
        "the most that recording slows the program",
        "0.5%",
        |config, text| parse_budget(text).map(|share| config.budget = Some(share)),
    )
    .row(
        "`.budget(0.005)`",
        "1 % for the flight recorder alone and for recordings from outside, otherwise none",
        "the share of its time that recording may cost the program; the session then records [windows](#sampling-and-budgets), in \
         which steps are complete; `100%`: every zone is recorded",
    );
    shared {
        /// The share of its time that the session may cost the program; none for no limit.
        budget: Option<f64> = None,
    }
    methods {
        /// Sets the share of its time that the session may cost the program, above 0 and up to 1. The session then records windows of its
        /// time, chosen at random, in which each root zone is recorded with all zones inside it. It measures how much slower the program
        /// runs in windows, and chooses the gaps between them accordingly. `WARPLINE=budget=0.5%`. A session whose only output is a flight
        /// recorder, and recordings from outside, have a budget of 1 % by default; 1 lets them record every zone.
        pub fn budget(mut self, share: f64) -> Self {
            self.config.budget = self.checked(format_args!("budget({share})"), check_budget(share));
            self
        }
    }

    Setting::value("sample", "sample=10%", "the share of each range's zones that is recorded", "10%", |config, text| {
        parse_sample(text).map(|share| config.sample = share)
    })
    .row(
        "`.sample(0.1)`",
        "all",
        "the share of each range's zones that is recorded, chosen at random; collectives are recorded completely",
    );
    shared {
        /// The share of a range's zones that is recorded.
        sample: f64 = 1.0,
    }
    methods {
        /// Sets the share of each range's zones that is recorded, above 0 and up to 1. Each zone is chosen at random, independently of the
        /// others, and its record contains the share ([`ZoneRecord::sample_share`](warpline_core::record::ZoneRecord::sample_share)).
        /// Collectives are always recorded, because ranks match them by number. With a budget, the share applies inside windows.
        /// `WARPLINE=sample=10%`.
        pub fn sample(mut self, share: f64) -> Self {
            if let Some(share) = self.checked(format_args!("sample({share})"), check_sample(share)) {
                self.config.sample = share;
            }
            self
        }
    }

    Setting::value("active", "active=3", "record this many steps, then leave steps out again", "3", |config, text| {
        parse_active(text).map(|steps| config.active = Some(steps))
    })
    .check(|config| match (config.active, config.budget) {
        (Some(_), Some(share)) if share < 1.0 => {
            Err("chooses the steps that are recorded, and so does `budget`; leave one of them out".to_owned())
        }
        _ => Ok(()),
    })
    .row(
        "`.active(3)`",
        "all steps",
        "record only some of the program's [steps](#steps), in cycles: after the steps of `wait` and `warmup`, record this many",
    );
    own { active: Option<u64> = None }
    methods {
        /// Records only some of the program's steps ([`step`](crate::step())), in cycles as PyTorch's profiler does: nothing in the steps of
        /// [`wait`](Self::wait), then the steps of [`warmup`](Self::warmup), whose records are thrown away, then this many steps, which are
        /// recorded. Nothing is recorded before the first step. The report says how many steps were left out. `WARPLINE=active=3`.
        pub fn active(mut self, steps: u64) -> Self {
            if let Some(steps) = self.checked(format_args!("active({steps})"), check_active(steps)) {
                self.config.active = Some(steps);
            }
            self
        }
    }

    Setting::value("wait", "wait=10", "with `active`: leave out this many steps first", "10", |config, text| {
        parse_steps(text).map(|steps| config.wait = Some(steps))
    })
    .check(|config| {
        let goes = config.wait.is_none() || config.active.is_some();
        needs(goes, "steps to record", "wait=10,active=3")
    })
    .row("`.wait(10)`", "0", "with `active`: the steps of each cycle that are left out first");
    own { wait: Option<u64> = None }
    methods {
        /// With [`active`](Self::active): the steps of each cycle in which nothing is recorded. `WARPLINE=wait=10,active=3`.
        pub fn wait(mut self, steps: u64) -> Self {
            self.config.wait = Some(steps);
            self
        }
    }

    Setting::value("warmup", "warmup=2", "with `active`: record this many steps and throw them away", "2", |config, text| {
        parse_steps(text).map(|steps| config.warmup = Some(steps))
    })
    .check(|config| {
        let goes = config.warmup.is_none() || config.active.is_some();
        needs(goes, "steps to record", "wait=10,warmup=2,active=3")
    })
    .row(
        "`.warmup(2)`",
        "0",
        "with `active`: the steps of each cycle, after those of `wait`, whose records are thrown away, because first zones cost more",
    );
    own { warmup: Option<u64> = None }
    methods {
        /// With [`active`](Self::active): the steps of each cycle, after those of [`wait`](Self::wait), whose records are thrown away. They pay
        /// for what the first zones of a stream create. The report does not count their zones. `WARPLINE=warmup=2,active=3`.
        pub fn warmup(mut self, steps: u64) -> Self {
            self.config.warmup = Some(steps);
            self
        }
    }

    Setting::value("repeat", "repeat=1", "with `active`: record this many cycles of steps", "1", |config, text| {
        parse_steps(text).map(|cycles| config.repeat = Some(cycles))
    })
    .check(|config| {
        let goes = config.repeat.is_none() || config.active.is_some();
        needs(goes, "steps to record", "wait=10,active=3,repeat=1")
    })
    .row("`.repeat(1)`", "no limit", "with `active`: the number of cycles; `0`: no limit");
    own { repeat: Option<u64> = None }
    methods {
        /// With [`active`](Self::active): the number of cycles, after which nothing is recorded; 0, the default, for no limit.
        /// `WARPLINE=active=3,repeat=1`.
        pub fn repeat(mut self, cycles: u64) -> Self {
            self.config.repeat = Some(cycles);
            self
        }
    }

    } $($then)* } };
}
