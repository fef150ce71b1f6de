"""Softmax attention of others, as callables over input sets. Each raises where its library is absent or refuses."""

import pathlib
import sys
import tarfile

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def unpack(archive: str, folder: str) -> None:
    """What pack_fa3.py packed."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def load(folder: str) -> dict:
    """Loads FlashAttention-3 and cuDNN's front end from the unpacked folder: versions, or why there is none."""
    found = {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "cuda": torch.version.cuda}
    try:
        torch.ops.load_library(str(pathlib.Path(folder) / "fa3.so"))
        found["fa3"] = "loaded"
    except Exception as error:
        found["fa3"] = f"absent: {str(error)[:200]}"
    sys.path.insert(0, folder)
    try:
        import cudnn

        found["cudnn front end"] = cudnn.__version__
    except Exception as error:
        found["cudnn front end"] = f"absent: {str(error)[:200]}"
    return found


def sdpa(backend: SDPBackend, query, key, value, causal: bool):
    """PyTorch's own, over lists of [B, H, T, D]; fewer heads of keys are shared."""
    gqa = query[0].shape[1] != key[0].shape[1]

    def call(i):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(query[i], key[i], value[i], is_causal=causal, enable_gqa=gqa)

    return call


def fa3_metadata(batch, most_rows, most_keys, heads, kv_heads, dim, lengths, *, starts=None, page=None, causal, splits):
    """The schedule that FlashAttention-3 otherwise computes in a kernel before each call."""
    return torch.ops.flash_attn_3.get_scheduler_metadata(
        batch, most_rows, most_keys, heads, kv_heads, dim, dim, torch.bfloat16, lengths, starts, None, None, None, None,
        page, 0, causal, -1, -1, 0, False, splits, None, 0,
    )  # fmt: skip


def fa3_prefill(query, key, value, out, scale):
    """Lists of [B, T, H, D], contiguous."""
    return lambda i: torch.ops.flash_attn_3.fwd(
        query[i], key[i], value[i], out=out, softmax_scale=scale, is_causal=True, num_splits=1
    )[0]


def fa3_decode(query, key, value, table, lengths, out, scale, splits):
    """Queries [B, 1, H, D]; keys [pages, page, Hk, D] with a table, or [B, T, Hk, D] without."""
    batch, _, heads, dim = query[0].shape
    page = key[0].shape[1] if table is not None else None
    most = table.shape[1] * page if table is not None else key[0].shape[1]
    metadata = fa3_metadata(
        batch, 1, most, heads, key[0].shape[2], dim, lengths, page=page, causal=False, splits=splits
    )
    return lambda i: torch.ops.flash_attn_3.fwd(
        query[i], key[i], value[i], out=out, seqused_k=lengths, page_table=table, softmax_scale=scale,
        scheduler_metadata=metadata, num_splits=splits,
    )[0]  # fmt: skip


def fa3_varlen(query, key, value, table, starts, lengths, out, scale, most_rows, most_keys, splits):
    """Rows of all sequences packed [T, H, D], on a paged cache, causal."""
    heads, dim = query[0].shape[1:]
    metadata = fa3_metadata(
        lengths.numel(), most_rows, most_keys, heads, key[0].shape[2], dim, lengths, starts=starts,
        page=key[0].shape[1], causal=True, splits=splits,
    )  # fmt: skip
    return lambda i: torch.ops.flash_attn_3.fwd(
        query[i], key[i], value[i], out=out, cu_seqlens_q=starts, seqused_k=lengths, max_seqlen_q=most_rows,
        max_seqlen_k=most_keys, page_table=table, softmax_scale=scale, is_causal=True, scheduler_metadata=metadata,
        num_splits=splits,
    )[0]  # fmt: skip


def cudnn_paged(query, key, value, table, lengths, out, scale, causal):
    """cuDNN on a paged cache: queries and out [B, S, H, D], keys [pages, page, Hk, D], the table [B, pages of a sequence]."""
    import cudnn

    batch, rows, heads, dim = query[0].shape
    element, index = cudnn.data_type.BFLOAT16, cudnn.data_type.INT32
    handle = cudnn.create_handle()
    graph = cudnn.pygraph(
        io_data_type=element, intermediate_data_type=cudnn.data_type.FLOAT, compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
    )  # fmt: skip
    pages = table.shape[1]
    row_shape, row_stride = [batch, heads, rows, dim], [rows * heads * dim, dim, heads * dim, 1]
    one = [1, 1, 1, 1]

    def tensor(name, shape, stride, kind):
        return graph.tensor(name=name, dim=list(shape), stride=list(stride), data_type=kind)

    by_head = key[0].transpose(1, 2)
    inputs = {
        "q": tensor("q", row_shape, row_stride, element),
        "k": tensor("k", by_head.shape, by_head.stride(), element),
        "v": tensor("v", by_head.shape, by_head.stride(), element),
        "table_k": tensor("table_k", [batch, 1, pages, 1], [pages, pages, 1, 1], index),
        "table_v": tensor("table_v", [batch, 1, pages, 1], [pages, pages, 1, 1], index),
        "rows": tensor("rows", [batch, 1, 1, 1], one, index),
        "keys": tensor("keys", [batch, 1, 1, 1], one, index),
    }
    result, _ = graph.sdpa(
        name="attention", q=inputs["q"], k=inputs["k"], v=inputs["v"], generate_stats=False, attn_scale=scale,
        use_padding_mask=True, seq_len_q=inputs["rows"], seq_len_kv=inputs["keys"], use_causal_mask_bottom_right=causal,
        paged_attention_k_table=inputs["table_k"], paged_attention_v_table=inputs["table_v"],
        paged_attention_max_seq_len_kv=pages * key[0].shape[1],
    )  # fmt: skip
    result.set_output(True).set_dim(row_shape).set_stride(row_stride).set_data_type(element)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    graph.build_plans()
    space = torch.zeros(max(1, graph.get_workspace_size()), dtype=torch.uint8, device="cuda")
    row_counts = torch.full((batch,), rows, dtype=torch.int32, device="cuda")

    def call(i):
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(
            {inputs["q"]: query[i], inputs["k"]: key[i], inputs["v"]: value[i], inputs["table_k"]: table,
             inputs["table_v"]: table, inputs["rows"]: row_counts, inputs["keys"]: lengths, result: out},
            space, handle=handle,
        )  # fmt: skip
        return out

    return call
