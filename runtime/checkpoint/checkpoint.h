// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checkpoints without a layout: a folder step-00000100 with a safetensors file per rank and checkpoint.json.
// A tensor's name says which rectangle of which global weight it holds: "value/layers.0.mlp.up.weight@64,0"
// (first row, first column). So any layout loads a checkpoint of any other. The folder is written under a
// temporary name, flushed, and renamed once it is complete. checkpoint.json has the length and CRC-32 of
// every file. The temporary name, checkpoint.json and the files have the run's random number, so that a
// process of an earlier run that still writes adds nothing to a later run's checkpoint.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/model_spec.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_source.h"

namespace mpt::runtime {

struct CheckpointFile {
#include "generated/CheckpointFile.inc"
};

/// checkpoint.json.
struct CheckpointInfo {
#include "generated/CheckpointInfo.inc"
};

inline constexpr const char* kRunKey = "run";  // of a file's metadata

/// A rectangle of one global tensor that is to be written to a file.
struct CheckpointPiece {
  TensorKind kind = TensorKind::value;
  std::string name;
  ShardBlock block;
  std::vector<char> data;  // of the rank's state type
};
struct RankSnapshot {
  DataType type = DataType::float32;
  std::vector<CheckpointPiece> pieces;
};

/// Elements begin .. begin + count of a rank's part of a parameter as rectangles, without padding.
std::vector<ShardBlock> rectangles(const Parameter& parameter, int64_t begin, int64_t count);

class Checkpoint final : public TensorSource {
 public:
  /// Opens the folder of one checkpoint. Checks every file, and that each element of each tensor occurs once.
  /// Throws UserError.
  explicit Checkpoint(const std::filesystem::path& folder);

  const CheckpointInfo& info() const { return info_; }
  const std::filesystem::path& folder() const { return folder_; }
  void read(TensorKind kind, const std::string& name, const ShardBlock& block, double* out) const override;

  struct TensorSummary {
    int64_t rows = 0, columns = 0, pieces = 0;
  };
  /// By global name, for the kind `value`.
  std::map<std::string, TensorSummary> tensors() const;

 private:
  struct Piece {
    size_t file;
    ShardBlock block;
    SafetensorsEntry entry;
  };
  void check_pieces();
  void check_completeness() const;
  static TensorSummary summary_of(const std::vector<Piece>& pieces);

  std::filesystem::path folder_;
  CheckpointInfo info_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::vector<Piece>> pieces_;  // by "value/name"
};

/// Folders in `folder` with a name from checkpoint_name(), newest first, without those that hold no part of a
/// checkpoint. None if there is no such folder. Throws UserError if it cannot be listed.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

/// The program that wrote a checkpoint, by its name and its checkpoint.json; unknown if that cannot be read.
enum class CheckpointOwner { mpt_run, others, unknown };
CheckpointOwner owner_of(const std::filesystem::path& folder);

/// The step of a checkpoint that is mpt-run's own.
std::optional<int64_t> own_checkpoint_step(const std::filesystem::path& folder);

/// `path` itself if it is a checkpoint, else the newest complete one in it. `notes` gets a line about each
/// one that was skipped. Nothing if there is none. Throws UserError if there are some, but all are damaged or
/// unreadable: training must not start anew without being asked to.
std::unique_ptr<Checkpoint> open_newest(const std::filesystem::path& path, std::vector<std::string>& notes);

std::string checkpoint_name(int64_t step);
/// The step for which checkpoint_name() gives this name; nothing for other names, such as step-7.
std::optional<int64_t> step_of_name(const std::string& name);

}  // namespace mpt::runtime
