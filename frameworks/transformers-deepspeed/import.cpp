// SPDX-License-Identifier: Apache-2.0

// accelerate's YAML with DeepSpeed, DeepSpeed's JSON that it names, and the Trainer's arguments.

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "frameworks/asked.h"
#include "frameworks/deepspeed/deepspeed.h"
#include "frameworks/framework.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/trainer.h"

namespace mpt::frameworks {

Imported import_transformers_deepspeed(const std::filesystem::path& file) {
  const Settings config(read_yaml(file), file.string());
  const std::string kind = config.text("distributed_type", "NO");
  if (kind != "DEEPSPEED")
    throw UserError(
        Problem{config.at("distributed_type"), fmt::format("\"{}\"", kind.substr(0, 40)), "DEEPSPEED", ""});
  const std::string key = "deepspeed_config.deepspeed_config_file";
  if (!config.has(key))
    throw UserError(Problem{config.at(key), "missing", "the path of DeepSpeed's JSON", ""});
  const std::filesystem::path path = file.parent_path() / config.text(key, "");
  Imported in = read_deepspeed(Settings(load_json(path, kMostImportedBytes), path.string()), 1);
  in.unknown = asked_of(framework_named("transformers-deepspeed", ""))->unknown_keys(config.all(), "");
  Layout& l = in.layout;
  const int64_t ranks = config.number("num_processes", rule_of(&Layout::data), 0);
  if (l.data == 0 && ranks > 0) l.data = std::max<int64_t>(1, ranks / (l.tensor * l.context));
  const int64_t batch = in.workload.global_batch;
  read_trainer_arguments(file, in);
  if (batch > 0) in.workload.global_batch = batch;
  set_stages(in, {}, file.string());
  check_imported(in, file.string());
  return in;
}

}  // namespace mpt::frameworks
