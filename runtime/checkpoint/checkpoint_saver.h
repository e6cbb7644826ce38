// SPDX-License-Identifier: Apache-2.0
#pragma once

// CheckpointSaver: takes a copy of every rank's state and writes it while training goes on. An earlier
// checkpoint is touched only when a newer one is whole.

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/checkpoint/checkpoint.h"

namespace mpt::runtime {

struct SaveOptions {
  std::filesystem::path folder;
  int64_t keep = 2;         // newest ones that stay
  int ranks = 1;            // of the run
  int local_ranks = 1;      // of this process
  bool leader = true;       // this process finishes checkpoints: the one with rank 0
  double patience_s = 300;  // how long the leader waits for the files of other processes
  std::function<bool()> has_failed = [] { return false; };  // then it waits no longer
};

class CheckpointSaver {
 public:
  /// Makes the folder, and removes what an interrupted run left unfinished in it. Throws UserError.
  explicit CheckpointSaver(const SaveOptions& options);
  ~CheckpointSaver();

  /// Called by every local rank with its state; the last one starts the writing. Waits while the checkpoint
  /// before is being written, and throws the RunError of one that failed.
  void add(int rank, const CheckpointInfo& info, RankSnapshot snapshot);
  /// Returns when everything is on the disk; throws as add().
  void wait();

 private:
  void write(const CheckpointInfo& info, const std::map<int, RankSnapshot>& snapshots);
  void finish(CheckpointInfo info, const std::filesystem::path& unfinished);
  void prune();

  SaveOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, RankSnapshot> collected_;
  bool writing_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace mpt::runtime
