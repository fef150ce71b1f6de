#!/usr/bin/env python3
"""AsyncI's kernels, baselines and softmax peers on one GPU, in one process, in turns.

    python3 bench/kernels/peers.py [decode prefill mixed linear] [--library build/libasynct_kernels.so]
                                   [--peers peers.tar.xz] [--output FILE.json] [--quick]

Needs PyTorch and Triton; --peers names what pack_fa3.py packed (without it FlashAttention-3 and cuDNN's paged
attention are left out). Everything is bf16 with random normal data, calls rotate over input sets that are together
several times the L2. Rows of each candidate are compared with float64 before it is timed; a wrong one is not timed.
Times: measure.py.
"""

import argparse
import json
import pathlib
import tempfile
import traceback

import reference
import softmax_peers
import torch
import torch.nn.functional as F
import triton_decode
from asynct_library import Library
from measure import Timer
from names import OURS, READ
from torch.nn.attention import SDPBackend

PAGE = 16
POOL = 3
SIGMA = 0.5
# With independent normal scores 0.30 of all weights are above 0 then, the share of a trained model; 0.44 with SIGMA.
TRAINED_SIGMA = 1.35
# Added to scores so that every key has weight, whatever the data.
DENSE_BIAS = 0.5
WRONG = 2e-2  # relative error of a candidate that is refused; the right ones have 2e-3 to 4e-3

DECODE = [(32, 1024, 8, 4, 128), (256, 1024, 8, 4, 128), (32, 8192, 8, 4, 128), (1, 65536, 8, 4, 128),
          (256, 1024, 32, 8, 128)]  # fmt: skip
PREFILL = [(16, 1024, 16, 16, 128), (4, 4096, 16, 16, 128), (2, 8192, 16, 16, 128), (1, 16384, 16, 16, 128),
           (16, 1024, 8, 4, 128), (1, 16384, 8, 4, 128), (4, 4096, 16, 16, 64), (1, 16384, 16, 16, 64)]  # fmt: skip
