"""A step's plan: the extension's part on the host, and the device memory that its launches share."""

import torch
from torch.utils.dlpack import to_dlpack

from asynct.torch_ops.extension import extension

SKIP_VALUES = {False: "no", True: "yes", "auto": "auto"}


class Plan:
    """Everything that a launch reads stays where it is while the plan lives, unless a larger step needs more room."""

    def __init__(self, kernels, device, skip_values=False, limits=None):
        self.kernels = kernels
        self.device = device
        self.skip_values = SKIP_VALUES[skip_values]
        self.one_launch = False
        self.limits = limits  # of captured steps, or None
        self.shape = None
        self.step = None
        self.places = None
        self.buffers = {}
        self.values = None  # ValueCount of a step that counts

    def build(self, query_start, context_length, places, shape):
        """places: a block table [sequences, pages], int32; with pages of 0 tokens where each sequence's first key lies,
        int64 on the host. shape: heads, KV heads, head_dim, tokens a page."""
        paged = shape[3] > 0
        if self.limits is not None:
            self._check_limits(places, shape)
        step, values = self.step, self.values
        if step is None or shape != self.shape:
            step, values = self._make_step(shape), None
        on_host = places.device.type == "cpu"
        changed = step is not self.step
        # Until all of it is there, nothing runs: lengths of this plan over units of the one before would write anywhere.
        self.step = None
        with torch.cuda.device(self.device):
            if step.counts_values:
                values = values or ValueCount(self.device)
                step.observe_values(values.read())
            listed = places.contiguous().flatten() if on_host else None
            width = places.shape[1] if paged else 0
            step.build(query_start, context_length, width, listed if paged else None, None if paged else listed)
            changed |= self._set_places(places, shape[3])
            changed |= self._set_units(step)
            if changed:
                names = ("units", "partial", "arrived", "span_sums")
                units, *others = (to_dlpack(self.buffers[name]) for name in names)
                counter = None if values is None else to_dlpack(values.counter)
                step.set_memory(units, to_dlpack(self.places), *others, counter)
        self.step, self.shape, self.values = step, shape, values

    def _make_step(self, shape):
        """The device decides which kernels there are."""
        if not torch.cuda.is_available():
            raise RuntimeError("asynct.torch_ops: no CUDA GPU was found, expected one of compute capability 8.0 or more")
        properties = torch.cuda.get_device_properties(self.device)
        capability = 10 * properties.major + properties.minor
        processors = properties.multi_processor_count
        step = extension().AttentionStep(*shape, self.kernels, capability, processors, self.skip_values)
        if self.limits is not None:
            step.fix(*self.limits)
        return step

    def _check_limits(self, table, shape):
        if self.shape is not None and shape != self.shape:
            raise ValueError(f"plan: heads, head_dim and page size {shape}, expected {self.shape} as captured before")
        if table.shape[0] > self.limits[0]:
            raise ValueError(f"block_table: {table.shape[0]} rows, expected at most {self.limits[0]}, as captured")

    def _set_places(self, places, page_size):
        """Whether it is another tensor than before. Comes before the units: they arrive by a copy, which a decode kernel
        that begins early waits for, and then so does what lies before them in the stream."""
        if places.device.type == "cpu":
            places = places.pin_memory().to(self.device, non_blocking=True)
        if self.limits is None:
            self.places = places
            return True
        pages = -(-self.limits[3] // page_size)  # no sequence has more, however wide the table is
        made = self.places is None
        if made:
            self.places = torch.zeros(self.limits[0], pages, dtype=torch.int32, device=self.device)
        self.places[: places.shape[0], : places.shape[1]].copy_(places[:, :pages])
        return made

    def _set_units(self, step):
        """Whether a buffer was allocated."""
        changed = self._reserve("partial", step.partial_floats(), torch.float32)
        changed |= self._reserve("arrived", step.arrived_words(), torch.int32)
        changed |= self._reserve("span_sums", step.span_sum_floats(), torch.float32)
        words = 8 * step.unit_rows()
        changed |= self._reserve("units", words, torch.int32)
        if words > 0:
            units = torch.empty(words, dtype=torch.int32, pin_memory=True)
            step.write_units(units)
            self.buffers["units"][:words].copy_(units, non_blocking=True)
        return changed

    def _reserve(self, name, elements, dtype):
        buffer = self.buffers.get(name)
        if buffer is not None and buffer.numel() >= elements:
            return False
        grown = elements if self.limits is not None else elements + elements // 2
        self.buffers[name] = torch.zeros(max(grown, 1), dtype=dtype, device=self.device)
        return True


class ValueCount:
    """What launches of a plan count, all layers in one number: keys in its upper half, those with weight in the lower
    one. It is read without waiting, so what comes is of a plan or two ago."""

    def __init__(self, device):
        self.counter = torch.zeros(1, dtype=torch.int64, device=device)
        self._copy = torch.zeros(1, dtype=torch.int64, pin_memory=True)
        self._event = None  # passed when the copy has come
        self._last = 0

    def read(self):
        """The newest count that has come; asks for the next one, of all launches on this stream so far."""
        if self._event is None:
            self._event = torch.cuda.Event()
        elif not self._event.query():
            return self._last
        self._last = int(self._copy)
        self._copy.copy_(self.counter, non_blocking=True)
        self._event.record()
        return self._last
