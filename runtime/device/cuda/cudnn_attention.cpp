// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/cudnn_attention.h"

#include <array>
#include <cstdlib>
#include <mutex>

#include "base/error.h"
#include "runtime/device/cuda/fused_attention.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {
namespace {

using Shape = CudnnGraph::Shape;

cudnnDataType_t cudnn_type(DataType type) {
  return type == DataType::bfloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

// Views [b, heads, s, d] of rows with a stride.
Shape rows_of(const AttentionShape& s, int64_t heads, int64_t row) {
  return {{s.batch, heads, s.sequence, s.head_dim}, {s.sequence * row, s.head_dim, row, 1}};
}
Shape transposed(Shape shape) {
  std::swap(shape.dimensions[2], shape.dimensions[3]);
  std::swap(shape.strides[2], shape.strides[3]);
  return shape;
}

struct Views {
  explicit Views(const AttentionShape& s)
      : queries(rows_of(s, s.heads, s.row())),
        keys(rows_of(s, s.kv_heads, s.row())),
        out(rows_of(s, s.heads, s.heads * s.head_dim)),
        scores(CudnnGraph::packed({s.batch, s.heads, s.sequence, s.sequence})),
        per_query(CudnnGraph::packed({s.batch, s.heads, s.sequence, 1})),
        per_head(CudnnGraph::packed({s.batch, s.heads, s.sequence, s.head_dim})) {}
  Shape queries, keys, out, scores, per_query, per_head;
};

// Sets the scores of keys that a query does not see to minus infinity.
TensorId causal(CudnnGraph& graph, const Views& views, TensorId scores, TensorId minus_infinity) {
  const TensorId row = graph.inside(CUDNN_DATA_INT32, views.scores);
  const TensorId column = graph.inside(CUDNN_DATA_INT32, views.scores);
  const TensorId seen = graph.inside(CUDNN_DATA_BOOLEAN, views.scores);
  const TensorId masked = graph.inside(CUDNN_DATA_FLOAT, views.scores);
  graph.index(scores, 2, row);
  graph.index(scores, 3, column);
  graph.compare(CUDNN_POINTWISE_CMP_GE, row, column, seen);
  graph.select(scores, minus_infinity, seen, masked);
  return masked;
}

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// A graph with the best engine for this device. It has no plan if cuDNN has no engine, or refuses the graph.
template <class Graph>
struct Planned {
  Planned(const Cudnn& library, cudnnHandle_t handle, DataType type, const AttentionShape& shape) {
    try {
      attention.emplace(library, type, shape);
      choose(library, handle);
    } catch (const RunError& error) {
      warn(fmt::format("note: attention without cuDNN for heads of {}: {}", shape.head_dim, error.what()));
      plan.reset();
    }
  }

  std::optional<Graph> attention;
  std::optional<CudnnDescriptor> plan;
  int64_t workspace_bytes = 0;

 private:
  void choose(const Cudnn& library, cudnnHandle_t handle) {
    for (CudnnDescriptor& engine : attention->graph.engines(handle)) {
      CudnnDescriptor candidate(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      candidate.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
      candidate.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
      if (!candidate.try_finalize()) continue;
      int64_t found = 0;
      library.check(library.get_attribute(candidate.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &found, &workspace_bytes),
                    "cudnnBackendGetAttribute");
      engine_.emplace(std::move(engine));
      plan.emplace(std::move(candidate));
      return;
    }
  }

  std::optional<CudnnDescriptor> engine_;  // the plan refers to it
};

class CudnnAttention final : public FusedAttention {
 public:
  explicit CudnnAttention(const Cudnn& library) : library_(library) { handle(nullptr); }
  ~CudnnAttention() override {
    for (const auto& [stream, handle] : handles_) library_.destroy(handle);
  }

  std::optional<int64_t> scratch_bytes(Pass pass, DataType type, const AttentionShape& s) override {
    const std::lock_guard lock(mutex_);
    if (pass == Pass::forward) {
      const auto& planned = of(forward_, type, s);
      return planned.plan ? std::optional(planned.workspace_bytes) : std::nullopt;
    }
    const auto& planned = of(backward_, type, s);
    return planned.plan ? std::optional(own_bytes(s) + planned.workspace_bytes) : std::nullopt;
  }

  void forward(cudaStream_t stream, DataType type, const AttentionShape& s, const void* qkv, void* out,
               void* log_sum_exp, void* scratch) override {
    const std::lock_guard lock(mutex_);
    const auto& planned = of(forward_, type, s);
    const CudnnAttentionForward& a = *planned.attention;
    float scale = scale_of(s), minus_infinity = kMinusInfinity;
    run(stream, *planned.plan, scratch,
        std::array<std::pair<TensorId, const void*>, 7>{{{a.q, qkv},
                                                         {a.k, column(type, qkv, s.heads * s.head_dim)},
                                                         {a.v, column(type, qkv, s.rotated())},
                                                         {a.scale, &scale},
                                                         {a.minus_infinity, &minus_infinity},
                                                         {a.out, out},
                                                         {a.log_sum_exp, log_sum_exp}}});
  }

  void backward(cudaStream_t stream, DataType type, const AttentionShape& s, const void* dout,
                const void* qkv, const void* out, const void* log_sum_exp, void* dqkv,
                void* scratch) override {
    const std::lock_guard lock(mutex_);
    const auto& planned = of(backward_, type, s);
    const CudnnAttentionBackward& a = *planned.attention;
    float scale = scale_of(s), minus_infinity = kMinusInfinity, one = 1.0F;
    char* const own = static_cast<char*>(scratch);
    run(stream, *planned.plan, own + own_bytes(s),
        std::array<std::pair<TensorId, const void*>, 14>{{{a.q, qkv},
                                                          {a.k, column(type, qkv, s.heads * s.head_dim)},
                                                          {a.v, column(type, qkv, s.rotated())},
                                                          {a.scale, &scale},
                                                          {a.minus_infinity, &minus_infinity},
                                                          {a.one, &one},
                                                          {a.out, out},
                                                          {a.dout, dout},
                                                          {a.log_sum_exp, log_sum_exp},
                                                          {a.dq, dqkv},
                                                          {a.dk, column(type, dqkv, s.heads * s.head_dim)},
                                                          {a.dv, column(type, dqkv, s.rotated())},
                                                          {a.delta, own},
                                                          {a.dq_sum, own + delta_bytes(s)}}});
  }

 private:
  using Key = std::array<int64_t, 6>;
  template <class Graph>
  using Plans = std::map<Key, Planned<Graph>>;

  static float scale_of(const AttentionShape& s) { return 1.0F / std::sqrt(float(s.head_dim)); }
  static const void* column(DataType type, const void* row, int64_t columns) {
    return static_cast<const char*>(row) + columns * size_of(type);
  }
  static int64_t delta_bytes(const AttentionShape& s) { return rounded_bytes(s.tokens() * s.heads * 4); }
  static int64_t own_bytes(const AttentionShape& s) {
    return delta_bytes(s) + rounded_bytes(s.tokens() * s.heads * s.head_dim * 4);
  }

  template <class Graph>
  const Planned<Graph>& of(Plans<Graph>& plans, DataType type, const AttentionShape& s) {
    const Key key{int64_t(type), s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim};
    if (const Planned<Graph>* found = find_value(plans, key)) return *found;
    return plans.try_emplace(key, library_, handle(nullptr), type, s).first->second;
  }

  cudnnHandle_t handle(cudaStream_t stream) {
    cudnnHandle_t& handle = handles_[stream];
    if (handle == nullptr) {
      library_.check(library_.create(&handle), "cudnnCreate");
      library_.check(library_.set_stream(handle, stream), "cudnnSetStream");
    }
    return handle;
  }

  template <size_t N>
  void run(cudaStream_t stream, const CudnnDescriptor& plan, void* workspace,
           const std::array<std::pair<TensorId, const void*>, N>& tensors) {
    std::array<TensorId, N> ids{};
    std::array<const void*, N> data{};
    for (size_t i = 0; i < N; ++i) std::tie(ids[i], data[i]) = tensors[i];
    CudnnDescriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, N, ids.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, N, data.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.finalize();
    library_.check(library_.execute(handle(stream), plan.get(), pack.get()), "cudnnBackendExecute");
  }

  const Cudnn& library_;
  std::mutex mutex_;  // plans and handles; launching is short
  std::map<cudaStream_t, cudnnHandle_t> handles_;
  Plans<CudnnAttentionForward> forward_;
  Plans<CudnnAttentionBackward> backward_;
};

}  // namespace

CudnnAttentionForward::CudnnAttentionForward(const Cudnn& library, DataType type, const AttentionShape& s)
    : graph(library) {
  const Views views(s);
  const cudnnDataType_t io = cudnn_type(type);
  const auto inside = [&](const Shape& shape) { return graph.inside(CUDNN_DATA_FLOAT, shape); };
  q = graph.tensor(io, views.queries);
  k = graph.tensor(io, transposed(views.keys));
  v = graph.tensor(io, views.keys);
  scale = graph.scalar();
  minus_infinity = graph.scalar();
  out = graph.tensor(io, views.out);
  log_sum_exp = graph.tensor(CUDNN_DATA_FLOAT, views.per_query);

  const TensorId products = inside(views.scores), scores = inside(views.scores);
  graph.matmul(q, k, products);
  graph.pointwise(CUDNN_POINTWISE_MUL, products, scale, scores);
  const TensorId seen = causal(graph, views, scores, minus_infinity);
  const TensorId most = inside(views.per_query), above = inside(views.scores),
                 exponential = inside(views.scores);
  const TensorId sum = inside(views.per_query), log = inside(views.per_query);
  const TensorId probabilities = graph.inside(io, views.scores);
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, seen, most);
  graph.pointwise(CUDNN_POINTWISE_SUB, seen, most, above);
  graph.pointwise(CUDNN_POINTWISE_EXP, above, exponential);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, exponential, sum);
  graph.pointwise(CUDNN_POINTWISE_LOG, sum, log);
  graph.pointwise(CUDNN_POINTWISE_ADD, most, log, log_sum_exp);
  graph.pointwise(CUDNN_POINTWISE_DIV, exponential, sum, probabilities);
  graph.matmul(probabilities, v, out);
}

