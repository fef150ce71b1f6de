"""Bad arguments give the error's kind and words, and nothing is launched."""

import pytest
import torch
from asynct.torch_ops import (
    BatchAttention,
    BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper,
    BatchPrefillWithRaggedKVCacheWrapper,
    attention_factors,
    dyht,
    reglu,
)
from reference import Step, make_factors, make_params


@pytest.fixture(scope="module")
def step():
    return Step([1, 1, 1], [40, 16, 700])


@pytest.fixture(scope="module")
def factors():
    return make_factors(make_params(8))


def planned(step):
    wrapper = BatchDecodeWithPagedKVCacheWrapper(step.kv_layout)
    wrapper.plan_block_table(*step.lengths, *step.shape)
    return wrapper


def wider(q):
    return q.repeat_interleave(2, 2)[:, :, ::2]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    (
        (lambda q, kv: (q.float(), kv), TypeError, "q: dtype torch.float32, expected torch.bfloat16"),
        (lambda q, kv: (q, kv.half()), TypeError, "key cache: dtype fp16, expected bf16"),
        (lambda q, kv: (q.cpu(), kv), ValueError, "query: on the CPU"),
        (lambda q, kv: (q, kv.cpu()), ValueError, "key cache: on the CPU, expected on cuda:0"),
        (lambda q, kv: (q[:2], kv), ValueError, "query: 2 rows, expected at least 3"),
        (lambda q, kv: (q[:, :4], kv), ValueError, r"query: shape \[3, 4, 128\], expected \[any, 8, 128\]"),
        (lambda q, kv: (q[:, :, :64], kv), ValueError, "query: shape"),
        (lambda q, kv: (q.flatten(1), kv), ValueError, r"query: shape \[3, 1024\]"),
        (lambda q, kv: (wider(q), kv), ValueError, "query: elements of a row are 2 apart"),
        (lambda q, kv: (q.transpose(0, 1).contiguous().transpose(0, 1), kv), ValueError, "heads of a row"),
        (lambda q, kv: (q.new_zeros(3 * 1024 + 1)[1:].view_as(q), kv), ValueError, "multiple of 16 bytes"),
        (lambda q, kv: (q, kv[:, :3]), ValueError, "expected less than the 3 of the cache"),
        (lambda q, kv: (q, kv[:, :, :8]), ValueError, r"key cache: shape \[\d+, 8, 4, 128\], expected \[any, 16, 4, 128\]"),
        (lambda q, kv: (q, kv[:, :, :, :2]), ValueError, "key cache: shape"),
        (lambda q, kv: (q, kv[:1]), ValueError, "paged_kv_cache: 1 at dimension 0"),
        (lambda q, kv: (q, kv[0]), ValueError, "paged_kv_cache: shape .* expected 5 dimensions"),
        (lambda q, kv: (q, kv.new_zeros(*kv.shape[:-1], 132)[..., :128]), ValueError, "key cache: stride"),
    ),
)
def test_run(step, factors, change, error, words):
    wrapper = planned(step)
    with pytest.raises(error, match=words):
        wrapper.run(*change(step.q, step.cache), factors)
    torch.cuda.synchronize()


def test_outputs(step, factors):
    wrapper = planned(step)
    out = torch.full_like(step.q, 3.0)
    for bad, error, words in (
        (out.float(), TypeError, "out: dtype fp32"),
        (out[:2], ValueError, "out: shape"),
        (out.cpu(), ValueError, "out: on the CPU"),
        (wider(out), ValueError, "out: elements of a row"),
    ):
        with pytest.raises(error, match=words):
            wrapper.run(step.q, step.cache, factors, out=bad)
    assert (out == 3).all()


