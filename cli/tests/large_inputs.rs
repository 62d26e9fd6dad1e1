//! Inputs of 1 GiB: the memory of a command depends on the numbers of ranges and rows, and not on the size of the trace.
//!
//! `cargo test --release -p warpline-cli --test large_inputs -- --ignored --nocapture` takes 3 GiB of the disk and prints a table
//! of the figures. `WARPLINE_LARGE_MIB` sets another size, and `WARPLINE_LARGE_ONLY=large.json` runs the commands on that input alone.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use warpline::record::ZoneRecord;
use warpline::sink::{Batch, Sink};
use warpline_report::fixture::{ATTENTION, STEP, main_thread, session, span, stream, zone};
use warpline_trace::write::chrome::ChromeSink;
use warpline_trace::write::perfetto::PerfettoSink;

use crate::support::{alone, peak, readers};

const ZONES: i64 = 20_000;

/// The zones in the flight recorder.
const RECORDED: i64 = 200_000;

/// Writes a trace of zones, and leaves it as a killed process does.
fn write(mut sink: impl Sink) {
    sink.start(&session()).unwrap();
    let (main, streams) = (main_thread(), [stream(1, "compute"), stream(2, "side")]);
    let records: Vec<ZoneRecord> = (0..ZONES)
        .map(|at| {
            let range = if at % 10 == 9 { &STEP } else { &ATTENTION };
            let gpu = span(at * 1_000 + 400, at * 1_000 + 900 + at % 7);
            let host = span(at * 1_000, at * 1_000 + 300);
            let mut zone = zone(range, Some(&streams[(at / 10 % 2) as usize]), &main, host, Some(gpu));
            zone.sequence = at as u64;
            zone.fields.push("layer", at % 32);
            zone
        })
        .collect();
    sink.write(Batch::Zones(&records)).unwrap();
    sink.flush().unwrap();
}

/// A file, and how many zones are in it.
struct Input {
    path: PathBuf,
    zones: i64,
}

/// Repeats a file of [`ZONES`] until it has so many bytes. `between` comes between two repeats. Returns the number of zones.
fn repeat(part: &[u8], between: &[u8], bytes: u64, out: &mut impl Write) -> i64 {
    let (mut written, mut zones) = (0, 0);
    while written < bytes {
        if written > 0 {
            out.write_all(between).unwrap();
        }
        out.write_all(part).unwrap();
        written += (part.len() + between.len()) as u64;
        zones += ZONES;
    }
    zones
}

/// The inputs of so many bytes when they are decompressed.
fn inputs(folder: &Path, bytes: u64) -> Vec<Input> {
    let path = |name: &str| folder.join(name);
    let (small, small_json) = (path("small.pftrace"), path("small.json"));
    write(PerfettoSink::create(&small).unwrap());
    write(ChromeSink::create(&small_json).unwrap());
    let (perfetto, json) = (fs::read(&small).unwrap(), fs::read(&small_json).unwrap());
    // An array without its bracket and its last comma, as it is while the program runs.
    let events = json.trim_ascii().strip_prefix(b"[").unwrap().trim_ascii();
    let events = events.strip_suffix(b",").unwrap_or(events);
    let mut plain = BufWriter::new(File::create(path("large.pftrace")).unwrap());
    let zones = repeat(&perfetto, b"", bytes, &mut plain);
    plain.flush().unwrap();
    let mut packed = GzEncoder::new(File::create(path("large.pftrace.gz")).unwrap(), Compression::fast());
    repeat(&perfetto, b"", bytes, &mut packed);
    packed.finish().unwrap();
    let mut plain = BufWriter::new(File::create(path("large.json")).unwrap());
    plain.write_all(b"[").unwrap();
    let json_zones = repeat(events, b",\n", bytes, &mut plain);
    plain.flush().unwrap();
    // A recorder of that size, of which the first segments are written.
    let flight = path("large.flight");
    let turn = alone();
    let session = warpline::Session::builder().budget(1.0).flight_at(bytes, &flight).ring(100_000).quiet();
    let session = session.start().unwrap();
    for n in 0..RECORDED as u64 {
        drop(LOAD.host().field("n", n));
    }
    session.finish();
    drop(turn);
    // What a few hundred KiB expand to.
    let mut bomb = GzEncoder::new(File::create(path("bomb.pftrace.gz")).unwrap(), Compression::best());
    bomb.write_all(&perfetto[..perfetto.len() / 2]).unwrap();
    bomb.write_all(b"\x0a\x80\x80\x80\x80\x80\x20").unwrap();
    std::io::copy(&mut std::io::repeat(0).take(bytes), &mut bomb).unwrap();
    bomb.finish().unwrap();
    [
        ("large.pftrace", zones),
        ("large.pftrace.gz", zones),
        ("large.json", json_zones),
        ("large.flight", RECORDED),
        ("bomb.pftrace.gz", ZONES / 2),
    ]
    .map(|(name, zones)| Input { path: path(name), zones })
    .into()
}

