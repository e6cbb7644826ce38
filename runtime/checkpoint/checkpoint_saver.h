// SPDX-License-Identifier: Apache-2.0
#pragma once

// CheckpointSaver: copies every rank's state and writes the copy while training continues. It removes an
// earlier checkpoint only after a newer one is complete.

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/checkpoint/checkpoint.h"

namespace mpt::runtime {

/// The folder of a checkpoint, and its step.
using OnSaved = std::function<void(const std::filesystem::path& checkpoint, int64_t step)>;

struct SaveOptions {
  std::filesystem::path folder;
  int64_t keep = 2;         // newest ones that stay
  int64_t start_step = 0;   // of the checkpoint in this folder that the run resumed
  int ranks = 1;            // of the run
  int local_ranks = 1;      // of this process
  bool leader = true;       // this process finishes checkpoints: the one with rank 0
  double patience_s = 300;  // how long the leader waits for the files of other processes
  std::function<bool()> has_failed = [] { return false; };  // ends the wait early
  // The leader calls it with each checkpoint, on the thread that wrote it. The next one waits for its end.
  OnSaved on_saved = [](const auto&, int64_t) {};
};

/// Throws UserError if `folder` holds checkpoints of later steps than `start_step`, readable or not. A run
/// that resumes from an earlier one would mix two histories, and its own checkpoints would not be the newest.
/// `remedy` is the advice in the error.
void check_no_later_checkpoints(const std::filesystem::path& folder, int64_t start_step,
                                const std::string& remedy);

/// Names that a run creates, renames and deletes in its folder: the lock and the checkpoints.
bool is_name_of_saver(const std::string& name);

/// Deletes older checkpoints of mpt-run beyond `keep`, and unfinished ones. It never deletes the newest
/// checkpoint, one of a later step, or a file of another program.
class CheckpointSaver {
 public:
  /// Makes the folder, and removes the unfinished files of an interrupted run from it. Throws UserError.
  explicit CheckpointSaver(const SaveOptions& options);
  ~CheckpointSaver();

  /// Every local rank calls this with its state; the last one starts the writing. Waits until the previous
  /// checkpoint is written, and throws the RunError of a failed one. A checkpoint that is not `kept` is
  /// deleted after on_saved.
  void add(int rank, const CheckpointInfo& info, RankSnapshot snapshot, bool kept = true);
  /// Returns when everything is on disk; throws like add().
  void wait();

 private:
  void write(const CheckpointInfo& info, const std::map<int, RankSnapshot>& snapshots, bool kept);
  void describe(CheckpointInfo info, const std::filesystem::path& unfinished,
                const std::map<int, int64_t>& checksums);
  void give_name(const std::filesystem::path& unfinished, int64_t step);
  void prune(int64_t newest);

  SaveOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, RankSnapshot> collected_;
  std::set<int64_t> written_;  // steps, by the leader
  bool writing_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace mpt::runtime
