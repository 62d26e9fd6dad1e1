"""Decodes a Perfetto trace with Perfetto's own protos and says what breaks the rules that our traces keep.

    packets.py TRACE [--killed | --pieces | --foreign]        prints a JSON array of faults, one sentence each

Perfetto's reader forgives much of this in silence: it drops a slice whose track has no parent, a name whose id was not
defined, a flow with one end. With `--killed` the last packet may be cut short and the last slice open, which is what a
killed process leaves. With `--pieces` each part can be read alone and says again, in the same words, what it refers to, and
the account may be missing; nothing else is forgiven. With `--foreign` it is the trace of another tool, annotated: there was
no session. Called by `cargo xtask gate`; it never writes a file.
"""

import json
import sys
from collections import Counter, defaultdict

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

BOOTTIME = 6
CLEARED, NEEDS_STATE = 1, 2
Event = protos.TrackEvent

# A zone may begin before the session by what the clocks are uncertain.
BEFORE_SESSION_NS = 1_000_000_000


def split(data):
    """Yields the offset and the bytes of each packet; the bytes are None where the trace breaks off."""
    at = 0
    while at < len(data):
        start = at
        key, at = varint(data, at)
        size, at = varint(data, at) if key == 0x0A else (None, at)
        if size is None or at + size > len(data):
            yield start, None
            return
        yield start, data[at : at + size]
        at += size


def varint(data, at):
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            return None, at
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    return None, at


def has_unknown_fields(message):
    if len(UnknownFieldSet(message)) > 0:
        return True
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in value if field.is_repeated else [value]:
            if has_unknown_fields(inner):
                return True
    return False


class Sequence:
    """What one sequence of packets has said so far."""

    def __init__(self):
        self.names = {}
        self.annotation_names = {}
        self.strings = {}
        self.locations = {}
        self.categories = {}
        self.track = None
        self.clock = BOOTTIME
        self.clocks = {}


