//! That a session starts without work for each range: what only sinks need of the catalog is computed when they ask for it.
//!
//! The test counts what the start takes from the allocator, which no machine's load changes. It is alone in its process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use warpline::{MemorySink, Session, catalog};

warpline::namespace!("start", "many ranges");

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: it came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    let ranges = catalog().len() as u64;
    assert!(ranges >= 128, "{ranges}");
    for _ in 0..2 {
        let allocations = of_start();
        // A copy of the catalog takes eight and more for each range.
        assert!(allocations < ranges * 2, "{allocations} allocations with {ranges} ranges");
    }
}

warpline::range! {
    R0 = "start.part0": "One of many.", kind = host;
    R1 = "start.part37": "One of many.", kind = host;
    R2 = "start.part74": "One of many.", kind = host;
    R3 = "start.part111": "One of many.", kind = host;
    R4 = "start.part20": "One of many.", kind = host;
    R5 = "start.part57": "One of many.", kind = host;
    R6 = "start.part94": "One of many.", kind = host;
    R7 = "start.part3": "One of many.", kind = host;
    R8 = "start.part40": "One of many.", kind = host;
    R9 = "start.part77": "One of many.", kind = host;
    R10 = "start.part114": "One of many.", kind = host;
    R11 = "start.part23": "One of many.", kind = host;
    R12 = "start.part60": "One of many.", kind = host;
    R13 = "start.part97": "One of many.", kind = host;
    R14 = "start.part6": "One of many.", kind = host;
    R15 = "start.part43": "One of many.", kind = host;
    R16 = "start.part80": "One of many.", kind = host;
    R17 = "start.part117": "One of many.", kind = host;
    R18 = "start.part26": "One of many.", kind = host;
    R19 = "start.part63": "One of many.", kind = host;
    R20 = "start.part100": "One of many.", kind = host;
    R21 = "start.part9": "One of many.", kind = host;
    R22 = "start.part46": "One of many.", kind = host;
    R23 = "start.part83": "One of many.", kind = host;
    R24 = "start.part120": "One of many.", kind = host;
    R25 = "start.part29": "One of many.", kind = host;
    R26 = "start.part66": "One of many.", kind = host;
    R27 = "start.part103": "One of many.", kind = host;
    R28 = "start.part12": "One of many.", kind = host;
    R29 = "start.part49": "One of many.", kind = host;
    R30 = "start.part86": "One of many.", kind = host;
    R31 = "start.part123": "One of many.", kind = host;
    R32 = "start.part32": "One of many.", kind = host;
    R33 = "start.part69": "One of many.", kind = host;
    R34 = "start.part106": "One of many.", kind = host;
    R35 = "start.part15": "One of many.", kind = host;
    R36 = "start.part52": "One of many.", kind = host;
    R37 = "start.part89": "One of many.", kind = host;
    R38 = "start.part126": "One of many.", kind = host;
    R39 = "start.part35": "One of many.", kind = host;
    R40 = "start.part72": "One of many.", kind = host;
    R41 = "start.part109": "One of many.", kind = host;
    R42 = "start.part18": "One of many.", kind = host;
    R43 = "start.part55": "One of many.", kind = host;
    R44 = "start.part92": "One of many.", kind = host;
    R45 = "start.part1": "One of many.", kind = host;
    R46 = "start.part38": "One of many.", kind = host;
    R47 = "start.part75": "One of many.", kind = host;
    R48 = "start.part112": "One of many.", kind = host;
    R49 = "start.part21": "One of many.", kind = host;
    R50 = "start.part58": "One of many.", kind = host;
    R51 = "start.part95": "One of many.", kind = host;
    R52 = "start.part4": "One of many.", kind = host;
    R53 = "start.part41": "One of many.", kind = host;
    R54 = "start.part78": "One of many.", kind = host;
    R55 = "start.part115": "One of many.", kind = host;
    R56 = "start.part24": "One of many.", kind = host;
    R57 = "start.part61": "One of many.", kind = host;
    R58 = "start.part98": "One of many.", kind = host;
    R59 = "start.part7": "One of many.", kind = host;
    R60 = "start.part44": "One of many.", kind = host;
    R61 = "start.part81": "One of many.", kind = host;
    R62 = "start.part118": "One of many.", kind = host;
    R63 = "start.part27": "One of many.", kind = host;
    R64 = "start.part64": "One of many.", kind = host;
    R65 = "start.part101": "One of many.", kind = host;
    R66 = "start.part10": "One of many.", kind = host;
    R67 = "start.part47": "One of many.", kind = host;
    R68 = "start.part84": "One of many.", kind = host;
    R69 = "start.part121": "One of many.", kind = host;
    R70 = "start.part30": "One of many.", kind = host;
    R71 = "start.part67": "One of many.", kind = host;
    R72 = "start.part104": "One of many.", kind = host;
    R73 = "start.part13": "One of many.", kind = host;
    R74 = "start.part50": "One of many.", kind = host;
    R75 = "start.part87": "One of many.", kind = host;
    R76 = "start.part124": "One of many.", kind = host;
    R77 = "start.part33": "One of many.", kind = host;
    R78 = "start.part70": "One of many.", kind = host;
    R79 = "start.part107": "One of many.", kind = host;
    R80 = "start.part16": "One of many.", kind = host;
    R81 = "start.part53": "One of many.", kind = host;
    R82 = "start.part90": "One of many.", kind = host;
    R83 = "start.part127": "One of many.", kind = host;
    R84 = "start.part36": "One of many.", kind = host;
    R85 = "start.part73": "One of many.", kind = host;
    R86 = "start.part110": "One of many.", kind = host;
    R87 = "start.part19": "One of many.", kind = host;
    R88 = "start.part56": "One of many.", kind = host;
    R89 = "start.part93": "One of many.", kind = host;
    R90 = "start.part2": "One of many.", kind = host;
    R91 = "start.part39": "One of many.", kind = host;
    R92 = "start.part76": "One of many.", kind = host;
    R93 = "start.part113": "One of many.", kind = host;
    R94 = "start.part22": "One of many.", kind = host;
    R95 = "start.part59": "One of many.", kind = host;
    R96 = "start.part96": "One of many.", kind = host;
    R97 = "start.part5": "One of many.", kind = host;
    R98 = "start.part42": "One of many.", kind = host;
    R99 = "start.part79": "One of many.", kind = host;
    R100 = "start.part116": "One of many.", kind = host;
    R101 = "start.part25": "One of many.", kind = host;
    R102 = "start.part62": "One of many.", kind = host;
    R103 = "start.part99": "One of many.", kind = host;
    R104 = "start.part8": "One of many.", kind = host;
    R105 = "start.part45": "One of many.", kind = host;
    R106 = "start.part82": "One of many.", kind = host;
    R107 = "start.part119": "One of many.", kind = host;
    R108 = "start.part28": "One of many.", kind = host;
    R109 = "start.part65": "One of many.", kind = host;
    R110 = "start.part102": "One of many.", kind = host;
    R111 = "start.part11": "One of many.", kind = host;
    R112 = "start.part48": "One of many.", kind = host;
    R113 = "start.part85": "One of many.", kind = host;
    R114 = "start.part122": "One of many.", kind = host;
    R115 = "start.part31": "One of many.", kind = host;
    R116 = "start.part68": "One of many.", kind = host;
    R117 = "start.part105": "One of many.", kind = host;
    R118 = "start.part14": "One of many.", kind = host;
    R119 = "start.part51": "One of many.", kind = host;
    R120 = "start.part88": "One of many.", kind = host;
    R121 = "start.part125": "One of many.", kind = host;
    R122 = "start.part34": "One of many.", kind = host;
    R123 = "start.part71": "One of many.", kind = host;
    R124 = "start.part108": "One of many.", kind = host;
    R125 = "start.part17": "One of many.", kind = host;
    R126 = "start.part54": "One of many.", kind = host;
    R127 = "start.part91": "One of many.", kind = host;
}
