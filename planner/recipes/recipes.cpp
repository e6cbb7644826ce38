// SPDX-License-Identifier: Apache-2.0
#include "planner/recipes/recipes.h"

#include <array>

#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/values.h"
#include "core/plan.h"
#include "frameworks/registry.h"
#include "models/zoo.h"
#include "planner/request/resolve.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlan = "plan";
constexpr const char* kRequest = "request";

// Whether a request names one layout; a search is no recipe.
bool names_one_layout(const Json& json) {
  if (json.contains("layout")) return true;
  const auto bounds = json.find("bounds");
  return bounds != json.end() && bounds->is_object() && !bounds->empty() &&
         all_of(*bounds, [](const Json& values) { return values.is_array() && values.size() == 1; });
}

// The kind of a file of this program, by its content; empty for other JSON.
std::string own_kind(const std::string& text) {
  if (text.find("\"model\"") == std::string::npos) return "";
  const auto json = json_of(text);
  if (!json)
    return text.find("\"mpt-plan\"") == std::string::npos ? "" : kPlan;  // a damaged plan; reported later
  if (!json->is_object() || !json->contains("model")) return "";
  if (const auto form = json->find("format"); form != json->end()) return *form == "mpt-plan" ? kPlan : "";
  return json->contains("global_batch") && names_one_layout(*json) ? kRequest : "";
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// Endings of scripts and configurations, which data does not have.
bool is_named_as_recipe(const fs::path& path) {
  constexpr std::array kEndings{".py", ".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml", ".toml"};
  return contains(kEndings, path.extension().string());
}

// A link of a recipe's name to a file that is not below the folder, or to nothing. Others are found under
// their own names.
bool leads_outside(const fs::path& link, const fs::path& folder) {
  std::error_code error;
  const fs::path target = fs::weakly_canonical(link, error);
  if (!is_named_as_recipe(link) || fs::is_directory(target, error)) return false;
  return !fs::exists(target, error) ||
         target.lexically_relative(fs::weakly_canonical(folder, error)).string().starts_with("..");
}

void add_folder(const fs::path& folder, std::set<fs::path>& files) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    if (is_hidden(at->path()))
      at.disable_recursion_pending();
    else if (at->symlink_status(ignored).type() == fs::file_type::regular ||
             (at->is_symlink(ignored) && leads_outside(at->path(), folder)))
      files.insert(at->path().lexically_normal());
  }
  if (error) refuse_input(folder.string(), error.message(), "a folder that can be read");
}

std::set<fs::path> files_below(const std::vector<fs::path>& paths) {
  std::set<fs::path> files;
  for (const fs::path& path : paths) {
    const fs::path normal = path.lexically_normal();
    if (finds_folder(path))
      add_folder(normal, files);
    else if (is_there(path))
      files.insert(normal);
    else
      refuse_input(path.string(), "not there", "a folder or a file with recipes");
  }
  return files;
}

fs::path full_path(const fs::path& path) {
  const fs::path full = fs::absolute(path).lexically_normal();
  return full.has_filename() ? full : full.parent_path();
}

bool is_top(const fs::path& folder) { return is_there(folder / ".git"); }

// The root of the git work tree that contains the path; empty if there is none.
fs::path top_of(const fs::path& path) {
  for (fs::path at = full_path(path);; at = at.parent_path()) {
    if (is_top(at)) return at;
    if (at == at.parent_path()) return {};
  }
}

[[noreturn]] void refuse_base(const fs::path& path, const std::string& base) {
  const fs::path top = top_of(path), here = full_path(".");
  std::string remedy = "check the other state out into a folder";
  if (!top.empty()) {
    const std::string revision = base.empty() || base.front() == '-' ? "REV" : shell_word(base);
    const std::string in_tree = top == here ? "" : fmt::format("-C {} ", shell_word(top.string()));
    const fs::path folder = (top.parent_path() / "base").lexically_relative(here);
    remedy = fmt::format("git {}worktree add ../base {}, then --base {}", in_tree, revision,
                         shell_word(folder.string()));
  }
  refuse_input("--base", fmt::format("\"{}\" is no folder", cut_text(base, 80)),
               "a folder with the same tree in another state", remedy);
}

// The same path in the base.
fs::path place_in_base(const fs::path& path, const fs::path& base) {
  const fs::path top = top_of(path);
  std::error_code error;
  if (top.empty() || !is_top(base)) return fs::is_directory(path, error) ? base : base / path.filename();
  return (base / full_path(path).lexically_relative(top)).lexically_normal();
}

// The bounds of a request are a layout that estimate() completes; a plan has a complete layout.
PlanRequest with_asked(PlanRequest own, const PlanRequest& asked) {
  own.cluster = asked.cluster;
  own.gpus = asked.gpus;
  own.memory = asked.memory;
  own.memory_margin = asked.memory_margin;
  own.kernels = asked.kernels;
  own.profile = asked.profile;
  if (!asked.model.empty()) own.model = asked.model;
  if (asked.global_batch > 0) own.global_batch = asked.global_batch;
  if (asked.sequence > 0) own.sequence = asked.sequence;
  return own;
}

