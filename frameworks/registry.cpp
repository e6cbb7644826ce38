// SPDX-License-Identifier: Apache-2.0
#include "frameworks/registry.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/framework.h"

namespace mpt::frameworks {
namespace {

// Flags that say what the model is.
const RecipeForm kMegatronRecipes{{".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml", ".txt", ".args", ""},
                                  {"--num-layers", "--num_layers", "--hybrid-layer-pattern",
                                   "--hybrid-override-pattern", "--encoder-num-layers"}};

bool has_form(const Importer& importer, const std::string& file) {
  return std::any_of(importer.forms.begin(), importer.forms.end(), [&](const FileForm& form) {
    if (!file.ends_with(form.ending)) return false;
    return *form.mark == '\0' || read_file(file, kMostImportedBytes).find(form.mark) != std::string::npos;
  });
}

bool is_recipe(const Importer& importer, const std::string& name, const std::string& text) {
  const auto in_text = [&](const char* mark) { return text.find(mark) != std::string::npos; };
  const std::string ending = std::filesystem::path(name).extension().string();
  const RecipeForm& form = importer.recipes;
  if (std::find(form.endings.begin(), form.endings.end(), ending) == form.endings.end()) return false;
  if (std::none_of(form.marks.begin(), form.marks.end(), in_text)) return false;
  return importer.forms.empty() ||
         std::any_of(importer.forms.begin(), importer.forms.end(),
                     [&](const FileForm& f) { return name.ends_with(f.ending) && in_text(f.mark); });
}

}  // namespace

const std::vector<FrameworkCode>& framework_code() {
  static const std::vector<FrameworkCode> table{
      {"megatron-core",
       {export_megatron_core, "Megatron-LM core 0.19.2: arguments and a launch script"},
       {import_megatron_core, "Megatron-LM arguments or script", {}, kMegatronRecipes}},
      {"megatron-bridge",
       {export_megatron_bridge, "Megatron-Bridge 0.6.2: a function that changes a recipe's configuration"},
       {import_megatron_bridge,
        "Megatron-Bridge's fields in Python or YAML, or a NeMo recipe",
        {{".py", "megatron.bridge"},
         {".py", "nemo.collections"},
         {".py", ".model.num_layers"},
         {".py", ".model.tensor_model_parallel_size"},
         {".yaml", " tensor_model_parallel_size:"},
         {".yml", " tensor_model_parallel_size:"}},
        {{".py", ".yaml", ".yml"},
         {".num_layers =", ".tensor_model_parallel_size =", " tensor_model_parallel_size:"}}}},
      {"torchtitan",
       {export_torchtitan, "torchtitan 0.3.0: configuration in Python, and the schedule as PyTorch's CSV"},
       {import_torchtitan,
        "torchtitan's configuration in Python or TOML",
        {{".toml"}, {".py", "torchtitan"}},
        {{".toml", ".py"}, {"[parallelism]", "[training]", "model_spec=", "Trainer.Config:"}},
        torchtitan_configurations,
        import_torchtitan_configuration}},
      {"deepspeed",
       {export_deepspeed, "DeepSpeed 0.19.8: configuration, and a module that starts its engine"},
       {import_deepspeed,
        "DeepSpeed's JSON",
        {{".json"}},
        {{".json"},
         {"\"zero_optimization\"", "\"train_batch_size\"", "\"train_micro_batch_size_per_gpu\""}}}},
      {"transformers-deepspeed",
       {export_transformers_deepspeed,
        "accelerate 1.15.0 with DeepSpeed 0.19.8: their files and the Trainer's"},
       {import_transformers_deepspeed,
        "accelerate's YAML with DeepSpeed",
        {{".yaml", "DEEPSPEED"}, {".yml", "DEEPSPEED"}},
        {{".yaml", ".yml"}, {"deepspeed_config:"}}}},
      {"pytorch",
       {export_pytorch, "PyTorch 2.15: a file that trains the plan's model under torchrun"},
       {import_pytorch,
        "an exported mpt_train.py",
        {{".py", "init_device_mesh"}},
        {{".py"}, {"MICRO_BATCH = "}}}},
      {"transformers-fsdp",
       {export_transformers_fsdp, "accelerate 1.15.0 with FSDP2: its YAML and the Trainer's arguments"},
       {import_transformers_fsdp,
        "accelerate's YAML with FSDP",
        {{".yaml", "fsdp_config"}, {".yml", "fsdp_config"}},
        {{".yaml", ".yml"}, {"fsdp_config:"}}}},
      {"automodel",
       {export_automodel, "NeMo AutoModel 0.7.0: a recipe"},
       {import_automodel,
        "a recipe of NeMo AutoModel",
        {{".yaml", "step_scheduler"}, {".yml", "step_scheduler"}},
        {{".yaml", ".yml"}, {"step_scheduler:"}}}},
      {"mpt", {}, {}},
  };
  return table;
}

const FrameworkCode* find_recipe_importer(const std::filesystem::path& file, const std::string& text) {
  for (const FrameworkCode& code : framework_code()) {
    if (is_recipe(code.importer, file.filename().string(), text)) return &code;
  }
  return nullptr;
}

const FrameworkCode& find_importer(const std::string& from, const std::string& file) {
  const Framework* framework = find_framework(from);
  const FrameworkCode* any = nullptr;
  std::vector<std::string> names;
  for (const FrameworkCode& code : framework_code()) {
    if (code.importer.read == nullptr) continue;
    names.emplace_back(code.framework);
    if (framework != nullptr && framework->name == code.framework) return code;
    if (from.empty() && has_form(code.importer, file)) return code;
    if (code.importer.forms.empty()) any = &code;
  }
  if (from.empty()) return *any;
  throw UserError(Problem{"--from", fmt::format("\"{}\"{}", from.substr(0, 40), did_you_mean(from, names)),
                          fmt::format("one of {}", fmt::join(names, ", ")), ""});
}

}  // namespace mpt::frameworks
