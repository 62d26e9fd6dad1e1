"""Makes the seeds of the fuzz target `flight_reader` from the file of a flight recorder: its parts, cut short.

    WARPLINE=flight=256KiB:/tmp/my.flight cargo run --release --example quickstart -- --steps 200
    python3 fuzz/seeds/flight_reader.py /tmp/my.flight

The target makes checksums right again; a part's content stands for itself, and a few bytes of it are enough.
"""

import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent / "flight_reader"
HEADER, AREA, AREAS, PIECE = 4096, 64 << 10, 3, 40
KEPT = 48


def part(place, content):
    return struct.pack("<BH", place, len(content)) + content


def piece(file, at):
    found = bytearray(file[at:at + PIECE + KEPT])
    if found[:4] != b"WPpc":
        return None
    found[28:32] = struct.pack("<I", min(KEPT, struct.unpack_from("<I", found, 28)[0]))
    return bytes(found)


def header(file, segments=None, segment=None):
    begin = bytearray(file[:32 + struct.unpack_from("<I", file, 28)[0] + 4])
    was = struct.unpack_from("<II", begin, 16)
    begin[16:24] = struct.pack("<II", segment or was[0], segments or was[1])
    return bytes(begin)


def countless(found):
    return found[:12] + b"\xff" * 16 + found[28:]


file = Path(sys.argv[1]).read_bytes()
segment, segments = struct.unpack_from("<II", file, 16)
areas = [found for area in range(AREAS) if (found := piece(file, HEADER + area * AREA))]
ring = [found for at in range(segments) if (found := piece(file, HEADER + AREAS * AREA + at * segment))]
assert areas and len(ring) > 2, "record for longer"
of_areas = b"".join(part(1 + at, found) for at, found in enumerate(areas))
of_ring = [part(1 + AREAS + at, found) for at, found in enumerate(ring)]
HERE.mkdir(exist_ok=True)
for name, mended, parts in [
    ("whole", 1, [part(0, header(file)), of_areas, *of_ring]),
    ("as_it_is", 0, [part(0, header(file)), of_areas, *of_ring]),
    ("one_piece", 1, [part(0, header(file, segments=1)), of_ring[0]]),
    ("large_segments", 1, [part(0, header(file, segment=1 << 20)), *of_ring[:3]]),
    ("no_areas", 1, [part(0, header(file, segments=4)), *of_ring[:4]]),
    ("counts", 1, [part(0, header(file, segments=2)), *(part(1 + AREAS + at, countless(ring[at])) for at in range(2))]),
    ("incident", 1, [part(0, header(file, segments=1)), part(AREAS, ring[0]), of_ring[0]]),
]:
    (HERE / name).write_bytes(bytes([mended]) + b"".join(parts))
