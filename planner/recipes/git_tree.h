// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files of a git revision, as they were: git is asked by names of objects alone, and runs nothing.

#include <filesystem>
#include <string>
#include <vector>

namespace mpt::planner {

/// What a revision holds of some paths, in a folder of its own that goes with the object.
class GitTree {
 public:
  /// `paths` are files and folders of one work tree. Throws UserError where they are in none, or `revision`
  /// names no commit.
  GitTree(const std::string& revision, const std::vector<std::filesystem::path>& paths);
  ~GitTree();
  GitTree(const GitTree&) = delete;
  GitTree& operator=(const GitTree&) = delete;

  /// Those of the paths that the revision has, in this object's folder.
  std::vector<std::filesystem::path> paths() const;
  /// The path beside the caller's own of a file in this object's folder.
  std::filesystem::path original(const std::filesystem::path& file) const;

 private:
  struct Blob {
    std::string id;
    std::filesystem::path path;  // in the work tree
  };
  std::filesystem::path in_work_tree(const std::filesystem::path& path) const;
  std::vector<Blob> blobs_of(const std::string& tree) const;
  void write(const std::vector<Blob>& blobs) const;

  std::vector<std::filesystem::path> asked_;
  std::filesystem::path top_, folder_;
};

}  // namespace mpt::planner
