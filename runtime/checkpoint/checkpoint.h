// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checkpoints without a layout: a folder step-00000100 with a safetensors file per rank and checkpoint.json.
// A tensor's name says which rectangle of which global weight it holds: "value/layers.0.mlp.up.weight@64,0"
// (first row, first column). So any layout loads a checkpoint of any other. The folder is written under a
// temporary name, flushed, and renamed once it is complete. checkpoint.json has the length and CRC-32 of
// every file.

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
  std::string name;
  int64_t bytes = 0;
  int64_t crc32 = 0;

  bool operator==(const CheckpointFile&) const = default;
  static void describe(auto& v) {
    using T = CheckpointFile;
    v.field("name", &T::name, "file in the checkpoint's folder");
    v.field("bytes", &T::bytes, "length", between(0, 9e15));
    v.field("crc32", &T::crc32, "CRC-32 of the whole file", between(0, 4294967295.0));
  }
};

/// checkpoint.json.
struct CheckpointInfo {
  std::string format = "mpt-checkpoint";
  int64_t version = 1;
  int64_t step = 0;             // optimizer steps done, skipped ones included
  int64_t samples = 0;          // sequences seen: the next one is number `samples`
  int64_t optimizer_steps = 0;  // steps that changed the weights
  double loss_scale = 1.0;      // fp16
  int64_t good_steps = 0;       // since the loss scale last changed
  double loss = 0.0;            // of the last step
  std::string data_digest;
  int64_t seed = 1;
  std::string layout;  // that saved it, for the reader
  ModelSpec model;
  std::vector<CheckpointFile> files;

  bool operator==(const CheckpointInfo&) const = default;
  static void describe(auto& v) {
    using T = CheckpointInfo;
    constexpr double kMax = 9e15;
    v.field("format", &T::format, "always \"mpt-checkpoint\"");
    v.field("version", &T::version, "version of this format", between(1, 1));
    v.field("step", &T::step, "optimizer steps done", between(0, kMax));
    v.field("samples", &T::samples, "sequences seen", between(0, kMax));
    v.field("optimizer_steps", &T::optimizer_steps, "steps that changed the weights", between(0, kMax));
    v.field("loss_scale", &T::loss_scale, "scale of the loss in fp16", between(0, 1e38));
    v.field("good_steps", &T::good_steps, "steps since the loss scale changed", between(0, kMax));
    v.field("loss", &T::loss, "loss of the last step");
    v.field("data_digest", &T::data_digest, "digest over the names and sizes of the data");
    v.field("seed", &T::seed, "seed of weights and of the order of the data");
    v.field("layout", &T::layout, "layout that saved it", long_text());
    v.field("model", &T::model, "the model");
    v.field("files", &T::files, "what it consists of");
  }
};

/// A rectangle of one global tensor that is to be written to a file.
struct CheckpointPiece {
  TensorKind kind = TensorKind::value;
  std::string name;
  int64_t row = 0, rows = 0, column = 0, columns = 0;
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
