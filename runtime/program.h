// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parts of mpt-run: commands on checkpoints, whether the memory of this machine is enough for the ranks that
// a run would have on its CPUs, and restarts.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/plan.h"
#include "runtime/comm/sockets/launch.h"

namespace mpt::runtime {

/// mpt-run inspect CHECKPOINT: what it holds, after checking it whole.
int inspect(int argc, char** argv);

/// mpt-run export CHECKPOINT FOLDER: its weights as a Hugging Face model.
int export_weights(int argc, char** argv);

/// Of the machine, or of the container that this process runs in.
int64_t machine_memory_bytes();

/// Peaks of the ranks of the plan that run on this machine, as mpt-run keeps tensors. Without a launcher all
/// of them do.
int64_t needed_memory_bytes(const Plan& plan, const std::optional<Launch>& launch);

/// Throws UserError if they need more than `available`. `file`: of the plan, for the message.
void check_memory(const Plan& plan, const std::optional<Launch>& launch, int64_t available,
                  const std::string& file);

/// One try at a run.
struct Attempt {
  bool restarted = false;
  /// Set by the run when training is over: what fails after that, such as a report on a full disk, is told
  /// and not tried again.
  std::atomic<bool>& has_trained;
};

/// Runs `attempt` in a child process, and again after a pause when it dies or fails, at most `restarts` more
/// times. Wrong input and interruption are final. SIGINT, SIGTERM and SIGHUP are passed on once, and nothing
/// is started after them; another one a second later kills the child. Returns the last exit code.
/// `first_pause_s` doubles with each restart, up to a minute.
int run_supervised(int64_t restarts, const std::function<int(const Attempt&)>& attempt,
                   double first_pause_s = 1.0);

}  // namespace mpt::runtime
