//! `warpline recover`: what a flight recorder holds becomes a trace, and whatever else a file holds becomes an answer.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use proptest::prelude::*;
use warpline::Session;
use warpline::recovery::recover;

use crate::support::alone;

warpline::range! {
    LOAD = "cli.recover.load": "Work with no stream.", kind = host;
}

fn warpline(file: &Path, output: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    command.arg("recover").arg(file).arg("-o").arg(output).output().unwrap()
}

fn said(output: &Output) -> (i32, String) {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

/// The file of a session of so many zones.
fn flight(path: &Path, zones: u64) -> Vec<u8> {
    let _turn = alone();
    let session = Session::builder().budget(1.0).flight_at(256 << 10, path).ring(100_000).start().unwrap();
    for n in 0..zones {
        drop(LOAD.host().field("n", n));
    }
    assert_eq!(session.finish().recorded, zones);
    fs::read(path).unwrap()
}

#[test]
fn a_compressed_recorder_becomes_the_same_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (file, trace) = (dir.path().join("my.flight"), dir.path().join("last.pftrace"));
    let bytes = flight(&file, 2_000);
    // How many zones it has of how many, and where.
    let expected = said(&warpline(&file, &trace));
    assert_eq!(expected.0, 0, "{}", expected.1);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &bytes).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(&*bytes, ruzstd::encoding::CompressionLevel::Fastest);
    for (name, packed) in [("my.flight.gz", gzip.finish().unwrap()), ("my.flight.zst", zstd)] {
        let file = dir.path().join(name);
        fs::write(&file, packed).unwrap();
        assert_eq!(said(&warpline(&file, &trace)), expected, "{name}");
    }
}

/// Where the pieces are: every one begins with these bytes.
fn pieces(flight: &[u8]) -> Vec<usize> {
    (0..flight.len() - 4).filter(|at| flight[*at..].starts_with(b"WPpc")).collect()
}

#[test]
fn a_recorder_becomes_a_trace_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (file, trace) = (dir.path().join("my.flight"), dir.path().join("last.pftrace"));
    let bytes = flight(&file, 20_000);
    let (status, text) = said(&warpline(&file, &trace));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("the last ") && text.contains(", of 20000"), "{text}");
    assert!(text.contains("open it with `warpline open "), "{text}");
    assert_eq!(fs::read(&file).unwrap(), bytes);
    let trace = fs::read(&trace).unwrap();
    assert!(trace.len() > 100_000 && trace.windows(18).any(|window| window == b"\x12\x10cli.recover.load"));
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn the_process_in_a_traces_name_is_the_one_that_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my.flight");
    flight(&file, 10);
    let (status, text) = said(&warpline(&file, &dir.path().join("last-{pid}.pftrace")));
    assert_eq!(status, 0, "{text}");
    let name = format!("last-{}.pftrace", std::process::id());
    assert!(text.contains(&name) && dir.path().join(&name).exists(), "{text}");
    let (status, text) = said(&warpline(&file, &dir.path().join("{job}.pftrace")));
    assert!(
        status == 2 && text.contains("has no placeholder `{job}`; there are `{pid}`, `{rank}` and `{host}`"),
        "{text}"
    );
}

#[test]
fn what_is_no_whole_recorder_is_told_with_the_remedy_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my.flight");
    let bytes = flight(&file, 5_000);
    let trace = dir.path().join("last.pftrace");
    let mut bad_header = bytes.clone();
    bad_header[20] ^= 1;
    let mut newer = bytes.clone();
    newer[15] = 9;
    let mut no_piece = bytes.clone();
    pieces(&bytes).into_iter().for_each(|at| no_piece[at + 8] ^= 1);
    for (content, says) in [
        (Vec::new(), "is empty"),
        (b"# a settings file".to_vec(), "is not a flight recorder's file; name the one of the setting"),
        (vec![0; 100_000], "is not a flight recorder's file"),
        (bad_header, "header is damaged or from a newer warpline"),
        (newer, "update warpline-cli"),
        (bytes[..10].to_vec(), "is not a flight recorder's file"),
        (bytes[..40].to_vec(), "header is damaged"),
        (
            bytes[..4096].to_vec(),
            "has no whole piece, and 11 are cut off: the program was killed while its session began, or the file was cut",
        ),
        (no_piece, " damaged, "),
    ] {
        fs::write(&file, &content).unwrap();
        let (status, text) = said(&warpline(&file, &trace));
        assert_eq!(status, 2, "{text}");
        assert!(text.contains(says) && text.contains("my.flight"), "{says}: {text}");
        assert!(!text.contains("panicked"), "{text}");
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["my.flight"], "nothing is left of a trace that is none");
    }
    for (file, output, says) in [
        (dir.path().join("none"), trace.clone(), "cannot read"),
        ("/dev/null".into(), trace.clone(), "it is not a file"),
        (file.clone(), file.clone(), "is the input; choose another output"),
        (file.clone(), dir.path().join("no/such/t.pftrace"), "no/such/t.pftrace: No such file"),
        (file.clone(), dir.path().join("t.json"), "t.json: the name must end with `.pftrace`"),
        (file.clone(), "-".into(), "-: the name must end with `.pftrace`"),
    ] {
        fs::write(dir.path().join("my.flight"), &bytes).unwrap();
        let (status, text) = said(&warpline(&file, &output));
        assert_eq!((status, text.contains(says)), (2, true), "{text}");
        assert!(!text.contains(".part"), "{text}");
    }
}

