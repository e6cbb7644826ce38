// SPDX-License-Identifier: Apache-2.0

// Times all-reduces of two ranks in fp32. For each size that benchmarks/transports.py names it prints the
// microseconds of a call, and those of CPU time that a rank takes for it. Ranks are threads, or the processes
// of a launcher. Usage: transports auto|mpi BYTES CALLS [BYTES CALLS]...

#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/comm/mpi/mpi_module.h"
#include "runtime/comm/sockets/socket_world.h"
#include "runtime/comm/threads/thread_world.h"

namespace mpt::runtime {
namespace {

void measure(World& world, int rank, int64_t bytes, int calls) {
  const auto group = world.communicator(rank, {0, 1}, fmt::format("{} bytes", bytes));
  const double each_us = 1e6 / calls / double(world.local_ranks().size());
  std::vector<float> data(size_t(bytes) / sizeof(float));
  double start_s = 0.0, start_cpu = 0.0;
  for (int i = -3; i < calls; ++i) {  // the first three do not count
    if (i == 0) group->barrier();
    if (i == 0) start_s = now_s(), start_cpu = double(std::clock());
    group->all_reduce(data.data(), int64_t(data.size()), DataType::float32, ReduceOperation::sum);
  }
  const double took_us = 1e6 / calls * (now_s() - start_s);
  if (rank == 0)
    fmt::print("{} {}\n", took_us, each_us * (double(std::clock()) - start_cpu) / CLOCKS_PER_SEC);
}

int run(int argc, char** argv) {
  constexpr auto kTimeout = std::chrono::seconds(120);
  const auto launch = launch_from_environment();
  std::unique_ptr<World> world = std::make_unique<ThreadWorld>(kTimeout, 2), mpi;
  if (launch) world = make_socket_world({*launch, 2, "transport-timing", kTimeout});
  std::string said;
  if (std::string_view(argv[1]) == "mpi") mpi = make_mpi_world(*world, *launch, kTimeout, said);
  if (std::string_view(argv[1]) == "mpi" && !mpi) throw RunError("no MPI: " + said);
  for (int i = 2; i + 1 < argc; i += 2) {
    std::vector<std::jthread> ranks;
    for (const int rank : world->local_ranks())
      ranks.emplace_back(
          [&, rank] { measure(mpi ? *mpi : *world, rank, std::atoll(argv[i]), std::atoi(argv[i + 1])); });
  }
  return kExitOk;
}

}  // namespace
}  // namespace mpt::runtime

int main(int argc, char** argv) {
  return mpt::run_program("transports", [&] { return mpt::runtime::run(argc, argv); });
}
