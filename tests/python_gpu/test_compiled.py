"""torch.compile takes layers whole; a captured launch runs the plans that come after it."""

import pytest
import torch
from asynct.torch_ops import (
    BatchAttention,
    BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper,
    dyht,
    reglu,
)
from reference import Step, expect_close, make_factors, make_params


class Layer(torch.nn.Module):
    """Enough of one for the compiler: products and element-wise code around the operators."""

    def __init__(self, wrapper, factors, heads, dim):
        super().__init__()
        self.wrapper, self.factors, self.shape = wrapper, factors, (heads, dim)
        width = heads * dim
        self.query = torch.nn.Linear(width, width, bias=False, dtype=torch.bfloat16, device="cuda")
        self.gate_up = torch.nn.Linear(width, 512, bias=False, dtype=torch.bfloat16, device="cuda")
        self.alpha = torch.nn.Parameter(torch.full((1,), 0.7, device="cuda"))
        self.gamma = torch.nn.Parameter(torch.rand(width, device="cuda"))

    def forward(self, x, cache):
        q = self.query(dyht(x, self.alpha, self.gamma)).view(-1, *self.shape)
        out = self.wrapper.run(q, cache, self.factors).flatten(1)
        gate, up = self.gate_up(x + out).chunk(2, -1)
        return torch.cat([x + out, reglu(gate, up) * 2], -1)


@pytest.mark.parametrize("backend", ("aot_eager", "inductor"))
def test_compile_takes_everything(backend):
    torch.manual_seed(0)
    torch._dynamo.reset()
    wrapper = BatchAttention("KV_NHD")
    layer = Layer(wrapper, make_factors(make_params(8)), 8, 128)
    compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=True)
    with torch.no_grad():
        steps = (([1, 1], [40, 700]), ([1, 30], [1500, 90]), ([1] * 5, [7, 8, 9, 10, 3000]))
        for seed, (rows, contexts) in enumerate(steps):
            step = Step(rows, contexts, seed=seed)
            wrapper.plan_block_table(*step.lengths, *step.shape)
            x = step.q.flatten(1)
            before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            got, want = compiled(x, step.cache), layer(x, step.cache)
            torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
            if seed > 1:  # sizes are dynamic, and a plan is no constant
                assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


def test_an_output_of_the_callers_is_written_in_a_compiled_function():
    torch._dynamo.reset()
    step = Step([1, 1], [40, 700])
    factors = make_factors(make_params(8))
    wrapper = BatchDecodeWithPagedKVCacheWrapper(step.kv_layout)
    wrapper.plan_block_table(*step.lengths, *step.shape)

    @torch.compile(fullgraph=True)
    def twice(q, cache, out):
        wrapper.run(q, cache, factors, out=out)
        return out * 2

    out = torch.zeros_like(step.q)
    doubled = twice(step.q, step.cache, out)
    assert torch.equal(out, wrapper.run(step.q, step.cache, factors))
    assert torch.equal(doubled, out * 2)