warpline::range! {
    LOAD = "cli.large.load": "Work with no stream.", kind = host;
}

/// What a command may have resident: the limits of names and of what is kept of each range and row, and, of `stragglers` and `annotate`, what each
/// collective and each event takes, which the traces here have few of.
const MOST_KIB: u64 = 128 << 10;

/// What `annotate` may have for each zone: it reads one as two slices and the two ends of an arrow, with as many bytes as docs/annotate.md says.
const MOST_BYTES_PER_ZONE: i64 = 4 * 40;

#[test]
#[ignore = "takes 3 GiB of the disk, and minutes"]
fn a_gibibyte_takes_bounded_memory() {
    let mib: u64 = std::env::var("WARPLINE_LARGE_MIB").map_or(1 << 10, |mib| mib.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    println!("| command | input | status | peak MiB | s |\n|---|---|---|---|---|");
    let mut faults = Vec::new();
    let mut judge = |command: &str, input: &Path, status: Option<i32>, peak_kib: u64, wall: Duration, most: u64| {
        let input = input.file_name().unwrap().to_str().unwrap();
        let (status, seconds) = (status.map_or("killed".to_owned(), |status| status.to_string()), wall.as_secs_f64());
        println!("| `{command}` | {input} | {status} | {} | {seconds:.1} |", peak_kib >> 10);
        if !["0", "1", "2"].contains(&status.as_str()) || peak_kib > most {
            faults.push(format!("{command} of {input}: status {status}, {peak_kib} KiB"));
        }
    };
    let only = std::env::var_os("WARPLINE_LARGE_ONLY");
    for Input { path: input, zones } in inputs(folder.path(), mib << 20) {
        if only.as_deref().is_some_and(|only| input.file_name() != Some(only)) {
            continue;
        }
        for (command, args) in readers::commands(&input, folder.path()) {
            let ran = peak::warpline(&args);
            assert!(!ran.stderr.contains("panicked"), "{command}: {}", ran.stderr);
            let of_zones = if command == "annotate" { zones * MOST_BYTES_PER_ZONE / 1024 } else { 0 };
            let most = MOST_KIB + of_zones as u64;
            judge(command, &input, ran.status, ran.peak_kib, ran.wall, most);
        }
        let begin = std::time::Instant::now();
        let readers::Opened { mut child, address } = readers::open(&[&input, &input]);
        let reader = address.map(|address| std::thread::spawn(move || readers::read_served(&address, |_| ())));
        let (ended, peak_kib) = peak::watched(&mut child);
        reader.into_iter().for_each(|reader| reader.join().unwrap());
        judge("open", &input, ended.code(), peak_kib, begin.elapsed(), MOST_KIB);
    }
    assert!(faults.is_empty(), "{faults:#?}");
    // The trace is large: what is left of it in memory is little.
    assert!(fs::metadata(folder.path().join("large.pftrace")).unwrap().len() >= mib << 20);
}
