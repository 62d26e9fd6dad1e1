//! That a session starts without work for each range: what only sinks need of the catalog is computed when they ask for it.
//!
//! The test counts what the start takes from the allocator, which no machine's load changes. It is alone in its process.

use std::sync::atomic::Ordering;

use warpline::sink::MemorySink;
use warpline::{Session, catalog};
use warpline_tests::counting::ALLOCATIONS;
use warpline_tests::{in_a_process_of_its_own, this_test};

/// Allocations of one start.
fn of_start() -> u64 {
    let builder = Session::builder().sink(MemorySink::new(1));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let session = builder.start().expect("no other session");
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    session.finish();
    after - before
}

#[test]
fn a_start_takes_no_memory_for_each_range() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let ranges = catalog().len() as u64;
    assert!(ranges >= 128, "{ranges}");
    for _ in 0..2 {
        let allocations = of_start();
        // A copy of the catalog takes eight and more for each range.
        assert!(allocations < ranges * 2, "{allocations} allocations with {ranges} ranges");
    }
}

warpline::range! {
    R0 = "api.start.part0": "One of many.", kind = host;
    R1 = "api.start.part37": "One of many.", kind = host;
    R2 = "api.start.part74": "One of many.", kind = host;
    R3 = "api.start.part111": "One of many.", kind = host;
    R4 = "api.start.part20": "One of many.", kind = host;
    R5 = "api.start.part57": "One of many.", kind = host;
    R6 = "api.start.part94": "One of many.", kind = host;
    R7 = "api.start.part3": "One of many.", kind = host;
    R8 = "api.start.part40": "One of many.", kind = host;
    R9 = "api.start.part77": "One of many.", kind = host;
    R10 = "api.start.part114": "One of many.", kind = host;
    R11 = "api.start.part23": "One of many.", kind = host;
    R12 = "api.start.part60": "One of many.", kind = host;
    R13 = "api.start.part97": "One of many.", kind = host;
    R14 = "api.start.part6": "One of many.", kind = host;
    R15 = "api.start.part43": "One of many.", kind = host;
    R16 = "api.start.part80": "One of many.", kind = host;
    R17 = "api.start.part117": "One of many.", kind = host;
    R18 = "api.start.part26": "One of many.", kind = host;
    R19 = "api.start.part63": "One of many.", kind = host;
    R20 = "api.start.part100": "One of many.", kind = host;
    R21 = "api.start.part9": "One of many.", kind = host;
    R22 = "api.start.part46": "One of many.", kind = host;
    R23 = "api.start.part83": "One of many.", kind = host;
    R24 = "api.start.part120": "One of many.", kind = host;
    R25 = "api.start.part29": "One of many.", kind = host;
    R26 = "api.start.part66": "One of many.", kind = host;
    R27 = "api.start.part103": "One of many.", kind = host;
    R28 = "api.start.part12": "One of many.", kind = host;
    R29 = "api.start.part49": "One of many.", kind = host;
    R30 = "api.start.part86": "One of many.", kind = host;
    R31 = "api.start.part123": "One of many.", kind = host;
    R32 = "api.start.part32": "One of many.", kind = host;
    R33 = "api.start.part69": "One of many.", kind = host;
    R34 = "api.start.part106": "One of many.", kind = host;
    R35 = "api.start.part15": "One of many.", kind = host;
    R36 = "api.start.part52": "One of many.", kind = host;
    R37 = "api.start.part89": "One of many.", kind = host;
    R38 = "api.start.part126": "One of many.", kind = host;
    R39 = "api.start.part35": "One of many.", kind = host;
    R40 = "api.start.part72": "One of many.", kind = host;
    R41 = "api.start.part109": "One of many.", kind = host;
    R42 = "api.start.part18": "One of many.", kind = host;
    R43 = "api.start.part55": "One of many.", kind = host;
    R44 = "api.start.part92": "One of many.", kind = host;
    R45 = "api.start.part1": "One of many.", kind = host;
    R46 = "api.start.part38": "One of many.", kind = host;
    R47 = "api.start.part75": "One of many.", kind = host;
    R48 = "api.start.part112": "One of many.", kind = host;
    R49 = "api.start.part21": "One of many.", kind = host;
    R50 = "api.start.part58": "One of many.", kind = host;
    R51 = "api.start.part95": "One of many.", kind = host;
    R52 = "api.start.part4": "One of many.", kind = host;
    R53 = "api.start.part41": "One of many.", kind = host;
    R54 = "api.start.part78": "One of many.", kind = host;
    R55 = "api.start.part115": "One of many.", kind = host;
    R56 = "api.start.part24": "One of many.", kind = host;
    R57 = "api.start.part61": "One of many.", kind = host;
    R58 = "api.start.part98": "One of many.", kind = host;
    R59 = "api.start.part7": "One of many.", kind = host;
    R60 = "api.start.part44": "One of many.", kind = host;
    R61 = "api.start.part81": "One of many.", kind = host;
    R62 = "api.start.part118": "One of many.", kind = host;
    R63 = "api.start.part27": "One of many.", kind = host;
    R64 = "api.start.part64": "One of many.", kind = host;
    R65 = "api.start.part101": "One of many.", kind = host;
    R66 = "api.start.part10": "One of many.", kind = host;
    R67 = "api.start.part47": "One of many.", kind = host;
    R68 = "api.start.part84": "One of many.", kind = host;
    R69 = "api.start.part121": "One of many.", kind = host;
    R70 = "api.start.part30": "One of many.", kind = host;
    R71 = "api.start.part67": "One of many.", kind = host;
    R72 = "api.start.part104": "One of many.", kind = host;
    R73 = "api.start.part13": "One of many.", kind = host;
    R74 = "api.start.part50": "One of many.", kind = host;
    R75 = "api.start.part87": "One of many.", kind = host;
    R76 = "api.start.part124": "One of many.", kind = host;
    R77 = "api.start.part33": "One of many.", kind = host;
    R78 = "api.start.part70": "One of many.", kind = host;
    R79 = "api.start.part107": "One of many.", kind = host;
    R80 = "api.start.part16": "One of many.", kind = host;
    R81 = "api.start.part53": "One of many.", kind = host;
    R82 = "api.start.part90": "One of many.", kind = host;
    R83 = "api.start.part127": "One of many.", kind = host;
    R84 = "api.start.part36": "One of many.", kind = host;
    R85 = "api.start.part73": "One of many.", kind = host;
    R86 = "api.start.part110": "One of many.", kind = host;
    R87 = "api.start.part19": "One of many.", kind = host;
    R88 = "api.start.part56": "One of many.", kind = host;
    R89 = "api.start.part93": "One of many.", kind = host;
    R90 = "api.start.part2": "One of many.", kind = host;
    R91 = "api.start.part39": "One of many.", kind = host;
    R92 = "api.start.part76": "One of many.", kind = host;
    R93 = "api.start.part113": "One of many.", kind = host;
    R94 = "api.start.part22": "One of many.", kind = host;
    R95 = "api.start.part59": "One of many.", kind = host;
    R96 = "api.start.part96": "One of many.", kind = host;
    R97 = "api.start.part5": "One of many.", kind = host;
    R98 = "api.start.part42": "One of many.", kind = host;
    R99 = "api.start.part79": "One of many.", kind = host;
    R100 = "api.start.part116": "One of many.", kind = host;
    R101 = "api.start.part25": "One of many.", kind = host;
    R102 = "api.start.part62": "One of many.", kind = host;
    R103 = "api.start.part99": "One of many.", kind = host;
    R104 = "api.start.part8": "One of many.", kind = host;
    R105 = "api.start.part45": "One of many.", kind = host;
    R106 = "api.start.part82": "One of many.", kind = host;
    R107 = "api.start.part119": "One of many.", kind = host;
    R108 = "api.start.part28": "One of many.", kind = host;
    R109 = "api.start.part65": "One of many.", kind = host;
    R110 = "api.start.part102": "One of many.", kind = host;
    R111 = "api.start.part11": "One of many.", kind = host;
    R112 = "api.start.part48": "One of many.", kind = host;
    R113 = "api.start.part85": "One of many.", kind = host;
    R114 = "api.start.part122": "One of many.", kind = host;
    R115 = "api.start.part31": "One of many.", kind = host;
    R116 = "api.start.part68": "One of many.", kind = host;
    R117 = "api.start.part105": "One of many.", kind = host;
    R118 = "api.start.part14": "One of many.", kind = host;
    R119 = "api.start.part51": "One of many.", kind = host;
    R120 = "api.start.part88": "One of many.", kind = host;
    R121 = "api.start.part125": "One of many.", kind = host;
    R122 = "api.start.part34": "One of many.", kind = host;
    R123 = "api.start.part71": "One of many.", kind = host;
    R124 = "api.start.part108": "One of many.", kind = host;
    R125 = "api.start.part17": "One of many.", kind = host;
    R126 = "api.start.part54": "One of many.", kind = host;
    R127 = "api.start.part91": "One of many.", kind = host;
}