def capture(call):
    """As PyTorch asks for: warmed up on another stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph, out


LIMITS = {"max_batch_size": 6, "max_context": 20000}
# Steps of 6 sequences at most: growing, shrinking, padding, several chunks and spans, none at all.
STEPS = {
    "decode": (
        ([1] * 6, [3, 40, 1024, 2100, 5000, 1]),
        ([1] * 6, [4, 41, 1025, 2101, 5001, 17001]),
        ([1], [1]),
        ([], []),
        ([1, 1, 0], [9, 8000, 0]),
    ),
    "prefill": (
        ([100, 30, 1], [100, 600, 2000]),
        ([200], [17000]),
        ([1] * 6, [1, 2, 3, 4, 5, 6]),
        ([], []),
        ([256], [256]),
    ),
    "both": (
        ([1, 1, 100], [40, 3000, 100]),
        ([1] * 6, [9, 8, 7, 6, 5, 4000]),
        ([250], [900]),
        ([], []),
        ([1, 255], [5, 255]),
    ),
}
WRAPPERS = {
    "decode": (BatchDecodeWithPagedKVCacheWrapper, {}),
    "prefill": (BatchPrefillWithPagedKVCacheWrapper, {"max_tokens": 256}),
    "both": (BatchAttention, {"max_tokens": 256}),
    "one launch": (BatchAttention, {"max_tokens": 256, "one_launch": True}),
}


@pytest.mark.parametrize("page", (16, 8, 24))  # kernels for sm_90a; decode beside the plain path; the plain path alone
@pytest.mark.parametrize("kind", sorted(WRAPPERS))
def test_a_captured_launch_runs_later_plans(kind, page):
    make, limits = WRAPPERS[kind]
    params = make_params(8, plain=kind == "one launch")  # which the one launch is for
    factors = make_factors(params)
    wrapper = make("KV_NHD", use_cuda_graph=True, **LIMITS, **limits)
    rows = limits.get("max_tokens", 6)
    q = torch.zeros(rows, 8, 128, dtype=torch.bfloat16, device="cuda")
    cache = torch.full((2, 41600 // page, page, 4, 128), torch.nan, dtype=torch.bfloat16, device="cuda")
    graph = out = None
    for seed, (step_rows, contexts) in enumerate(STEPS["both" if kind == "one launch" else kind] * 2):
        step = Step(step_rows, contexts, page=page, seed=seed)
        q[: len(step.q)] = step.q
        cache[:, : step.cache.shape[1]] = step.cache
        wrapper.plan_block_table(*step.lengths, *step.shape)
        if graph is None:
            graph, out = capture(lambda: wrapper.run(q, cache, factors))
        out.fill_(7)
        for _ in range(2):
            graph.replay()
        got = out[: len(step.q)]
        if len(step.q) > 0:
            expect_close(got, step.want(params))
            eager = make("KV_NHD")
            eager.plan_block_table(*step.lengths, *step.shape)
            assert torch.equal(got, eager.run(step.q, step.cache, factors))
        assert (out[len(step.q) :] == 7).all()  # units without rows write nothing


def test_the_compilers_own_graphs_run_later_plans():
    torch._dynamo.reset()
    factors = make_factors(make_params(8))
    wrapper = BatchDecodeWithPagedKVCacheWrapper("KV_NHD", use_cuda_graph=True, max_batch_size=4, max_context=5000)
    cache = torch.full((2, 1200, 16, 4, 128), torch.nan, dtype=torch.bfloat16, device="cuda")
    torch._dynamo.mark_static_address(cache)  # else each call copies it

    @torch.compile(fullgraph=True, mode="reduce-overhead")
    def layer(q):
        return wrapper.run(q * 0.5, cache, factors) + 1

    with torch.no_grad():
        for seed in range(6):  # the first calls warm up and capture
            step = Step([1] * 4, [5 + seed, 1024 - seed, 2000 + 500 * seed, 1], seed=seed)
            cache[:, : step.cache.shape[1]] = step.cache
            wrapper.plan_block_table(*step.lengths, *step.shape)
            torch.compiler.cudagraph_mark_step_begin()
            got = layer(step.q).clone()
            assert torch.equal(got, wrapper.run(step.q * 0.5, cache, factors) + 1)


def test_run_allocates_its_output_and_nothing_else():
    step = Step([1, 1, 64], [40, 3000, 64])
    factors = make_factors(make_params(8))
    wrapper = BatchAttention(step.kv_layout)
    wrapper.plan_block_table(*step.lengths, *step.shape)
    out = wrapper.run(step.q, step.cache, factors)
    allocated = lambda: torch.cuda.memory_stats()["allocation.all.allocated"]  # noqa: E731
    torch.cuda.set_sync_debug_mode("error")
    try:
        before = allocated()
        wrapper.run(step.q, step.cache, factors, out=out)
        assert allocated() == before
        wrapper.run(step.q, step.cache, factors)
        assert allocated() == before + 1
        wrapper.plan_block_table(*step.lengths, *step.shape)  # lengths on the host: not waited for either
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_callers_stream_is_used():
    step = Step([1] * 4, [40, 3000, 7, 64])
    factors = make_factors(make_params(8))
    wrapper = BatchDecodeWithPagedKVCacheWrapper(step.kv_layout)
    wrapper.plan_block_table(*step.lengths, *step.shape)
    want = wrapper.run(step.q, step.cache, factors)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    q = torch.zeros_like(step.q)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        q.copy_(step.q)  # late: a launch elsewhere would see zeros
        got = wrapper.run(q, step.cache, factors)
    stream.synchronize()
    assert torch.equal(got, want)
