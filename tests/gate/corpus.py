"""Breaks good traces, each in one way, so that the trace gate can show that it refuses every one for the right reason.

    corpus.py GOOD_PFTRACE GOOD_JSON FOLDER     writes the broken traces and prints [{"file", "fault"}, ...]

`fault` is a part of the sentence that the gate must say of that file. Called by `cargo xtask gate --self-test`.
"""

import json
import os
import sys

from packets import CLEARED, Event, split
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


def read(data):
    return [protos.TracePacket.FromString(content) for _, content in split(data)]


def write(packets):
    return protos.Trace(packet=packets).SerializeToString()


def first(packets, wanted):
    return next(index for index, packet in enumerate(packets) if wanted(packet))


def begins(packet):
    return packet.track_event.type == Event.TYPE_SLICE_BEGIN


def ends(packet):
    return packet.track_event.type == Event.TYPE_SLICE_END


def own_sequence(packet):
    """Of a sequence that has a track of its own, its first packet."""
    return packet.trace_packet_defaults.track_event_defaults.HasField("track_uuid")


def missing_parent(packets):
    parents = {packet.track_descriptor.parent_uuid for packet in packets}
    del packets[first(packets, lambda p: "(device" in p.track_descriptor.name and p.track_descriptor.uuid in parents)]


def missing_track(packets):
    uuid = packets[first(packets, own_sequence)].trace_packet_defaults.track_event_defaults.track_uuid
    del packets[first(packets, lambda packet: packet.track_descriptor.uuid == uuid)]


def state_not_cleared(packets):
    packet = packets[first(packets, lambda packet: own_sequence(packet) and packet.sequence_flags & CLEARED)]
    packet.sequence_flags = 0


def undefined_name(packets):
    packets[first(packets, begins)].track_event.name_iid = 9999


def undefined_category(packets):
    packets[first(packets, lambda packet: packet.track_event.category_iids)].track_event.category_iids[0] = 9999


def undefined_annotation_name(packets):
    index = first(packets, lambda packet: begins(packet) and packet.track_event.debug_annotations)
    packets[index].track_event.debug_annotations[0].name_iid = 9999


def undefined_text(packets):
    def has_text(packet):
        return any(annotation.string_value_iid for annotation in packet.track_event.debug_annotations)

    packet = packets[first(packets, has_text)]
    next(a for a in packet.track_event.debug_annotations if a.string_value_iid).string_value_iid = 9999


def open_slice(packets):
    del packets[max(index for index, packet in enumerate(packets) if ends(packet))]


def lost_begin(packets):
    del packets[first(packets, begins)]


def dangling_flow(packets):
    packet = packets[first(packets, lambda packet: packet.track_event.terminating_flow_ids)]
    del packet.track_event.terminating_flow_ids[:]


def duplicate_track(packets):
    described = [packet for packet in packets if packet.track_descriptor.uuid and packet.track_descriptor.parent_uuid]
    described[-1].track_descriptor.uuid = described[-2].track_descriptor.uuid


def overlap_on_one_track(packets):
    """Puts what stands on a stream's second lane onto its first."""
    by_name = {}
    for packet in packets:
        if packet.track_descriptor.name:
            by_name.setdefault(packet.track_descriptor.name, []).append(packet.track_descriptor.uuid)
    one, other = next(uuids for uuids in by_name.values() if len(uuids) > 1)[:2]
    for packet in packets:
        defaults = packet.trace_packet_defaults.track_event_defaults
        if defaults.track_uuid == other:
            defaults.track_uuid = one


def time_outside_session(packets):
    packet = packets[max(index for index, packet in enumerate(packets) if ends(packet))]
    packet.timestamp += 10**12


def untied_clock(packets):
    packet = packets[first(packets, own_sequence)]
    del packet.clock_snapshot.clocks[:]


def wrong_length(packets):
    """Nothing that only rules could see: the slice is whole, and wrong."""
    packet = packets[max(index for index, packet in enumerate(packets) if ends(packet))]
    packet.timestamp += 1


def wrong_field(packets):
    def has_number(packet):
        return any(annotation.HasField("uint_value") for annotation in packet.track_event.debug_annotations)

    packet = packets[first(packets, lambda packet: begins(packet) and has_number(packet))]
    next(a for a in packet.track_event.debug_annotations if a.HasField("uint_value")).uint_value += 1


