"""Ways in which others lay out a paged cache, as views of it, and lists of pages, of which a table is made."""

import torch

INT32_MAX = 2**31 - 1
LAYOUTS = ("NHD", "HND", "KV_NHD", "PACKED_HND")


def paged_kv_views(cache, kv_layout="NHD"):
    """Keys and values as [pages, page_size, kv_heads, head_dim].

    A pair (keys, values) of 4 dimensions, pages in the layout "NHD" ([page_size, kv_heads, head_dim]) or "HND"
    ([kv_heads, page_size, head_dim]); or one tensor:
      "NHD", "HND"    [pages, 2, *page]                           FlashInfer; vLLM 0.23 to 0.25
      "KV_NHD"        [2, pages, page_size, kv_heads, head_dim]   FlashAttention; vLLM up to 0.22
      "PACKED_HND"    [pages, kv_heads, page_size, 2 * head_dim]  vLLM from 0.26
    """
    if kv_layout not in LAYOUTS:
        raise ValueError(f"kv_layout: {kv_layout!r}, expected one of {', '.join(LAYOUTS)}")
    if isinstance(cache, (tuple, list)):
        if len(cache) != 2:
            raise ValueError(f"paged_kv_cache: {len(cache)} tensors, expected keys and values")
        if kv_layout not in ("NHD", "HND"):
            raise ValueError(f"paged_kv_cache: a pair with kv_layout {kv_layout}, expected NHD or HND")
        key, value = cache
        _expect_dims("keys", key, 4)
        _expect_dims("values", value, 4)
    elif kv_layout == "PACKED_HND":
        _expect_dims("paged_kv_cache", cache, 4)
        if cache.shape[3] % 2 != 0:
            raise ValueError(f"paged_kv_cache: rows of {cache.shape[3]} elements, expected keys and values of one size")
        key, value = cache.split(cache.shape[3] // 2, -1)
    else:
        _expect_dims("paged_kv_cache", cache, 5)
        dim = 0 if kv_layout == "KV_NHD" else 1
        if cache.shape[dim] != 2:
            raise ValueError(f"paged_kv_cache: {cache.shape[dim]} at dimension {dim}, expected keys and values: 2")
        key, value = cache.unbind(dim)
    if kv_layout in ("HND", "PACKED_HND"):
        return key.transpose(1, 2), value.transpose(1, 2)
    return key, value


def _expect_dims(name, tensor, dims):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: {type(tensor).__name__}, expected a tensor")
    if tensor.dim() != dims:
        raise ValueError(f"{name}: shape {list(tensor.shape)}, expected {dims} dimensions")


def block_table_of_pages(indptr, indices, last_page_len, page_size):
    """FlashInfer's lists of pages as (context_length [B], block_table [B, most pages]): sequence i has the pages
    indices[indptr[i] : indptr[i + 1]], the last of which holds last_page_len[i] tokens. indptr and last_page_len come to
    the host; the table lies where indices do."""
    indptr = host_ints("indptr", indptr)
    last = host_ints("last_page_len", last_page_len)
    if indptr.numel() != last.numel() + 1:
        raise ValueError(f"indptr: {indptr.numel()} entries for {last.numel()} sequences, expected one more")
    pages = rising("indptr", indptr, indices.numel(), "indices")
    wrong = (pages > 0) & ((last < 1) | (last > page_size))
    if wrong.any():
        i = int(wrong.nonzero()[0])
        raise ValueError(f"last_page_len: {int(last[i])} of sequence {i}, expected 1 to {page_size}")
    context = torch.where(pages > 0, (pages.long() - 1) * page_size + last, 0)
    if context.numel() > 0 and context.max() > INT32_MAX:
        raise ValueError(f"indptr: a sequence of {int(context.max())} tokens, expected at most {INT32_MAX}")
    context = context.int()
    width = max(int(pages.max()) if pages.numel() > 0 else 0, 1)
    column = torch.arange(width)
    at = torch.where(column < pages[:, None], indptr[:-1, None] + column, 0).to(indices.device)
    if indices.numel() == 0:
        return context, torch.zeros(pages.numel(), width, dtype=torch.int32, device=indices.device)
    return context, indices.to(torch.int32)[at]


def rising(name, indptr, most, what):
    """The steps of a list that rises from 0."""
    steps = indptr.diff()
    if indptr.numel() == 0 or indptr[0] != 0 or (steps < 0).any() or indptr[-1] > most:
        raise ValueError(f"{name}: {indptr.tolist()[:8]}..., expected to rise from 0 to at most {most} {what}")
    return steps


def host_ints(name, values):
    """A one-dimensional int32 tensor on the host; waits for the device where the values lie there."""
    if not isinstance(values, torch.Tensor):
        values = torch.tensor(values, dtype=torch.int64)
    if values.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: dtype {values.dtype}, expected torch.int32")
    if values.dim() != 1:
        raise ValueError(f"{name}: shape {list(values.shape)}, expected one dimension")
    values = values.to(device="cpu")
    if values.numel() > 0 and (values.max() > INT32_MAX or values.min() < -INT32_MAX):
        raise ValueError(f"{name}: values outside of int32")
    return values.to(torch.int32).contiguous()
