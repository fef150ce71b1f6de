"""plan and run, by FlashInfer's names. No workspace is asked for: a wrapper's buffers grow with its plans."""

import torch
from torch.utils.dlpack import to_dlpack

from asynct.torch_ops.extension import extension
from asynct.torch_ops.layouts import LAYOUTS, block_table_of_pages, host_ints, paged_kv_views
from asynct.torch_ops.operators import register_plan


class _Plan:
    """A step's work on the device. Everything that a launch reads stays where it is while the plan lives, unless a
    larger step needs more room."""

    def __init__(self, kernels, device, skip_values, one_launch, limits):
        self.kernels = kernels
        self.device = device
        self.skip_values = skip_values
        self.one_launch = one_launch
        self.limits = limits  # of captured steps, or None
        self.shape = None
        self.step = None
        self.table = None
        self.buffers = {}

    def build(self, query_start, context_length, block_table, shape):
        if self.limits is not None:
            self._check_limits(block_table, shape)
        step = self.step
        if step is None or shape != self.shape:
            step = extension().AttentionStep(*shape, self.kernels, self.skip_values)
            if self.limits is not None:
                step.fix(*self.limits)
        on_host = block_table.device.type == "cpu"
        width = block_table.shape[1]
        changed = step is not self.step
        # Until all of it is there, nothing runs: lengths of this plan over units of the one before would write anywhere.
        self.step = None
        step.build(query_start, context_length, width, block_table.contiguous().flatten() if on_host else None)
        with torch.cuda.device(self.device):
            changed |= self._set_table(block_table, shape[3])
            changed |= self._set_units(step)
            if changed:
                buffers = {**self.buffers, "block_table": self.table}
                names = ("units", "block_table", "partial", "arrived", "span_sums")
                step.set_memory(*(to_dlpack(buffers[name]) for name in names))
        self.step, self.shape = step, shape

    def _check_limits(self, table, shape):
        if self.shape is not None and shape != self.shape:
            raise ValueError(f"plan: heads, head_dim and page size {shape}, expected {self.shape} as captured before")
        if table.shape[0] > self.limits[0]:
            raise ValueError(f"block_table: {table.shape[0]} rows, expected at most {self.limits[0]}, as captured")

    def _set_table(self, table, page_size):
        """Whether it is another tensor than before. Comes before the units: they arrive by a copy, which a decode kernel
        that begins early waits for, and then so does what lies before them in the stream."""
        if table.device.type == "cpu":
            table = table.pin_memory().to(self.device, non_blocking=True)
        if self.limits is None:
            self.table = table
            return True
        pages = -(-self.limits[3] // page_size)  # no sequence has more, however wide the table is
        made = self.table is None
        if made:
            self.table = torch.zeros(self.limits[0], pages, dtype=torch.int32, device=self.device)
        self.table[: table.shape[0], : table.shape[1]].copy_(table[:, :pages])
        return made

    def _set_units(self, step):
        """Whether a buffer was allocated."""
        processors = torch.cuda.get_device_properties(self.device).multi_processor_count
        changed = self._reserve("partial", step.partial_floats(), torch.float32)
        changed |= self._reserve("arrived", step.arrived_words(), torch.int32)
        changed |= self._reserve("span_sums", step.span_sum_floats(processors), torch.float32)
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


class _PagedAttention:
    """What the wrappers share.

    kv_layout: of the cache, see paged_kv_views(). skip_values: decode fetches only value rows that some query row gives
    weight, which changes no result. use_cuda_graph: launches are the same for every step of up to max_batch_size
    sequences, max_tokens query rows (by default max_query_len a sequence) and max_context tokens, so that one that was captured
    runs the plans that come after it; query and out have max_tokens rows then. One wrapper a captured batch size is best:
    room that a step leaves costs a little.

    Plan and run belong on one stream. Rows of `out` that belong to no sequence are left as they are.
    """

    _kernels = ""

    def __init__(
        self, kv_layout="NHD", use_cuda_graph=False, *, device="cuda", max_batch_size=None, max_tokens=None, max_query_len=1,
        max_context=None, skip_values=False,
    ):  # fmt: skip
        if kv_layout not in LAYOUTS:
            raise ValueError(f"kv_layout: {kv_layout!r}, expected one of {', '.join(LAYOUTS)}")
        device = torch.device(device)
        if device.type != "cuda":
            raise ValueError(f"device: {device}, expected a CUDA device")
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        limits = None
        if use_cuda_graph:
            if max_batch_size is None or max_context is None:
                raise ValueError("use_cuda_graph: expected max_batch_size and max_context")
            limits = (max_batch_size, max_tokens or max_batch_size * max_query_len, max_query_len, max_context)
        self._kv_layout = kv_layout
        self._plan = _Plan(self._kernels, device, skip_values, False, limits)
        self._number = register_plan(self._plan)

    def plan_block_table(self, query_start, context_length, block_table, num_qo_heads, num_kv_heads, head_dim, page_size):
        """By vLLM's tensors. Sequence i has the query rows query_start[i] to query_start[i + 1] (none: padding), the last
        ones of its context_length[i] tokens; its pages are block_table[i], int32. Lengths are needed on the host: ones
        that lie there are not waited for. A block table on the host is checked and copied; one on the device is read by
        the kernels (with use_cuda_graph a copy of it), must be written before plan() and its entries are not checked.
        """
        if query_start is None:
            query_start = torch.arange(len(context_length) + 1, dtype=torch.int32)
        if not isinstance(block_table, torch.Tensor):
            raise TypeError(f"block_table: {type(block_table).__name__}, expected a tensor")
        if block_table.dtype != torch.int32:
            raise TypeError(f"block_table: dtype {block_table.dtype}, expected torch.int32")
        if block_table.dim() != 2:
            raise ValueError(f"block_table: shape {list(block_table.shape)}, expected [sequences, pages]")
        lengths = host_ints("query_start", query_start), host_ints("context_length", context_length)
        if block_table.shape[0] < lengths[1].numel():
            raise ValueError(f"block_table: {block_table.shape[0]} rows for {lengths[1].numel()} sequences")
        table = block_table[: lengths[1].numel()]
        self._plan.build(*lengths, table, (num_qo_heads, num_kv_heads, head_dim, page_size))

    def run(self, q, paged_kv_cache, factors, *, out=None):
        """q [rows, num_qo_heads, head_dim], normed and rotated; the cache holds this step's keys and values already.
        Returns out, or a new tensor like q. Launches and allocates nothing else; never waits for the device."""
        if q.dtype != factors.dtype:
            raise TypeError(f"q: dtype {q.dtype}, expected {factors.dtype} as the factors'")
        key, value = paged_kv_views(paged_kv_cache, self._kv_layout)
        arguments = (
            q, key, value, factors.heads, self._number, factors.pool_size, factors.pool_relu, factors.most, factors.plain
        )  # fmt: skip
        if out is None:
            return torch.ops.asynct.paged_attention(*arguments)
        torch.ops.asynct.paged_attention_out(*arguments, out)
        return out


class BatchDecodeWithPagedKVCacheWrapper(_PagedAttention):
    """Sequences of few query rows: rows times query heads a KV head are at most 16."""

    _kernels = "decode"

    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size):
        """One query row a sequence; see block_table_of_pages()."""
        context_length, table = block_table_of_pages(indptr, indices, last_page_len, page_size)
        self.plan_block_table(None, context_length, table, num_qo_heads, num_kv_heads, head_dim, page_size)


class BatchPrefillWithPagedKVCacheWrapper(_PagedAttention):
    """Sequences of many query rows: whole prompts, or chunks of them. Causal: a row sees the keys up to its own."""

    _kernels = "prefill"

    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim,
        page_size, *, causal=True,
    ):  # fmt: skip
        """See block_table_of_pages(); sequence i has the query rows qo_indptr[i] to qo_indptr[i + 1]."""
        if not causal:
            raise ValueError("causal: False, expected True: AsyncI has no other attention")
        context_length, table = block_table_of_pages(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        self.plan_block_table(qo_indptr, context_length, table, num_qo_heads, num_kv_heads, head_dim, page_size)


class BatchAttention(BatchPrefillWithPagedKVCacheWrapper):
    """A whole step: sequences of few rows at its front decode (with use_cuda_graph those of up to max_query_len), the
    others prefill. one_launch: both as one kernel where it takes them."""

    _kernels = "both"

    def __init__(self, kv_layout="NHD", use_cuda_graph=False, *, one_launch=False, **options):
        super().__init__(kv_layout, use_cuda_graph, **options)
        self._plan.one_launch = one_launch
