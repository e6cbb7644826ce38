"""llama3-70b on dgx-h100:8: tp4+sp pp4 dp4 zero1 mbs1 interleaved x5, 64 ranks. A trial on the recipe's mock data: mpt_bridge_trial.py STEPS."""

import sys

from megatron.bridge.recipes.llama import llama31_70b_pretrain_config
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain
from mpt_layout import apply


def trial(steps):
    config = apply(llama31_70b_pretrain_config())
    config.train.train_iters = steps
    config.scheduler.lr_warmup_iters = config.validation.eval_iters = 0
    config.checkpoint.save = config.checkpoint.load = None
    config.logger.log_interval = 1
    config.tokenizer.tokenizer_type, config.tokenizer.use_tokenizer_vocab_size = "NullTokenizer", False
    config.tokenizer.vocab_size = config.model.vocab_size
    return config


if __name__ == "__main__":
    pretrain(trial(int(sys.argv[1])), forward_step)
