# Note: step time and memory are those of megatron-core, not of torchtitan: mpt-plan --framework torchtitan plans for it.
"""llama3-8b on dgx-h100:1: tp1 pp4 dp2 zero1 mbs1 zb-v x2, 8 ranks. A trial on random tokens: --module mpt_titan_trial --config mpt_trial."""

from dataclasses import dataclass

import torch
from mpt_torchtitan import mpt_plan
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.trainer import Trainer


class RandomTokens(BaseDataLoader):
    """The same tokens at every step."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        words: int = 2

    def __init__(self, config, *, seq_len, local_batch_size, **_):
        self.tokens = torch.randint(config.words, (local_batch_size, seq_len + 1))

    def __iter__(self):
        inputs, labels = self.tokens[:, :-1].contiguous(), self.tokens[:, 1:].contiguous()
        positions = torch.arange(inputs.shape[1]).repeat(inputs.shape[0], 1)
        while True:
            yield {"input": inputs, "positions": positions}, labels

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        pass


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, **_):
        super().__init__()

    def encode(self, *args, **kwargs):
        raise NotImplementedError

    decode = get_vocab_size = encode


def mpt_trial() -> Trainer.Config:
    config = mpt_plan()
    config.dataloader = RandomTokens.Config(words=decoder_vocab_size(config.model_spec))
    config.tokenizer = NoTokenizer.Config()
    config.optimizer = default_adamw()  # torchtitan starts with no weight left out
    config.metrics.log_freq = 1
    return config