class Checker:
    def __init__(self, killed, foreign, pieces):
        self.killed = killed
        self.pieces = pieces
        self.descriptors = {}
        self.foreign = foreign
        self.faults = []
        self.sequences = {}
        self.parents = {}
        self.used_tracks = {}
        self.flows = defaultdict(list)
        self.events = []
        self.session = None
        self.last_ns = None
        self.where = ""

    def fault(self, text):
        self.faults.append(f"{self.where}{text}")

    def check(self, data):
        count = 0
        for number, (offset, content) in enumerate(split(data)):
            self.where = f"packet {number} at byte {offset}: "
            if content is None:
                if not self.killed:
                    self.fault("it is cut short, or what stands there is no packet")
                break
            packet = protos.TracePacket()
            try:
                packet.ParseFromString(content)
            except DecodeError as error:
                self.fault(f"it cannot be decoded: {error}")
                continue
            if has_unknown_fields(packet):
                self.fault("it has fields that Perfetto does not know")
            self.packet(packet)
            count += 1
        self.where = ""
        if count == 0:
            self.fault("the trace has no packet")
        self.check_tracks()
        self.check_flows()
        self.check_nesting()
        self.check_times()
        return self.faults

    def packet(self, packet):
        id = packet.trusted_packet_sequence_id
        if id == 0:
            return self.fault("it belongs to no sequence")
        if packet.sequence_flags & CLEARED:
            if id in self.sequences:
                self.fault(f"sequence {id} begins a second time")
            self.sequences[id] = Sequence()
        sequence = self.sequences.get(id)
        if sequence is None:
            self.fault(f"sequence {id} does not begin with SEQ_INCREMENTAL_STATE_CLEARED")
            sequence = self.sequences[id] = Sequence()
        if packet.HasField("clock_snapshot"):
            self.clocks(packet.clock_snapshot, sequence)
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            if defaults.HasField("timestamp_clock_id"):
                sequence.clock = defaults.timestamp_clock_id
            if defaults.track_event_defaults.HasField("track_uuid"):
                sequence.track = defaults.track_event_defaults.track_uuid
        if packet.HasField("track_descriptor"):
            self.track(packet.track_descriptor)
        if packet.HasField("interned_data"):
            self.interned(packet.interned_data, sequence)
        if packet.HasField("track_event"):
            needs = packet.track_event.name_iid or not packet.track_event.track_uuid
            if needs and not packet.sequence_flags & NEEDS_STATE:
                self.fault("it uses what its sequence defined and does not say so (SEQ_NEEDS_INCREMENTAL_STATE)")
            self.event(packet, sequence)

    def clocks(self, snapshot, sequence):
        clocks = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
        if BOOTTIME not in clocks:
            return self.fault("a clock snapshot without BOOTTIME")
        for id, ns in clocks.items():
            if id >= 64:
                sequence.clocks[id] = clocks[BOOTTIME] - ns
        if snapshot.primary_trace_clock:
            if snapshot.primary_trace_clock != BOOTTIME:
                self.fault("the trace's clock is not BOOTTIME")
            self.session = clocks[BOOTTIME]

    def track(self, track):
        said = track.SerializeToString()
        if self.descriptors.setdefault(track.uuid, said) != said:
            self.fault(f"track {track.uuid} is described in two ways")
        elif track.uuid in self.parents and not self.pieces:
            self.fault(f"track {track.uuid} is described twice")
        self.parents[track.uuid] = track.parent_uuid if track.HasField("parent_uuid") else None

    def interned(self, data, sequence):
        for entries, table, value in [
            (data.event_names, sequence.names, lambda entry: entry.name),
            (data.debug_annotation_names, sequence.annotation_names, lambda entry: entry.name),
            (data.debug_annotation_string_values, sequence.strings, lambda entry: entry.str),
            (data.source_locations, sequence.locations, lambda entry: entry.file_name),
            (data.event_categories, sequence.categories, lambda entry: entry.name),
        ]:
            for entry in entries:
                if entry.iid == 0:
                    self.fault("something is interned with the id 0")
                elif table.setdefault(entry.iid, value(entry)) != value(entry):
                    self.fault(f"the interned id {entry.iid} gets a second meaning")

    def event(self, packet, sequence):
        event = packet.track_event
        uuid = event.track_uuid if event.HasField("track_uuid") else sequence.track
        if uuid is None:
            return self.fault("an event with no track")
        self.used_tracks.setdefault(uuid, self.where)
        if event.HasField("name_iid") and event.name_iid not in sequence.names:
            self.fault(f"the name {event.name_iid} is not defined on its sequence")
        if event.HasField("source_location_iid") and event.source_location_iid not in sequence.locations:
            self.fault(f"the source location {event.source_location_iid} is not defined on its sequence")
        for category in event.category_iids:
            if category not in sequence.categories:
                self.fault(f"the category {category} is not defined on its sequence")
        for annotation in event.debug_annotations:
            if annotation.HasField("name_iid") and annotation.name_iid not in sequence.annotation_names:
                self.fault(f"the annotation name {annotation.name_iid} is not defined on its sequence")
            if annotation.HasField("string_value_iid") and annotation.string_value_iid not in sequence.strings:
                self.fault(f"the text {annotation.string_value_iid} is not defined on its sequence")
        for flow in event.flow_ids:
            self.flows[flow].append("begin")
        for flow in event.terminating_flow_ids:
            self.flows[flow].append("end")
        ns = self.time(packet, sequence)
        if ns is None:
            return
        if event.type == Event.TYPE_INSTANT and event.name == "session ends":
            self.last_ns = ns
        if event.type in (Event.TYPE_SLICE_BEGIN, Event.TYPE_SLICE_END):
            if event.type == Event.TYPE_SLICE_BEGIN and not event.name and not event.name_iid:
                self.fault("a slice with no name")
            self.events.append((ns, uuid, event.type, self.where))
        elif event.type not in (Event.TYPE_INSTANT, Event.TYPE_COUNTER):
            self.fault(f"an event of type {event.type}")

    def time(self, packet, sequence):
        if not packet.HasField("timestamp"):
            return self.fault("an event with no time")
        clock = packet.timestamp_clock_id if packet.HasField("timestamp_clock_id") else sequence.clock
        if clock == BOOTTIME:
            return packet.timestamp
        if clock not in sequence.clocks:
            return self.fault(f"clock {clock} is tied to nothing on its sequence")
        return packet.timestamp + sequence.clocks[clock]

    def check_tracks(self):
        for uuid, where in self.used_tracks.items():
            if uuid not in self.parents:
                self.faults.append(f"{where}track {uuid} has no descriptor")
        for uuid, parent in self.parents.items():
            if parent is not None and parent not in self.parents:
                self.fault(f"track {uuid} has the parent {parent}, which has no descriptor")

    def check_flows(self):
        for flow, ends in self.flows.items():
            # A killed process may have written a launch and not yet its zone.
            if sorted(ends) != ["begin", "end"] and not (self.killed and len(ends) == 1):
                self.fault(f"flow {flow} does not lead from one slice to one other: it has {' and '.join(ends)}")

    def check_nesting(self):
        """What a reader pairs up, in order of time, must be what was written as a pair, in the order of the file."""
        written, open_in_file = defaultdict(Counter), {}
        for ns, uuid, kind, where in self.events:
            if kind == Event.TYPE_SLICE_BEGIN:
                if uuid in open_in_file:
                    self.faults.append(f"{where}a slice begins on track {uuid} before the one before it was ended in the file")
                open_in_file[uuid] = ns
            elif uuid not in open_in_file:
                self.faults.append(f"{where}an end without a begin on track {uuid}")
            else:
                begin = open_in_file.pop(uuid)
                if ns < begin:
                    self.faults.append(f"{where}a slice on track {uuid} ends before it begins")
                written[uuid][begin, ns] += 1
        if open_in_file and not self.killed:
            for uuid in open_in_file:
                self.fault(f"track {uuid}: a slice is never ended")
        read, stacks = defaultdict(Counter), defaultdict(list)
        for ns, uuid, kind, _ in sorted(self.events, key=lambda event: event[0]):
            if kind == Event.TYPE_SLICE_BEGIN:
                stacks[uuid].append(ns)
            elif stacks[uuid]:
                read[uuid][stacks[uuid].pop(), ns] += 1
        for uuid in written:
            if written[uuid] != read[uuid] and uuid not in open_in_file:
                self.fault(f"track {uuid}: slices overlap without nesting, and a reader swaps their ends")

    def check_times(self):
        if self.session is None:
            return self.fault("no clock snapshot ties the trace to BOOTTIME")
        if self.last_ns is None and not self.killed and not self.pieces and not self.foreign:
            return self.fault("the session's account is missing: no instant `session ends`")
        for ns, _, _, where in self.events:
            if ns < self.session - BEFORE_SESSION_NS or (self.last_ns is not None and ns > self.last_ns):
                self.faults.append(f"{where}its time {ns} is outside of the session")


def main():
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    with open(arguments[0], "rb") as file:
        data = file.read()
    print(json.dumps(Checker("--killed" in sys.argv, "--foreign" in sys.argv, "--pieces" in sys.argv).check(data)))


if __name__ == "__main__":
    main()
