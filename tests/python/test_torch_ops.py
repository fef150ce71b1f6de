"""asynct.torch_ops without a GPU: what it says without its extension, layouts, lists of pages, shapes for tracing. The
kernels themselves: tests/python_gpu."""

import contextlib
import functools
import subprocess
import sys
import types

import pytest
import torch
from asynct import torch_ops
from asynct.torch_ops.extension import extension

BF16 = {"dtype": torch.bfloat16}


def factors(heads=4):
    return torch_ops.AttentionFactors(torch.zeros(heads, 4), 3, True, 64.0, True, torch.bfloat16)


def test_without_the_extension_it_says_what_is_missing(root):
    """In a process of its own, which finds none even where one was built."""
    code = """
import sys
sys.modules |= {"asynct.torch_ops._C": None, "asynct.torch_ops.built._C": None}
from asynct import torch_ops
try:
    torch_ops.attention_factors([1.0], scale=1.0, device="cpu")
except ImportError as error:
    print(error)
"""
    environment = {"PYTHONPATH": str(root / "python")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "asynct.torch_ops: its extension cannot be loaded" in done.stdout
    assert "pip install ./python" in done.stdout


@pytest.mark.parametrize("layout", ("NHD", "HND", "KV_NHD", "PACKED_HND", "pair", "HND pair"))
def test_layouts_are_views(layout):
    pages, page, heads, dim = 5, 16, 3, 8
    key, value = torch.randn(2, pages, page, heads, dim)
    cache = {
        "NHD": torch.stack([key, value], 1),
        "HND": torch.stack([key.transpose(1, 2), value.transpose(1, 2)], 1),
        "KV_NHD": torch.stack([key, value]),
        "PACKED_HND": torch.cat([key, value], -1).transpose(1, 2).contiguous(),
        "pair": (key, value),
        "HND pair": (key.transpose(1, 2).contiguous(), value.transpose(1, 2).contiguous()),
    }[layout]
    views = torch_ops.paged_kv_views(cache, layout.replace(" pair", "").replace("pair", "NHD"))
    assert torch.equal(views[0], key) and torch.equal(views[1], value)
    storages = {x.untyped_storage().data_ptr() for x in (cache if isinstance(cache, tuple) else [cache])}
    assert {view.untyped_storage().data_ptr() for view in views} == storages


@pytest.mark.parametrize(
    ("cache", "layout", "error", "words"),
    (
        (torch.zeros(2, 3, 4, 5, 8), "DHN", ValueError, "kv_layout: 'DHN', expected one of NHD"),
        (torch.zeros(2, 3, 4, 5), "NHD", ValueError, "paged_kv_cache: shape .*, expected 5 dimensions"),
        (torch.zeros(2, 3, 4, 5, 8), "NHD", ValueError, "paged_kv_cache: 3 at dimension 1"),
        (torch.zeros(3, 2, 4, 5, 8), "KV_NHD", ValueError, "paged_kv_cache: 3 at dimension 0"),
        (torch.zeros(3, 4, 5, 9), "PACKED_HND", ValueError, "rows of 9 elements"),
        ((torch.zeros(3, 4, 5, 8),), "NHD", ValueError, "paged_kv_cache: 1 tensors"),
        ((torch.zeros(3, 4, 5, 8), torch.zeros(3, 4, 5)), "NHD", ValueError, r"values: shape \[3, 4, 5\]"),
        ((torch.zeros(3, 4, 5, 8), None), "NHD", TypeError, "values: NoneType, expected a tensor"),
        ((torch.zeros(3, 4, 5, 8),) * 2, "KV_NHD", ValueError, "a pair with kv_layout KV_NHD"),
    ),
)
def test_bad_caches(cache, layout, error, words):
    with pytest.raises(error, match=words):
        torch_ops.paged_kv_views(cache, layout)


def test_lists_of_pages():
    context, table = torch_ops.block_table_of_pages([0, 2, 2, 5], torch.tensor([7, 3, 9, 1, 4]), [5, 0, 16], 16)
    assert context.tolist() == [21, 0, 48] and context.dtype == torch.int32
    assert table[0, :2].tolist() == [7, 3] and table[2].tolist() == [9, 1, 4] and table.dtype == torch.int32
    context, table = torch_ops.block_table_of_pages([0], torch.zeros(0, dtype=torch.int32), [], 16)
    assert context.tolist() == [] and len(table) == 0


@pytest.mark.parametrize(
    ("indptr", "last", "words"),
    (
        ([0, 2], [1, 1], "indptr: 2 entries for 2 sequences"),
        ([1, 2], [1], "expected to rise from 0"),
        ([0, 4], [1], "at most 3 indices"),
        ([0, 2, 1], [1, 1], "expected to rise from 0"),
        ([0, 2], [17], "last_page_len: 17 of sequence 0, expected 1 to 16"),
        ([0, 1, 2], [1, 0], "last_page_len: 0 of sequence 1"),
    ),
)
def test_bad_lists_of_pages(indptr, last, words):
    with pytest.raises(ValueError, match=words):
        torch_ops.block_table_of_pages(indptr, torch.tensor([7, 3, 9]), last, 16)


def test_meta_tensors_have_the_shapes():
    with torch.device("meta"):
        q, kv = torch.empty(5, 4, 64, **BF16), torch.empty(3, 16, 2, 64, **BF16)
        heads, one = torch.empty(4, 4), torch.empty(1)
        wide = torch.empty(5, 512, **BF16)
    out = torch.ops.asynct.paged_attention(q, kv, kv, heads, 1, 3, True, 64.0, True)
    assert (out.shape, out.dtype, out.is_contiguous()) == (q.shape, q.dtype, True)
    assert torch.ops.asynct.paged_attention_out(q, kv, kv, heads, 1, 3, True, 64.0, True, out) is None
    assert torch_ops.dyht(wide, one, one).shape == wide.shape
    gate, up = wide.chunk(2, -1)
    assert torch_ops.reglu(gate, up).stride() == (256, 1)
    with pytest.raises(ValueError, match=r"up: shape \[5, 128\], expected \[5, 256\]"):
        torch_ops.reglu(gate, up[:, :128])


def test_a_layer_is_traced_whole():
    """Without a break. The backend only keeps what it gets."""
    wrapper = torch_ops.BatchAttention("PACKED_HND", device="cuda:0")
    ragged = torch_ops.BatchPrefillWithRaggedKVCacheWrapper(device="cuda:0")
    made = factors()
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return lambda *inputs: (torch.zeros(5, 256, **BF16),)

    @torch.compile(fullgraph=True, backend=keep)
    def layer(x, cache, alpha):
        q = torch_ops.dyht(x, alpha, alpha).view(-1, 4, 64)
        q = q + ragged.run(q, q[:, :2], q[:, 2:], made)
        return torch_ops.reglu(wrapper.run(q, cache, made).flatten(1), x)

    torch._dynamo.reset()
    x = torch.ones(5, 256, **BF16)
    assert (layer(x, torch.ones(3, 2, 16, 128, **BF16), torch.ones(1)) == 0).all()
    called = [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]
    for name, times in (("dyht", 1), ("paged_attention", 2), ("reglu", 1)):
        assert sum(name in target for target in called) == times, called


def test_gradients_are_refused():
    with torch.device("meta"):
        x, one = torch.empty(5, 512, **BF16), torch.empty(1)
    q, kv = x.view(5, 8, 64).requires_grad_(), torch.empty(3, 16, 2, 64, device="meta", **BF16)
    calls = (
        lambda: torch_ops.dyht(x.detach(), one.requires_grad_(), one),
        lambda: torch_ops.reglu(x.requires_grad_(), x),
        lambda: torch.ops.asynct.paged_attention(q, kv, kv, torch.empty(8, 4), 1, 3, True, 64.0, True),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="asynct.torch_ops: no gradients"):
            call()
        with torch.no_grad():
            assert not call().requires_grad


def test_plans_are_found_by_number_and_forgotten():
    q, kv = torch.zeros(5, 4, 64, **BF16), torch.zeros(3, 16, 2, 64, **BF16)
    wrapper = torch_ops.BatchDecodeWithPagedKVCacheWrapper(device="cuda:0")
    with pytest.raises(RuntimeError, match="run before plan"):
        wrapper.run(q, (kv, kv), factors())
    number = wrapper._number
    del wrapper
    with pytest.raises(RuntimeError, match="its wrapper is gone"):
        torch.ops.asynct.paged_attention(q, kv, kv, torch.zeros(4, 4), number, 3, True, 64.0, True)


def test_arguments_of_wrappers():
    wrapper = torch_ops.BatchPrefillWithPagedKVCacheWrapper(device="cuda:0")
    ragged = torch_ops.BatchPrefillWithRaggedKVCacheWrapper(device="cuda:0")
    captured = functools.partial(torch_ops.BatchAttention, use_cuda_graph=True, max_batch_size=1, max_context=9)
    shape = (4, 2, 64, 16)
    table = torch.zeros(1, 4, dtype=torch.int32)
    for call, error, words in (
        (lambda: wrapper.run(torch.zeros(1, 4, 64), None, factors()), TypeError, "q: dtype torch.float32"),
        (lambda: wrapper.plan_block_table([0, 1], [1], table.long(), *shape), TypeError, "block_table: dtype torch.int64"),
        (lambda: wrapper.plan_block_table([0, 1], [1], [[0]], *shape), TypeError, "block_table: list"),
        (lambda: wrapper.plan_block_table([0, 1], [1], table[0], *shape), ValueError, r"block_table: shape \[4\]"),
        (lambda: wrapper.plan_block_table([0, 1, 2], [1, 1], table, *shape), ValueError, "1 rows for 2 sequences"),
        (lambda: wrapper.plan_block_table(torch.zeros(2), [1], table, *shape), TypeError, "query_start: dtype"),
        (lambda: wrapper.plan_block_table([[0, 1]], [1], table, *shape), ValueError, r"query_start: shape \[1, 2\]"),
        (lambda: wrapper.plan_block_table([0, 1], [1], table, 4, 2, 64, 0), ValueError, "page_size: 0, expected 1 or more"),
        (lambda: torch_ops.BatchAttention(skip_values="often"), ValueError, "skip_values: 'often'"),
        (lambda: captured(skip_values="auto"), ValueError, "'auto' with use_cuda_graph, expected False or True"),
        (lambda: ragged.plan([0, 1], [0, 1], 4, 2, 64, causal=False), ValueError, "causal: False"),
        (lambda: ragged.plan([0, 1], [0, 5, 4], 4, 2, 64), ValueError, "kv_indptr: .* expected to rise from 0"),
        (lambda: ragged.plan([0, 1], [], 4, 2, 64), ValueError, "kv_indptr: .* expected to rise from 0"),
        (lambda: ragged.run(torch.zeros(1, 4, 64), None, None, factors()), TypeError, "q: dtype torch.float32"),
        (lambda: torch_ops.BatchAttention(device="cpu"), ValueError, "device: cpu, expected a CUDA device"),
        (lambda: torch_ops.BatchAttention(use_cuda_graph=True, device="cuda:0"), ValueError, "expected max_batch_size"),
    ):
        with pytest.raises(error, match=words):
            call()


@pytest.fixture
def module():
    try:
        return extension()
    except ImportError:
        pytest.skip("the extension was not built")


def test_the_extension_on_a_machine_without_a_gpu(module):
    rows, most, plain = module.attention_factors([1.0, 0.5], [], [], [], 1 / 64, 3, True, "bf16")
    assert (len(rows), most, plain) == (8, 64.0, True)
    x = torch.zeros(2, 64)
    with pytest.raises(ValueError, match="x: on the CPU"):
        torch_ops.dyht(x, torch.ones(1), torch.ones(1))
    with pytest.raises(TypeError, match="x: dtype none of the kernels'"):
        torch_ops.dyht(x.double(), torch.ones(1), torch.ones(1))


@pytest.fixture
def no_gpu_needed(module, monkeypatch):
    """Plans of a GPU that is not there: what they would copy to it stays on the host."""

    class Event:
        record = lambda self: None  # noqa: E731
        query = lambda self: True  # noqa: E731

    properties = types.SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    for name in ("zeros", "empty"):
        make = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *size, make=make, pin_memory=False, **options: make(*size, **options))
    return properties


