"""A baseline: AsyncI decode in two Triton kernels, as one would write them first.

The first gives each program one KV head of one sequence and a share of its keys: scores by matrix products with
the group's queries padded to 16 rows, pooling, weights, and weights times values; sums go to memory. The second adds
the shares in order. A key is pooled with its predecessors, which lie in other lanes of the score tile: their scores
are computed again from keys loaded one and two rows earlier (they come from the caches), or taken from the tile by
a gather, of which the first columns are then the halo.
"""

import torch
import triton
import triton.language as tl

GROUP_ROWS = 16


# One compilation serves all shapes.
_COUNTS = ["max_blocks", "splits", "group", "kv_heads"]


@triton.jit(do_not_specialize=_COUNTS)
def _split_kernel(
    query, key, value, table, context_length, factors, partial, max_blocks, splits, group, kv_heads,
    DIM: tl.constexpr, BLOCK: tl.constexpr, POOL: tl.constexpr, KEYS: tl.constexpr, GATHER: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    context = tl.load(context_length + sequence)
    # Whole tiles a share; the last may be empty.
    step: tl.constexpr = KEYS - (POOL - 1) if GATHER else KEYS
    tiles = tl.cdiv(tl.cdiv(context, step), splits)
    first = split * tiles * step
    last = tl.minimum(first + tiles * step, context)
    rows, dims, columns = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, KEYS)
    heads = kv_head * group + rows
    in_group = rows < group
    row = sequence * (kv_heads * group) + heads
    q = tl.load(query + row[:, None] * DIM + dims[None, :], mask=in_group[:, None], other=0.0)
    slope = tl.load(factors + heads * 4, mask=in_group, other=0.0)
    bias = tl.load(factors + heads * 4 + 1, mask=in_group, other=0.0)
    sigma = tl.load(factors + heads * 4 + 2, mask=in_group, other=0.0)
    total = tl.zeros([ROWS, DIM], tl.float32)
    token_stride = kv_heads * DIM
    for start in range(first, last, step):
        if GATHER:
            keys = start - (POOL - 1) + columns
            used = (keys >= start) & (keys < last)
        else:
            keys = start + columns
            used = keys < last
        exists = (keys >= 0) & (keys < last)
        block = tl.load(table + sequence * max_blocks + keys // BLOCK, mask=exists, other=0).to(tl.int64)
        slot = (block * BLOCK + keys % BLOCK) * token_stride + kv_head * DIM
        k = tl.load(key + slot[None, :] + dims[:, None], mask=exists[None, :], other=0.0)
        s = tl.dot(q, k)
        pool = tl.maximum(s, 0.0)
        if GATHER:
            relu = pool
            for back in tl.static_range(1, POOL):
                index = tl.maximum(columns - back, 0)
                pool += tl.gather(relu, tl.broadcast_to(index[None, :], [ROWS, KEYS]), 1)
        else:
            for back in tl.static_range(1, POOL):
                earlier = keys - back
                there = (earlier >= 0) & (earlier < last)
                b = tl.load(table + sequence * max_blocks + earlier // BLOCK, mask=there, other=0).to(tl.int64)
                at = (b * BLOCK + earlier % BLOCK) * token_stride + kv_head * DIM
                pool += tl.maximum(tl.dot(q, tl.load(key + at[None, :] + dims[:, None], mask=there[None, :], other=0.0)), 0.0)
        weight = slope[:, None] * s + bias[:, None] - sigma[:, None] * pool
        weight = tl.where(used[None, :], tl.minimum(tl.maximum(weight, 0.0), 1.0), 0.0)
        v = tl.load(value + slot[:, None] + dims[None, :], mask=used[:, None], other=0.0)
        total = tl.dot(weight.to(v.dtype), v, total)
    out = partial + ((row * splits + split)[:, None]) * DIM + dims[None, :]
    tl.store(out, total, mask=in_group[:, None])


@triton.jit(do_not_specialize=["splits", "heads"])
def _sum_kernel(partial, factors, out, splits, heads, DIM: tl.constexpr):
    row = tl.program_id(0)
    dims = tl.arange(0, DIM)
    total = tl.zeros([DIM], tl.float32)
    for split in range(splits):
        total += tl.load(partial + (row * splits + split).to(tl.int64) * DIM + dims)
    gain = tl.load(factors + (row % heads) * 4 + 3)
    tl.store(out + row * DIM + dims, (gain * total).to(out.dtype.element_ty))


class Setting:
    """What autotuning chooses."""

    def __init__(self, keys: int, warps: int, stages: int, waves: int, gather: bool):
        self.keys, self.warps, self.stages, self.waves, self.gather = keys, warps, stages, waves, gather

    def __str__(self) -> str:
        how = "gather" if self.gather else "halo"
        return f"{self.keys} keys, {self.warps} warps, {self.stages} stages, {self.waves} programs an SM, {how}"


# What tuning tries; each line of the first three numbers is a compilation.
SETTINGS = [
    Setting(keys, warps, stages, waves, gather)
    for keys, warps, stages in ((32, 4, 2), (64, 4, 2), (64, 4, 3), (128, 4, 2))
    for waves in (2, 4, 8)
    for gather in (False, True)
]


class TritonDecode:
    """Queries [B, H, D] on a cache [blocks, block, Hk, D] of `context_length` keys each; scores are pooled with relu.

    factors: [H, 4] floats: slope and sigma with scale and pool size multiplied in, as (slope, bias, sigma, gain).
    """

    def __init__(self, shape, context_length, factors, pool_size=3, multiprocessors=132, setting=SETTINGS[0]):
        self.batch, self.heads, self.kv_heads, self.dim = shape
        self.context_length, self.factors, self.pool_size = context_length, factors, pool_size
        self.setting = setting
        tiles = -(-int(context_length.max()) // setting.keys)
        programs = max(1, multiprocessors * setting.waves // (self.batch * self.kv_heads))
        self.splits = min(tiles, programs)
        self.partial = torch.empty(
            self.batch * self.heads * self.splits * self.dim, dtype=torch.float32, device=context_length.device
        )

    def __call__(self, query, key, value, table, out):
        s = self.setting
        _split_kernel[(self.batch, self.kv_heads, self.splits)](
            query, key, value, table, self.context_length, self.factors, self.partial, table.shape[1], self.splits,
            self.heads // self.kv_heads, self.kv_heads, DIM=self.dim, BLOCK=key.shape[1], POOL=self.pool_size, KEYS=s.keys,
            GATHER=s.gather, ROWS=GROUP_ROWS, num_warps=s.warps, num_stages=s.stages,
        )  # fmt: skip
        _sum_kernel[(self.batch * self.heads,)](
            self.partial, self.factors, out, self.splits, self.heads, DIM=self.dim, num_warps=1
        )
        return out
