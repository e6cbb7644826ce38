// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/mpi/mpi_module.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/module.h"

namespace mpt::runtime {
namespace {

MpiModuleFactory load_factory(const Launch& launch, std::string& reason) {
  // MPI would start a process alone that it does not know, or end it. Under srun Open MPI requires PMIx.
  const char* const number = launch.launcher == "Hydra" ? "PMI_RANK" : "PMIX_RANK";
  if (launch.launcher == "torchrun" || std::getenv(number) == nullptr) {
    reason = fmt::format("{} did not start the processes for MPI ({} is not set)", launch.launcher, number);
    return nullptr;
  }
  void* const module = open_module(kMpiModuleFile, reason);
  void* const made = module == nullptr ? nullptr : symbol_of(module, kMpiModuleFactory);
  if (made == nullptr && reason.empty())
    reason =
        fmt::format("this program has no {}: CMake found no MPI, or another build made it", kMpiModuleFile);
  return reinterpret_cast<MpiModuleFactory>(made);
}

}  // namespace

std::unique_ptr<World> make_mpi_world(World& control, const Launch& launch, std::chrono::milliseconds timeout,
                                      std::string& said) {
  const int each = int(control.local_ranks().size());
  std::vector<int> first_ranks;
  for (int process = 0; process < launch.processes; ++process) first_ranks.push_back(process * each);
  const std::shared_ptr<Communicator> processes =
      control.communicator(launch.process * each, first_ranks, "mpi");
  const auto all_have = [&](bool has) {
    double lacks = has ? 0.0 : 1.0;
    processes->all_reduce(&lacks, 1, DataType::float64, ReduceOperation::maximum);
    if (has && lacks > 0.0) said = "another process cannot use it";
    return lacks == 0.0;
  };
  const MpiModuleFactory make = load_factory(launch, said);
  if (!all_have(make != nullptr)) return nullptr;
  std::unique_ptr<World> world(make(dynamic_cast<MessageWorld&>(control), processes, timeout, said));
  return all_have(world != nullptr) ? std::move(world) : nullptr;
}

}  // namespace mpt::runtime
