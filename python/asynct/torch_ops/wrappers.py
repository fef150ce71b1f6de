"""plan and run, by FlashInfer's names. No workspace is asked for: a wrapper's buffers grow with its plans."""

import torch

from asynct.torch_ops.layouts import INT32_MAX, LAYOUTS, block_table_of_pages, host_ints, paged_kv_views, rising
from asynct.torch_ops.operators import register_plan
from asynct.torch_ops.plans import SKIP_VALUES, Plan


class _Attention:
    """A plan and its number, by which operators find it.

    Sequences of few rows and of many go to the fastest kernels that take them: those for sm_90a, or else the plain path,
    for compute capability 8.0 and later. All of them give the same bits.

    Plan and run belong on one stream. Rows of `out` that belong to no sequence are left as they are.
    """

    _kernels = ""

    def __init__(self, device, **options):
        device = torch.device(device)
        if device.type != "cuda":
            raise ValueError(f"device: {device}, expected a CUDA device")
        if device.index is None:
            index = torch.cuda.current_device() if torch.cuda.is_available() else 0  # plan() says that there is no GPU
            device = torch.device("cuda", index)
        self._plan = Plan(self._kernels, device, **options)
        self._number = register_plan(self._plan)

    @property
    def path(self):
        """Which kernels the plan takes, and why not faster ones: "decode for sm_90a, prefill for sm_90a", "plain: blocks
        of 24 tokens". None before the first plan."""
        return None if self._plan.step is None else self._plan.step.path

    def _run(self, q, key, value, factors, out):
        arguments = (
            q, key, value, factors.heads, self._number, factors.pool_size, factors.pool_relu, factors.most, factors.plain
        )  # fmt: skip
        if out is None:
            return torch.ops.asynct.paged_attention(*arguments)
        torch.ops.asynct.paged_attention_out(*arguments, out)
        return out


class _PagedAttention(_Attention):
    """What the wrappers over a paged cache share.

    kv_layout: of the cache, see paged_kv_views().

    skip_values: decode for sm_90a fetches only value rows that some query row gives weight. That changes no result; it is
    faster where weights are sparse, and slower in small launches. "auto": launches count rows and those with weight, all
    layers into one counter, and each plan decides by what was counted until a plan or two before; `skips_values` says how.
    One choice for all layers, and counts that are wrong once a step goes through 2^32 keys (of all layers and KV heads),
    can cost time and nothing else. Not with use_cuda_graph: a captured launch stays as it is.

    use_cuda_graph: launches are the same for every step of up to max_batch_size sequences, max_tokens query rows (by
    default max_query_len a sequence) and max_context tokens, so that one that was captured runs the plans that come after
    it; query and out have max_tokens rows then. One wrapper a captured batch size is best: room that a step leaves costs
    a little.
    """

    def __init__(
        self, kv_layout="NHD", use_cuda_graph=False, *, device="cuda", max_batch_size=None, max_tokens=None, max_query_len=1,
        max_context=None, skip_values=False,
    ):  # fmt: skip
        if kv_layout not in LAYOUTS:
            raise ValueError(f"kv_layout: {kv_layout!r}, expected one of {', '.join(LAYOUTS)}")
        if skip_values not in SKIP_VALUES:
            raise ValueError(f"skip_values: {skip_values!r}, expected False, True or 'auto'")
        limits = None
        if use_cuda_graph:
            if max_batch_size is None or max_context is None:
                raise ValueError("use_cuda_graph: expected max_batch_size and max_context")
            if skip_values == "auto":
                raise ValueError("skip_values: 'auto' with use_cuda_graph, expected False or True: a captured launch stays")
            limits = (max_batch_size, max_tokens or max_batch_size * max_query_len, max_query_len, max_context)
        super().__init__(device, skip_values=skip_values, limits=limits)
        self._kv_layout = kv_layout

    @property
    def skips_values(self):
        """Whether the plan's decode skips values; the plain path does not. None before the first plan."""
        return None if self._plan.step is None else self._plan.step.skips_values

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
        if page_size < 1:
            raise ValueError(f"page_size: {page_size}, expected 1 or more")
        lengths = host_ints("query_start", query_start), host_ints("context_length", context_length)
        if block_table.shape[0] < lengths[1].numel():
            raise ValueError(f"block_table: {block_table.shape[0]} rows for {lengths[1].numel()} sequences")
        table = block_table[: lengths[1].numel()]
        self._plan.build(*lengths, table, (num_qo_heads, num_kv_heads, head_dim, page_size))

    def run(self, q, paged_kv_cache, factors, *, out=None):
        """q [rows, num_qo_heads, head_dim], normed and rotated; the cache holds this step's keys and values already.
        Returns out, or a new tensor like q. Launches and allocates nothing else; never waits for the device."""
        _expect_dtype(q, factors)
        return self._run(q, *paged_kv_views(paged_kv_cache, self._kv_layout), factors, out)


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
        _expect_causal(causal)
        context_length, table = block_table_of_pages(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        self.plan_block_table(qo_indptr, context_length, table, num_qo_heads, num_kv_heads, head_dim, page_size)


class BatchAttention(BatchPrefillWithPagedKVCacheWrapper):
    """A whole step: sequences of few rows (as BatchDecodeWithPagedKVCacheWrapper's, with use_cuda_graph those of up to
    max_query_len) decode, the others prefill. one_launch: both as one kernel where it takes them; of captured launches
    the plan that they are captured with decides whether, and how many of the kernel's blocks decode."""

    _kernels = "both"

    def __init__(self, kv_layout="NHD", use_cuda_graph=False, *, one_launch=False, **options):
        super().__init__(kv_layout, use_cuda_graph, **options)
        self._plan.one_launch = one_launch


class BatchPrefillWithRaggedKVCacheWrapper(_Attention):
    """Keys and values of one sequence after the other in one tensor, without a cache: for calls as in training (no
    gradients). Takes the plain path; launches are not for CUDA graphs."""

    _kernels = "prefill"

    def __init__(self, *, device="cuda"):
        super().__init__(device)

    def plan(self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim, *, causal=True):
        """Sequence i has the query rows qo_indptr[i] to qo_indptr[i + 1], the last ones of its tokens, and the keys
        kv_indptr[i] to kv_indptr[i + 1]. Both are needed on the host."""
        _expect_causal(causal)
        first = host_ints("kv_indptr", kv_indptr)
        context_length = rising("kv_indptr", first, INT32_MAX, "keys")
        query_start = host_ints("qo_indptr", qo_indptr)
        self._plan.build(query_start, context_length, first[:-1].long(), (num_qo_heads, num_kv_heads, head_dim, 0))

    def run(self, q, k, v, factors, *, out=None):
        """q [rows, num_qo_heads, head_dim], normed and rotated; k and v [keys, num_kv_heads, head_dim], rows and heads
        any stride. Returns out, or a new tensor like q. Launches and allocates nothing else; never waits for the
        device."""
        _expect_dtype(q, factors)
        return self._run(q, k, v, factors, out)


def _expect_dtype(q, factors):
    if q.dtype != factors.dtype:
        raise TypeError(f"q: dtype {q.dtype}, expected {factors.dtype} as the factors'")


def _expect_causal(causal):
    if not causal:
        raise ValueError("causal: False, expected True: AsyncI has no other attention")
