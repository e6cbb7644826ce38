// SPDX-License-Identifier: Apache-2.0
#pragma once

// Linear: y = x W^T + b over a tensor-parallel group (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
//   column parallel: each rank holds rows of W and makes columns of y; the input gradient is summed over the
//   group; row parallel: each rank holds columns of W; y is summed over the group, then the bias is added
//   once.
// With sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2) the input of a column
// parallel layer and the output of a row parallel one are the rank's own tokens. Sums are scattered, and
// inputs of a product are gathered into memory of the caller.
//
// In a layout that overlaps them, a product runs in one part per rank of the group, each during the
// communication of the previous part (Wang et al. 2023, doi:10.1145/3567955.3567959). Tokens arrive from one
// rank after the other, or partial sums are sent to one after the other. They are added in rank order, so
// sums equal those of a reduction. If the weight gradient follows at once, the input gradient's sum is not
// cut: it overlaps with the weight gradient, and the gathering of the input with the product of the input
// gradient, as in Megatron-LM (tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).

#include <string>
#include <vector>

#include "runtime/nn/part.h"

namespace mpt::runtime {

/// whole: every rank of the group has the whole weight, for its local tokens.
enum class Split : uint8_t { columns, rows, whole };

struct LinearOptions {
  std::string name;  // "layers.0.mlp.up"
  Split split = Split::columns;
  bool bias = false;
  int64_t global_columns = 0, global_inner = 0;  // of the whole layer
  std::vector<ShardBlock> blocks;                // of the weight [global_columns, global_inner] on this rank
  double deviation = kDeviation;
  bool fp8 = false;
};
/// Options of a product that every rank has whole, and that ends no block.
LinearOptions whole_options(std::string name, bool bias, int64_t columns, int64_t inner, bool fp8 = false);
/// A rank's rows of weights with several `parts`, each with an equal slice per rank, one part after the
/// other.
std::vector<ShardBlock> blocks_of(const std::vector<int64_t>& parts, int64_t inner, const RankSizes& s);
/// Options of a product with such parts of columns.
LinearOptions columns_options(std::string name, bool bias, const std::vector<int64_t>& parts, int64_t inner,
                              const RankSizes& s);
/// Options of the product that ends a block: [hidden, `inner` on each rank], summed over the ranks.
LinearOptions rows_options(std::string name, bool bias, int64_t inner, const RankSizes& s);

/// With sequence parallelism, memory for [tokens, the widest input] in which products gather and scatter
/// tokens, and the same amount for data that arrives during products.
struct TokenRoom {
  Buffer all, arriving;
};
TokenRoom make_room(const RankSizes& sizes, Device& device);

/// The activation that follows a product: `data` gets its output. Null: there is none.
struct Activated {
  ActivationShape shape;
  void* data = nullptr;
};
/// The activation that precedes a product: `dup` gets the gradient at its input `up`.
struct ActivationGradient {
  ActivationShape shape;
  const void* up = nullptr;
  void* dup = nullptr;
};

/// Places of the largest magnitudes of a product's operands between its passes, for products of 8 bits.
struct Magnitudes {
  void* x = nullptr;         // from forward to the weight gradient; null: not kept
  bool x_is_known = false;   // before forward
  const void* dy = nullptr;  // before backward; null: not known
};

/// The address of a kept magnitude; null if the part keeps none.
inline void* magnitude_at(const Buffer& kept, int place) {
  return kept ? static_cast<float*>(kept.data()) + place : nullptr;
}

/// Operands of a product's weight gradient: the gradient of its output, and its input.
struct WeightOperands {
  const void* dy = nullptr;
  const void* x = nullptr;
  Magnitudes magnitudes{};
};

class Linear : private Part {
 public:
  Linear(const LinearOptions& options, const PartContext& context);
  /// A column-parallel layer over a weight that `parameters` has already: a tied head.
  Linear(int weight, const LinearShape& shape, const PartContext& context);

  /// Index of the weight.
  int weight() const { return weight_; }
  void forward(const void* x, void* y, const TokenRoom& room = {}, const Activated& activated = {},
               const Magnitudes& magnitudes = {});
  /// For a column-parallel layer, or a whole one. With `x`, also computes the weight gradient, overlapped
  /// with the reduction of dx.
  void backward_input(const void* dy, void* dx, const TokenRoom& room = {}, const void* x = nullptr,
                      const Magnitudes& magnitudes = {});
  /// For a row-parallel layer. The gradient for all tokens stays in `gathered`, unless `dy` itself has all
  /// tokens. With `activation`, dx is working memory. With `x`, also computes the weight gradient.
  void backward_input_of_rows(const void* dy, Buffer& gathered, void* dx,
                              const ActivationGradient& activation = {}, const void* x = nullptr,
                              const Magnitudes& magnitudes = {});
  /// `x` and `dy` have all tokens that the product works on.
  void backward_weight(const void* dy, const void* x, const Magnitudes& magnitudes = {});

  /// For a column-parallel layer: first gathers the input `x`, the local tokens, into `all`.
  void backward_weight(const void* dy, const void* x, const Buffer& all);
  /// For a row-parallel layer and the preceding column-parallel one. Meanwhile it gathers the latter's input,
  /// the local tokens, into `all`. Without `with_columns`, backward_input() has computed the second gradient,
  /// and with RankSizes::weights_with_inputs the first one, too.
  void backward_weights(const WeightOperands& own, Linear& columns, const WeightOperands& of_columns,
                        const Buffer& all, bool with_columns);

 private:
  /// The input of a column-parallel layer for all tokens, valid after `posted`: `x` itself, or in `all`.
  const void* gather_input(const void* x, const Buffer& all, Posted& posted);
  bool scatters() const { return splits_tokens() && split_ != Split::whole; }
  bool overlaps() const { return beside_.stream != nullptr && split_ != Split::whole; }
  void through(const ActivationGradient& activation, const void* dy);
  const void* narrowed_weight();
  LinearShape shaped(int64_t rows, const Magnitudes& magnitudes = {});
  // Both gradients of a product of 8 bits in one call, if nothing has to be gathered before the second.
  bool makes_both() const { return shape_.narrows() && !scatters() && !overlaps(); }
  void backward_both(const void* dy, const void* x, void* dx, const Magnitudes& magnitudes);
  // The product for some rows, and the gradient of its input.
  void multiply(int64_t rows, const void* x, const void* bias, void* y, const Magnitudes& magnitudes = {});
  void multiply_back(int64_t rows, const void* dy, void* dx, const Magnitudes& magnitudes = {});
  void forward_rows(const void* x, void* y, const TokenRoom& room, const Magnitudes& magnitudes);
  void backward_beside(const void* dy, const void* x, void* dx, const TokenRoom& room,
                       const Magnitudes& magnitudes);
  template <class Product>
  void sum_in_parts(void* y, int64_t columns, const TokenRoom& room, Product&& product);
  template <class Product>
  void scatter_in_parts(void* y, int64_t columns, const TokenRoom& room, Product&& product);
  template <class Product>
  void gather_in_parts(const void* own, void* all, int64_t columns, Product&& product);

  Communicator& group_beside_;
  const BesideCompute beside_;
  Split split_ = Split::columns;
  LinearShape shape_;
  int weight_ = -1, bias_ = -1;
  Buffer narrowed_;               // the weight in 8 bits; none: it is narrowed for each product
  int64_t narrowed_version_ = 0;  // Parameters::version() at that time
};

}  // namespace mpt::runtime
