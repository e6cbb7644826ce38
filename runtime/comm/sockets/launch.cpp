// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/sockets/launch.h"

#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace mpt::runtime {
namespace {

// A whole number from `least` to `most`; nothing if the variable is not set.
std::optional<int> number(const char* name, int least, int most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string word = text;
  if (const auto value = number_of<int>(word); value && *value >= least && *value <= most) return value;
  refuse_input(fmt::format("environment variable {}", name), "\"" + word.substr(0, 40) + "\"",
               fmt::format("a whole number from {} to {}", least, most), "unset it to run in one process");
}

constexpr int kMostProcesses = 100000;
constexpr int kFirstFreePort = 1024, kLastPort = 65535;  // lower ports need root

// torchrun's agent uses MASTER_PORT for its own store while the processes run.
bool agent_holds_port() {
  const char* text = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  return text != nullptr && std::string_view(text) == "True";
}

int meeting_port(int otherwise) {
  const auto port = number("MASTER_PORT", 1, kLastPort);
  if (!port) return otherwise;
  return !agent_holds_port() ? *port : *port == kLastPort ? kFirstFreePort : *port + 1;
}

// srun gives the sizes of all hosts' groups, not of this one: "2(x3),1" means three hosts with two tasks, and
// one with one (sbatch's manual, SLURM_TASKS_PER_NODE).
int tasks_of_slurm_host() {
  const char* const text = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  int host = number("SLURM_NODEID", 0, kMostProcesses).value_or(0);
  for (const std::string& part : split_at(text == nullptr ? "" : text, ',')) {
    const size_t times = part.find("(x");
    const auto tasks = number_of<int>(part.substr(0, times));
    const auto hosts = times == part.npos ? std::optional(1)
                                          : number_of<int>(part.substr(times + 2, part.size() - times - 3));
    if (!tasks || !hosts || host < *hosts) return tasks.value_or(1);
    host -= *hosts;
  }
  return 1;
}

}  // namespace

std::optional<Launch> launch_from_environment(int port) {
  const struct {
    const char *launcher, *rank, *size, *local, *local_size;
  } known[] = {{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
               {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE"},
               {"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
               {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""}};
  for (const auto& [launcher, rank, size, local, local_size] : known) {
    const auto processes = number(size, 1, kMostProcesses);
    if (!processes || *processes == 1) continue;
    const auto process = number(rank, 0, *processes - 1);
    if (!process) continue;
    Launch launch;
    launch.process = *process;
    launch.processes = *processes;
    launch.process_of_host = number(local, 0, *processes - 1).value_or(0);
    launch.launcher = launcher;
    launch.processes_of_host =
        launch.launcher == "srun" ? tasks_of_slurm_host() : number(local_size, 1, kMostProcesses).value_or(1);
    if (const char* address = std::getenv("MASTER_ADDR"); address != nullptr && *address != '\0')
      launch.master_address = address;
    launch.master_port = port != 0 ? port : meeting_port(launch.master_port);
    return launch;
  }
  return std::nullopt;
}

}  // namespace mpt::runtime
