//! The clocks of a job of 10,000 ranks and 600 steps against the truth of its generator. It writes 350 MB and takes minutes, so it is not run by
//! itself: `cargo test --release --manifest-path ranks/Cargo.toml --test api large -- --ignored --nocapture`.

use std::collections::HashMap;

use warpline_ranks::Engine;
use warpline_ranks::clocks::{Options, clocks};
use warpline_ranks::generate::{HostClock, Plan, generate};

/// Estimates of a minute with fewer meetings say with a larger error that they are worse.
const MEETINGS: usize = 20;

#[test]
#[ignore = "writes 350 MB and takes minutes"]
fn the_clocks_of_ten_thousand_ranks_are_right() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { ranks: 10_000, hosts: 1_250, steps: 600, ranks_per_file: 100, ..Plan::default() };
    let truth = generate(folder.path(), &plan).unwrap();
    let truth: HashMap<&str, &HostClock> = truth.clocks.iter().map(|clock| (&*clock.host, clock)).collect();
    let engine = Engine::open(folder.path(), None).unwrap();
    let found = clocks(&engine, Options::default()).unwrap();
    let (mut errors, mut widths, mut beyond, mut wrong) = (Vec::new(), Vec::new(), 0, 0);
    let compared = found.clocks.iter().filter(|clock| clock.host != clock.beside && clock.meetings > 0);
    for clock in compared {
        let of = |host: usize| truth[&*found.hosts[host]].error_ns(clock.mid_ns);
        let true_ns = of(clock.host) - of(clock.beside);
        let error = (clock.offset_ns - true_ns).abs();
        match clock.certified {
            Some((least, most)) => {
                wrong += usize::from(true_ns < least || most < true_ns);
                widths.push((most - least) / 2.0);
            }
            None => panic!("a clock without bounds: {clock:?}"),
        }
        assert!(!clock.is_inconsistent, "{clock:?}");
        if clock.meetings >= MEETINGS {
            errors.push(error);
            beyond += usize::from(error > clock.err_ns);
        }
    }
    errors.sort_by(f64::total_cmp);
    widths.sort_by(f64::total_cmp);
    let of = |all: &[f64], share: usize| all[(all.len() - 1) * share / 100] / 1e3;
    println!(
        "{} hosts, {} estimates with {MEETINGS} meetings or more: error p50 {:.1} us, p99 {:.1} us, most {:.1} us; {beyond} beyond what they say; \
         {} certified intervals, half of one p50 {:.0} us, most {:.0} us; {wrong} without the truth",
        found.hosts.len(),
        errors.len(),
        of(&errors, 50),
        of(&errors, 99),
        of(&errors, 100),
        widths.len(),
        of(&widths, 50),
        of(&widths, 100),
    );
    assert!(errors.len() > 10_000, "{}", errors.len());
    assert_eq!(wrong, 0);
    assert!(of(&errors, 99) <= 20.0, "{}", of(&errors, 99));
}