MIXED = [(8, 512, 2560, 128, 1024, 8, 4, 128), (8, 512, 2560, 128, 1024, 32, 8, 128)]
LINEAR = [(2048, 1024), (1024, 1024), (6144, 1024), (1024, 3072), (151936, 1024)]  # outputs, inputs
LINEAR_ROWS = [1, 8, 32, 64, 256, 2048]
QUICK = {"decode": DECODE[:1] + DECODE[3:4], "prefill": PREFILL[1:2], "mixed": MIXED[:1], "linear": LINEAR[:1]}


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def integers(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


class Cache:
    """Keys and values in shuffled pages, `sets` times; one block table."""

    def __init__(self, contexts: list[int], kv_heads: int, dim: int, sets: int):
        self.contexts = contexts
        pages = [-(-n // PAGE) for n in contexts]
        self.pages = sum(pages)
        shuffled = torch.randperm(self.pages, device="cuda").to(torch.int32)
        self.table = torch.zeros(len(contexts), max(pages), dtype=torch.int32, device="cuda")
        at = 0
        for i, count in enumerate(pages):
            self.table[i, :count] = shuffled[at : at + count]
            at += count
        self.key = [normal(self.pages, PAGE, kv_heads, dim) for _ in range(sets)]
        self.value = [normal(self.pages, PAGE, kv_heads, dim) for _ in range(sets)]
        self.lengths = integers(contexts)
        self.bytes = 2 * self.key[0].nbytes

    def sequence(self, tensors, i):
        """[Hk, T, D] of sequence i in the first set."""
        rows = self.table[i, : -(-self.contexts[i] // PAGE)].long()
        return tensors[0][rows].flatten(0, 1)[: self.contexts[i]].transpose(0, 1)

    def dense(self, tensor):
        """[B, T, Hk, D], all sequences being equally long."""
        return tensor[self.table.long().view(-1)].view(len(self.contexts), -1, *tensor.shape[2:])


class Job:
    """What all sections share: options, the timer, results as they come."""

    def __init__(self, arguments):
        self.arguments = arguments
        properties = torch.cuda.get_device_properties(0)
        self.cache_bytes = properties.L2_cache_size
        self.multiprocessors = properties.multi_processor_count
        self.timer = Timer(arguments.quick, arguments.sustained)
        self.library = Library(str(arguments.library.resolve()))
        self.report = {"device": {"name": properties.name, "multiprocessors": self.multiprocessors,
                                  "l2_bytes": self.cache_bytes}, "ceilings": {}, "groups": []}  # fmt: skip

    def sets(self, bytes_a_set: float) -> int:
        return int(min(64, max(2, -(-8 * self.cache_bytes // bytes_a_set))))

    def save(self):
        if self.arguments.output:
            self.arguments.output.write_text(json.dumps(self.report, indent=1) + "\n")

    def attention(self, kernel, cache, shape, rows, sigma=SIGMA, bias=None, scale=None):
        """Our kernel for sequences with `rows` rows each; (query, key, value, table, out) -> out."""
        heads, kv_heads, dim = shape
        starts = [0]
        for count in rows:
            starts.append(starts[-1] + count)
        return self.library.attention(
            kernel, heads=heads, kv_heads=kv_heads, head_dim=dim, block_size=PAGE, blocks=cache.pages,
            max_blocks=cache.table.shape[1], query_start=starts, context_length=cache.contexts, scale=scale or 1 / dim,
            sigma=[sigma] * heads, bias=None if bias is None else [bias] * heads, pool_size=POOL,
        )  # fmt: skip

    def group(self, kind, shape, floor_of, candidates, sets, seconds, check):
        """Checks, times, keeps. candidates: {name: function that makes call(set) and may fail}; floor_of(name)."""
        calls, errors, failed = {}, {}, {}
        for name, candidate in candidates.items():
            try:
                calls[name] = candidate()
                errors[name] = check(name, calls[name])
                torch.cuda.synchronize()
                if not errors[name] < WRONG:
                    raise ValueError(f"wrong result: relative error {errors[name]}")
            except Exception as error:
                failed[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
                calls.pop(name, None)
        results = self.timer.measure(calls, sets, self.timer.calls(sets, seconds))
        for name, result in results.items():
            result["relative_error"] = errors[name]
            result["floor"] = floor_of(name)
        self.report["groups"].append({"kind": kind, "shape": list(shape), "sets": sets, "results": results | failed})
        self.show(self.report["groups"][-1])
        self.save()
        return results

    def show(self, group):
        print(group["kind"], *group["shape"])
        for name, result in group["results"].items():
            if "error" in result:
                print(f"  {name:44s} ! {result['error'][:160]}", flush=True)
                continue
            floor, line = result["floor"], f"  {name:44s}"
            for regime in ("bursts", "sustained"):
                if timing := result.get(regime):
                    seconds = timing["seconds"]
                    line += (
                        f" {seconds * 1e6:9.2f} us [{timing['p10'] * 1e6:.2f}, {timing['p90'] * 1e6:.2f}]"
                        f" {floor['bytes'] / seconds / 1e12:5.2f} TB/s {floor['flops'] / seconds / 1e12:6.1f} TF/s"
                        f" {timing['sm_mhz']:.0f} MHz {timing['watts']:.0f} W |"
                    )
            print(line, f"err {result['relative_error']:.1e}", result.get("note", ""), flush=True)


# ---- ceilings ----------------------------------------------------------------------------------------------------


def ceilings(job):
    first, second = (torch.ones(1 << 28, dtype=torch.int32, device="cuda") for _ in range(2))
    a, b = normal(8192, 8192), normal(8192, 8192)
    candidates = {f"read {i}": (lambda _, i=i: job.library.read(i, first, second)) for i in range(job.library.READ_SETTINGS)}
    memory = job.timer.measure(candidates | {"copy": lambda _: torch.mul(first, 1, out=second)}, 1, 4)
    product = job.timer.measure({"product": lambda _: a @ b}, 1, 4)["product"]
    read = min(result["bursts"]["seconds"] for name, result in memory.items() if name.startswith("read"))
    flops = 2 * 8192**3
    job.report["ceilings"] = {
        "read_bytes_per_second": 2 * first.nbytes / read,
        "copy_bytes_per_second": 2 * first.nbytes / memory["copy"]["bursts"]["seconds"],
        "product_flops_per_second": flops / product["bursts"]["seconds"],
    }
    if "sustained" in product:
        job.report["ceilings"]["product_sustained_flops_per_second"] = flops / product["sustained"]["seconds"]
    print(json.dumps(job.report["ceilings"]), flush=True)


def readers(job, cache):
    """Readings of all keys and values, by settings."""
    return {
        f"{READ} {i}": lambda i=i: lambda s: job.library.read(i, cache.key[s], cache.value[s])
        for i in range(job.library.READ_SETTINGS)
    }


# ---- decode ------------------------------------------------------------------------------------------------------


def decode_floor(shape, density=1.0):
    batch, context, heads, kv_heads, dim = shape
    side = 2 * batch * context * kv_heads * dim
    return {"bytes": side * (1 + density) + 4 * batch * heads * dim,
            "flops": 2 * batch * context * heads * dim * (1 + density)}  # fmt: skip


def tuned_triton(job, shape, cache, query, out, bias, gather):
    """The fastest of the Triton kernel's settings for this shape: pooled with halo keys loaded again, or by a gather."""
    batch, _, heads, kv_heads, dim = shape
    factors = torch.tensor([[1 / dim, bias, SIGMA / dim / POOL, 1.0]] * heads, device="cuda")
    times = []
    for setting in (setting for setting in triton_decode.SETTINGS if setting.gather == gather):
        kernel = triton_decode.TritonDecode(
            (batch, heads, kv_heads, dim), cache.lengths, factors, POOL, job.multiprocessors, setting
        )

        def call(i, kernel=kernel):
            return kernel(query[i], cache.key[i], cache.value[i], cache.table, out)

        try:
            seconds = job.timer.quick_seconds(call, len(query), len(query))
        except Exception as error:
            print(f"  triton, {setting}: {type(error).__name__}: {str(error)[:100]}")
            continue
        times.append((seconds, str(setting), call))
    times.sort(key=lambda entry: entry[0])
    for seconds, setting, _ in times[:2]:
        print(f"  triton: {seconds * 1e6:.1f} us with {setting}")
    return times[0][2]


def decode(job, shape):
    batch, context, heads, kv_heads, dim = shape
    sets = job.sets(decode_floor(shape)["bytes"])
    cache = Cache([context] * batch, kv_heads, dim, sets)
    query = [normal(batch, heads, dim) for _ in range(sets)]
    rows = [q.view(batch, 1, heads, dim) for q in query]
    out = torch.empty_like(query[0])
    out_rows = out.view(batch, 1, heads, dim)
    keys, values = ([cache.dense(t) for t in tensors] for tensors in (cache.key, cache.value))
    softmax_scale = dim**-0.5

    def ours(kernel, bias):
        run = job.attention(kernel, cache, (heads, kv_heads, dim), [1] * batch, bias=bias)
        return lambda i: run(query[i], cache.key[i], cache.value[i], cache.table, out)

    def cudnn_dense():
        by_head = [[t.transpose(1, 2) for t in tensors] for tensors in (rows, keys, values)]
        return softmax_peers.sdpa(SDPBackend.CUDNN_ATTENTION, *by_head, causal=False)

    def fa3(splits, paged):
        tensors = (cache.key, cache.value, cache.table) if paged else (keys, values, None)
        return softmax_peers.fa3_decode(rows, *tensors, cache.lengths, out_rows, softmax_scale, splits)

    looked_at = sorted({0, batch // 2, batch - 1})

    def check(name, call):
        if name.startswith(READ):
            return 0.0
        out.fill_(float("nan"))
        got = call(0).reshape(batch, heads, dim)
        worst = 0.0
        for i in looked_at:
            q, k, v = query[0][i].unsqueeze(1), cache.sequence(cache.key, i), cache.sequence(cache.value, i)
            if name.startswith(OURS):
                want = reference.asynci(q, k, v, scale=1 / dim, sigma=SIGMA, bias=job.bias, pool_size=POOL)
            else:
                want = reference.softmax(q, k, v, scale=softmax_scale)
            worst = max(worst, reference.error(got[i], want.squeeze(1)))
        return worst

    job.bias = DENSE_BIAS
    splits = (0, 1) if job.arguments.quick else (0, 1, 2, 8, 32)
    useful = [n for n in splits if n < 2 or (batch * kv_heads * n <= 16 * job.multiprocessors and n * 128 <= context)]
    candidates = {
        "AsyncI": lambda: ours("decode", DENSE_BIAS),
        "AsyncI CUDA cores": lambda: ours("cuda_core_decode", DENSE_BIAS),
        "AsyncI Triton, halo": lambda: tuned_triton(job, shape, cache, query, out, DENSE_BIAS, False),
        "AsyncI Triton, gather": lambda: tuned_triton(job, shape, cache, query, out, DENSE_BIAS, True),
        "cuDNN dense cache": cudnn_dense,
        "cuDNN paged": lambda: softmax_peers.cudnn_paged(
            rows, cache.key, cache.value, cache.table, cache.lengths, out_rows, softmax_scale, False
        ),
        **{f"FA-3 paged, {n} splits": lambda n=n: fa3(n, True) for n in useful},
        **{f"FA-3 dense cache, {n} splits": lambda n=n: fa3(n, False) for n in useful},
        **readers(job, cache),
    }
    floor = decode_floor(shape)
    read = {"bytes": cache.bytes, "flops": 0}
    estimate = floor["bytes"] / 4e12
    job.group("decode", shape, lambda n: read if n.startswith(READ) else floor, candidates, sets, estimate, check)

    job.bias = 0.0
    for density in (1.0, 0.5, 0.0):
        # A positive query gives positive keys weight and no others; exactly this share of each sequence's and head's.
        random = torch.rand(batch, kv_heads, context, device="cuda")
        needed = random.argsort(-1) < round(density * context)
        signs = torch.ones(cache.pages, PAGE, kv_heads, device="cuda", dtype=torch.bfloat16)
        pages = cache.table.long().view(-1)
        signs[pages] = (2 * needed.to(torch.bfloat16) - 1).transpose(1, 2).reshape(-1, PAGE, kv_heads)
        for i in range(sets):
            query[i].abs_()
            cache.key[i].abs_().mul_(signs.unsqueeze(-1))
        name = f"AsyncI, density {density:g}"
        candidates = {name: lambda: ours("decode_needed", None)}
        job.group("decode", shape, lambda _: decode_floor(shape, density), candidates, sets, estimate, check)


# ---- prefill -----------------------------------------------------------------------------------------------------


def prefill_floor(shape):
    batch, context, heads, kv_heads, dim = shape
    return {"bytes": 4 * batch * context * (heads + kv_heads) * dim, "flops": 2 * batch * heads * context**2 * dim}


def prefill(job, shape):
    batch, context, heads, kv_heads, dim = shape
    floor = prefill_floor(shape)
    sets = max(3, job.sets(floor["bytes"]))
    cache = Cache([context] * batch, kv_heads, dim, sets)
    query = [normal(batch, context, heads, dim) for _ in range(sets)]
    out = torch.empty_like(query[0])
    keys, values = ([cache.dense(t) for t in tensors] for tensors in (cache.key, cache.value))
    softmax_scale = dim**-0.5

    def ours(sigma, kernel="prefill", scale=None):
        run = job.attention(kernel, cache, (heads, kv_heads, dim), [context] * batch, sigma=sigma, scale=scale)
        return lambda i: run(query[i], cache.key[i], cache.value[i], cache.table, out)

    def torch_sdpa(backend):
        call = softmax_peers.sdpa(backend, *([t.transpose(1, 2) for t in tensors] for tensors in (query, keys, values)), True)
        return lambda i: call(i).transpose(1, 2)

    sigmas = {"AsyncI, A > 0: 0.44": SIGMA, "AsyncI, A > 0: 0.30": TRAINED_SIGMA}
    looked_at = (context // 3, context - 1)

    def check(name, call):
        out.fill_(float("nan"))
        got = call(0)
        i, worst = batch - 1, 0.0
        for row in looked_at:
            q = query[0][i, row].unsqueeze(1)
            k, v = (cache.sequence(tensors, i)[:, : row + 1] for tensors in (cache.key, cache.value))
            if name in sigmas:
                want = reference.asynci(q, k, v, scale=1 / dim, sigma=sigmas[name], pool_size=POOL)
            else:
                want = reference.softmax(q, k, v, scale=softmax_scale)
            worst = max(worst, reference.error(got[i, row], want.squeeze(1)))
        return worst

    candidates = {
        **{name: lambda sigma=sigma: ours(sigma) for name, sigma in sigmas.items()},
        "softmax twin": lambda: ours(0.0, "softmax_prefill", softmax_scale),
        "FA-3": lambda: softmax_peers.fa3_prefill(query, keys, values, out, softmax_scale),
        "cuDNN": lambda: torch_sdpa(SDPBackend.CUDNN_ATTENTION),
        "FA-2": lambda: torch_sdpa(SDPBackend.FLASH_ATTENTION),
    }
    job.group("prefill", shape, lambda _: floor, candidates, sets, floor["flops"] / 5e14, check)


# ---- mixed batches -----------------------------------------------------------------------------------------------


class Part:
    """The sequences [first, last) of a mixed step: views of its rows, table and lengths."""

    def __init__(self, cache, query, out, counts, first, last):
        self.counts, self.contexts, self.pages = counts[first:last], cache.contexts[first:last], cache.pages
        begin, end = sum(counts[:first]), sum(counts[:last])
        self.query = [q[begin:end] for q in query]
        self.out = out[begin:end]
        self.table = cache.table[first:last]
        self.lengths = cache.lengths[first:last].contiguous()
        starts = [0]
        for count in self.counts:
            starts.append(starts[-1] + count)
        self.starts = integers(starts)
        self.rows, self.keys = max(self.counts), max(self.contexts)
        self.short_table = self.table[:, : -(-self.keys // PAGE)].contiguous()


def mixed(job, shape):
    prefills, chunk, keys, decodes, decode_keys, heads, kv_heads, dim = shape
    counts = [1] * decodes + [chunk] * prefills
    contexts = [decode_keys] * decodes + [keys] * prefills
    row_bytes, key_bytes, pair_flops = 4 * heads * dim, 4 * kv_heads * dim, 4 * heads * dim
    floors = {
        "prefill part": {"bytes": prefills * (keys * key_bytes + chunk * row_bytes),
                         "flops": pair_flops * prefills * (chunk * (keys - chunk) + chunk**2 / 2)},
        "decode part": {"bytes": decodes * (decode_keys * key_bytes + row_bytes), "flops": pair_flops * decodes * decode_keys},
    }  # fmt: skip
    floor = {unit: sum(part[unit] for part in floors.values()) for unit in ("bytes", "flops")}
    sets = job.sets(floor["bytes"])
    cache = Cache(contexts, kv_heads, dim, sets)
    query = [normal(sum(counts), heads, dim) for _ in range(sets)]
    out = torch.empty_like(query[0])
    everything = Part(cache, query, out, counts, 0, len(counts))
    decoding = Part(cache, query, out, counts, 0, decodes)
    prefilling = Part(cache, query, out, counts, decodes, len(counts))
    softmax_scale, side = dim**-0.5, torch.cuda.Stream()

    def ours(kernel, part):
        run = job.attention(kernel, part, (heads, kv_heads, dim), part.counts)
        return lambda i: run(part.query[i], cache.key[i], cache.value[i], part.table, part.out)

    def fa3(part, splits=1):
        return softmax_peers.fa3_varlen(
            part.query, cache.key, cache.value, part.short_table, part.starts, part.lengths, part.out, softmax_scale,
            part.rows, part.keys, splits,
        )  # fmt: skip

    def cudnn(part):
        by_row = [x.view(len(part.counts), part.rows, heads, dim) for x in (*part.query, part.out)]
        return softmax_peers.cudnn_paged(
            by_row[:-1], cache.key, cache.value, part.short_table, part.lengths, by_row[-1], softmax_scale, part.rows > 1
        )

    def in_turn(first, second):
        def call(i):
            first(i)
            second(i)

        return call

    def together(first, second):
        def call(i):
            current = torch.cuda.current_stream()
            side.wait_stream(current)
            first(i)
            with torch.cuda.stream(side):
                second(i)
            current.wait_stream(side)

        return call

    shown = {"decode": [decodes - 1], "prefill": [len(counts) - 1]}

    def check(name, call):
        out.fill_(float("nan"))
        call(0)
        worst = 0.0
        for i in [i for part, rows in shown.items() if part in name or " part" not in name for i in rows]:
            row = sum(counts[: i + 1]) - 1
            q, k, v = query[0][row].unsqueeze(1), cache.sequence(cache.key, i), cache.sequence(cache.value, i)
            if name.startswith(OURS):
                want = reference.asynci(q, k, v, scale=1 / dim, sigma=SIGMA, pool_size=POOL)
            else:
                want = reference.softmax(q, k, v, scale=softmax_scale)
            worst = max(worst, reference.error(out[row], want.squeeze(1)))
        return worst

    candidates = {
        "AsyncI, two calls": lambda: in_turn(ours("decode", decoding), ours("prefill", prefilling)),
        "AsyncI, two streams": lambda: together(ours("prefill", prefilling), ours("decode", decoding)),
        "AsyncI, prefill part": lambda: ours("prefill", prefilling),
        "AsyncI, decode part": lambda: ours("decode", decoding),
        **{f"FA-3, one call, {n} splits": lambda n=n: fa3(everything, n) for n in (0, 1)},
        **{f"FA-3, prefill part, {n} splits": lambda n=n: fa3(prefilling, n) for n in (0, 1)},
        "cuDNN, decode part": lambda: cudnn(decoding),
        "FA-3 and cuDNN, two calls": lambda: in_turn(fa3(prefilling), cudnn(decoding)),
        "FA-3 and cuDNN, two streams": lambda: together(fa3(prefilling), cudnn(decoding)),
    }

    def floor_of(name):
        return next((part for words, part in floors.items() if words in name), floor)

    job.group("mixed", shape, floor_of, candidates, sets, floor["bytes"] / 2e12, check)


# ---- products with weights ---------------------------------------------------------------------------------------


def linear(job, shape):
    outputs, inputs = shape
    sets = job.sets(2 * outputs * inputs)
    weights = [normal(outputs, inputs) / inputs**0.5 for _ in range(sets)]
    for rows in LINEAR_ROWS:
        x = normal(rows, inputs)
        want = x[:1].double() @ weights[0].double().T
        floor = {"bytes": 2 * outputs * inputs + 2 * rows * (inputs + outputs), "flops": 2 * rows * outputs * inputs}
        seconds = max(floor["bytes"] / 3e12, floor["flops"] / 5e14, 4e-6)

        def check(_, call, want=want):
            return reference.error(call(0)[:1], want)

        for name, library in (("cuBLAS", "cublas"), ("cuBLASLt", "cublaslt")):  # the process has one at a time
            torch.backends.cuda.preferred_blas_library(library)
            candidates = {name: lambda x=x: lambda i: F.linear(x, weights[i])}
            job.group("linear", (rows, outputs, inputs), lambda _, f=floor: f, candidates, sets, seconds, check)


SECTIONS = {"decode": (decode, DECODE), "prefill": (prefill, PREFILL), "mixed": (mixed, MIXED),
            "linear": (linear, LINEAR)}  # fmt: skip


def main() -> None:
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--library", type=pathlib.Path, default=root / "build" / "libasynct_kernels.so")
    parser.add_argument("--peers", type=pathlib.Path, help="archive that pack_fa3.py made")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--sustained", type=float, default=0.5, help="seconds of each candidate's sustained run; 0: none")
    parser.add_argument("--quick", action="store_true", help="fewer shapes, rounds and settings")
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - set(SECTIONS):
        parser.error(f"unknown section {sorted(unknown)}")
    torch.manual_seed(0)
    job = Job(arguments)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        if arguments.peers:
            softmax_peers.unpack(arguments.peers, folder)
        job.report["versions"] = softmax_peers.load(folder)
        print(job.report["device"], job.report["versions"], flush=True)
        ceilings(job)
        for name in arguments.sections or SECTIONS:
            section, shapes = SECTIONS[name]
            for shape in QUICK[name] if arguments.quick else shapes:
                try:
                    section(job, shape)
                except Exception:  # the other shapes are still worth their time
                    traceback.print_exc()
                    job.report["groups"].append({"kind": name, "shape": list(shape), "failed": traceback.format_exc()})
                torch.cuda.empty_cache()
    job.save()


if __name__ == "__main__":
    main()
