"""Why a kernel has no case in op_cases.py, by its name."""

from __future__ import annotations

import re

#: A kernel with this reason wants a case, or a row below; the document must be free of it.
UNKNOWN = "nobody has looked yet for a call that leads to it"

# The first pattern that matches counts.
_REASONS = (
    (r"^(batch_fc|correlation|rank_attention|number_count|limit_by_capacity|prune_gate_by_capacity"
     r"|margin_cross_entropy|c_softmax_with.*|mv_coo|mv_csr|matmul_csr_dense|masked_matmul_csr|addmm_.*_dense"
     r"|add_coo_dense|fused_softmax_mask_upper_triangle|assign_pos|random_routing|class_center.*)(_grad)?$",
     "Paddle's CPU kernel itself refuses: for GPUs only"),
    (r"^(box_clip|std|var|add_csr_csr|subtract_csr_csr|multiply_csr_csr|divide_csr_csr|divide_coo_coo"
     r"|adamw_dense_param_sparse_grad|anchor_generator|assign_sr|clip_sr|hsigmoid_loss_grad_sr|graph_sample_neighbors|graph_khop_sampler|weighted_sample_neighbors)(_grad)?$",
     "crashes or fails on Paddle's CPU with the same call"),
    (r"^lstsq$", "Paddle's Python function refuses any place but CPU and CUDA"),
    (r"^(faster_tokenizer)$", "takes types of Paddle that have no public interface"),
    (r"^(add_triple|log_double|matmul_double|matmul_triple|multiply_double|multiply_triple|reshape_double"
     r"|subtract_double|tanh_triple)_grad$",
     "a gradient of higher order for which dynamic graphs run other kernels (looked at to the fourth order)"),
    (r"^(empty_like|empty_like_coo|empty_like_csr|dropout_nd|mask_helper_coo)(_grad)?$",
     "no function of Python calls it: dynamic graphs run other kernels for the same"),
    (r"^straight_through_estimator_grad$", "made by quantisation passes only"),
    (r"^(legacy_.*|lookup_table|topk_v1|cross_entropy2?|flatten2|.*_with_xshape|range|range_tensor|lrn|negative"
     r"|soft_relu|tril_triu|linear_v2|matmul_with_flatten|cross_entropy_grad2|lookup_table_sparse.*|norm|set"
     r"|uniform_random_batch_size_like|randint_with_seed|pow2_decay.*|moving_average.*|multiclass_nms|dpsgd"
     r"|lars_momentum|sparse_momentum|sgd_sparse_param_sparse_grad|sparse_weight_embedding.*|shape_broadcast"
     r"|matmul_with_flatten_double|grad_add|check_model_nan_inf|legacy.*|arange|split_strided|split_with_num_strided|stft|nansum|shape)(_grad)?$",
     "an op of old programs or of the compiler; dynamic graphs call another one for the same"),
    (r"^(all_gather|all_reduce|all_to_all|barrier|broadcast|reduce|reduce_scatter|c_.*|p_.*|mp_.*|partial_.*"
     r"|global_.*|limit_by_capacity|number_count|prune_gate_by_capacity|random_routing|assign_pos"
     r"|dgc.*|distributed_.*|send_.*|recv_.*)(_grad)?$", "needs several processes, or serves only such programs"),
    (r"(array|^feed|^fetch|^data$|^shadow|^memcpy|^load|^save|^print|^assert|^depend|^nop|^share_|^seed$|^get_"
     r"|^read_file|^decode|^lod_reset|^onednn|^transfer|^coalesce_tensor|^check_memory|_infer$|^prod_infer)",
     "only static graphs and executors call it"),
    (r"^(fused|fusion|fc|self_dp|attention_lstm|add_position|skip_layernorm)", "made by inference passes only"),
    (r"(quant|lookup_table_dequant)", "made by quantisation passes only"),
    (r"(sequence|lstm|gru|crf|beam|chunk_eval|ctc_align|im2seq|row_conv|hash|match_matrix|rank_attention"
     r"|tdm|pyramid|cvm|batch_fc|nce|var_conv|search_|bipartite|correlation|lod)",
     "an op of old static programs, on ragged inputs"),
    (r"^(full|full_with_tensor|lookup_table|lookup_table_grad|multiply_raw|uniform|uniform_raw"
     r"|uniform_random_batch_size_like)_sr$", "makes or reads SelectedRows in old static programs only"),
    (r"strings_", "on StringTensor, which has no public interface"),
    (r"_raw(_grad)?$", "the old form of an op that is tested under its new name"),
)  # fmt: skip


def reason_of(kernel: str) -> str:
    for pattern, reason in _REASONS:
        if re.search(pattern, kernel):
            return reason
    return UNKNOWN
