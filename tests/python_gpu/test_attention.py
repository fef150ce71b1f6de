"""The wrappers against the formula in float64, and against each other, bit for bit."""

import pytest
import torch
from asynct.torch_ops import (
    BatchAttention,
    BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper,
    BatchPrefillWithRaggedKVCacheWrapper,
)
from reference import Step, expect_close, make_factors, make_params

LAYOUTS = ("NHD", "HND", "KV_NHD", "PACKED_HND", "PADDED")


def run(wrapper, step, factors, **options):
    wrapper = wrapper(step.kv_layout, **options)
    wrapper.plan_block_table(*step.lengths, *step.shape)
    return wrapper.run(step.q, step.cache, factors)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("page", (16, 32, 64))
def test_decode_of_all_layouts_and_pages(layout, page):
    step = Step([1] * 9, [1, 2, 15, 16, 17, 63, 700, 1025, 5000], page=page, layout=layout, seed=page)
    params = make_params(step.heads)
    expect_close(run(BatchDecodeWithPagedKVCacheWrapper, step, make_factors(params)), step.want(params))


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("dim", (64, 128))
@pytest.mark.parametrize(("heads", "kv_heads"), ((1, 1), (8, 8), (8, 4), (8, 2), (16, 1), (6, 2)))
def test_decode_of_groups(heads, kv_heads, dim, dtype):
    step = Step([1] * 4, [3, 40, 1024, 2100], heads, kv_heads, dim, dtype=dtype, seed=heads)
    for plain in (False, True):
        params = make_params(heads, plain=plain)
        out = run(BatchDecodeWithPagedKVCacheWrapper, step, make_factors(params, dtype))
        expect_close(out, step.want(params))


@pytest.mark.parametrize("pool_relu", (True, False))
@pytest.mark.parametrize("pool_size", (1, 2, 3, 5))
def test_pools(pool_size, pool_relu):
    decode = Step([1] * 4, [1, 4, 65, 1030])
    prefill = Step([1, 4, 65, 200], [1, 4, 65, 1030])
    params = make_params(8, pool_size=pool_size, pool_relu=pool_relu)
    factors = make_factors(params)
    expect_close(run(BatchDecodeWithPagedKVCacheWrapper, decode, factors), decode.want(params))
    expect_close(run(BatchPrefillWithPagedKVCacheWrapper, prefill, factors), prefill.want(params))


def test_decode_of_a_long_context_and_of_several_rows():
    step = Step([4, 2, 1], [17000, 130, 1], seed=5)  # more than a span of 16 chunks
    params = make_params(8)
    expect_close(run(BatchDecodeWithPagedKVCacheWrapper, step, make_factors(params)), step.want(params))


def test_skipping_values_changes_nothing():
    step = Step([1] * 4, [3, 40, 1024, 2100])
    factors = make_factors(make_params(8, plain=True))
    dense, skipping = (run(BatchDecodeWithPagedKVCacheWrapper, step, factors, skip_values=skip) for skip in (False, True))
    assert torch.equal(dense, skipping)


def test_skipping_by_density():
    """A plan follows what was counted until the one before the last: here that one's launch has ended."""
    step = Step([1] * 32, [300] * 32)  # 128 units: skipping begins at three quarters of the multiprocessors
    wrapper = BatchDecodeWithPagedKVCacheWrapper(step.kv_layout, skip_values="auto")
    assert wrapper.skips_values is None
    params = make_params(8)

    def choices(count, **changes):
        factors = make_factors({**params, **{name: torch.full((8,), value) for name, value in changes.items()}})
        want = run(BatchDecodeWithPagedKVCacheWrapper, step, factors)
        made = []
        for _ in range(count):
            wrapper.plan_block_table(*step.lengths, *step.shape)
            assert torch.equal(wrapper.run(step.q, step.cache, factors), want)
            made.append(wrapper.skips_values)
            torch.cuda.synchronize()
        return made

    assert choices(5, sigma=1.5, slope=1.0, bias=0.0) == [False, False, True, True, True]
    dense = choices(60, sigma=0.0, slope=1.0, bias=10.0)
    assert dense[:2] == [True, True] and dense[-1] is False
    assert dense == sorted(dense, reverse=True)  # it changes its mind once
    few = Step([1] * 2, [300] * 2)
    sparse = make_factors({**params, "sigma": torch.full((8,), 1.5), "bias": torch.zeros(8)})
    for _ in range(40):
        wrapper.plan_block_table(*step.lengths, *step.shape)
        wrapper.run(step.q, step.cache, sparse)
    torch.cuda.synchronize()
    for _ in range(2):  # the first asks for the last count
        wrapper.plan_block_table(*step.lengths, *step.shape)
        torch.cuda.synchronize()
    assert wrapper.skips_values
    wrapper.plan_block_table(*few.lengths, *few.shape)
    assert not wrapper.skips_values  # too small a launch