// Uses the number of GPUs in the file, if the cluster has so many or is given by its type alone.
PlanRequest at_own_size(PlanRequest asked, const frameworks::Imported& in) {
  if (!asked.cluster.value || asked.gpus > 0) return asked;
  const ClusterSpec& cluster = *asked.cluster.value;
  const int64_t ranks = in.ranks > 0 ? in.ranks : in.nodes * cluster.devices_per_node;
  const bool type_alone = asked.cluster.name.find(':') == std::string::npos;
  if (ranks > 0 && (type_alone || ranks <= cluster.devices)) asked.gpus = ranks;
  return asked;
}

}  // namespace

std::string Recipe::name() const { return part.empty() ? file.string() : file.string() + "#" + part; }

std::vector<Recipe> recipes_in(const fs::path& file) {
  std::error_code error;
  files_of_program().reads(file);
  constexpr int64_t kMost = int64_t{64} << 20;  // the largest plans; no recipe is as large
  const auto bytes = int64_t(fs::file_size(file, error));
  const auto unread = [&](const std::string& found, const char* expected) {
    return std::vector<Recipe>{
        {file, "", "", Problem{file.string(), found, expected, "take it out of the tree"}}};
  };
  if (error || bytes > kMost) {
    const std::string found = error ? error.message() : format_bytes(double(bytes));
    return is_named_as_recipe(file) ? unread(found, "a file that can be read") : std::vector<Recipe>{};
  }
  const std::string text = read_file(file, kMost);
  const bool is_text = text.find('\0') == std::string::npos;
  if (file.extension() == ".json" && is_text)
    if (const std::string kind = own_kind(text); !kind.empty()) return {{file, "", kind, {}}};
  const frameworks::FrameworkCode* code = frameworks::find_recipe_importer(file, text);
  if (code == nullptr) return {};
  if (!is_text) return is_named_as_recipe(file) ? unread("a zero byte", "text") : std::vector<Recipe>{};
  if (bytes > frameworks::kMostImportedBytes)
    return unread(format_bytes(double(bytes)), "at most 8 MiB: a recipe is no larger");
  if (code->importer.parts == nullptr || file.extension() != ".py") return {{file, "", code->framework, {}}};
  std::vector<Recipe> recipes;
  for (const auto& part : code->importer.parts(file)) recipes.push_back({file, part, code->framework, {}});
  WorkBudget(file.string(), frameworks::kMostImportedBytes)
      .spend(recipes.size() * size_t(bytes));  // the file is read again for each
  return recipes;
}

std::vector<RecipeFile> recipe_files(const std::vector<fs::path>& paths) {
  return mapped<RecipeFile>(files_below(paths), [](const fs::path& file) { return RecipeFile{file, file}; });
}

std::vector<RecipeFile> files_of_base(const std::vector<fs::path>& paths, const std::string& base) {
  std::error_code error;
  if (!fs::is_directory(base, error)) refuse_base(paths.front(), base);
  const bool in_trees =
      is_top(base) && !any_of(paths, [](const fs::path& path) { return top_of(path).empty(); });
  if (paths.size() > 1 && !in_trees)
    refuse_input("--base", fmt::format("{} for {} paths", base, paths.size()),
                 "the top of a git work tree, or one path", "check each path in a call of its own");
  std::map<fs::path, fs::path> files;  // by name
  for (const fs::path& path : paths) {
    const fs::path before = place_in_base(path, base);
    if (!is_there(before)) continue;
    for (const fs::path& file : files_below({before})) {
      const fs::path below = file.lexically_relative(before);
      files.emplace((below == "." ? path : path / below).lexically_normal(), file);
    }
  }
  return mapped<RecipeFile>(files, [](const auto& file) { return RecipeFile{file.second, file.first}; });
}

void keep_below(const std::vector<fs::path>& folders, PlanRequest& asked) {
  if (!asked.model.empty()) asked.model.value = models::load_model(asked.model.name);
  asked.cluster.value = profiler::load_cluster(asked.cluster.name, {}, asked.gpus);
  for (const std::string& file : {asked.profile, asked.kernels})
    if (!file.empty()) files_of_program().reads(file);
  files_of_program().keep_below(folders);
}

RecipeRequest read_recipe(const Recipe& recipe, const PlanRequest& asked) {
  if (recipe.unread) throw UserError(*recipe.unread);
  if (recipe.framework == kPlan)
    return {with_asked(request_of(load_plan(recipe.file)), asked), 0, false, false, false, {}};
  if (recipe.framework == kRequest)
    return {with_asked(load_request(recipe.file.string()), asked), 0, false, false, false, {}};
  const frameworks::FrameworkCode& code = frameworks::find_importer(recipe.framework, recipe.file.string());
  const frameworks::Imported in = recipe.part.empty() ? code.importer.read(recipe.file)
                                                      : code.importer.read_part(recipe.file, recipe.part);
  if (in.refused) throw frameworks::FrameworkRefusal(*in.refused);
  if (!in.unknown.empty())
    refuse_input(recipe.file.string(), fmt::format("{}: not known", cut_text(joined(in.unknown, ", "), 200)),
                 "keys that are known, since others may change time or memory",
                 "take them out of a copy of the file, if they do not");
  const std::string name = recipe.part.empty() ? recipe.file.string() : recipe.part;
  return {imported_request(in, at_own_size(asked, in), name, code.framework),
          in.micro_batch_group,
          in.layout.data == 0,
          true,
          !in.length_note.empty() && asked.sequence == 0,
          in.notes};
}

}  // namespace mpt::planner
