//! Packets with absolute `BOOTTIME` timestamps and without interning: the facts about a session, and open zones.

use super::proto::{Buffer, clock, event, packet, track};
use super::track::{Ids, i32_bits, process_track};
use warpline_report::sink::SessionInfo;

/// A sequence of such packets.
#[derive(Clone, Copy)]
pub(super) struct AbsoluteSequence(u64);

impl AbsoluteSequence {
    pub(super) fn new(ids: &mut Ids) -> AbsoluteSequence {
        AbsoluteSequence(u64::from(ids.sequence()))
    }

    /// Writes the first packet, with the clocks.
    pub(super) fn begin(self, info: &SessionInfo, buffer: &mut Buffer) {
        buffer.packet(|packet| {
            packet.int(packet::TIMESTAMP, info.begin_ns);
            packet.uint(packet::SEQUENCE_ID, self.0);
            packet.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                snapshot.clocks([(clock::BOOTTIME, info.begin_ns), (clock::REALTIME, info.begin_unix_ns)]);
                snapshot.uint(clock::PRIMARY, clock::BOOTTIME);
            });
        });
    }

    /// Writes a packet of any other kind, without a timestamp.
    pub(super) fn packet(self, buffer: &mut Buffer, fill: impl FnOnce(&mut Buffer)) {
        buffer.packet(|packet| {
            packet.uint(packet::SEQUENCE_ID, self.0);
            fill(packet);
        });
    }

    /// Describes a track, which `fill` completes.
    pub(super) fn describe(self, uuid: u64, buffer: &mut Buffer, fill: impl FnOnce(&mut Buffer)) {
        self.packet(buffer, |packet| {
            packet.message(packet::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.uint(track::UUID, uuid);
                fill(descriptor);
            });
        });
    }

    /// Describes the track of the process.
    pub(super) fn process(self, info: &SessionInfo, buffer: &mut Buffer) {
        self.describe(process_track(info.process_id), buffer, |descriptor| {
            descriptor.message(track::PROCESS, |process| {
                process.uint(track::PROCESS_PID, i32_bits(u64::from(info.process_id)));
                process.text(track::PROCESS_NAME, &info.label());
            });
        });
    }

    /// Describes a row below another one. The description may be empty.
    pub(super) fn row(self, uuid: u64, parent: u64, name: &str, description: &str, buffer: &mut Buffer) {
        self.describe(uuid, buffer, |descriptor| {
            descriptor.uint(track::PARENT_UUID, parent);
            descriptor.text(track::NAME, name);
            if !description.is_empty() {
                descriptor.text(track::DESCRIPTION, description);
            }
        });
    }

    /// Writes an event on a track, which `fill` completes.
    pub(super) fn event(self, track: u64, kind: u64, ns: i64, buffer: &mut Buffer, fill: impl FnOnce(&mut Buffer)) {
        buffer.packet(|packet| {
            packet.int(packet::TIMESTAMP, ns);
            packet.uint(packet::SEQUENCE_ID, self.0);
            packet.message(packet::TRACK_EVENT, |event| {
                event.uint(event::TYPE, kind);
                event.uint(event::TRACK_UUID, track);
                fill(event);
            });
        });
    }
}
