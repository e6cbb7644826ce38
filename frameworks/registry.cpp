// SPDX-License-Identifier: Apache-2.0
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

bool has_form(const FrameworkFiles& files, const std::string& file) {
  return any_of(files.forms, [&](const FileForm& form) {
    if (!file.ends_with(form.ending)) return false;
    return form.mark.empty() || read_file(file, kMostImportedBytes).find(form.mark) != std::string::npos;
  });
}

// The row of frameworks/programs.json with words that all occur in the file; null: there is none.
Json row_of_program(const std::string& name, const std::string& text) {
  static const Json programs = parse_json(template_text("programs.json"), "programs.json");
  const std::string lines = "\n" + text;  // marks of keys begin a line
  const auto holds = [&](const Json& words) {
    return all_of(words, [&](const Json& w) {
      return lines.find(w.get_ref<const std::string&>()) != std::string::npos;
    });
  };
  for (const Json& one : programs)
    if (contains(one.at("endings"), Json(std::filesystem::path(name).extension().string())) &&
        any_of(one.at("marks"), holds))
      return one;
  return nullptr;
}

const FrameworkCode& code_of(const std::string& framework) {
  return *find_if(framework_code(), [&](const FrameworkCode& code) { return code.framework == framework; });
}

bool is_recipe(const FrameworkFiles& files, const std::string& name, const std::string& text) {
  const auto in_text = [&](const std::string& mark) { return text.find(mark) != std::string::npos; };
  const std::string ending = std::filesystem::path(name).extension().string();
  if (!contains(files.recipe_endings, ending) || !any_of(files.recipe_marks, in_text)) return false;
  return files.forms.empty() ||
         any_of(files.forms, [&](const FileForm& f) { return name.ends_with(f.ending) && in_text(f.mark); });
}

}  // namespace

const std::vector<FrameworkCode>& framework_code() {
  static const std::vector<FrameworkCode> table{
      {"megatron-core", export_megatron_core, {import_megatron_core}},
      {"megatron-bridge",
       export_megatron_bridge,
       {import_megatron_bridge, megatron_bridge_recipes, import_megatron_bridge_recipe}},
      {"torchtitan",
       export_torchtitan,
       {import_torchtitan, torchtitan_configurations, import_torchtitan_configuration}},
      {"deepspeed", export_deepspeed, {import_deepspeed}},
      {"transformers-deepspeed", export_transformers_deepspeed, {import_transformers}},
      {"pytorch", export_pytorch, {import_pytorch}},
      {"automodel", export_automodel, {import_automodel}},
      {"transformers-fsdp", export_transformers_fsdp, {import_transformers}},
      {"transformers-ddp", export_transformers_ddp, {import_transformers}},
      {"mpt"},
  };
  return table;
}

const FrameworkCode* find_recipe_importer(const std::filesystem::path& file, const std::string& text) {
  const Json program = row_of_program(file.string(), text);
  // The file that names how ranks share the work is the recipe of a folder.
  if (!program.is_null() && program.contains("framework") && !program.contains("beside_others"))
    return &code_of(program.at("framework"));
  for (const FrameworkCode& code : framework_code())
    if (is_recipe(code.files(), file.filename().string(), text)) return &code;
  return nullptr;
}

void refuse_program(const std::string& program, const std::string& file) {
  refuse_input(file, "a file of " + program, "a file of a program that MPT reads",
               "price its layout by mpt-plan estimate with --model (a hub id will do), --framework, --tp, "
               "--pp, --dp, --zero and --global-batch");
}

const FrameworkCode& find_importer(const std::string& from, const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_regular_file(file, error)) {
    const Json program = row_of_program(file, read_file(file, kMostImportedBytes));
    if (!program.is_null() && !program.contains("framework")) refuse_program(program.at("program"), file);
    if (!program.is_null() && from.empty()) return code_of(program.at("framework"));
  }
  const Framework* framework = find_framework(from);
  const FrameworkCode* any = nullptr;
  std::vector<std::string> names;
  for (const FrameworkCode& code : framework_code()) {
    if (code.importer.read == nullptr) continue;
    names.emplace_back(code.framework);
    if (framework != nullptr && framework->name == code.framework) return code;
    if (from.empty() && has_form(code.files(), file)) return code;
    if (code.files().forms.empty()) any = &code;
  }
  if (from.empty()) return *any;
  refuse_input("--from", fmt::format("\"{}\"{}", from.substr(0, 40), did_you_mean(from, names)),
               one_of(names));
}

}  // namespace mpt::frameworks
