"""The wrappers against the formula in float64, and against each other, bit for bit."""

import pytest
import torch
from asynct.torch_ops import BatchAttention, BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper
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
