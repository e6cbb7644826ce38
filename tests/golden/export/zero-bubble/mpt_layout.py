"""llama3-8b on dgx-h100:1: tp1 pp4 dp2 zero1 mbs1 zb-v x2, 8 ranks.

Megatron-Bridge v0.6.0: take the recipe of your model, then the plan's layout:

    from megatron.bridge.recipes.llama.llama3 import llama3_70b_pretrain_config
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain
    from mpt_layout import apply

    pretrain(apply(llama3_70b_pretrain_config()), forward_step)
"""


def apply(config):
    """Changes a ConfigContainer to the plan's layout, and returns it."""
    config.model.tensor_model_parallel_size = 1
    config.model.sequence_parallel = False
    config.model.pipeline_model_parallel_size = 4
    config.model.virtual_pipeline_model_parallel_size = 2
    config.model.pipeline_model_parallel_layout = "Et|tttt|ttttt|ttttt|ttttt|ttttt|ttttt|ttL"
    config.model.context_parallel_size = 1
    config.model.recompute_granularity = None
    config.model.recompute_method = None
    config.model.recompute_num_layers = None
    config.model.seq_length = 4096
    config.dataset.seq_length = 4096
    config.train.micro_batch_size = 1
    config.train.global_batch_size = 32
    config.ddp.use_distributed_optimizer = True
    config.optimizer.use_distributed_optimizer = True
    config.ddp.overlap_grad_reduce = True
    config.ddp.overlap_param_gather = True
    config.model.tp_comm_overlap = False
    config.model.overlap_p2p_comm = True
    config.dist.use_tp_pp_dp_mapping = False
    config.mixed_precision = "bf16_mixed"
    return config