def test_a_step_that_prefill_refuses_is_not_half_launched():
    """Of a step of both kinds what one kernel does not take is refused before the other is launched: prefill's copies
    count in 32 bits how far heads lie apart."""
    apart = 2**31
    memory = torch.empty(apart + 3 * 16 * 128, dtype=torch.bfloat16, device="cuda")
    cache = (memory.as_strided((3, 16, 2, 128), (16 * 128, 128, apart, 1)),) * 2
    wrapper = BatchAttention("NHD")
    table = torch.tensor([[0, 1, 2], [0, 1, 2]], dtype=torch.int32)
    wrapper.plan_block_table([0, 1, 31], [40, 30], table, 4, 2, 128, 16)
    assert wrapper.path == "decode for sm_90a, prefill for sm_90a"
    q = torch.zeros(31, 4, 128, dtype=torch.bfloat16, device="cuda")
    out = torch.full_like(q, 3.0)
    with pytest.raises(ValueError, match="elements apart, expected at most"):
        wrapper.run(q, cache, make_factors(make_params(4)), out=out)
    assert (out == 3).all()


def test_run_before_plan(step, factors):
    with pytest.raises(RuntimeError, match="run before plan"):
        BatchDecodeWithPagedKVCacheWrapper(step.kv_layout).run(step.q, step.cache, factors)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    (
        ({"query_start": [0, 1, 2]}, ValueError, "query_start: 3 entries for 3 sequences"),
        ({"query_start": [0, 1, 2, 12]}, ValueError, "10 query rows of sequence 2, expected at most 8"),
        ({"context_length": [40, 0, 700]}, ValueError, "context_length: 0 of sequence 1"),
        ({"context_length": [40, 16, 10**5]}, ValueError, "context_length: 100000 of sequence 2"),
        ({"context_length": torch.zeros(3)}, TypeError, "context_length: dtype torch.float32"),
        ({"block_table": torch.zeros(3, 50)}, TypeError, "block_table: dtype torch.float32"),
        ({"block_table": torch.zeros(2, 50, dtype=torch.int32)}, ValueError, "block_table: 2 rows for 3"),
        ({"block_table": torch.full((3, 50), -1, dtype=torch.int32)}, ValueError, r"block_table: -1 at \[0, 0\]"),
        ({"num_qo_heads": 7}, ValueError, "7 query heads and 4 KV heads"),
        ({"head_dim": 96}, ValueError, "head_dim 96"),
        ({"page_size": 0}, ValueError, "page_size: 0, expected 1 or more"),
        ({"num_qo_heads": 68}, ValueError, "17 query heads a KV head, expected 1 to 16"),
    ),
)
def test_plan(step, change, error, words):
    arguments = dict(zip(("query_start", "context_length", "block_table"), step.lengths, strict=True))
    arguments |= dict(zip(("num_qo_heads", "num_kv_heads", "head_dim", "page_size"), step.shape, strict=True))
    with pytest.raises(error, match=words):
        BatchDecodeWithPagedKVCacheWrapper(step.kv_layout).plan_block_table(**{**arguments, **change})


def test_a_captured_steps_limits(step, factors):
    wrapper = BatchDecodeWithPagedKVCacheWrapper(step.kv_layout, use_cuda_graph=True, max_batch_size=3, max_context=700)
    wrapper.plan_block_table(*step.lengths, *step.shape)
    wrapper.run(step.q, step.cache, factors)
    table = torch.zeros(4, 50, dtype=torch.int32)
    with pytest.raises(ValueError, match="701 of sequence 0, expected at most 700"):
        wrapper.plan_block_table(None, [701], table, *step.shape)
    with pytest.raises(ValueError, match="4 rows, expected at most 3"):
        wrapper.plan_block_table(None, [1, 1, 1, 1], table, *step.shape)
    with pytest.raises(ValueError, match="as captured before"):
        wrapper.plan_block_table(None, [1], table, 8, 4, 64, 16)
    wrapper.plan_block_table(*step.lengths, *step.shape)  # one that failed leaves nothing to run
    with pytest.raises(ValueError, match="2 rows, expected at least 3, the most that a captured step"):
        wrapper.run(step.q[:2], step.cache, factors)


