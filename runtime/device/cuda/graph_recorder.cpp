// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/graph_recorder.h"

#include <utility>

#include "base/error.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {
namespace {

// A graph's launch costs the host as much as some kernels'.
constexpr size_t kFewest = 4;
// Work that never comes again must not fill the memory: graphs of a step are as many as its micro-batches and
// pieces between collectives, and one takes about a kilobyte for each kernel.
constexpr size_t kMostGraphs = 1024, kMostSeen = 1 << 16;

}  // namespace

GraphRecorder::~GraphRecorder() {
  for (const auto& [key, graph] : graphs_) {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
}

void GraphRecorder::begin() {
  if (work_.empty()) device_.hold(true);
}

void GraphRecorder::flush() {
  if (work_.empty()) return;
  const auto work = std::exchange(work_, {});
  const auto lists = std::exchange(alive_, {});
  const std::string key = std::exchange(key_, {});
  try {
    if (const cudaGraphExec_t graph = graph_of(key, work)) {
      check(cudaGraphLaunch(graph, device_.stream()), "cudaGraphLaunch");
    } else {
      run(work);
    }
  } catch (...) {
    device_.hold(false);
    throw;
  }
  device_.hold(false);
}

void GraphRecorder::run(const std::vector<std::function<void()>>& work) const {
  for (const auto& one : work) one();
}

// The first time work runs as it is: what it allocates, uploads and compiles cannot be captured.
cudaGraphExec_t GraphRecorder::graph_of(const std::string& key,
                                        const std::vector<std::function<void()>>& work) {
  if (work.size() < kFewest) return nullptr;
  if (const auto known = graphs_.find(key); known != graphs_.end()) return known->second;
  if (seen_.size() >= kMostSeen) seen_.clear();
  if (seen_.insert(std::hash<std::string>()(key)).second || graphs_.size() >= kMostGraphs) return nullptr;
  cudaGraphExec_t& graph = graphs_[key];
  try {
    graph = device_.capture([&] { run(work); });
  } catch (const RunError&) {
    graph = nullptr;  // launched one by one, now and later
  }
  return graph;
}

const GraphRecorder::List& GraphRecorder::list(const void* data, size_t bytes) {
  List& known = lists_[{data, bytes}];
  if (known.content && (bytes == 0 || std::memcmp(known.content->data(), data, bytes) == 0)) return known;
  const char* const begin = static_cast<const char*>(data);
  known = {std::make_shared<const std::vector<char>>(begin, begin + bytes), contents_++};
  return known;
}

}  // namespace mpt::runtime::cuda
