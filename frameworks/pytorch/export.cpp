// SPDX-License-Identifier: Apache-2.0

// PyTorch: init_device_mesh of torch.distributed.device_mesh, fully_shard of torch.distributed.fsdp and the
// schedules of torch.distributed.pipelining at 2.15.

#include <fmt/format.h>

#include <map>

#include "base/json.h"
#include "frameworks/export.h"
#include "frameworks/hugging_face.h"
#include "frameworks/python_file.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

std::string mesh_dtype(Precision precision) {
  return precision == Precision::fp32 ? "float32" : precision == Precision::fp16 ? "float16" : "bfloat16";
}

const char* schedule_class(const Layout& l) {
  static const std::map<std::string, const char*> names{{"gpipe", "ScheduleGPipe"},
                                                        {"1f1b", "Schedule1F1B"},
                                                        {"interleaved", "ScheduleInterleaved1F1B"},
                                                        {"zb-v", "ScheduleZBVZeroBubble"},
                                                        {"dualpipe-v", "ScheduleDualPipeV"}};
  const auto found = names.find(l.schedule);
  return found == names.end() ? nullptr : found->second;
}

std::string mesh_constants(const Plan& plan, const std::string& model) {
  const Layout& l = plan.layout;
  std::vector<int64_t> recomputed;
  for (size_t s = 0; s < l.layers_per_stage.size(); ++s)
    recomputed.push_back(l.recompute == Recompute::full ? recomputed_layers(l, s, l.layers_per_stage[s]) : 0);
  std::string text =
      fmt::format(R"py(MODEL = {}  # on the hub, or a file beside this one
SEQUENCE = {}  # tokens
GLOBAL_BATCH = {}  # sequences per step
MICRO_BATCH = {}  # sequences
MICRO_BATCHES = {}  # per data-parallel rank and step
PRECISION = "{}"
RESHARD_AFTER_FORWARD = {}
LAYERS = {}  # of each stage, in model order
RECOMPUTED = {}  # of them, the first ones
)py",
                  python_text(model), plan.workload.sequence, plan.workload.global_batch, l.micro_batch,
                  micro_batches(l, plan.workload), enum_name(l.precision), python_text(l.zero == 3),
                  python_text(Json(l.layers_per_stage)), python_text(Json(recomputed)));
  if (l.pipeline == 1) return text;
  return text + fmt::format("SCHEDULE = \"{}\"\nRANK_OF_STAGE = {}\n", l.schedule,
                            python_text(Json(plan.schedule.rank_of_stage)));
}

std::string mesh_of(const Layout& l) {
  const int64_t shard = sharing_data_ranks(l);
  std::vector<std::pair<const char*, int64_t>> axes{
      {"pp", l.pipeline}, {"dp_replicate", l.data / shard}, {"dp_shard", shard}};
  if (l.order == RankOrder::data_outermost) axes = {axes[1], axes[2], axes[0]};
  axes.emplace_back("cp", l.context);
  axes.emplace_back("tp", l.tensor);
  Json names = Json::array(), sizes = Json::array();
  for (const auto& [name, size] : axes) {
    names.push_back(name);
    sizes.push_back(size);
  }
  return fmt::format("MESH = {}\nAXES = {}\n", python_text(sizes), python_text(names));
}

constexpr const char* kSchedulePart = R"py(

def stages_of(pipeline_rank):
    """Which stages a pipeline rank holds."""
    return [stage for stage, rank in enumerate(RANK_OF_STAGE) if rank == pipeline_rank]


def make_schedule(stages, loss):
    """The plan's schedule of the PipelineStages of this rank."""
    return {}({}, MICRO_BATCHES, loss_fn=loss)
)py";

constexpr const char* kShardPart = R"py(

def make_mesh():
    """The plan's ranks, the outermost axis first."""
    return init_device_mesh("cuda", tuple(MESH), mesh_dim_names=tuple(AXES))


def shard(model, layers, mesh, stage=0):
    """FSDP over the mesh's data-parallel axes: the ModuleList `layers` of a stage one by one, then the rest."""
{}    for i in range(RECOMPUTED[stage]):
        layers[i] = checkpoint_wrapper(layers[i])
    policy = MixedPrecisionPolicy(param_dtype=torch.{}, reduce_dtype=torch.float32)
    options = dict(mesh=mesh["dp_replicate", "dp_shard"], mp_policy=policy, reshard_after_forward=RESHARD_AFTER_FORWARD)
    for layer in layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)
)py";

std::string mesh_imports(const Layout& l) {
  std::string text = "import torch\n";
  text += "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper\n";
  text += "from torch.distributed.device_mesh import init_device_mesh\n";
  text += "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n";
  if (l.pipeline > 1 && schedule_class(l) != nullptr)
    text += fmt::format("from torch.distributed.pipelining import {}\n", schedule_class(l));
  if (l.precision == Precision::fp8) text += "from torchao.float8 import convert_to_float8_training\n";
  return text;
}

// Of plans for other frameworks: what these files do not have.
void add_mesh_warnings(const Layout& l, std::vector<std::string>& warnings) {
  const std::pair<bool, const char*> beyond[] = {
      {l.zero == 1, "FSDP shares gradients out beside optimizer state: ZeRO 1 becomes ZeRO 2"},
      {l.tensor > 1, "tensor parallelism: parallelize_module over mesh[\"tp\"] with the model's own plan"},
      {l.context > 1, "context parallelism is not in the file"},
      {l.expert > 1, "expert parallelism is not in the file"},
      {l.recompute == Recompute::selective, "selective recompute is not in the file"},
      {l.offload_optimizer, "offload: CPUOffloadPolicy moves weights and gradients, too"},
      {l.precision == Precision::mxfp8 || l.precision == Precision::nvfp4, "products run in 16 bits"},
      {l.pipeline > 1 && schedule_class(l) == nullptr, "PyTorch has no class of this schedule"}};
  for (const auto& [given, text] : beyond) {
    if (given) warnings.emplace_back(text);
  }
}

}  // namespace

Exported export_pytorch(const Plan& plan) {
  Exported exported;
  const Layout& l = plan.layout;
  const std::string model = add_hugging_face_model(plan.model, exported);
  std::string text = fmt::format("\"\"\"{}. For PyTorch 2.15.\"\"\"\n\n", export_title(plan)) +
                     mesh_imports(l) + "\n" + mesh_of(l) + mesh_constants(plan, model);
  text += fmt::format(kShardPart,
                      l.precision == Precision::fp8
                          ? "    convert_to_float8_training(layers)  # the head stays in 16 bits\n"
                          : "",
                      mesh_dtype(l.precision));
  if (l.pipeline > 1 && schedule_class(l) != nullptr)
    text += fmt::format(kSchedulePart, schedule_class(l), l.chunks > 1 ? "stages" : "stages[0]");
  exported.files.insert(exported.files.begin(), {"mpt_mesh.py", text});
  add_mesh_warnings(l, exported.warnings);
  return exported;
}

}  // namespace mpt::frameworks