def host_plan(kernels, **options):
    from asynct.torch_ops.plans import Plan

    return Plan(kernels, torch.device("cpu"), **options)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def test_plans_choose_their_path(no_gpu_needed):
    plan = host_plan("both")
    table = torch.arange(24, dtype=torch.int32).view(2, 12)
    lengths = ints(0, 1, 61), ints(30, 90), table
    for shape, capability, path in (
        ((8, 2, 128, 16), (9, 0), "decode for sm_90a, prefill for sm_90a"),
        ((8, 2, 128, 8), (9, 0), "decode for sm_90a, plain: blocks of 8 tokens"),
        ((8, 2, 256, 16), (9, 0), "plain: head_dim 256"),
        ((6, 2, 128, 16), (9, 0), "decode for sm_90a, plain: prefill with 3 query heads a KV head"),
        ((6, 2, 128, 24), (8, 6), "plain: compute capability 8.6"),
    ):
        no_gpu_needed.major, no_gpu_needed.minor = capability
        plan.build(*lengths, shape)
        assert plan.step.path == path
        assert plan.buffers["units"].numel() >= 8 * plan.step.unit_rows() > 0
    tensors = (torch.zeros(61, 6, 128, **BF16), *torch.zeros(2, 24, 24, 2, 128, **BF16), torch.zeros(6, 4))
    tensors = (torch.utils.dlpack.to_dlpack(x) for x in (*tensors, torch.zeros_like(tensors[0])))
    with pytest.raises(ValueError, match="query: on the CPU"):
        plan.step.run(*tensors, 3, True, 1.0, False, False, 0)
    no_gpu_needed.major, no_gpu_needed.minor = 7, 5
    with pytest.raises(RuntimeError, match="attention: compute capability 7.5, expected 8.0 or more"):
        plan.build(*lengths, (8, 2, 128, 16))
    assert plan.step is not None  # the plan before