def wrong_counter(packets):
    counters = [packet for packet in packets if packet.track_event.type == Event.TYPE_COUNTER]
    counters[-1].track_event.counter_value += 1


def process_twice(packets):
    index = first(packets, lambda packet: packet.track_descriptor.HasField("process"))
    packet = protos.TracePacket()
    packet.CopyFrom(packets[index])
    packet.track_descriptor.uuid += 1
    packets.insert(index + 1, packet)


def missing_category(packets):
    event = packets[first(packets, lambda packet: begins(packet) and packet.track_event.category_iids)].track_event
    del event.category_iids[:]


def nameless_group(packets):
    parents = {packet.track_descriptor.parent_uuid for packet in packets}
    group = packets[first(packets, lambda p: "(device" in p.track_descriptor.name and p.track_descriptor.uuid in parents)]
    group.track_descriptor.name = ""


BROKEN_PACKETS = [
    (missing_parent, "which has no descriptor"),
    (missing_track, "has no descriptor"),
    (state_not_cleared, "does not begin with SEQ_INCREMENTAL_STATE_CLEARED"),
    (undefined_name, "the name 9999 is not defined"),
    (undefined_category, "the category 9999 is not defined"),
    (undefined_annotation_name, "the annotation name 9999 is not defined"),
    (undefined_text, "the text 9999 is not defined"),
    (open_slice, "a slice is never ended"),
    (lost_begin, "an end without a begin"),
    (dangling_flow, "does not lead from one slice to one other"),
    (duplicate_track, "is described in two ways"),
    (overlap_on_one_track, "slices overlap without nesting"),
    (time_outside_session, "is outside of the session"),
    (untied_clock, "a clock snapshot without BOOTTIME"),
    (wrong_length, "slices: not as expected"),
    (wrong_field, "arguments: not as expected"),
    (wrong_counter, "counters: not as expected"),
    (process_twice, "a process is there more than once"),
    (missing_category, "slices have no category"),
    (nameless_group, "a row or group has no name"),
]


def torn_packet(data):
    offsets = [offset for offset, _ in split(data)]
    middle = offsets[len(offsets) // 2]
    return data[: middle + 3] + data[middle + 7 :]


def two_traces_in_one(data):
    """The same process twice, as from a sink whose ids are not unique."""
    return data + data


BROKEN_BYTES = [
    (torn_packet, "no packet"),
    (two_traces_in_one, "begins a second time"),
    (lambda data: data[:-3], "it is cut short"),
    (lambda data: b"", "the trace has no packet"),
]


def chrome_slices(document, category):
    return [event for event in document["traceEvents"] if event.get("cat") == category]


def overlap_on_one_row(document):
    zones = chrome_slices(document, "gpu_user_annotation")
    for zone in zones:
        zone["tid"] = zones[0]["tid"]


def flow_without_begin(document):
    launch = next(event for event in chrome_slices(document, "user_annotation") if "flow_out" in event)
    del launch["flow_out"], launch["bind_id"]


def before_zero(document):
    chrome_slices(document, "user_annotation")[0]["ts"] = -1.5


BROKEN_CHROME = [
    (overlap_on_one_row, "slice_drop_overlapping_complete_event"),
    (flow_without_begin, "flow_end_without_start"),
    (before_zero, "trace_sorter_negative_timestamp_dropped"),
]


def main():
    with open(sys.argv[1], "rb") as file:
        good = file.read()
    with open(sys.argv[2], encoding="utf-8") as file:
        chrome = file.read()
    broken = []
    for change, fault in BROKEN_PACKETS:
        packets = read(good)
        change(packets)
        broken.append((f"{change.__name__}.pftrace", write(packets), fault))
    for index, (change, fault) in enumerate(BROKEN_BYTES):
        broken.append((f"bytes_{index}.pftrace", change(good), fault))
    for change, fault in BROKEN_CHROME:
        document = json.loads(chrome)
        change(document)
        broken.append((f"{change.__name__}.json", json.dumps(document).encode(), fault))
    broken.append(("cut.json", chrome[: len(chrome) // 2].encode(), "it is no JSON document"))
    for name, content, _ in broken:
        with open(os.path.join(sys.argv[3], name), "wb") as file:
            file.write(content)
    print(json.dumps([{"file": name, "fault": fault} for name, _, fault in broken]))


if __name__ == "__main__":
    main()
