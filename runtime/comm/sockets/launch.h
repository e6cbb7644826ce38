// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which process of a run this one is, from the variables that launchers set: torchrun (RANK, WORLD_SIZE,
// LOCAL_RANK, MASTER_ADDR, MASTER_PORT), Open MPI's mpirun (OMPI_COMM_WORLD_*), MPICH's Hydra (PMI_*), srun
// (SLURM_*).

#include <optional>
#include <string>

namespace mpt::runtime {

struct Launch {
  int process = 0, processes = 1;
  std::string master_address = "127.0.0.1";  // where process 0 listens while the run comes together
  int master_port = 29417;
  std::string launcher;       // for messages
  int process_of_host = 0;    // number among those of this host: which GPUs are its own
  int processes_of_host = 1;  // as far as the launcher tells
};

inline constexpr const char* kMasterPortHelp =
    "Port of the first process at which those of a launcher meet; default: MASTER_PORT, under torchrun the "
    "port after it, or 29417. The same for all";

/// Nothing if no launcher started this process, or if it started one only. The processes meet at `port`; with
/// 0 at MASTER_PORT, or at the port after it where torchrun listens there itself. Throws UserError if the
/// variables make no sense.
std::optional<Launch> launch_from_environment(int port = 0);

}  // namespace mpt::runtime
