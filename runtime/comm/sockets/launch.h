// SPDX-License-Identifier: Apache-2.0
#pragma once

// The number of this process in its run, from the variables of launchers: torchrun (RANK, WORLD_SIZE,
// LOCAL_RANK, MASTER_ADDR, MASTER_PORT), Open MPI's mpirun (OMPI_COMM_WORLD_*), MPICH's Hydra (PMI_*), srun
// (SLURM_*).

#include <optional>
#include <string>

namespace mpt::runtime {

struct Launch {
  int process = 0, processes = 1;
  std::string master_address = "127.0.0.1";  // where process 0 listens while the run forms
  int master_port = 29417;
  std::string launcher;       // for messages
  int process_of_host = 0;    // number on this host, which selects its GPUs
  int processes_of_host = 1;  // if the launcher states it
};

inline constexpr const char* kMasterPortHelp =
    "Port of the first process at which those of a launcher meet; default: MASTER_PORT, under torchrun the "
    "port after it, or 29417. The same for all";

/// Nothing if no launcher started this process, or if it started only one. The processes meet at `port`; with
/// 0 at MASTER_PORT, or at the next port if torchrun listens at MASTER_PORT itself. Throws UserError if the
/// variables contradict each other.
std::optional<Launch> launch_from_environment(int port = 0);

}  // namespace mpt::runtime