def test_the_plain_path_has_no_values_to_skip():
    step = Step([1] * 32, [300] * 32, page=24)
    factors = make_factors(make_params(8))
    want = run(BatchDecodeWithPagedKVCacheWrapper, step, factors)
    for skip in (True, "auto"):
        wrapper = BatchDecodeWithPagedKVCacheWrapper(step.kv_layout, skip_values=skip)
        for _ in range(3):
            wrapper.plan_block_table(*step.lengths, *step.shape)
            assert torch.equal(wrapper.run(step.q, step.cache, factors), want)
            assert wrapper.skips_values is False
            torch.cuda.synchronize()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("page", (16, 32, 64))
def test_prefill_of_all_layouts_and_pages(layout, page):
    step = Step([1, 130, 37, 16], [1, 130, 500, 1040], page=page, layout=layout, seed=page)
    params = make_params(step.heads)
    expect_close(run(BatchPrefillWithPagedKVCacheWrapper, step, make_factors(params)), step.want(params))


@pytest.mark.parametrize("dim", (64, 128))
@pytest.mark.parametrize(("heads", "kv_heads"), ((1, 1), (4, 4), (8, 4), (8, 2), (16, 2), (16, 1)))
def test_prefill_of_groups(heads, kv_heads, dim):
    step = Step([200, 1, 70], [200, 90, 1100], heads, kv_heads, dim, seed=heads)
    for plain in (False, True):
        params = make_params(heads, plain=plain)
        expect_close(run(BatchPrefillWithPagedKVCacheWrapper, step, make_factors(params)), step.want(params))


def test_prefill_of_several_spans():
    step = Step([40], [16500], seed=6)
    params = make_params(8)
    expect_close(run(BatchPrefillWithPagedKVCacheWrapper, step, make_factors(params)), step.want(params))


def test_a_prompt_in_chunks_is_the_whole_prompt():
    step = Step([900], [900], seed=7)
    factors = make_factors(make_params(8))
    whole = run(BatchPrefillWithPagedKVCacheWrapper, step, factors)
    wrapper = BatchPrefillWithPagedKVCacheWrapper(step.kv_layout)
    done, parts = 0, []
    for rows in (5, 300, 1, 128, 466):
        wrapper.plan_block_table([0, rows], [done + rows], step.table, *step.shape)
        parts.append(wrapper.run(step.q[done : done + rows], step.cache, factors))
        done += rows
    assert torch.equal(torch.cat(parts), whole)
    decode = BatchDecodeWithPagedKVCacheWrapper(step.kv_layout)
    decode.plan_block_table(None, [900], step.table, *step.shape)
    assert torch.equal(decode.run(step.q[-1:], step.cache, factors), whole[-1:])


@pytest.mark.parametrize("one_launch", (False, True))
@pytest.mark.parametrize("plain", (False, True))
def test_a_mixed_step(plain, one_launch):
    step = Step([1, 1, 1, 200, 37, 1], [40, 3000, 1, 200, 600, 9], seed=8)
    params = make_params(8, plain=plain)
    factors = make_factors(params)
    out = run(BatchAttention, step, factors, one_launch=one_launch)
    expect_close(out, step.want(params))
    assert torch.equal(out, run(BatchPrefillWithPagedKVCacheWrapper, step, factors))


