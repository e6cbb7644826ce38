// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/mpi/mpi_module.h"

#include "base/error.h"
#include "base/module.h"
#include "runtime/comm/messages/message_world.h"

namespace mpt::runtime {

std::unique_ptr<Wire> load_mpi_wire(const std::string& plan_digest, std::chrono::milliseconds timeout) {
  std::string reason;
  void* const module = open_module(kMpiModuleFile, reason);
  if (module == nullptr) {
    if (reason.empty())
      reason = fmt::format("{} is not beside the program: it was not built, or CMake found no MPI",
                           kMpiModuleFile);
    throw UserError(
        Problem{"--transport mpi", reason, "a build with MPI",
                "leave --transport out to use TCP, or build it: cmake --build BUILD --target mpt_mpi"});
  }
  const auto make = reinterpret_cast<MpiModuleFactory>(symbol_of(module, kMpiModuleFactory));
  MPT_CHECK(make != nullptr, "{} is not this program's module", kMpiModuleFile);
  int other_plan = -1;
  std::unique_ptr<Wire> wire(make(kMpiModuleVersion, plan_digest.c_str(), timeout, &other_plan, &reason));
  if (other_plan >= 0) throw_other_plan(std::to_string(other_plan));
  if (!wire) throw RunError("MPI: " + reason);
  return wire;
}

}  // namespace mpt::runtime
