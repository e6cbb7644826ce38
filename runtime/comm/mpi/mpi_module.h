// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI carries large messages between processes where the module libmpt_mpi.so can be loaded. Programs start
// without it.

#include <chrono>
#include <memory>
#include <string>

#include "runtime/comm/messages/message_communicator.h"
#include "runtime/comm/sockets/launch.h"

namespace mpt::runtime {

inline constexpr const char* kMpiModuleFile = "libmpt_mpi.so";
/// Another name with every change of a class that it sees.
inline constexpr const char* kMpiModuleFactory = "mpt_make_mpi_world_1";

/// Null with the reason in `said` if MPI cannot be used; else `said` names the library. `processes` is a
/// group with one rank of each process, in order. The caller owns the world.
using MpiModuleFactory = World* (*)(MessageWorld& control, const std::shared_ptr<Communicator>& processes,
                                    std::chrono::milliseconds timeout, std::string& said);

/// `control`, made by make_socket_world(), connects the same processes, takes small messages and reports
/// failures; it must outlive the result. Every process of the run calls this. If one of them cannot use MPI,
/// all get null, and `said` has the reason; otherwise it names the library.
std::unique_ptr<World> make_mpi_world(World& control, const Launch& launch, std::chrono::milliseconds timeout,
                                      std::string& said);

}  // namespace mpt::runtime