def test_options():
    for options, words in (
        ({"kv_layout": "DHN"}, "kv_layout"),
        ({"device": "cpu"}, "device: cpu"),
        ({"use_cuda_graph": True}, "expected max_batch_size"),
        ({"skip_values": "often"}, "skip_values: 'often', expected False, True or 'auto'"),
        ({"skip_values": "auto", "use_cuda_graph": True, "max_batch_size": 1, "max_context": 9}, "'auto' with use_cuda"),
    ):
        with pytest.raises(ValueError, match=words):
            BatchDecodeWithPagedKVCacheWrapper(**options)
    with pytest.raises(ValueError, match="causal"):
        BatchPrefillWithPagedKVCacheWrapper().plan([0], [0], torch.zeros(0), [], 8, 4, 128, 16, causal=False)


def test_keys_in_one_piece():
    step = Step([1, 30], [40, 30])
    factors = make_factors(make_params(8))
    wrapper = BatchPrefillWithRaggedKVCacheWrapper()
    with pytest.raises(RuntimeError, match="run before plan"):
        wrapper.run(step.q, torch.cat(step.keys), torch.cat(step.values), factors)
    plan = lambda q, kv, **options: wrapper.plan(q, kv, *step.shape[:3], **options)  # noqa: E731
    for call, words in (
        (lambda: plan([0, 1, 31], [0, 40, 70], causal=False), "causal: False"),
        (lambda: plan([0, 1, 31], [0, 40, 30]), "kv_indptr: .*, expected to rise from 0"),
        (lambda: plan([0, 1, 31], [0, 70]), "query_start: 3 entries for 1 sequences"),
        (lambda: plan([0, 41, 71], [0, 40, 70]), "context_length: 40 of sequence 0, expected 41, its query rows"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    plan([0, 1, 31], [0, 40, 70])
    k, v = torch.cat(step.keys), torch.cat(step.values)
    for bad, error, words in (
        ((k[:69], v[:69]), ValueError, "keys: 69 rows, expected at least 70"),
        ((k, v[:69]), ValueError, r"values: shape \[69, 4, 128\], expected \[70, 4, 128\]"),
        ((k, v.half()), TypeError, "values: dtype fp16, expected bf16"),
        ((k[None], v[None]), ValueError, r"keys: shape \[1, 70, 4, 128\], expected \[any, 4, 128\]"),
        ((k, v.cpu()), ValueError, "values: on the CPU"),
    ):
        with pytest.raises(error, match=words):
            wrapper.run(step.q, *bad, factors)


def test_factors():
    for options, error, words in (
        ({"scale": 0.0}, ValueError, "attention_scale 0"),
        ({"scale": 1.0, "pool_size": 4}, ValueError, "pool_size 4, expected 1, 2, 3 or 5"),
        ({"scale": 1.0, "gain": [1.0]}, ValueError, "gain: 1 values, expected 8"),
        ({"scale": 1.0, "dtype": torch.float32}, TypeError, "dtype torch.float32"),
    ):
        with pytest.raises(error, match=words):
            attention_factors(torch.ones(8), **options)


def test_row_operators():
    x = torch.zeros(4, 64, dtype=torch.bfloat16, device="cuda")
    one = torch.ones(1, device="cuda")
    for call, error, words in (
        (lambda: dyht(x.double(), one, one), TypeError, "x: dtype"),
        (lambda: dyht(x, one.half(), one), TypeError, "alpha: dtype fp16, expected fp32"),
        (lambda: dyht(x, one, torch.ones(32, device="cuda")), ValueError, r"gamma: shape \[32\]"),
        (lambda: dyht(x, one, one.cpu()), ValueError, "gamma: on the CPU"),
        (lambda: reglu(x, x[:, :32]), ValueError, r"up: shape \[4, 32\], expected \[4, 64\]"),
        (lambda: reglu(x, x.repeat(1, 2)[:, :64]), ValueError, "up: rows are 128 apart, expected 64"),
        (lambda: reglu(x, x.half()), TypeError, "up: dtype fp16, expected bf16"),
    ):
        with pytest.raises(error, match=words):
            call()
