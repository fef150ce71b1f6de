"""AsyncT's CUDA kernels for PyTorch: attention over a paged cache, DyHT, ReGLU. Inference only. The fastest ones are for
sm_90a; the others take every GPU from sm_80 on.

Names and order of arguments follow FlashInfer where the meaning is the same. A step is planned once on the host and run
for every layer:

    factors = attention_factors(layer.sigma, scale=config.attention_scale)              # once a layer
    decode = BatchDecodeWithPagedKVCacheWrapper()
    decode.plan(indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size)    # once a step
    out = decode.run(q, paged_kv_cache, factors)                                        # once a layer
"""

from asynct.torch_ops.factors import AttentionFactors, attention_factors
from asynct.torch_ops.layouts import block_table_of_pages, paged_kv_views
from asynct.torch_ops.row_ops import dyht, reglu
from asynct.torch_ops.wrappers import (
    BatchAttention,
    BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper,
    BatchPrefillWithRaggedKVCacheWrapper,
)

__all__ = [
    "AttentionFactors",
    "BatchAttention",
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "attention_factors",
    "block_table_of_pages",
    "dyht",
    "paged_kv_views",
    "reglu",
]
