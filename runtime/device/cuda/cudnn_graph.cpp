// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/cudnn_graph.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/ranges.h"

namespace mpt::runtime::cuda {
namespace {

constexpr int64_t kMostEngines = 8;
constexpr size_t kOldest = 91000;

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  return function != nullptr;
}

std::optional<Cudnn> open_cudnn() {
  void* const library = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  Cudnn c;
  const bool whole =
      library != nullptr && find(library, "cudnnGetVersion", c.version) &&
      find(library, "cudnnCreate", c.create) && find(library, "cudnnDestroy", c.destroy) &&
      find(library, "cudnnSetStream", c.set_stream) && find(library, "cudnnGetErrorString", c.error_string) &&
      find(library, "cudnnBackendCreateDescriptor", c.create_descriptor) &&
      find(library, "cudnnBackendDestroyDescriptor", c.destroy_descriptor) &&
      find(library, "cudnnBackendSetAttribute", c.set_attribute) &&
      find(library, "cudnnBackendGetAttribute", c.get_attribute) &&
      find(library, "cudnnBackendFinalize", c.finalize) && find(library, "cudnnBackendExecute", c.execute);
  if (!whole) return std::nullopt;
  if (const size_t version = c.version(); version < kOldest) {
    warn(fmt::format("note: attention without cuDNN {}.{}.{}: it must be 9.10 or later", version / 10000,
                     version / 100 % 100, version % 100));
    return std::nullopt;
  }
  return c;
}

}  // namespace

void Cudnn::check(cudnnStatus_t status, const char* call) const {
  if (status != CUDNN_STATUS_SUCCESS) fail_run("{} failed: {}", call, error_string(status));
}

const Cudnn* load_cudnn() {
  static const std::optional<Cudnn> library = open_cudnn();
  return library ? &*library : nullptr;
}

CudnnDescriptor::CudnnDescriptor(const Cudnn& library, cudnnBackendDescriptorType_t type) : cudnn_(library) {
  cudnn_.check(cudnn_.create_descriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : cudnn_(other.cudnn_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnn_.destroy_descriptor(descriptor_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  const cudnnStatus_t status = cudnn_.set_attribute(descriptor_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS)
    fail_run("cudnnBackendSetAttribute of {} failed: {}", int(name), cudnn_.error_string(status));
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
  const cudnnBackendDescriptor_t descriptor = other.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, int64_t value) {
  set(name, CUDNN_TYPE_INT64, 1, &value);
}

void CudnnDescriptor::finalize() { cudnn_.check(cudnn_.finalize(descriptor_), "cudnnBackendFinalize"); }

bool CudnnDescriptor::try_finalize() { return cudnn_.finalize(descriptor_) == CUDNN_STATUS_SUCCESS; }

CudnnGraph::CudnnGraph(const Cudnn& library) : cudnn_(library) {}

CudnnGraph::Shape CudnnGraph::packed(std::vector<int64_t> dimensions) {
  std::vector<int64_t> strides(dimensions.size(), 1);
  for (size_t i = dimensions.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dimensions[i];
  return {std::move(dimensions), std::move(strides)};
}

TensorId CudnnGraph::add_tensor(cudnnDataType_t type, const Shape& shape, bool in_memory, bool by_value) {
  const auto id = TensorId(tensors_.size());
  CudnnDescriptor t(cudnn_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, int64_t(shape.dimensions.size()),
        shape.dimensions.data());
  t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, int64_t(shape.strides.size()), shape.strides.data());
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
  const bool is_virtual = !in_memory;
  t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  t.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  t.finalize();
  tensors_.push_back(std::move(t));
  return id;
}

TensorId CudnnGraph::tensor(cudnnDataType_t type, const Shape& shape) {
  return add_tensor(type, shape, true, false);
}
TensorId CudnnGraph::scalar() { return add_tensor(CUDNN_DATA_FLOAT, packed({1, 1, 1, 1}), true, true); }
TensorId CudnnGraph::inside(cudnnDataType_t type, const Shape& shape) {
  return add_tensor(type, shape, false, false);
}

const CudnnDescriptor* CudnnGraph::at(TensorId id) const { return &tensors_[size_t(id)]; }

void CudnnGraph::add_operation(cudnnBackendDescriptorType_t type, const Attributes& attributes) {
  CudnnDescriptor operation(cudnn_, type);
  for (const auto& [name, descriptor] : attributes) operation.set(name, *descriptor);
  operation.finalize();
  operations_.push_back(std::move(operation));
}

void CudnnGraph::matmul(TensorId a, TensorId b, TensorId c) {
  CudnnDescriptor& how = kept_.emplace_back(cudnn_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  how.finalize();
  add_operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_MATMUL_DESC, &how},
                                                            {CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a)},
                                                            {CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b)},
                                                            {CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c)}});
}

