"""llama3-70b on dgx-h100:8: tp4+sp pp4 dp4 zero1 mbs1 interleaved x5, 64 ranks.

Megatron-Bridge v0.6.2: take a recipe, then the plan's model and layout. Data and training options are yours.

    from megatron.bridge.recipes.llama import llama31_70b_pretrain_config
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain
    from mpt_layout import apply

    config = apply(llama31_70b_pretrain_config())
    pretrain(config, forward_step)
"""

import torch
from megatron.bridge.training.mixed_precision import get_mixed_precision_config


def apply(config):
    """Changes a ConfigContainer to the plan's model and layout, and returns it."""
    config.model.num_layers = 80
    config.model.hidden_size = 8192
    config.model.ffn_hidden_size = 28672
    config.model.gated_linear_unit = True
    config.model.activation_func = torch.nn.functional.silu
    config.model.add_bias_linear = False
    config.model.add_qkv_bias = False
    config.model.num_attention_heads = 64
    config.model.qk_layernorm = False
    config.model.num_query_groups = 8
    config.model.kv_channels = 128
    config.model.softmax_type = "vanilla"
    config.model.window_size = None
    config.model.window_attn_skip_freq = None
    config.model.vocab_size = 128256
    config.model.normalization = "RMSNorm"
    config.model.layernorm_epsilon = 1e-05
    config.model.position_embedding_type = "rope"
    config.model.rotary_base = 500000
    config.model.rotary_percent = 1
    config.model.rope_scaling = True
    config.model.rope_scaling_factor = 8
    config.model.share_embeddings_and_output_weights = False
    config.model.attention_dropout = 0
    config.model.hidden_dropout = 0
    config.model.num_moe_experts = None
    config.model.mtp_num_layers = None
    config.model.tensor_model_parallel_size = 4
    config.model.sequence_parallel = True
    config.model.tp_comm_overlap = False
    config.model.pipeline_model_parallel_size = 4
    config.model.virtual_pipeline_model_parallel_size = 5
    config.model.pipeline_model_parallel_layout = None
    config.model.account_for_embedding_in_pipeline_split = False
    config.model.account_for_loss_in_pipeline_split = False
    config.model.num_layers_in_first_pipeline_stage = None
    config.model.num_layers_in_last_pipeline_stage = None
    config.model.overlap_p2p_comm = True
    config.model.context_parallel_size = 1
    config.model.recompute_granularity = None
    config.model.recompute_modules = ["core_attn"]
    config.model.recompute_method = None
    config.model.recompute_num_layers = None
    config.model.cuda_graph_impl = "none"
    config.model.cuda_graph_modules = []
    config.model.seq_length = 4096
    config.dataset.seq_length = 4096
    config.train.micro_batch_size = 1
    config.train.global_batch_size = 128
    config.ddp.use_distributed_optimizer = True
    config.ddp.overlap_param_gather = True
    config.optimizer.use_distributed_optimizer = True
    config.optimizer.overlap_param_gather = True
    config.ddp.overlap_grad_reduce = True
    config.ddp.align_param_gather = True
    config.ddp.use_megatron_fsdp = False
    config.dist.use_megatron_fsdp = False
    config.ddp.data_parallel_sharding_strategy = "no_shard"
    config.ddp.num_distributed_optimizer_instances = 1
    config.optimizer.optimizer_cpu_offload = False
    config.optimizer.use_precision_aware_optimizer = False
    config.optimizer.main_grads_dtype = torch.float32
    config.optimizer.main_params_dtype = torch.float32
    config.optimizer.exp_avg_dtype = torch.float32
    config.optimizer.exp_avg_sq_dtype = torch.float32
    config.dist.use_tp_pp_dp_mapping = False
    config.comm_overlap = None
    config.mixed_precision = get_mixed_precision_config("bf16_mixed")
    config.mixed_precision.grad_reduce_in_fp32 = True
    config.env_vars["CUDA_DEVICE_MAX_CONNECTIONS"] = 1
    return config