def test_lists_of_pages_are_a_block_table():
    factors = make_factors(make_params(8))
    decode = Step([1] * 3, [40, 16, 700])
    by_pages = BatchDecodeWithPagedKVCacheWrapper(decode.kv_layout)
    for device in ("cpu", "cuda"):
        by_pages.plan(*(x.to(device) for x in decode.pages()), *decode.shape)
        out = by_pages.run(decode.q, decode.cache, factors)
        assert torch.equal(out, run(BatchDecodeWithPagedKVCacheWrapper, decode, factors))
    prefill = Step([3, 16, 70], [40, 16, 700])
    by_pages = BatchPrefillWithPagedKVCacheWrapper(prefill.kv_layout)
    by_pages.plan(prefill.query_start, *prefill.pages(), *prefill.shape)
    out = by_pages.run(prefill.q, prefill.cache, factors)
    assert torch.equal(out, run(BatchPrefillWithPagedKVCacheWrapper, prefill, factors))


def test_what_vllm_hands_over():
    """Queries are a piece of wider rows, with padding; so is the output; the table lies on the device and is wider than
    the contexts; sequences without rows stand at the end."""
    step = Step([1, 1, 60, 200], [40, 300, 60, 1500], layout="PACKED_HND", seed=9)
    factors = make_factors(make_params(8))
    rows, width = len(step.q), step.heads * step.dim
    qkv = torch.full((rows + 7, 2 * width), torch.nan, dtype=step.dtype, device="cuda")
    q = qkv[:, :width].view(-1, step.heads, step.dim)
    q[:rows] = step.q
    out = torch.full((rows + 7, width + 64), 3.0, dtype=step.dtype, device="cuda")
    table = torch.full((6, step.table.shape[1] + 5), 10**6, dtype=torch.int32, device="cuda")
    table[:4, : step.table.shape[1]] = step.table
    wrapper = BatchAttention(step.kv_layout)
    query_start = torch.cat([step.query_start, step.query_start[-1:], step.query_start[-1:]])
    wrapper.plan_block_table(query_start, [*step.contexts, 0, 0], table, *step.shape)
    view = out[:, :width].view(-1, step.heads, step.dim)
    assert wrapper.run(q, step.cache, factors, out=view) is view
    assert torch.equal(view[:rows], run(BatchAttention, step, factors))
    assert (view[rows:] == 3).all() and (out[:, width:] == 3).all()


def test_plans_that_grow_and_shrink_share_their_buffers():
    wrapper = BatchAttention("KV_NHD")
    factors = make_factors(make_params(8))
    for rows, contexts in (([1], [5]), ([1, 1, 300], [9000, 40, 300]), ([1], [5]), ([64], [64]), ([], [])):
        step = Step(rows, contexts, seed=len(rows))
        wrapper.plan_block_table(*step.lengths, *step.shape)
        out = wrapper.run(step.q, step.cache, factors)
        assert torch.equal(out, run(BatchAttention, step, factors))
    other = Step([1, 20], [5, 20], 16, 2, 64, page=32)  # and another model's shape
    factors = make_factors(make_params(16))
    wrapper.plan_block_table(*other.lengths, *other.shape)
    assert torch.equal(wrapper.run(other.q, other.cache, factors), run(BatchAttention, other, factors))


# Steps that the kernels for sm_90a do not take, or only one of them: what decodes, what prefills.
PLAIN = {
    "pages of 1": ({"page": 1}, "plain: blocks of 1 tokens", "plain: blocks of 1 tokens"),
    "pages of 24": ({"page": 24}, "plain: blocks of 24 tokens", "plain: blocks of 24 tokens"),
    "heads of 256": ({"dim": 256}, "plain: head_dim 256", "plain: head_dim 256"),
    "pages of 8": ({"page": 8}, "decode for sm_90a", "plain: blocks of 8 tokens"),
    "groups of 3": ({"heads": 12}, "decode for sm_90a", "plain: prefill with 3 query heads a KV head"),
}


