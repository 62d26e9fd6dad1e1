//! Each attack, for a second: `WARPLINE_ATTACK_SECONDS` says for how long instead, `WARPLINE_ATTACK_SEED` with which seed.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::time::{Duration, SystemTime};

use warpline_attack::{ATTACKS, Run};

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value}: {error}")))
}

fn attack(name: &str) {
    let attack = ATTACKS.iter().find(|attack| attack.name == name).expect("there is such an attack");
    let seed = setting("WARPLINE_ATTACK_SEED").unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is right");
        since.as_nanos() as u64
    });
    let time = Duration::from_secs(setting("WARPLINE_ATTACK_SECONDS").unwrap_or(1));
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attack");
    let outcome =
        Run::new(attack.name, seed, time, Path::new(env!("CARGO_BIN_EXE_warpline-attack")), &kept).finish(attack);
    println!("{name}: {} tries with seed {seed}", outcome.tries);
    assert!(outcome.tries > 0);
    assert!(outcome.failures.is_empty(), "{name} with seed {seed}: {:#?}", outcome.failures);
}

macro_rules! attacks {
    ($($test:ident: $name:literal;)*) => {
        $(#[test]
        fn $test() {
            attack($name);
        })*

        #[test]
        fn every_attack_is_a_test() {
            assert!([$($name),*].into_iter().eq(ATTACKS.iter().map(|attack| attack.name)));
        }
    };
}

attacks! {
    kills_of_a_program_that_writes_perfetto_leave_readable_traces: "kill-perfetto";
    kills_of_a_program_that_rotates_its_trace_leave_readable_pieces: "kill-rotated";
    kills_of_a_program_with_a_flight_recorder_leave_what_can_be_recovered: "kill-flight";
    kills_of_a_program_that_writes_chrome_json_leave_readable_traces: "kill-chrome";
    sinks_that_fail_block_and_panic_leave_every_account_exact: "sinks";
    forks_beside_recording_threads_neither_hang_nor_crash: "forks";
    a_hostile_client_does_not_harm_a_program: "client";
    a_hostile_program_does_not_harm_a_command: "program";
    mutated_binaries_are_read_or_refused: "binary";
    mutated_notes_are_read_or_refused: "catalog";
    mutated_flight_files_are_recovered_or_refused: "flight";
    mutated_chrome_traces_are_recovered_or_refused: "recover";
    mutated_perfetto_traces_are_read_or_refused: "pftrace";
    mutated_chrome_traces_are_annotated_or_refused: "annotate";
    gzip_bombs_and_broken_gzip_are_refused: "gzip";
    mutated_settings_are_taken_or_refused: "settings";
    mutated_requests_are_taken_or_refused: "request";
}
