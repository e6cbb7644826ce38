// SPDX-License-Identifier: Apache-2.0
#pragma once

// CudnnGraph: a graph of tensors and operations for cuDNN's backend interface. The library is loaded if it is
// installed. A cuDNN call that fails throws RunError with its name.

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace mpt::runtime::cuda {

/// libcudnn.so.9's functions.
struct Cudnn {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  void check(cudnnStatus_t, const char* call) const;
};
/// Null if it is missing, or older than 9.10; a note reports an old one. Before 9.10 its attention takes no
/// mask of minus infinity. Before 9.6 it adds query gradients to the old sums (NVIDIA cudnn-frontend,
/// attn_score_modifiers.h and scaled_dot_product_flash_attention.h).
const Cudnn* load_cudnn();

class CudnnDescriptor {
 public:
  CudnnDescriptor(const Cudnn&, cudnnBackendDescriptorType_t);
  CudnnDescriptor(CudnnDescriptor&&) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  ~CudnnDescriptor();

  void set(cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t count, const void* values);
  void set(cudnnBackendAttributeName_t, const CudnnDescriptor&);
  void set(cudnnBackendAttributeName_t, int64_t);
  void finalize();
  /// False if cuDNN does not support the described object.
  bool try_finalize();
  cudnnBackendDescriptor_t get() const { return descriptor_; }
  const Cudnn& library() const { return cudnn_; }

 private:
  const Cudnn& cudnn_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

using TensorId = int64_t;

class CudnnGraph {
 public:
  explicit CudnnGraph(const Cudnn&);

  struct Shape {
    std::vector<int64_t> dimensions, strides;
  };
  /// Dense, the last dimension innermost.
  static Shape packed(std::vector<int64_t> dimensions);

  /// A tensor in memory, given by its id when the graph runs.
  TensorId tensor(cudnnDataType_t, const Shape&);
  /// A number in host memory.
  TensorId scalar();
  /// A tensor between operations, never in memory.
  TensorId inside(cudnnDataType_t, const Shape&);

  void matmul(TensorId a, TensorId b, TensorId c);
  void pointwise(cudnnPointwiseMode_t, TensorId x, TensorId y);
  void pointwise(cudnnPointwiseMode_t, TensorId x, TensorId b, TensorId y);
  /// y is x where the mask holds, b elsewhere.
  void select(TensorId x, TensorId b, TensorId mask, TensorId y);
  /// y is the index of each element along an axis.
  void index(TensorId x, int64_t axis, TensorId y);
  void compare(cudnnPointwiseMode_t, TensorId x, TensorId b, TensorId y);
  void reduce(cudnnReduceTensorOp_t, TensorId x, TensorId y);
  void reshape(TensorId x, TensorId y);

  /// Engines for the graph, best first, on the device of `handle`.
  std::vector<CudnnDescriptor> engines(cudnnHandle_t handle);
  /// The same for a graph of operation_graph() on a described device, without a GPU. Both must outlive them.
  std::vector<CudnnDescriptor> engines(const CudnnDescriptor& graph, const CudnnDescriptor* device) const;
  CudnnDescriptor operation_graph(const cudnnHandle_t* handle) const;

 private:
  using Attributes = std::vector<std::pair<cudnnBackendAttributeName_t, const CudnnDescriptor*>>;

  TensorId add_tensor(cudnnDataType_t, const Shape&, bool in_memory, bool by_value);
  const CudnnDescriptor* at(TensorId) const;
  void add_operation(cudnnBackendDescriptorType_t, const Attributes&);
  const CudnnDescriptor* pointwise_mode(cudnnPointwiseMode_t, cudnnDataType_t compute,
                                        std::optional<int64_t> axis = {});
  void add_pointwise(const CudnnDescriptor* mode, TensorId x, std::optional<TensorId> b,
                     std::optional<TensorId> mask, TensorId y);

  const Cudnn& cudnn_;
  std::vector<CudnnDescriptor> tensors_, operations_, kept_;  // by id; in order; referred to by the others
};

}  // namespace mpt::runtime::cuda
