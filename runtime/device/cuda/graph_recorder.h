// SPDX-License-Identifier: Apache-2.0
#pragma once

// GraphRecorder: the operators that one thread asks a device for, kept until something else must see their
// results, and then launched together: as a CUDA graph if the very same ones, on the same memory, came
// before. Steps repeat their work at the same addresses (memory_pool.h), so that from the third step on a
// micro-batch costs the host a launch or two instead of one per kernel.

#include <cuda_runtime.h>

#include <concepts>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/device/cuda/cuda_device.h"

namespace mpt::runtime::cuda {

class GraphRecorder {
 public:
  explicit GraphRecorder(CudaDevice& device) : device_(device) {}
  GraphRecorder(const GraphRecorder&) = delete;
  /// What was not launched is forgotten.
  ~GraphRecorder();

  /// `op` is called with these arguments later. Lists of numbers are copied, what else they point to is
  /// device memory.
  template <class... Parameters>
  void add(void (Device::*op)(Parameters...), std::type_identity_t<Parameters>... arguments) {
    begin();
    append(op);
    (append(arguments), ...);
    work_.push_back([this, op, values = std::tuple<std::remove_cvref_t<Parameters>...>(kept(arguments)...)] {
      std::apply([&](const auto&... v) { (device_.*op)(v...); }, values);
    });
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
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T> || std::is_member_pointer_v<T>
  void append(const T& value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    key_.append(bytes, sizeof value);
  }
  template <class T>
  void append(std::span<const T> values) {
    append(list(values.data(), values.size_bytes()).number);
  }
  void append(const LinearShape& s);
  void append(const AttentionShape& s);
  void append(const AttentionBlock& b);
  void append(const Rotation& r);
  void append(const LatentShape& s);
  void append(const NormShape& s);
  void append(const ActivationShape& s);
  void append(const ConvolutionShape& s);
  void append(const DeltaShape& s);
  void append(const DeltaInputs& in);
  void append(const DeltaGradients& d);
  void append(const GatedNormShape& s);
  void append(const GateShape& s);

  template <class T>
  const T& kept(const T& value) {
    return value;
  }
  template <class T>
  std::span<const T> kept(std::span<const T> values) {
    const List& own = list(values.data(), values.size_bytes());
    alive_.push_back(own.content);
    return {reinterpret_cast<const T*>(own.content->data()), values.size()};
  }
  Rotation kept(const Rotation& r) { return {kept(r.frequencies), kept(r.positions), r.factor}; }
  AttentionBlock kept(const AttentionBlock& b) { return {b.shape, b.keys, kept(b.visible), kept(b.hidden)}; }

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
