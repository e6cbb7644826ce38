// SPDX-License-Identifier: Apache-2.0
#pragma once

// GraphRecorder: the operators that one thread asks a device for, kept until something else must see their
// results, and then launched together: as a CUDA graph if the very same ones, on the same memory, came
// before. Steps repeat their work at the same addresses (memory_pool.h), so that from the third step on a
// micro-batch costs the host a launch or two instead of one per kernel.

#include <cuda_runtime.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/members.h"

namespace mpt::runtime::cuda {

class GraphRecorder {
 public:
  explicit GraphRecorder(CudaDevice& device) : device_(device) {}
  GraphRecorder(const GraphRecorder&) = delete;
  /// What was not launched is forgotten.
  ~GraphRecorder();

  /// `run` is called later with the device and `operands`, an aggregate. Lists of numbers in it are copied,
  /// what else it points to is device memory.
  template <class Operands, class Run>
  void add(Operands operands, Run run) {
    static constexpr char kind = 0;  // its address stands for the types
    begin();
    append(&kind);
    append_and_keep(operands);
    work_.push_back([this, operands, run] { run(device_, operands); });
  }

  /// Launches what there is.
  void flush();

 private:
  // Host memory that an operator was given: its content may change, and its address may be another's later.
  struct List {
    std::shared_ptr<const std::vector<char>> content;
    int64_t number = 0;  // of this content
  };

  void begin();
  void run(const std::vector<std::function<void()>>& work) const;
  cudaGraphExec_t graph_of(const std::string& key, const std::vector<std::function<void()>>& work);
  const List& list(const void* data, size_t bytes);

  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>
  void append(const T& value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    key_.append(bytes, sizeof value);
  }
  template <class T>
  void append_and_keep(T& operand) {
    if constexpr (requires { append(operand); }) {
      append(operand);
    } else {
      for_each_member(operand, [this](auto& member) { append_and_keep(member); });
    }
  }
  template <class T>
  void append_and_keep(std::span<const T>& values) {
    const List& own = list(values.data(), values.size_bytes());
    append(own.number);
    alive_.push_back(own.content);
    values = {reinterpret_cast<const T*>(own.content->data()), values.size()};
  }

  CudaDevice& device_;
  std::string key_;  // of work_: operators and arguments
  std::vector<std::function<void()>> work_;
  std::vector<std::shared_ptr<const std::vector<char>>> alive_;  // lists that work_ reads
  std::map<std::pair<const void*, size_t>, List> lists_;
  int64_t contents_ = 0;
  std::unordered_set<size_t> seen_;                          // hashes of keys
  std::unordered_map<std::string, cudaGraphExec_t> graphs_;  // null: cannot be captured
};

}  // namespace mpt::runtime::cuda
