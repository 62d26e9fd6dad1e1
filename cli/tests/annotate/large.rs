//! Large traces: memory stays small beside them, and an interrupted command leaves nothing.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::room::*;
#[cfg(target_os = "linux")]
use crate::support::peak;

/// Writes a trace of about so many bytes: replays of the graph, each with a launch.
fn write_large(path: &Path, bytes: u64) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(b"{\"traceEvents\": [\n").unwrap();
    let (mut written, mut replay) = (0, 0_u64);
    while written < bytes {
        let ts = replay * 100;
        let launch = format!(
            "{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaGraphLaunch\", \"pid\": 1, \"tid\": 2, \"ts\": {ts}.001, \"dur\": 5.5, \"args\": {{\"correlation\": {replay}}}}},\n"
        );
        file.write_all(launch.as_bytes()).unwrap();
        written += launch.len() as u64;
        for index in 0..6 {
            let ts = ts + 10 + index * 9;
            let kernel = format!(
                "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"a_kernel_with_a_name_of_usual_length<float, 128, 4>(float const*, float*, int)\", \"pid\": 0, \"tid\": 7, \"ts\": {ts}.123, \"dur\": 8.001,\n  \"args\": {{\"External id\": 12, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": {replay}, \"registers per thread\": 32, \"shared memory\": 0, \"blocks per SM\": 0.5, \"grid\": [1, 2, 3], \"block\": [128, 1, 1], \"graph id\": {EXEC}, \"graph node id\": {index}}}}},\n"
            );
            file.write_all(kernel.as_bytes()).unwrap();
            written += kernel.len() as u64;
        }
        replay += 1;
    }
    file.write_all(b"{\"ph\": \"i\", \"name\": \"end\", \"ts\": 0, \"pid\": 1, \"tid\": 2}]}").unwrap();
    file.into_inner().unwrap().sync_all().unwrap();
}

/// Half of a trace, which is 1 GiB of 2, and what a process has anyway.
#[cfg(target_os = "linux")]
fn assert_small_beside(bytes: u64) {
    let room = Room::new(Ids::Mixed);
    write_large(&room.path().join("large.json"), bytes);
    let mut child = room
        .command(&["--annotations", "a.json", "--trace", "large.json", "-o", "out.pftrace"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It has the most when it begins to write, long before it ends.
    let (_, peak_kib) = peak::watched(&mut child);
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("are annotated"), "{said}");
    println!("{} MiB for a trace of {} MiB", peak_kib >> 10, bytes >> 20);
    let most_kib = bytes / 1024 / 2 + (16 << 10);
    assert!((1..most_kib).contains(&peak_kib), "{peak_kib} KiB for a trace of {} KiB", bytes / 1024);
}

#[cfg(target_os = "linux")]
#[test]
fn memory_stays_small_beside_a_large_trace() {
    // Without optimization it reads some MB a second.
    assert_small_beside(if cfg!(debug_assertions) { 32 << 20 } else { 256 << 20 });
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "writes 2 GiB; run it with `--release -- --ignored --nocapture`"]
fn two_gibibytes_take_less_than_one() {
    assert_small_beside(2 << 30);
}

#[cfg(unix)]
#[test]
fn an_interrupted_command_leaves_nothing_behind() {
    let room = Room::new(Ids::Mixed);
    write_large(&room.path().join("large.json"), 16 << 20);
    let before = room.files();
    let mut child = room
        .command(&["--annotations", "a.json", "--trace", "large.json", "-o", "out.json"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Once it writes, and before it is done.
    while room.files() == before {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let is_large = || {
        fs::read_dir(room.path()).unwrap().flatten().any(|file| {
            file.file_name().to_string_lossy().ends_with(".part") && file.metadata().is_ok_and(|file| file.len() > 0)
        })
    };
    while !is_large() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(room.files(), before);
}
