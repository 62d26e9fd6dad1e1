//! Files that are made to do harm, given to every command that reads traces: each command ends, says why in a few lines, and takes little memory.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use warpline_trace::write::perfetto::proto::{Buffer, annotation, clock, event, interned, packet, track};

use crate::support::{peak, readers};

/// No command needs more for an input of a few MiB, whatever it expands to.
const MOST_KIB: u64 = 160 << 10;

/// A loaded machine is slow; a command that does not end still fails.
const MOST_TIME: Duration = Duration::from_secs(120);

/// What a small file expands to. The same with 1 GiB is in `large_inputs.rs`.
const EXPANDED: usize = 4 << 20;

fn gzip(parts: &[&[u8]]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    parts.iter().for_each(|part| gzip.write_all(part).unwrap());
    gzip.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

fn packets(fill: impl FnOnce(&mut Buffer)) -> Vec<u8> {
    let mut trace = Buffer::default();
    trace.packet(|packet| {
        packet.int(packet::TIMESTAMP, 1);
        packet.uint(packet::SEQUENCE_ID, 1);
        packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
            for id in [clock::BOOTTIME, clock::REALTIME] {
                snapshot.message(clock::CLOCKS, |clock| {
                    clock.uint(clock::ID, id);
                    clock.int(clock::TIMESTAMP, 1);
                });
            }
        });
    });
    fill(&mut trace);
    trace.as_bytes().to_vec()
}

/// An event of this type on a sequence.
fn event(trace: &mut Buffer, sequence: u64, kind: u64, fill: impl FnOnce(&mut Buffer)) {
    trace.packet(|packet| {
        packet.int(packet::TIMESTAMP, 5);
        packet.uint(packet::SEQUENCE_ID, sequence);
        packet.message(packet::TRACK_EVENT, |event| {
            event.uint(event::TYPE, kind);
            fill(event);
        });
    });
}

