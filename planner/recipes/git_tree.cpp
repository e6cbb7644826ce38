// SPDX-License-Identifier: Apache-2.0
#include "planner/recipes/git_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/process.h"
#include "frameworks/import.h"

namespace mpt::planner {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_base(const std::string& revision, const std::string& found) {
  throw UserError(Problem{"--base", fmt::format("\"{}\": {}", revision.substr(0, 80), found),
                          "a revision of the recipes' git work tree, such as origin/main",
                          "git rev-parse says what git knows of it; a shallow clone lacks older commits"});
}

ProcessResult git(const fs::path& folder, std::vector<std::string> arguments, const fs::path& input = {}) {
  arguments.insert(arguments.begin(), {"git", "-C", folder.string(), "-c", "core.fsmonitor=false"});
  ProcessResult result = run_process(arguments, input, true);
  if (result.code == 127)
    throw UserError(Problem{"--base", "git is not there", "git in PATH", "install git"});
  return result;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

bool is_object_name(const std::string& text) {
  return (text.size() == 40 || text.size() == 64) &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

fs::path folder_of(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A tree that somebody made by hand may hold names that lead elsewhere.
bool stays_inside(const fs::path& path) {
  return !path.empty() && path.is_relative() &&
         std::none_of(path.begin(), path.end(),
                      [](const fs::path& part) { return part == ".." || part == ".git"; });
}

bool is_below(const fs::path& path, const fs::path& folder) {
  if (folder == ".") return true;
  const auto [end, other] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

fs::path new_folder() {
  std::string name = (fs::temp_directory_path() / "mpt-base-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw RunError(fmt::format("cannot make a folder in {} ({})", fs::temp_directory_path().string(),
                               std::strerror(errno)));
  return name;
}

}  // namespace

GitTree::GitTree(const std::string& revision, const std::vector<fs::path>& paths) : asked_(paths) {
  if (revision.empty() || revision.front() == '-') refuse_base(revision, "no name of a revision");
  const fs::path start = folder_of(paths.front());
  const ProcessResult top = git(start, {"rev-parse", "--show-toplevel"});
  if (top.code != 0) refuse_base(revision, fmt::format("{} is in no git work tree", paths.front().string()));
  top_ = first_line(top.output);
  const ProcessResult tree = git(top_, {"rev-parse", "--verify", "--quiet", revision + "^{tree}"});
  const std::string id = first_line(tree.output);
  if (tree.code != 0 || !is_object_name(id)) refuse_base(revision, "git does not know it");
  for (const fs::path& path : asked_) in_work_tree(path);
  const std::vector<Blob> blobs = blobs_of(id);
  folder_ = new_folder();
  try {
    write(blobs);
  } catch (...) {
    std::error_code error;
    fs::remove_all(folder_, error);
    throw;
  }
}

GitTree::~GitTree() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

fs::path GitTree::in_work_tree(const fs::path& path) const {
  std::error_code error;
  fs::path relative =
      fs::weakly_canonical(fs::absolute(path), error).lexically_relative(fs::weakly_canonical(top_));
  if (relative.empty() || *relative.begin() == "..")
    throw UserError(Problem{path.string(), fmt::format("outside of {}", top_.string()),
                            "paths of one git work tree with --base", "check others in a call of their own"});
  return relative;
}

// Lines "mode type id size<tab>path", each with a zero byte.
std::vector<GitTree::Blob> GitTree::blobs_of(const std::string& tree) const {
  std::vector<fs::path> folders;  // what stands beside a recipe is read with it
  for (const fs::path& path : asked_) {
    const fs::path relative = in_work_tree(path);
    std::error_code error;
    const fs::path folder = fs::is_directory(path, error) ? relative : relative.parent_path();
    folders.push_back(folder.empty() ? fs::path(".") : folder);
  }
  const ProcessResult list = git(top_, {"ls-tree", "-r", "-l", "-z", "--full-tree", tree});
  std::vector<Blob> blobs;
  for (size_t at = 0; at < list.output.size();) {
    const size_t end = std::min(list.output.find('\0', at), list.output.size());
    const std::string line = list.output.substr(at, end - at);
    at = end + 1;
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || !line.starts_with("100")) continue;  // links and submodules
    const std::string id = line.substr(12, line.find(' ', 12) - 12);
    const fs::path path = line.substr(tab + 1);
    const int64_t bytes = std::atoll(line.substr(line.rfind(' ', tab) + 1).c_str());
    const bool is_wanted = std::any_of(folders.begin(), folders.end(),
                                       [&](const fs::path& folder) { return is_below(path, folder); });
    if (is_wanted && is_object_name(id) && bytes <= frameworks::kMostImportedBytes && stays_inside(path))
      blobs.push_back({id, path});
  }
  return blobs;
}

// git cat-file answers "id blob bytes", the bytes and an end of line, for each id that it reads.
void GitTree::write(const std::vector<Blob>& blobs) const {
  const fs::path list = folder_ / ".objects";
  std::string ids;
  for (const Blob& blob : blobs) ids += blob.id + "\n";
  write_file_atomically(list, ids);
  const std::string text = git(top_, {"cat-file", "--batch"}, list).output;
  size_t at = 0;
  for (const Blob& blob : blobs) {
    const size_t line = text.find('\n', at);
    if (line == std::string::npos) return;
    const std::string head = text.substr(at, line - at);
    at = line + 1;
    if (head != fmt::format("{} blob {}", blob.id, head.substr(head.rfind(' ') + 1))) continue;  // missing
    const auto bytes = size_t(std::atoll(head.c_str() + head.rfind(' ') + 1));
    const fs::path file = folder_ / blob.path;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary)
        .write(text.data() + at, std::streamsize(std::min(bytes, text.size() - at)));
    at += bytes + 1;
  }
}

std::vector<fs::path> GitTree::paths() const {
  std::vector<fs::path> found;
  for (const fs::path& path : asked_) {
    std::error_code error;
    const fs::path here = (folder_ / in_work_tree(path)).lexically_normal();
    if (fs::exists(here, error)) found.push_back(here);
  }
  return found;
}

fs::path GitTree::original(const fs::path& file) const {
  fs::path relative = file.lexically_relative(folder_);
  for (const fs::path& path : asked_) {
    const fs::path own = in_work_tree(path);
    if (relative == own) return path.lexically_normal();
    if (is_below(relative, own)) return (path / relative.lexically_relative(own)).lexically_normal();
  }
  return relative;
}

}  // namespace mpt::planner
