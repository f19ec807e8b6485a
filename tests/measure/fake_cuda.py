"""A stand-in for torch.cuda on a machine without a GPU: streams and events are kept as queues and played on a clock of
their own, while tensors live in host memory and are worked on at once.

Work comes from `fake.work(seconds)`, or, with `real_work`, from the host time between two calls of this stand-in.
Streams that work at the same time share the device evenly: two take twice as long. A spin kernel takes nothing away.
"""

import contextlib
import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch

CYCLES_PER_S = 2e9


class FakeEvent:
    def __init__(self, enable_timing=False, **_):
        self.at_s = None

    def record(self, stream=None):
        FAKE.enqueue(stream or FAKE.current, ("record", self))

    def elapsed_time(self, end):
        """Milliseconds."""
        assert self.at_s is not None, "the start was not waited for, or never recorded"
        assert end.at_s is not None, "the end was not waited for, or never recorded"
        return 1e3 * (end.at_s - self.at_s)

    def synchronize(self):
        FAKE.play()

    def wait(self, stream=None):
        (stream or FAKE.current).wait_event(self)

    def query(self):
        return self.at_s is not None


class FakeStream:
    def __init__(self, device=None, priority=0):
        self.queue = []
        FAKE.streams.append(self)

    def wait_event(self, event):
        FAKE.enqueue(self, ("wait", event))

    def wait_stream(self, other):
        event = FakeEvent()
        event.record(other)
        self.wait_event(event)

    def record_event(self, event=None):
        event = event or FakeEvent()
        event.record(self)
        return event

    def synchronize(self):
        FAKE.play()


class FakeGraph:
    def __init__(self):
        self.kernels = 0

    def replay(self):
        FAKE.called.append("replay")


@dataclass
class FakeCuda:
    real_work: bool = False
    sms: int = 132
    now_s: float = 0.0
    streams: list = field(default_factory=list)
    called: list = field(default_factory=list)
    current: FakeStream | None = None
    touched_s: float = 0.0

    def work(self, seconds, stream=None):
        self.enqueue(stream or self.current, ("work", seconds))

    def enqueue(self, stream, item):
        if self.real_work:
            self.current.queue.append(("work", time.perf_counter() - self.touched_s))
        stream.queue.append(item)
        self.touched_s = time.perf_counter()

    def play(self):
        """All queues to their ends."""
        if self.real_work:
            self.current.queue.append(("work", time.perf_counter() - self.touched_s))
        while any(stream.queue for stream in self.streams):
            while any(self._advance(stream) for stream in self.streams):
                pass
            self._pass_time()
        self.touched_s = time.perf_counter()

    def _advance(self, stream):
        """Whether the head of the queue took no time."""
        kind, what = stream.queue[0] if stream.queue else ("", None)
        if kind == "record":
            what.at_s = self.now_s
        elif not (kind == "wait" and self._done(what)) and not (kind in ("work", "spin") and what <= 1e-15):
            return False
        stream.queue.pop(0)
        return True

    def _done(self, event):
        """As in CUDA, an event that nobody will record is not waited for."""
        return not any(item == ("record", event) for stream in self.streams for item in stream.queue)

    def _pass_time(self):
        heads = [stream.queue[0] for stream in self.streams if stream.queue]
        sharing = sum(kind == "work" for kind, _ in heads)
        taking = [what * (sharing if kind == "work" else 1) for kind, what in heads if kind in ("work", "spin")]
        assert taking or not heads, "streams wait for each other"
        for stream in self.streams:
            kind, what = stream.queue[0] if stream.queue else ("", None)
            if kind in ("work", "spin"):
                stream.queue[0] = (kind, what - min(taking) / (sharing if kind == "work" else 1))
        self.now_s += min(taking, default=0.0)


FAKE = FakeCuda()


class _HostOnly(type):
    def __instancecheck__(cls, found):
        return isinstance(found, _DEVICE)


_DEVICE, _EMPTY = torch.device, torch.empty


class HostDevice(metaclass=_HostOnly):
    """`torch.device`, but every device is host memory."""

    def __new__(cls, *_):
        return _DEVICE("cpu")


@contextlib.contextmanager
def stream_context(stream):
    before, FAKE.current = FAKE.current, stream
    FAKE.enqueue(before, ("work", 0.0))  # what was done so far was done on the stream before
    try:
        yield
    finally:
        FAKE.enqueue(stream, ("work", 0.0))
        FAKE.current = before


@contextlib.contextmanager
def capture(graph, **_):
    FAKE.called.append("capture")
    yield


def sleep(cycles):
    assert isinstance(cycles, int)
    FAKE.enqueue(FAKE.current, ("spin", cycles / CYCLES_PER_S))


def install(monkeypatch, real_work=False, sms=132):
    """Replace torch.cuda for one test; returns the stand-in."""
    FAKE.__init__(real_work, sms)
    FAKE.current = main = FakeStream()
    FAKE.touched_s = time.perf_counter()
    properties = SimpleNamespace(
        name="Fake GPU", multi_processor_count=sms, L2_cache_size=1 << 20, total_memory=1 << 36, major=9, minor=0
    )
    replaced = {
        "Event": FakeEvent,
        "Stream": FakeStream,
        "CUDAGraph": FakeGraph,
        "stream": stream_context,
        "graph": capture,
        "current_stream": lambda device=None: FAKE.current,
        "default_stream": lambda device=None: main,
        "set_stream": lambda stream: setattr(FAKE, "current", stream),
        "synchronize": lambda device=None: FAKE.play(),
        "_sleep": sleep,
        "set_device": lambda device: None,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "is_available": lambda: True,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: "Fake GPU",
        "mem_get_info": lambda device=None: (1 << 35, 1 << 36),
        "empty_cache": lambda: FAKE.called.append("empty_cache"),
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "device", HostDevice)
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory=False, **options: _EMPTY(*shape, **options))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor)
    return FAKE