const CudnnDescriptor* CudnnGraph::pointwise_mode(cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                                                  std::optional<int64_t> axis) {
  CudnnDescriptor& how = kept_.emplace_back(cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  if (axis) how.set(CUDNN_ATTR_POINTWISE_AXIS, *axis);
  how.finalize();
  return &how;
}

void CudnnGraph::add_pointwise(const CudnnDescriptor* mode, TensorId x, std::optional<TensorId> b,
                               std::optional<TensorId> mask, TensorId y) {
  Attributes attributes{{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode},
                        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x)},
                        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y)}};
  if (b) attributes.emplace_back(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(*b));
  if (mask) attributes.emplace_back(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(*mask));
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, attributes);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId y) {
  add_pointwise(pointwise_mode(mode, CUDNN_DATA_FLOAT), x, {}, {}, y);
}
void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId b, TensorId y) {
  add_pointwise(pointwise_mode(mode, CUDNN_DATA_FLOAT), x, b, {}, y);
}
void CudnnGraph::select(TensorId x, TensorId b, TensorId mask, TensorId y) {
  add_pointwise(pointwise_mode(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT), x, b, mask, y);
}
void CudnnGraph::index(TensorId x, int64_t axis, TensorId y) {
  add_pointwise(pointwise_mode(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis), x, {}, {}, y);
}
void CudnnGraph::compare(cudnnPointwiseMode_t mode, TensorId x, TensorId b, TensorId y) {
  add_pointwise(pointwise_mode(mode, CUDNN_DATA_BOOLEAN), x, b, {}, y);
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t mode, TensorId x, TensorId y) {
  CudnnDescriptor& how = kept_.emplace_back(cudnn_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  how.finalize();
  add_operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, &how},
                 {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x)},
                 {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y)}});
}

void CudnnGraph::reshape(TensorId x, TensorId y) {
  add_operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x)}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y)}});
}

CudnnDescriptor CudnnGraph::operation_graph(const cudnnHandle_t* handle) const {
  CudnnDescriptor graph(cudnn_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  const auto operations = mapped<cudnnBackendDescriptor_t>(operations_, &CudnnDescriptor::get);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(operations.size()),
            operations.data());
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, handle);
  graph.finalize();
  return graph;
}

std::vector<CudnnDescriptor> CudnnGraph::engines(cudnnHandle_t handle) {
  kept_.push_back(operation_graph(&handle));
  return engines(kept_.back(), nullptr);
}

std::vector<CudnnDescriptor> CudnnGraph::engines(const CudnnDescriptor& graph,
                                                 const CudnnDescriptor* device) const {
  CudnnDescriptor heuristics(cudnn_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (device != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device);
  std::vector<CudnnDescriptor> engines;
  if (!heuristics.try_finalize()) return engines;
  std::vector<cudnnBackendDescriptor_t> into;
  for (int64_t i = 0; i < kMostEngines; ++i) {
    engines.emplace_back(cudnn_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    into.push_back(engines.back().get());
  }
  int64_t found = 0;
  cudnn_.check(cudnn_.get_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, kMostEngines, &found, into.data()),
               "cudnnBackendGetAttribute");
  while (int64_t(engines.size()) > found) engines.pop_back();
  return engines;
}

}  // namespace mpt::runtime::cuda
