"""A trace is read with the schema that Perfetto's own package carries."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import campanile
import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as schema
import pytest
from google.protobuf import unknown_fields

from .conftest import ROOT, command


PHASES = ROOT / "lab" / "tests" / "pages" / "phases.fio"


def unknown(message: Any) -> list[str]:
    """Fields that the schema lacks, in the message and in those that it holds."""
    found = [f"{message.DESCRIPTOR.name}.{field.field_number}" for field in unknown_fields.UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if isinstance(value, list) or hasattr(value, "__len__") else [value]:
                found += unknown(inner)
    return found


@pytest.mark.parametrize("job, platform", [("emr-low-qd1", None), (str(PHASES), "emr")])
def test_a_trace_fits_perfettos_schema(job: str, platform: str | None) -> None:
    campanile.run(job, platform=platform, delivery=["remapped", "posted"], set={"duration": "500 us"}, trace="t")
    trace = schema.Trace.FromString(Path("t").read_bytes())
    assert unknown(trace) == []
    # "Interned data" of Perfetto's documentation: the state is cleared once, and whoever needs it says so.
    assert trace.packet[0].sequence_flags == schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    names = {name.iid: name.name for name in trace.packet[0].interned_data.event_names}
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")}
    assert {"remapped", "posted", "CPU 0", "drive 0", "IOMMU 0"} <= {track.name for track in tracks.values()}
    assert all(not track.parent_uuid or track.parent_uuid in tracks for track in tracks.values())
    depth: dict[int, int] = defaultdict(int)
    last: dict[int, int] = defaultdict(int)
    begun, ended, seen = set(), set(), set()
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in tracks and packet.timestamp >= last[event.track_uuid]
        last[event.track_uuid] = packet.timestamp
        depth[event.track_uuid] += {event.TYPE_SLICE_BEGIN: 1, event.TYPE_SLICE_END: -1}.get(event.type, 0)
        assert depth[event.track_uuid] >= 0
        if event.type in (event.TYPE_SLICE_BEGIN, event.TYPE_INSTANT):
            seen.add(names[event.name_iid])
        is_counter = tracks[event.track_uuid].HasField("counter")
        assert is_counter == (event.type == event.TYPE_COUNTER)
        begun |= set(event.flow_ids)
        ended |= set(event.terminating_flow_ids)
    assert not any(depth.values())
    assert {"MSI", "read", "interrupt", "remap", "post", "taken", "harvested"} <= seen
    assert ended and ended <= begun
    assert (str(PHASES) != job) or any(track.name == "phases" for track in tracks.values())


def test_a_trace_and_fios_json_are_made_again() -> None:
    options = ["--set", "duration=500us", "--delivery", "remapped,posted"]
    command("run", "emr-low-qd1", *options, "--trace", "a.trace", "--fio-json", "{delivery}.json")
    for result in ["a.trace", "remapped.json", "posted.json"]:
        assert command("rerun", result).startswith("result: the same "), result
