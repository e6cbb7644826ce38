// SPDX-License-Identifier: Apache-2.0
#include "frameworks/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "frameworks/framework.h"

namespace mpt::frameworks {

const std::vector<FrameworkCode>& framework_code() {
  static const std::vector<FrameworkCode> table{
      {"megatron-core",
       {export_megatron_core, "Megatron-LM core 0.19.2: arguments and a launch script"},
       {import_megatron_core, "Megatron-LM arguments or script", ""},
       {megatron_core_steps, "elapsed time per iteration"}},
      {"megatron-bridge",
       {export_megatron_bridge, "Megatron-Bridge 0.6.2: a function that changes a recipe's configuration"},
       {import_megatron_bridge, "Megatron-Bridge fields set in Python", ".py"},
       {megatron_core_steps, "elapsed time per iteration"}},
      {"torchtitan",
       {export_torchtitan, "torchtitan 0.2.2: configuration, and the schedule as PyTorch's CSV"},
       {import_torchtitan, "torchtitan's TOML", ".toml"},
       {torchtitan_steps, "tps"}},
      {"deepspeed", {export_deepspeed, "DeepSpeed 0.19: configuration"}, {}, {}},
      {"transformers-deepspeed",
       {export_deepspeed, "DeepSpeed 0.19: configuration, as the Trainer takes it"},
       {},
       {}},
      {"pytorch", {export_pytorch, "PyTorch 2.9: device mesh and fully_shard"}, {}, {}},
      {"transformers-fsdp", {}, {}, {}},
      {"automodel", {}, {}, {}},
      {"mpt", {}, {}, {}},
  };
  return table;
}

const FrameworkCode& find_importer(const std::string& from, const std::string& file) {
  const Framework* framework = find_framework(from);
  const FrameworkCode* any = nullptr;
  std::vector<std::string> names;
  for (const FrameworkCode& code : framework_code()) {
    if (code.importer.read == nullptr) continue;
    names.emplace_back(code.framework);
    const std::string ending = code.importer.ending;
    if (framework != nullptr && framework->name == code.framework) return code;
    if (from.empty() && !ending.empty() && file.ends_with(ending)) return code;
    if (ending.empty()) any = &code;
  }
  if (from.empty()) return *any;
  throw UserError(Problem{"--from", fmt::format("\"{}\"{}", from.substr(0, 40), did_you_mean(from, names)),
                          fmt::format("one of {}", fmt::join(names, ", ")), ""});
}

std::vector<double> numbers_behind(const std::vector<std::string>& lines, const std::string& key) {
  std::vector<double> numbers;
  for (const std::string& line : lines) {
    const size_t at = line.find(key);
    if (at == std::string::npos) continue;
    std::string text = line.substr(at + key.size(), 40);
    std::erase(text, ',');
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end != text.c_str() && value > 0.0) numbers.push_back(value);
  }
  return numbers;
}

}  // namespace mpt::frameworks
