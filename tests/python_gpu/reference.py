"""AsyncI over a paged cache in float64, from the formula, and steps to try it on."""

import dataclasses

import torch
from asynct import torch_ops


def attend(q, keys, values, params):
    """q [rows, H, D], the last rows of a sequence with keys and values [context, Hk, D]; all of them as stored."""
    rows, heads, _ = q.shape
    if rows == 0:
        return q.double()
    context, kv_heads, _ = keys.shape
    group = heads // kv_heads
    q, keys, values = q.double(), keys.double(), values.double()
    # One value a head: [H, 1, 1].
    sigma, slope, bias, gain = (params[name].to(q).view(-1, 1, 1) for name in ("sigma", "slope", "bias", "gain"))
    keys, values = (x.repeat_interleave(group, 1) for x in (keys, values))
    scores = params["scale"] * torch.einsum("rhd,khd->hrk", q, keys)
    relu = scores.clamp(min=0) if params["pool_relu"] else scores
    history = torch.nn.functional.pad(relu, (params["pool_size"] - 1, 0))
    pooled = history.unfold(-1, params["pool_size"], 1).sum(-1) / params["pool_size"]
    weights = gain * (slope * scores + bias - sigma * pooled).clamp(0, 1)
    position = torch.arange(context - rows, context, device=q.device)
    visible = torch.arange(context, device=q.device) <= position[:, None]
    return torch.einsum("hrk,khd->rhd", weights * visible, values)


def make_params(heads, *, pool_size=3, pool_relu=True, scale=1 / 8, plain=False, seed=0):
    """plain: slope 1 and bias 0, which the kernels know as a case of its own with a scale that is a power of two."""
    random = torch.Generator().manual_seed(seed)
    uniform = lambda low, high: low + (high - low) * torch.rand(heads, generator=random)  # noqa: E731
    return {
        "sigma": uniform(-0.2, 1.2),
        "slope": torch.ones(heads) if plain else uniform(0.3, 1.7),
        "bias": torch.zeros(heads) if plain else uniform(-0.02, 0.1),
        "gain": uniform(0.5, 1.5),
        "scale": scale,
        "pool_size": pool_size,
        "pool_relu": pool_relu,
    }


def make_factors(params, dtype=torch.bfloat16):
    return torch_ops.attention_factors(**params, dtype=dtype)


def empty_cache(layout, pages, page, kv_heads, dim, dtype):
    """NaN everywhere: what no sequence wrote must not matter. "PADDED": a pair of NHD with strides of their own."""
    nan = lambda *shape: torch.full(shape, torch.nan, dtype=dtype, device="cuda")  # noqa: E731
    if layout == "PADDED":
        return tuple(nan(pages + 1, page, kv_heads + 1, dim + 64)[1:, :, 1:, 64:] for _ in range(2))
    shape = {
        "NHD": (pages, 2, page, kv_heads, dim),
        "HND": (pages, 2, kv_heads, page, dim),
        "KV_NHD": (2, pages, page, kv_heads, dim),
        "PACKED_HND": (pages, kv_heads, page, 2 * dim),
    }[layout]
    return nan(*shape)


@dataclasses.dataclass
class Step:
    """Sequences with the last `rows` of their `contexts` tokens to run, their pages anywhere in the cache."""

    rows: list
    contexts: list
    heads: int = 8
    kv_heads: int = 4
    dim: int = 128
    page: int = 16
    layout: str = "KV_NHD"
    dtype: torch.dtype = torch.bfloat16
    seed: int = 0

    def __post_init__(self):
        random = torch.Generator().manual_seed(self.seed)
        normal = lambda *shape: torch.randn(shape, generator=random).to("cuda", self.dtype)  # noqa: E731
        counts = [-(-context // self.page) for context in self.contexts]
        pages = torch.randperm(sum(counts) + 2, generator=random)
        self.cache = empty_cache(self.layout, len(pages), self.page, self.kv_heads, self.dim, self.dtype)
        self.kv_layout = "NHD" if self.layout == "PADDED" else self.layout
        key_view, value_view = torch_ops.paged_kv_views(self.cache, self.kv_layout)
        self.table = torch.full((len(counts), max([*counts, 1])), -1, dtype=torch.int32)
        self.keys, self.values, taken = [], [], 0
        for i, (context, count) in enumerate(zip(self.contexts, counts, strict=True)):
            self.table[i, :count] = pages[taken : taken + count]
            taken += count
            self.keys.append(normal(context, self.kv_heads, self.dim))
            self.values.append(normal(context, self.kv_heads, self.dim))
            position = torch.arange(context)
            page = self.table[i, position // self.page].long().cuda()
            key_view[page, (position % self.page).cuda()] = self.keys[-1]
            value_view[page, (position % self.page).cuda()] = self.values[-1]
        self.q = normal(sum(self.rows), self.heads, self.dim)
        self.query_start = torch.tensor([0, *self.rows]).cumsum(0).int()
        self.context_length = torch.tensor(self.contexts, dtype=torch.int32)

    @property
    def shape(self):
        return self.heads, self.kv_heads, self.dim, self.page

    @property
    def lengths(self):
        return self.query_start, self.context_length, self.table

    def pages(self):
        """FlashInfer's indptr, indices, last_page_len."""
        counts = -(-self.context_length // self.page)
        indices = torch.cat([self.table[i, :count] for i, count in enumerate(counts)])
        last = self.context_length - (counts - 1) * self.page
        return torch.cat([torch.zeros(1, dtype=torch.int32), counts.cumsum(0).int()]), indices, last

    def want(self, params):
        parts = self.q.split(self.rows)
        return torch.cat([attend(*x, params) for x in zip(parts, self.keys, self.values, strict=True)])


def expect_close(got, want, most=1e-2):
    """By sequence-sized error: relative L2 of all rows together, and of no row far above it."""
    assert got.isfinite().all()
    error = (got.double() - want).norm() / want.norm()
    assert error < most, f"relative L2 {error:.3g}"
    rows = (got.double() - want).norm(dim=(1, 2)) / want.norm(dim=(1, 2)).clamp(min=1e-2 * want.norm() / len(want) ** 0.5)
    assert rows.max() < 5 * most, f"relative L2 {rows.max():.3g} of row {int(rows.argmax())}"
