// SPDX-License-Identifier: Apache-2.0

// PyTorch: torch.distributed.device_mesh.init_device_mesh and torch.distributed.fsdp.fully_shard of 2.9.

#include <fmt/format.h>

#include "frameworks/export.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

struct MeshAxis {
  const char* name;
  int64_t degree;
};

std::string dtype_of(Precision precision) {
  return precision == Precision::fp32 ? "float32" : precision == Precision::fp16 ? "float16" : "bfloat16";
}

constexpr const char* kCheckpointImport =
    "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper\n";

// Lines of shard() that make the first layers recompute.
std::string recompute_lines(const Plan& plan) {
  const Layout& l = plan.layout;
  if (l.recompute != Recompute::full || l.pipeline > 1) return "";
  return fmt::format("    for i in range({}):\n        layers[i] = checkpoint_wrapper(layers[i])\n",
                     recomputed_layers(l, 0, plan.model.layers));
}

}  // namespace

Exported export_pytorch(const Plan& plan) {  // NOLINT(readability-function-size): half is the file's text
  Exported exported;
  const Layout& l = plan.layout;
  const int64_t shard = sharing_data_ranks(l);
  std::vector<MeshAxis> axes{{"pp", l.pipeline}, {"dp_replicate", l.data / shard}, {"dp_shard", shard}};
  if (l.order == RankOrder::data_outermost) axes = {axes[1], axes[2], axes[0]};
  axes.push_back({"cp", l.context});
  axes.push_back({"tp", l.tensor});
  std::string sizes, names;
  for (const MeshAxis& axis : axes) {
    sizes += fmt::format("{}, ", axis.degree);
    names += fmt::format("\"{}\", ", axis.name);
  }
  // Context ranks hold the same weights and see other tokens: their gradients are reduced, too.
  const std::string data_mesh =
      l.context > 1 ? "mesh[\"dp_replicate\", \"dp_shard_cp\"]" : "mesh[\"dp_replicate\", \"dp_shard\"]";
  const std::string flatten =
      l.context > 1 ? "    mesh[\"dp_shard\", \"cp\"]._flatten(\"dp_shard_cp\")\n" : "";
  const std::string recompute = recompute_lines(plan);
  exported.files.push_back(
      {"mpt_mesh.py",
       fmt::format(R"text("""{}."""

import torch
{}from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

MICRO_BATCH = {}  # sequences
MICRO_BATCHES = {}  # per data-parallel rank and step


def make_mesh():
    """The plan's ranks, the outermost axis first."""
    return init_device_mesh("cuda", ({}), mesh_dim_names=({}))


def shard(model, layers, mesh):
    """FSDP over the mesh's data-parallel axes: `layers`, the model's ModuleList, one by one, then the rest of it."""
{}{}    policy = MixedPrecisionPolicy(param_dtype=torch.{}, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, mesh={}, mp_policy=policy, reshard_after_forward={})
    return fully_shard(model, mesh={}, mp_policy=policy, reshard_after_forward={})
)text",
                   export_title(plan), recompute.empty() ? "" : kCheckpointImport, l.micro_batch,
                   micro_batches(l, plan.workload), sizes.substr(0, sizes.size() - 2),
                   names.substr(0, names.size() - 2), flatten, recompute_lines(plan), dtype_of(l.precision),
                   data_mesh, l.zero == 3 ? "True" : "False", data_mesh, l.zero == 3 ? "True" : "False")});
  const auto warn_if = [&](bool given, const char* text) {
    if (given) exported.warnings.emplace_back(text);
  };
  warn_if(l.zero == 1, "FSDP shards gradients beside optimizer state: ZeRO 1 becomes ZeRO 2");
  warn_if(l.tensor > 1, "tensor parallelism: parallelize_module over mesh[\"tp\"] with the model's own plan");
  warn_if(l.pipeline > 1,
          "pipeline: torch.distributed.pipelining over mesh[\"pp\"]; --to torchtitan writes the schedule");
  warn_if(l.context > 1,
          "context parallelism: torch.distributed.tensor.experimental.context_parallel over mesh[\"cp\"]");
  warn_if(l.expert > 1, "expert parallelism is the model's own");
  const bool written = l.recompute == Recompute::full && l.pipeline == 1;
  warn_if(l.recompute != Recompute::none && !written,
          "recompute: torch.utils.checkpoint in the model's layers");
  warn_if(l.offload_optimizer, "offloading: CPUOffloadPolicy, which moves weights and gradients, too");
  return exported;
}

}  // namespace mpt::frameworks