CudnnAttentionBackward::CudnnAttentionBackward(const Cudnn& library, DataType type, const AttentionShape& s)
    : graph(library) {
  const Views views(s);
  const cudnnDataType_t io = cudnn_type(type);
  const auto inside = [&](const Shape& shape) { return graph.inside(CUDNN_DATA_FLOAT, shape); };
  const Shape keys_per_head = CudnnGraph::packed({s.batch, s.heads, s.sequence, s.head_dim});
  q = graph.tensor(io, views.queries);
  k = graph.tensor(io, transposed(views.keys));
  v = graph.tensor(io, transposed(views.keys));
  scale = graph.scalar();
  minus_infinity = graph.scalar();
  one = graph.scalar();
  out = graph.tensor(io, views.out);
  dout = graph.tensor(io, views.out);
  log_sum_exp = graph.tensor(CUDNN_DATA_FLOAT, views.per_query);
  dq = graph.tensor(io, views.queries);
  dk = graph.tensor(io, views.keys);
  dv = graph.tensor(io, views.keys);
  delta = graph.tensor(CUDNN_DATA_FLOAT, views.per_query);
  dq_sum = graph.tensor(CUDNN_DATA_FLOAT, views.per_head);
  // The transpose of scores in the products' type, times rows; summed over the queries of a group if these
  // share keys.
  const auto times_rows = [&](TensorId scores, TensorId rows, TensorId gradient) {
    const TensorId turned = graph.inside(io, transposed(views.scores));
    graph.reshape(scores, turned);
    if (s.heads == s.kv_heads) return graph.matmul(turned, rows, gradient);
    const TensorId of_every_head = graph.inside(io, keys_per_head);
    graph.matmul(turned, rows, of_every_head);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_every_head, gradient);
  };

  // delta: the sum of dout x out over a head's columns.
  const TensorId weighted = inside(views.per_head), row_sum = inside(views.per_query);
  graph.pointwise(CUDNN_POINTWISE_MUL, dout, out, weighted);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, weighted, row_sum);
  graph.pointwise(CUDNN_POINTWISE_MUL, row_sum, one, delta);

  // Recomputes the probabilities, then dv.
  const TensorId products = inside(views.scores), scores = inside(views.scores), above = inside(views.scores);
  const TensorId probabilities = inside(views.scores);
  graph.matmul(q, k, products);
  graph.pointwise(CUDNN_POINTWISE_MUL, products, scale, scores);
  graph.pointwise(CUDNN_POINTWISE_SUB, scores, log_sum_exp, above);
  graph.pointwise(CUDNN_POINTWISE_EXP, causal(graph, views, above, minus_infinity), probabilities);
  times_rows(probabilities, dout, dv);

  // Gradients of scores, dk and dq.
  const TensorId dprobabilities = inside(views.scores), less = inside(views.scores),
                 dscores = inside(views.scores);
  const TensorId dproducts = inside(views.scores);
  graph.matmul(dout, v, dprobabilities);
  graph.pointwise(CUDNN_POINTWISE_SUB, dprobabilities, delta, less);
  graph.pointwise(CUDNN_POINTWISE_MUL, less, probabilities, dscores);
  graph.pointwise(CUDNN_POINTWISE_MUL, dscores, scale, dproducts);
  times_rows(dproducts, q, dk);
  const TensorId key_rows = graph.inside(io, views.keys);
  graph.reshape(k, key_rows);
  graph.matmul(dproducts, key_rows, dq_sum);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sum, dq);
}

// MPT_ATTENTION=own selects this project's kernels, which sum in a fixed order.
std::unique_ptr<FusedAttention> make_fused_attention() {
  const char* const choice = std::getenv("MPT_ATTENTION");
  if (choice != nullptr && std::string(choice) == "own") return nullptr;
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  const Cudnn* const library = prefers_cudnn(10 * int64_t(major)) ? load_cudnn() : nullptr;
  if (library == nullptr) return nullptr;
  try {
    return std::make_unique<CudnnAttention>(*library);
  } catch (const RunError& error) {
    warn(fmt::format("note: attention without cuDNN: {}", error.what()));
    return nullptr;
  }
}

}  // namespace mpt::runtime::cuda
