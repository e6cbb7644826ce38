// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parts of mpt-run: commands on checkpoints and on text, the check that this machine's memory is enough for
// the ranks on its CPUs, and restarts.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/plan.h"
#include "runtime/comm/sockets/launch.h"

namespace mpt::runtime {

class Checkpoint;
/// The newest good checkpoint at `path`; notes go to stderr. Throws UserError if there is none. `option` is
/// the one that named the path.
std::unique_ptr<Checkpoint> open_for_reading(const std::string& path, const std::string& option = "",
                                             bool may_lack = false);

/// mpt-run inspect CHECKPOINT: checks all of it and prints its content.
int inspect(int argc, char** argv);

/// mpt-run export CHECKPOINT FOLDER: writes its weights as a Hugging Face model.
int export_weights(int argc, char** argv);

/// mpt-run tokenize --tokenizer FILE FILES -o PREFIX: writes the tokens of text.
int tokenize(int argc, char** argv);

/// Text that a checkpoint's model writes after `prompt`.
struct SampleOptions {
  // tokenizer: a tokenizer.json; empty: the run's, else a token is a byte. stop: no token follows this text.
  std::string checkpoint{}, prompt{}, tokenizer{}, stop{};
  int64_t tokens = 100, top_k = 50, seed = 1;
  double temperature = 0.8, most_s = 1e9;  // most_s: no token begins after this time
};
/// Throws UserError if `model` has no such tokens, or no position after the prompt.
void check_sample(const SampleOptions& options, const ModelSpec& model);
/// Prompt and text. Throws as check_sample(), and if the checkpoint cannot be read.
std::string sample_text(SampleOptions options);
/// mpt-run sample CHECKPOINT --prompt TEXT: prints it.
int sample(int argc, char** argv);

/// The memory of the machine, or of this process's container.
int64_t machine_memory_bytes();

/// The sum of the peaks of the plan's ranks on this machine, as mpt-run keeps tensors. Without a launcher
/// these are all ranks.
int64_t needed_memory_bytes(const Plan& plan, const std::optional<Launch>& launch);

/// Throws UserError if the ranks need more than `available`. `file` is the plan's, for the message.
void check_memory(const Plan& plan, const std::optional<Launch>& launch, int64_t available,
                  const std::string& file);

/// One attempt of a run.
struct Attempt {
  bool restarted = false;
  /// The run sets it when training has ended. A later failure, such as a report on a full disk, is reported
  /// and not retried.
  std::atomic<bool>& has_trained;
};

/// Runs `attempt` in a child process, and again after a pause when it dies or fails, at most `restarts` more
/// times. Wrong input and interruption end the run. SIGINT, SIGTERM and SIGHUP are passed on once, and no
/// attempt starts after them. Another signal at least a second later kills the child. Returns the last exit
/// code. `first_pause_s` doubles with each restart, up to a minute.
int run_supervised(int64_t restarts, const std::function<int(const Attempt&)>& attempt,
                   double first_pause_s = 1.0);

}  // namespace mpt::runtime
