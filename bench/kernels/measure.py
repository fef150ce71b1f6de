"""Times of calls on the GPU: calls of a candidate walk over several input sets inside one CUDA graph; time = replay / calls.

Bursts: the candidates take turns, an idle gap before each, so that the clock is high. Sustained: each alone for a
while, at the clock that the power limit leaves; its second half counts.
"""

import ctypes
import math
import statistics
import threading
import time

import torch
from names import family


class Nvml:
    """SM clock and power of the first device; zeros where the driver's library is absent."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            self.device = ctypes.c_void_p()
            if self.library.nvmlInit_v2() or self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)):
                self.library = None
        except OSError:
            self.library = None

    def sample(self) -> tuple[float, float]:
        if self.library is None:
            return 0.0, 0.0
        mhz, milliwatts = ctypes.c_uint(), ctypes.c_uint()
        self.library.nvmlDeviceGetClockInfo(self.device, 1, ctypes.byref(mhz))
        self.library.nvmlDeviceGetPowerUsage(self.device, ctypes.byref(milliwatts))
        return float(mhz.value), milliwatts.value / 1e3


class Monitor(threading.Thread):
    """Samples while a block runs; `medians()` of the second half afterwards."""

    def __init__(self, nvml: Nvml):
        super().__init__(daemon=True)
        self.nvml, self.samples, self.on = nvml, [], True

    def run(self):
        while self.on:
            self.samples.append(self.nvml.sample())
            time.sleep(0.01)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.on = False
        self.join()

    def medians(self) -> dict:
        half = self.samples[len(self.samples) // 2 :] or [(0.0, 0.0)]
        return {"sm_mhz": statistics.median(s[0] for s in half), "watts": statistics.median(s[1] for s in half)}


def summary(values: list[float]) -> dict:
    """Seconds: median, p10, p90 (between neighbours interpolated)."""
    ordered = sorted(values)

    def quantile(share):
        at = share * (len(ordered) - 1)
        below = math.floor(at)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (at - below) * (ordered[above] - ordered[below])

    return {"seconds": quantile(0.5), "p10": quantile(0.1), "p90": quantile(0.9), "count": len(ordered)}


class Replay:
    """A candidate's calls, captured; where that is refused, launched one by one behind a kernel that waits."""

    def __init__(self, call, sets: int, calls: int):
        self.calls, self.note = calls, None
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for i in range(sets):
                call(i)
        stream.synchronize()
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for c in range(calls):
                    call(c % sets)
            graph.replay()
            torch.cuda.synchronize()
            self.launch = graph.replay
        except Exception as error:  # libraries raise what they like
            torch.cuda.synchronize()
            self.note = f"not captured: {str(error)[:200]}"

            def launch():
                for c in range(calls):
                    call(c % sets)

            self.launch = launch

    def seconds(self) -> float:
        if self.note is not None:
            torch.cuda._sleep(20_000_000)
        self.begin.record()
        self.launch()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) * 1e-3 / self.calls


class Timer:
    def __init__(self, quick: bool, sustained: float):  # seconds; 0: no sustained figures
        self.nvml = Nvml()
        self.rounds, self.skipped = (9, 2) if quick else (21, 4)
        self.gap = 3e-3
        self.sustained = sustained

    def calls(self, sets: int, estimate: float) -> int:
        """About 2 ms a graph, whole rounds over the sets."""
        return sets * max(1, round(2e-3 / estimate / sets))

    def measure(self, candidates: dict, sets: int, calls: int) -> dict:
        """{name: {"bursts": summary, "sustained": summary}} or {"error": text}; sustained for the fastest of a family."""
        results, replays = {}, {}
        for name, call in candidates.items():
            try:
                replays[name] = Replay(call, sets, calls)
                results[name] = {"note": replays[name].note} if replays[name].note else {}
            except Exception as error:
                results[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        times = {name: [] for name in replays}
        monitor = Monitor(self.nvml)
        with monitor:
            for round_ in range(self.skipped + self.rounds):
                for name, replay in replays.items():
                    time.sleep(self.gap)
                    seconds = replay.seconds()
                    if round_ >= self.skipped:
                        times[name].append(seconds)
        for name in replays:
            results[name]["bursts"] = summary(times[name]) | monitor.medians()
        fastest = {}
        for name in sorted(replays, key=lambda n: results[n]["bursts"]["seconds"]):
            fastest.setdefault(family(name), name)
        for name in fastest.values() if self.sustained > 0 else ():
            replay = replays[name]
            alone, end = [], time.monotonic() + self.sustained
            time.sleep(0.02)
            with Monitor(self.nvml) as monitor:
                while time.monotonic() < end:
                    alone.append(replay.seconds())
            results[name]["sustained"] = summary(alone[len(alone) // 2 :]) | monitor.medians()
        return results

    def quick_seconds(self, call, sets: int, calls: int) -> float:
        """Of three replays the fastest: enough to choose between settings."""
        replay = Replay(call, sets, calls)
        return min(replay.seconds() for _ in range(3))