#[test]
fn what_is_whole_in_a_damaged_recorder_is_recovered_and_the_rest_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my.flight");
    let bytes = flight(&file, 5_000);
    let trace = dir.path().join("last.pftrace");
    let whole = recover(&mut std::io::Cursor::new(&bytes), &mut Vec::new()).unwrap();
    // The content of the first segment.
    let mut damaged = bytes.clone();
    damaged[4096 + 3 * 65_536 + 100] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let (status, text) = said(&warpline(&file, &trace));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("warning: ") && text.contains("1 piece is damaged or unfinished, and left out"), "{text}");
    let found = recover(&mut std::io::Cursor::new(&damaged), &mut Vec::new()).unwrap();
    assert_eq!((found.damaged, found.pieces), (1, whole.pieces - 1));
    // What is open is written twice: either of the two may be half-written. The second area is empty in this file, or the
    // first.
    for area in 0..2 {
        let mut half = bytes.clone();
        half[4096 + area * 65_536..][..40].fill(7);
        let found = recover(&mut std::io::Cursor::new(&half), &mut Vec::new()).unwrap();
        assert_eq!(found.damaged, 0, "it is no damage");
    }
    fs::write(&file, &bytes[..bytes.len() - 40_000]).unwrap();
    let (status, text) = said(&warpline(&file, &trace));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("the file is truncated: 2 pieces of the ring are missing"), "{text}");
}

#[test]
fn counts_that_no_program_comes_to_are_told_and_end_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my.flight");
    let mut bytes = flight(&file, 5_000);
    let pieces = pieces(&bytes);
    assert!(pieces.len() > 2, "there is something to add up");
    for at in pieces {
        // Zones before it and in it, and the header's checksum.
        bytes[at + 12..at + 28].fill(0xFF);
        let mut checksum = flate2::Crc::new();
        checksum.update(&bytes[at..at + 36]);
        bytes[at + 36..at + 40].copy_from_slice(&checksum.sum().to_le_bytes());
    }
    fs::write(&file, &bytes).unwrap();
    let (status, text) = said(&warpline(&file, &dir.path().join("last.pftrace")));
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains(&format!("the last {0} zones", u64::MAX)) && text.contains(&format!(", of {}", u64::MAX)),
        "{text}"
    );
}

/// A file with nothing but one piece, in either of the two places for what is open.
#[test]
fn what_is_open_is_recovered_from_whichever_place_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my.flight");
    let seed = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/flight_reader/open_zones")).unwrap();
    let mut second = seed.clone();
    let piece = second.split_off(4096);
    second.resize(4096 + 65_536, 0);
    second.extend(piece);
    for content in [seed, second] {
        fs::write(&file, &content).unwrap();
        let found = recover(&mut std::io::Cursor::new(&content), &mut Vec::new()).unwrap();
        assert_eq!((found.pieces, found.process_id, found.process_name.as_str()), (1, 42, "demo"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any damage at all comes to an end and to an answer, and what is recovered is made of pieces that were written.
    #[test]
    fn any_damage_has_an_answer(cut in 0_usize..300_000, flips in prop::collection::vec((0_usize..300_000, any::<u8>()), 0..30)) {
        static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let bytes = BYTES.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            flight(&dir.path().join("my.flight"), 3_000)
        });
        let mut damaged = bytes[..bytes.len() - cut.min(bytes.len())].to_vec();
        for (at, flip) in flips {
            if let Some(byte) = damaged.get_mut(at) {
                *byte ^= flip;
            }
        }
        let mut trace = Vec::new();
        match recover(&mut std::io::Cursor::new(&damaged), &mut trace) {
            Ok(found) => {
                prop_assert_eq!(found.bytes, trace.len() as u64);
                prop_assert!(found.zones <= 3_000 && found.pieces > 0);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
