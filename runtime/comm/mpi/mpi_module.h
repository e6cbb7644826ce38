// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the MPI module exports. Programs load it when MPI is asked for, so that they start without it.

#include <chrono>
#include <memory>
#include <string>

#include "runtime/comm/messages/wire.h"

namespace mpt::runtime {

/// Raised with every change of Wire.
inline constexpr int kMpiModuleVersion = 1;
inline constexpr const char* kMpiModuleFile = "libmpt_mpi.so";
inline constexpr const char* kMpiModuleFactory = "mpt_make_mpi_wire";

/// Null with a reason if MPI cannot be used. `plan_digest` is compared with the other processes'; where one
/// differs, `other_plan` becomes its number. The caller owns the wire.
using MpiModuleFactory = Wire* (*)(int version, const char* plan_digest, std::chrono::milliseconds timeout,
                                   int* other_plan, std::string* reason);

/// `timeout`: of a message that its process does not take. Loads the module and joins the processes that
/// mpirun started. Throws UserError if the build has none or plans differ, RunError if MPI fails.
std::unique_ptr<Wire> load_mpi_wire(const std::string& plan_digest, std::chrono::milliseconds timeout);

}  // namespace mpt::runtime
