# SPDX-License-Identifier: Apache-2.0
"""As pretrain_gpt.py of Megatron-LM begins. The length of the sequences comes from the script, which no reader of flags sees."""

from megatron.training.arguments import parse_and_validate_args

parse_and_validate_args(args_defaults={"seq_length": 4096})
raise RuntimeError("training has begun")