/// The inputs by name. Files with other endings than `.json` are Perfetto traces, or nothing at all.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let zeros = vec![0; EXPANDED];
    let spaces = vec![b' '; EXPANDED];
    let letters = "a".repeat(EXPANDED);
    vec![
        ("empty.pftrace", Vec::new()),
        ("line.pftrace", b"\n".to_vec()),
        (
            "long-packet.pftrace",
            packets(|_| ()).into_iter().chain(*b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f").collect(),
        ),
        ("long-number.pftrace", packets(|_| ()).into_iter().chain([0x0a; 1]).chain([0xff; 40]).collect()),
        ("zeros.pftrace.gz", gzip(&[&zeros])),
        // A packet of a terabyte, and its begin.
        ("bomb.pftrace.gz", gzip(&[&packets(|_| ()), b"\x0a\x80\x80\x80\x80\x80\x20", &zeros])),
        ("bomb.json.gz", gzip(&[b"[{\"ph\":\"X\"},", &spaces])),
        ("text.json.gz", gzip(&[b"[{\"ph\":\"X\",\"name\":\"", letters.as_bytes(), b"\"}]"])),
        ("nested.json", [b"[{\"args\":".to_vec(), vec![b'['; 200_000]].concat()),
        ("bomb.json.zst", zstd(&[&b"[{\"ph\":\"X\"},"[..], &spaces].concat())),
        ("cut.json.zst", {
            let whole = zstd(&[&b"[{\"ph\":\"X\",\"name\":\""[..], letters.as_bytes()].concat());
            whole[..whole.len() / 2].to_vec()
        }),
        // A window of 3.75 TiB.
        ("window.pftrace.zst", b"\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00\x0a".to_vec()),
        ("twice.pftrace.gz", gzip(&[&gzip(&[&packets(|_| ())])])),
        ("cut.pftrace.gz", {
            let whole = gzip(&[&packets(|trace| {
                (0..20_000)
                    .for_each(|n| event(trace, 1, event::INSTANT, |event| event.text(event::NAME, &n.to_string())));
            })]);
            whole[..whole.len() / 2].to_vec()
        }),
        // Slices that never end, on sequences that never come again.
        (
            "open.pftrace",
            packets(|trace| {
                for n in 0..40_000 {
                    event(trace, 2 + n / 200, event::SLICE_BEGIN, |event| event.text(event::NAME, "x"));
                }
            }),
        ),
        (
            "tracks.pftrace",
            packets(|trace| {
                for n in 1..20_000 {
                    trace.packet(|packet| {
                        packet.uint(packet::SEQUENCE_ID, 1);
                        packet.message(packet::TRACK_DESCRIPTOR, |described| {
                            described.uint(track::UUID, n);
                            // A chain of parents without an end.
                            described.uint(track::PARENT_UUID, n % 19_999 + 1);
                            described.text(track::NAME, &format!("row {n}"));
                        });
                    });
                    event(trace, 1, event::SLICE_BEGIN, |event| event.uint(event::TRACK_UUID, n));
                    event(trace, 1, event::SLICE_END, |event| event.uint(event::TRACK_UUID, n));
                }
            }),
        ),
        (
            "names.pftrace",
            packets(|trace| {
                for n in 0..1_000 {
                    trace.packet(|packet| {
                        packet.uint(packet::SEQUENCE_ID, 1);
                        packet.message(packet::INTERNED_DATA, |data| {
                            data.message(interned::EVENT_NAMES, |name| {
                                name.uint(interned::IID, n + 1);
                                name.text(interned::TEXT, &format!("{n}{}", "y".repeat(2_000)));
                            });
                        });
                    });
                }
            }),
        ),
        (
            "notes.pftrace",
            packets(|trace| {
                for n in 0..400 {
                    event(trace, 1, event::INSTANT, |event| {
                        event.text(event::CATEGORIES, "session");
                        event.text(event::NAME, "session ends");
                        event.message(event::ANNOTATIONS, |said| {
                            said.text(annotation::NAME, &format!("note.{n}"));
                            said.text(annotation::STRING, &"z".repeat(20_000));
                        });
                    });
                }
            }),
        ),
        ("rows.json", {
            let events = (0..20_000).map(|n| {
                format!(
                    "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k{n}\",\"pid\":{n},\"tid\":{n},\"ts\":{n},\"dur\":1}}"
                )
            });
            format!("[{}]", events.collect::<Vec<_>>().join(",")).into_bytes()
        }),
        ("flight.flight", [b"warpline flight\x01".to_vec(), vec![0xff; 5_000]].concat()),
        ("flight.flight.gz", gzip(&[b"warpline flight\x01", &zeros])),
    ]
}

#[test]
fn every_command_ends_and_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in hostile() {
        assert!(content.len() < 24 << 20, "{name}: {} bytes", content.len());
        let input = folder.path().join(name);
        fs::write(&input, content).unwrap();
        for (command, args) in readers::commands(&input, folder.path()) {
            check(&format!("{command} of {name}"), &peak::warpline(&args));
        }
        opens(name, &input);
        fs::remove_file(input).unwrap();
    }
}

fn check(what: &str, ran: &peak::Ran) {
    let peak::Ran { status, stderr, wall, peak_kib, .. } = ran;
    assert!(matches!(status, Some(0 | 2)), "{what}: {status:?}: {stderr}");
    // A report of many ranges is long; complaints are not.
    assert!(stderr.lines().count() <= 6 && !stderr.contains("panicked"), "{what}: {stderr}");
    assert!(*status == Some(0) || stderr.contains("error: "), "{what}: {stderr}");
    assert!(*peak_kib < MOST_KIB && *wall < MOST_TIME, "{what}: {peak_kib} KiB, {wall:?}");
}

/// Beside another trace, so that it is taken apart.
fn opens(name: &str, input: &Path) {
    let readers::Opened { mut child, address } = readers::open(&[input, input]);
    if let Some(address) = &address {
        let reader = std::thread::scope(|scope| scope.spawn(|| readers::read_served(address, |_| ())).join());
        assert!(reader.is_ok(), "{name}");
    }
    let (ended, peak_kib) = peak::watched(&mut child);
    assert_eq!(ended.code(), Some(if address.is_some() { 0 } else { 2 }), "open of {name}");
    assert!(peak_kib < MOST_KIB, "open of {name}: {peak_kib} KiB");
}