def test_plans_of_keys_in_one_piece(no_gpu_needed):
    wrapper = torch_ops.BatchPrefillWithRaggedKVCacheWrapper(device="cuda:0")
    wrapper._plan = host_plan("prefill")
    assert wrapper.path is None
    wrapper.plan([0, 1, 61], torch.tensor([0, 30, 120]), 8, 2, 128)
    assert wrapper.path == "plain: keys and values without blocks"
    assert wrapper._plan.places.tolist() == [0, 30] and wrapper._plan.places.dtype == torch.int64
    with pytest.raises(ValueError, match="context_length: 30 of sequence 0, expected 31"):
        wrapper.plan([0, 31, 61], [0, 30, 120], 8, 2, 128)


def test_captured_plans_keep_their_memory(no_gpu_needed):
    plan = host_plan("both", limits=(3, 70, 1, 2000))
    shape = (8, 2, 128, 24)
    seen = set()
    for rows, contexts, few, many in (
        (ints(0, 1, 61), ints(30, 90), 2, 2 * 4),
        (ints(0), ints(), 0, 0),
        (ints(0, 70), ints(1500), 0, 2 * 5),
    ):
        plan.build(rows, contexts, torch.zeros(len(contexts), 90, dtype=torch.int32), shape)
        seen.add((*(x.data_ptr() for x in plan.buffers.values()), plan.places.data_ptr(), plan.step.unit_rows()))
        units = plan.buffers["units"].view(-1, 8)
        room = 3 * 2 * 2  # sequences, KV heads, chunks
        assert (units[:room, 5] > 0).tolist() == [i < few for i in range(room)]  # tokens
        assert (units[room:, 3] > 0).tolist() == [i < many for i in range(2 * (70 // 16 + 3))]
    assert len(seen) == 1


def test_plans_follow_the_density(no_gpu_needed):
    plan = host_plan("decode", skip_values="auto")
    lengths = torch.arange(65, dtype=torch.int32), torch.full((64,), 300, dtype=torch.int32)
    table = torch.zeros(64, 19, dtype=torch.int32)

    def build(needed):
        plan.build(*lengths, table, (8, 2, 128, 16))
        plan.values.counter += (2**20 << 32) + needed  # as launches do
        return plan.step.skips_values

    assert [build(2**18) for _ in range(4)] == [False, False, True, True]
    dense = [build(2**20) for _ in range(60)]
    assert dense[0] and not dense[-1]
    plan.values.counter.fill_(-1)  # the counter is a number without a sign
    plan.values.read()
    build(0)
    plan.build(*lengths, table, (8, 2, 128, 24))
    assert plan.values is None and plan.step.skips_values is False


def test_without_a_gpu_a_plan_says_so():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    wrapper = torch_ops.BatchDecodeWithPagedKVCacheWrapper()
    with pytest.raises(RuntimeError, match="no CUDA GPU was found, expected one of compute capability 8.0 or more"):
        wrapper.plan_block_table(None, [1], torch.zeros(1, 1, dtype=torch.int32), 8, 2, 128, 16)
