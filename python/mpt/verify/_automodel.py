# SPDX-License-Identifier: Apache-2.0
"""Plans for NeMo AutoModel: the recipe's model, FSDP2, loss, step and clipping, by the exported automodel.yaml."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from typing import Any, Dict, Iterator, List
from unittest import mock

import torch
import torch.distributed as dist
from nemo_automodel._transformers import auto_model, infrastructure
from nemo_automodel.components.checkpoint.checkpointing import Checkpointer
from nemo_automodel.components.config.loader import load_yaml_config
from nemo_automodel.components.distributed.init_utils import DistInfo
from nemo_automodel.components.models.common import utils
from nemo_automodel.components.training.utils import scale_grads_and_clip_grad_norm
from nemo_automodel.recipes.llm import train_ft
from transformers import masking_utils

from .._door import wrong
from ._pytorch import configured
from ._rank import MOST_MICRO_BATCHES, Watch, measure

GROUPS = {"dp_replicate": "replicas", "dp_shard": "shards", "dp_shard_cp": "shards", "tp": "tensor"}


def _refused(finding: str, expectation: str) -> Exception:
    return wrong("plan for automodel", f"{finding}; MPT cannot verify that yet", expectation, "compare a run with mpt-plan diagnose")


@contextlib.contextmanager
def _without_device() -> Iterator[None]:
    """Weights get no memory while the model is made."""
    with contextlib.ExitStack() as stack:
        for name in ("instantiate_infrastructure", "apply_model_infrastructure"):
            def placed(*words: Any, real: Any = getattr(auto_model, name), **named: Any) -> Any:
                return real(*words, **{**named, "device": torch.device("meta")})
            stack.enter_context(mock.patch.object(auto_model, name, placed))
        for place, name, value in ((torch.cuda, "current_device", 0), (Checkpointer, "initialize_model_weights", None), (infrastructure, "broadcast_tp_replicas", 0),
                                   (infrastructure, "print_trainable_parameters", None)):
            stack.enter_context(mock.patch.object(place, name, lambda *_, value=value, **__: value))
        yield


class Trained:
    """What the recipe's setup() does, without data, files and weights that have values."""

    def __init__(self, config: Any, plan: Any):
        recipe = self.recipe = train_ft.TrainFinetuneRecipeForNextTokenPrediction(config)
        recipe.dist_env = DistInfo("fake", dist.get_rank(), dist.get_world_size(), torch.device("cpu"), False)
        (recipe.distributed_setup, recipe.mesh_context, recipe.distributed_config, recipe.device_mesh, recipe.moe_mesh, recipe.pp_enabled, *_
         ) = recipe._distributed_setup_attributes(recipe._create_distributed_setup())
        recipe.tokenizer = recipe.te_fp8 = recipe.domain_mixture = None
        with _without_device():
            self.model = train_ft.build_model(recipe.cfg.model, None, seed=42, distributed_setup=recipe.distributed_setup)
        recipe.model_parts, recipe.loss_fn = [self.model], train_ft._maybe_downgrade_loss_fn(recipe.cfg.loss_fn.build(), self.model, False)
        rows = recipe.cfg.get("step_scheduler.local_batch_size")
        rounds = recipe.cfg.get("step_scheduler.global_batch_size") // (rows * recipe._get_dp_group_size())
        self.shape, self.stages, self.micro_batches = (rows, plan.workload.sequence), [0], min(rounds, MOST_MICRO_BATCHES)
        self.repeated = rounds - self.micro_batches
        mesh = recipe.device_mesh
        self.names = {} if mesh is None else {mesh[axis].get_group().group_name: name for axis, name in GROUPS.items() if axis in mesh.mesh_dim_names}

    def allocate(self) -> None:
        self.model.to_empty(device="cpu")
        infrastructure._ensure_tied_lm_heads(self.model)
        self.parameters = list(self.model.parameters())
        [self.optimizer] = self.recipe.cfg.optimizer.build(self.model, device_mesh=self.recipe.device_mesh)

    def forward_and_backward(self, watch: Watch) -> None:
        recipe, forward, loss, passing = self.recipe, self.model.forward, train_ft.calculate_loss, contextlib.ExitStack()

        def begun(*words: Any, **named: Any) -> Any:
            passing.enter_context(watch.forward(0))
            return forward(*words, **named)

        def ended(*words: Any, **named: Any) -> Any:
            with passing:
                return loss(*words, **named)
        self.model.forward = begun
        train_ft.prepare_for_grad_accumulation(recipe.model_parts)
        for number in range(self.micro_batches):
            if number == self.micro_batches - 1:
                train_ft.prepare_for_final_backward(recipe.model_parts)
            batch = {name: torch.zeros(self.shape, dtype=torch.int64) for name in ("input_ids", "labels", "position_ids")}
            # One sequence in a row, which transformers finds from values. The norm is one kernel, compiled or not.
            with mock.patch.object(masking_utils, "find_packed_sequence_indices", lambda _: None), mock.patch.object(torch.Tensor, "item", lambda _: 0), \
                    mock.patch.object(train_ft, "calculate_loss", ended), \
                    mock.patch.object(utils, "_float32_rms_norm_fwd", torch.ops.nemo_automodel.float32_rms_norm):
                recipe._forward_backward_step(number, batch, loss_buffer=[], num_label_tokens=1, num_batches=self.micro_batches)
            watch.marks.append(watch.counting.calls.copy())

    def update(self) -> None:
        with mock.patch.object(torch.Tensor, "item", lambda _: 1.0):  # no value is known
            scale_grads_and_clip_grad_norm(1.0, self.recipe.model_parts, device_mesh=self.recipe.device_mesh, num_label_tokens=1, foreach=True,
                                           dp_group_size=self.recipe._get_dp_group_size(include_cp=True))
        self.optimizer.step()
        self.optimizer.zero_grad()


def measured(plan: Any) -> List[Dict[str, Any]]:
    layout = plan.layout
    if layout.pipeline > 1 or layout.context > 1 or any("moe" in kind for kind in plan.json["model"]["layers"]["kinds"].values()):
        raise _refused("a pipeline, context ranks or experts", "a dense model on data and tensor ranks")
    logging.getLogger("nemo_automodel").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        plan.export("automodel", folder)
        recipe = load_yaml_config(os.path.join(folder, "automodel.yaml"))
        if recipe.get("distributed.strategy") != "fsdp2" or recipe.get("peft") or recipe.get("fp8"):
            raise _refused("a recipe without FSDP2, or with adapters", "ZeRO 2 or 3")
        configured(plan, folder, "config.json").save_pretrained(folder)
        recipe.set_by_dotted("model.config", folder)
        return [measure(0, layout.data * layout.tensor, plan.cluster.device.kind == "gpu", lambda: Trained(recipe, plan))]
