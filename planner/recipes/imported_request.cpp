// SPDX-License-Identifier: Apache-2.0
#include "planner/recipes/recipes.h"

#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "models/parameter_count.h"
#include "models/zoo.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

// Files of arguments have no model name. The name is made from the file and its size, "my_run-70.6B".
std::string name_of_sizes(const std::string& file, const ModelSpec& model) {
  const std::string stem = std::filesystem::path(file).stem().string();
  return fmt::format("{}-{}", stem, format_magnitude(double(models::count_parameters(model).total)));
}

ModelSpec model_of(const frameworks::Imported& in, const PlanRequest& asked, const std::string& file) {
  if (asked.model.value) return *asked.model.value;
  if (!asked.model.empty()) return models::load_model(asked.model.name);
  if (!in.model)
    refuse_input(
        file,
        in.unknown_model.empty() ? "no model" : fmt::format("model {}, which is not known", in.unknown_model),
        "one of `mpt-plan model list`, or a config.json beside the file",
        "name a model or its config.json with --model");
  if (!in.open_vocabulary.empty())
    refuse_input(file,
                 fmt::format("no --vocab-size: the tokenizer {} decides", cut_text(in.open_vocabulary, 60)),
                 "the size of the vocabulary",
                 "add --vocab-size to a copy of the file, or name the model with --model");
  ModelSpec model = *in.model;
  if (model.name == "imported") model.name = name_of_sizes(file, model);
  return model;
}

void complete_layout(frameworks::Imported& in, const ModelSpec& model, int64_t ranks,
                     const std::string& file) {
  Layout& l = in.layout;
  if (l.data == 0) l.data = std::max<int64_t>(1, ranks / (l.tensor * l.context * l.pipeline));
  if (l.zero > 0 && l.replicas() % in.shard_groups != 0)
    throw frameworks::FrameworkRefusal(file,
                                       fmt::format("{} replicas in {} groups", l.replicas(), in.shard_groups),
                                       "a number of groups that divides the replicas");
  l.shard = l.zero == 0 ? 1 : std::max<int64_t>(1, l.replicas() / in.shard_groups);
  if (model.moe() == nullptr) {
    l.expert = 1;
    l.expert_tensor = 0;
    l.overlap_exchange = false;
  }
  if (!l.layers_per_stage.empty()) return;
  frameworks::check_stages(l, model, file);
  l.layers_per_stage = even_stages(model.layers.count(), l.stages());
}

void set_execution(frameworks::Imported& in, const std::string& framework, const DeviceSpec& device) {
  Execution& execution = in.layout.execution.edit();
  execution = frameworks::load_framework(framework, "--from");
  frameworks::set_device(execution, device);
  execution = frameworks::with_changes(execution, in.execution, "--from");
}

}  // namespace

PlanRequest imported_request(frameworks::Imported in, const PlanRequest& asked, const std::string& file,
                             const std::string& importer) {
  const std::string& framework = in.framework.empty() ? importer : in.framework;
  PlanRequest request = asked;
  request.model.value = model_of(in, asked, file);
  request.cluster.value = profiler::load_cluster(asked.cluster.name, {}, asked.gpus);
  const int64_t started = in.ranks > 0 ? in.ranks : request.cluster.value->devices;
  if (asked.gpus > 0 && in.ranks > 0 && in.layout.data > 0 && asked.gpus != in.ranks)
    throw frameworks::FrameworkRefusal(file, fmt::format("its batch and degrees are for {} ranks", in.ranks),
                                       fmt::format("{} ranks, as many as GPUs", asked.gpus),
                                       "change one of them");
  complete_layout(in, *request.model.value, asked.gpus > 0 ? asked.gpus : started, file);
  set_execution(in, framework, request.cluster.value->device);
  if (request.global_batch == 0) request.global_batch = in.workload.global_batch;
  if (request.global_batch == 0)
    request.global_batch = in.layout.micro_batch * in.accumulated * in.layout.data;
  if (in.at_once > 0)
    request.global_batch =
        std::min(request.global_batch, in.layout.micro_batch * in.at_once * in.layout.data);
  in.workload.global_batch = request.global_batch;
  in.layout.execution.edit().traffic.defers_gradient_sums =
      in.defers_gradient_sums && request.global_batch > in.layout.micro_batch * in.layout.data;
  if (request.sequence == 0) request.sequence = in.workload.sequence;
  frameworks::check_imported(in, file);
  request.layout = in.layout;
  // The framework has a model that its file names, even if MPT cannot export it.
  const frameworks::Framework* known = frameworks::find_framework(framework);
  if (asked.model.empty() && known != nullptr &&
      frameworks::lacks_model(*known, frameworks::trained_by(*known, *request.model.value)))
    request.beyond_framework = true;
  return request;
}

}  // namespace mpt::planner
