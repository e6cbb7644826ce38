// SPDX-License-Identifier: Apache-2.0
#include "base/outputs.h"

#include <sys/stat.h>

#include <optional>

#include "base/error.h"

namespace mpt {
namespace {

// What makes two paths one file.
struct FileIdentity {
  bool exists = false;
  dev_t device{};
  ino_t inode{};
  std::filesystem::path path;  // of what does not exist yet

  bool operator==(const FileIdentity&) const = default;
};

// Nothing for what may be shared.
std::optional<FileIdentity> identity_of(const std::filesystem::path& file) {
  if (file.empty()) return std::nullopt;
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return std::nullopt;
    return FileIdentity{true, status.st_dev, status.st_ino, {}};
  }
  std::error_code error;
  const auto absolute = std::filesystem::absolute(file, error);
  const auto path = std::filesystem::weakly_canonical(absolute, error);
  return FileIdentity{false, {}, {}, error ? absolute.lexically_normal() : path};
}

Problem problem_of(const NamedFile& output, const NamedFile& other, bool other_is_read) {
  return {fmt::format("{} {}", output.where, output.file.string()),
          fmt::format("the same file as {} {}{}", other.where, other.file.string(),
                      other_is_read ? ", which is read" : ""),
          "a file of its own", "name another file; nothing was written"};
}

}  // namespace

void check_distinct_files(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs) {
  std::vector<Problem> problems;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto own = identity_of(outputs[i].file);
    if (!own) continue;
    const auto is_same = [&](const NamedFile& other) { return identity_of(other.file) == own; };
    for (const NamedFile& input : inputs) {
      if (is_same(input)) problems.push_back(problem_of(outputs[i], input, true));
    }
    for (size_t earlier = 0; earlier < i; ++earlier) {
      if (is_same(outputs[earlier])) problems.push_back(problem_of(outputs[i], outputs[earlier], false));
    }
  }
  if (!problems.empty()) throw UserError(std::move(problems));
}

}  // namespace mpt
