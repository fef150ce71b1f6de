"""asynct.torch_ops without a GPU: what it says without its extension, layouts, lists of pages, shapes for tracing. The
kernels themselves: tests/python_gpu."""

import subprocess
import sys

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
    made = factors()
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return lambda *inputs: (torch.zeros(5, 256, **BF16),)

    @torch.compile(fullgraph=True, backend=keep)
    def layer(x, cache, alpha):
        q = torch_ops.dyht(x, alpha, alpha).view(-1, 4, 64)
        return torch_ops.reglu(wrapper.run(q, cache, made).flatten(1), x)

    torch._dynamo.reset()
    x = torch.ones(5, 256, **BF16)
    assert (layer(x, torch.ones(3, 2, 16, 128, **BF16), torch.ones(1)) == 0).all()
    called = [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]
    for name in ("dyht", "paged_attention", "reglu"):
        assert any(name in target for target in called), called


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
        (lambda: torch_ops.BatchAttention(device="cpu"), ValueError, "device: cpu, expected a CUDA device"),
        (lambda: torch_ops.BatchAttention(use_cuda_graph=True, device="cuda:0"), ValueError, "expected max_batch_size"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_the_extension_on_a_machine_without_a_gpu():
    try:
        module = extension()
    except ImportError:
        pytest.skip("the extension was not built")
    rows, floor, most, plain = module.attention_factors([1.0, 0.5], [], [], [], 1 / 64, 3, True, "bf16")
    assert (len(rows), floor, most, plain) == (8, 0.0, 64.0, True)
    x = torch.zeros(2, 64)
    with pytest.raises(ValueError, match="x: on the CPU"):
        torch_ops.dyht(x, torch.ones(1), torch.ones(1))
    with pytest.raises(TypeError, match="x: dtype none of the kernels'"):
        torch_ops.dyht(x.double(), torch.ones(1), torch.ones(1))