def planned(make, step, **options):
    wrapper = make(step.kv_layout, **options)
    assert wrapper.path is None
    wrapper.plan_block_table(*step.lengths, *step.shape)
    return wrapper


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("case", sorted(PLAIN))
def test_what_the_plain_path_takes(case, dtype):
    """Few rows, many, and both beside each other; chunks and spans of several."""
    options, few, many = PLAIN[case]
    decode = Step([1, 3, 1, 1], [3, 40, 1025, 17000], **options, dtype=dtype, seed=1)
    prefill = Step([130, 200, 40, 50], [130, 500, 1040, 17000], **options, dtype=dtype, seed=2)
    mixed = Step([1, 2, 200, 1, 37], [40, 3000, 200, 1500, 600], **options, dtype=dtype, seed=3)
    params = make_params(decode.heads)
    factors = make_factors(params, dtype)
    both = few if few == many else f"{few}, {many}"
    for make, step, path in (
        (BatchDecodeWithPagedKVCacheWrapper, decode, few),
        (BatchPrefillWithPagedKVCacheWrapper, prefill, many),
        (BatchPrefillWithPagedKVCacheWrapper, mixed, both),  # few rows have units of their own
        (BatchAttention, mixed, both),
    ):
        wrapper = planned(make, step)
        assert wrapper.path == path
        out = wrapper.run(step.q, step.cache, factors)
        expect_close(out, step.want(params))
        assert torch.equal(wrapper.run(step.q, step.cache, factors), out)  # counters are zeros again
    assert torch.equal(run(BatchAttention, mixed, factors, one_launch=True), out)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_plain_path_over_all_layouts(layout):
    step = Step([1, 130, 1, 37], [1500, 130, 24, 500], page=24, layout=layout, seed=4)
    params = make_params(8)
    expect_close(run(BatchAttention, step, make_factors(params)), step.want(params))


@pytest.mark.parametrize("pool_relu", (True, False))
@pytest.mark.parametrize("pool_size", (1, 2, 3, 5))
def test_pools_of_the_plain_path(pool_size, pool_relu):
    step = Step([1, 4, 65, 1, 200], [1, 4, 65, 1030, 1030], page=24)
    params = make_params(8, pool_size=pool_size, pool_relu=pool_relu)
    expect_close(run(BatchAttention, step, make_factors(params)), step.want(params))


def run_ragged(step, factors, **options):
    wrapper = BatchPrefillWithRaggedKVCacheWrapper()
    kv_start = [0, *step.context_length.cumsum(0).tolist()]
    wrapper.plan(step.query_start, kv_start, *step.shape[:3])
    assert wrapper.path == ("plain: head_dim 256" if step.dim == 256 else "plain: keys and values without blocks")
    return wrapper.run(step.q, torch.cat(step.keys), torch.cat(step.values), factors, **options)


@pytest.mark.parametrize("page", (16, 24))
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), ((8, 4, 128), (4, 4, 64), (6, 2, 128)))
def test_keys_in_one_piece_give_the_bits_of_a_cache(heads, kv_heads, dim, page):
    """Of whole sequences, and of their last rows; of kernels for sm_90a and of the plain path."""
    step = Step([300, 1, 40, 2, 1100], [300, 1700, 90, 2, 1100], heads, kv_heads, dim, page=page, seed=heads)
    params = make_params(heads)
    factors = make_factors(params)
    out = run_ragged(step, factors)
    expect_close(out, step.want(params))
    assert torch.equal(out, run(BatchPrefillWithPagedKVCacheWrapper, step, factors))
    assert torch.equal(out, run(BatchAttention, step, factors))
    into = torch.full_like(step.q, 3.0)
    assert run_ragged(step, factors, out=into) is into and torch.equal(into, out)


def test_keys_in_one_piece_of_any_strides():
    """A product's columns: keys and values beside each other, with heads of 256."""
    step = Step([70, 1], [70, 1500], 4, 2, 256, seed=11)
    params = make_params(4)
    factors = make_factors(params)
    k, v = torch.cat(step.keys), torch.cat(step.values)
    kv = torch.cat([k.flatten(1), v.flatten(1)], 1)
    k, v = (x.unflatten(1, (2, 256)) for x in kv.chunk(2, 1))
    wrapper = BatchPrefillWithRaggedKVCacheWrapper()
    wrapper.plan(step.query_start, torch.tensor([0, 70, 1570]), *step.shape[:3])
    out = wrapper.run(step.q, k, v, factors)
    expect_close(out, step.want(params))
    assert torch.equal(out, run_ragged(step, factors))


def test_plans_of_different_paths_share_their_buffers():
    wrapper = BatchAttention("KV_NHD")
    for page in (24, 16, 8, 24):
        step = Step([1, 1, 300], [9000, 40, 300], page=page, seed=page)
        factors = make_factors(make_params(8))
        wrapper.plan_block_table(*step.lengths, *step.shape)
        for _ in range(2):
            assert torch.equal(wrapper.run(step.q, step.cache, factors), run(BatchAttention, step, factors))
