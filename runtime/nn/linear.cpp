// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/linear.h"

#include <numeric>

#include "runtime/device/fp8.h"

namespace mpt::runtime {
namespace {

LinearShape shard_shape(const LinearOptions& options, int64_t tokens) {
  LinearShape shape{tokens, 0, options.blocks.front().columns, options.fp8};
  for (const ShardBlock& block : options.blocks) shape.columns += block.rows;
  return shape;
}

}  // namespace

LinearOptions whole_options(std::string name, bool bias, int64_t columns, int64_t inner, bool fp8) {
  return {std::move(name), Split::whole, bias, columns, inner, {{0, columns, 0, inner}}, kDeviation, fp8};
}

std::vector<ShardBlock> blocks_of(const std::vector<int64_t>& parts, int64_t inner, const RankSizes& s) {
  std::vector<ShardBlock> blocks;
  int64_t first = 0;
  for (const int64_t part : parts) {
    if (part > 0) blocks.push_back({first + part * s.tensor_rank, part, 0, inner});
    first += part * s.tensor;
  }
  return blocks;
}

LinearOptions columns_options(std::string name, bool bias, const std::vector<int64_t>& parts, int64_t inner,
                              const RankSizes& s) {
  const int64_t own = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  LinearOptions options = whole_options(std::move(name), bias, own * s.tensor, inner, s.fp8);
  options.split = Split::columns;
  options.blocks = blocks_of(parts, inner, s);
  return options;
}

LinearOptions rows_options(std::string name, bool bias, int64_t inner, const RankSizes& s) {
  LinearOptions options = whole_options(std::move(name), bias, s.hidden, inner * s.tensor, s.fp8);
  options.split = Split::rows;
  options.blocks = {{0, s.hidden, inner * s.tensor_rank, inner}};
  options.deviation = residual_deviation(s.model.layers.count());
  return options;
}

TokenRoom make_room(const RankSizes& sizes, Device& device) {
  TokenRoom room;
  if (!sizes.sequence_parallel) return room;
  room.all = Buffer(device, sizes.token_bytes(sizes.gathered_columns()));
  if (sizes.overlaps_tensor) room.arriving = Buffer(device, sizes.token_bytes(sizes.gathered_columns()));
  return room;
}

Linear::Linear(int weight, const LinearShape& shape, const PartContext& context)
    : Part(context),
      group_beside_(context.groups.tensor_beside != nullptr ? *context.groups.tensor_beside : group_),
      beside_(context.groups.products),
      shape_(shape),
      weight_(weight) {}

Linear::Linear(const LinearOptions& options, const PartContext& context)
    : Linear(-1,
             shard_shape(options,
                         options.split == Split::whole ? context.sizes.local_tokens : context.sizes.tokens),
             context) {
  split_ = options.split;
  Parameter weight;
  weight.name = options.name + ".weight";
  weight.global_rows = options.global_columns;
  weight.global_columns = options.global_inner;
  weight.blocks = options.blocks;
  weight.deviation = options.deviation;
  weight.weight_decay = true;
  weight.is_first_copy = options.split != Split::whole || group_.rank() == 0;
  weight.partial = options.split == Split::whole && sizes_.sequence_parallel;
  weight_ = parameters_.add(weight);
  if (sizes_.keeps_fp8_weights && shape_.narrows())
    narrowed_ = Buffer(device_, fp8_weight_bytes(shape_.columns, shape_.inner));
  if (!options.bias) return;
  Parameter bias;
  bias.name = options.name + ".bias";
  bias.global_rows = options.global_columns;
  for (const ShardBlock& block : options.blocks) bias.blocks.push_back({block.global_row, block.rows, 0, 1});
  // A row-parallel bias is the same on every rank of the group, and so is its gradient.
  bias.is_first_copy = options.split == Split::columns || group_.rank() == 0;
  bias.partial = weight.partial;
  bias_ = parameters_.add(bias);
}

const void* Linear::narrowed_weight() {
  if (!narrowed_) return nullptr;
  if (narrowed_version_ != parameters_.version()) {
    run(NarrowWeight{.shape = shape_, .w = parameters_.value(weight_), .kept = narrowed_.data()});
    narrowed_version_ = parameters_.version();
  }
  return narrowed_.data();
}

// A magnitude covers all rows. If a product runs in parts, each part has its own.
LinearShape Linear::shaped(int64_t rows, const Magnitudes& magnitudes) {
  LinearShape shape{rows, shape_.columns, shape_.inner, shape_.fp8};
  shape.kept.weight = narrowed_weight();
  if (overlaps()) return shape;
  shape.kept.x_magnitude = magnitudes.x;
  shape.kept.x_is_known = magnitudes.x_is_known;
  shape.kept.dy_magnitude = magnitudes.dy;
  return shape;
}

void Linear::multiply(int64_t rows, const void* x, const void* bias, void* y, const Magnitudes& magnitudes) {
  run(LinearForward{
      .shape = shaped(rows, magnitudes), .x = x, .w = parameters_.value(weight_), .bias = bias, .y = y});
}

void Linear::multiply_back(int64_t rows, const void* dy, void* dx, const Magnitudes& magnitudes) {
  run(LinearBackwardInput{
      .shape = shaped(rows, magnitudes), .dy = dy, .w = parameters_.value(weight_), .dx = dx});
}

void Linear::forward(const void* x, void* y, const TokenRoom& room, const Activated& activated,
                     const Magnitudes& magnitudes) {
  const bool sums = split_ == Split::rows && group_.size() > 1;
  if (!sums && !(scatters() && overlaps())) {
    if (scatters()) {
      group_.all_gather(x, room.all.data(), sizes_.local_tokens * shape_.inner, sizes_.type);
      x = room.all.data();
    }
    if (activated.data == nullptr) return multiply(shape_.rows, x, value_if(bias_), y, magnitudes);
    return run(LinearActivationForward{.shape = shaped(shape_.rows, magnitudes),
                                       .activation = activated.shape,
                                       .x = x,
                                       .w = parameters_.value(weight_),
                                       .bias = value_if(bias_),
                                       .up = y,
                                       .y = activated.data});
  }
  if (sums) {
    forward_rows(x, y, room, magnitudes);
  } else {
    gather_in_parts(x, room.all.data(), shape_.inner, [&](int64_t first, int64_t rows, const void* in) {
      multiply(rows, in, value_if(bias_), beyond(y, first * shape_.columns * sizes_.unit()));
    });
  }
  if (activated.data != nullptr)
    run(ActivationForward{.shape = activated.shape, .x = y, .y = activated.data});
}

void Linear::forward_rows(const void* x, void* y, const TokenRoom& room, const Magnitudes& magnitudes) {
  const auto product = [&](int64_t first, int64_t rows, void* out) {
    multiply(rows, beyond(x, first * shape_.inner * sizes_.unit()), nullptr, out, magnitudes);
  };
  if (overlaps()) {
    sum_in_parts(y, shape_.columns, room, product);
  } else {
    void* const all = scatters() ? room.all.data() : y;
    product(0, shape_.rows, all);
    sum_over(group_, all, y, shape_.columns);
  }
  if (bias_ >= 0)
    run(BiasForward{.rows = sizes_.local_tokens, .columns = shape_.columns, .bias = value_if(bias_), .y = y});
}

void Linear::backward_input(const void* dy, void* dx, const TokenRoom& room, const void* x,
                            const Magnitudes& magnitudes) {
  if (x != nullptr) return backward_beside(dy, x, dx, room, magnitudes);
  const auto product = [&](int64_t first, int64_t rows, void* out) {
    multiply_back(rows, beyond(dy, first * shape_.columns * sizes_.unit()), out, magnitudes);
  };
  if (overlaps()) return sum_in_parts(dx, shape_.inner, room, product);
  void* const all = scatters() ? room.all.data() : dx;
  product(0, shape_.rows, all);
  if (split_ == Split::columns) sum_over(group_, all, dx, shape_.inner);
}

void Linear::backward_both(const void* dy, const void* x, void* dx, const Magnitudes& magnitudes) {
  run(LinearBackward{.shape = shaped(shape_.rows, magnitudes),
                     .dy = dy,
                     .w = parameters_.value(weight_),
                     .dx = dx,
                     .x = x,
                     .dw = parameters_.gradient(weight_),
                     .dbias = gradient_if(bias_)});
}

void Linear::backward_beside(const void* dy, const void* x, void* dx, const TokenRoom& room,
                             const Magnitudes& magnitudes) {
  if (makes_both()) {
    backward_both(dy, x, dx, magnitudes);
    if (split_ == Split::columns) sum_over(group_, dx, dx, shape_.inner);
    return;
  }
  Posted gathered;
  const void* const whole = gather_input(x, room.arriving, gathered);
  void* const all = scatters() ? room.all.data() : dx;
  multiply_back(shape_.rows, dy, all, magnitudes);
  Posted summed(beside_, "summing the gradient of an input",
                [this, all, dx] { sum_over(group_beside_, all, dx, shape_.inner); });
  gathered.wait();
  backward_weight(dy, whole, magnitudes);
  summed.wait();
}

void Linear::backward_input_of_rows(const void* dy, Buffer& gathered, void* dx,
                                    const ActivationGradient& activation, const void* x,
                                    const Magnitudes& magnitudes) {
  if (scatters()) gathered = Buffer(device_, sizes_.token_bytes(shape_.columns));
  if (scatters() && overlaps()) {
    gather_in_parts(dy, gathered.data(), shape_.columns, [&](int64_t first, int64_t rows, const void* in) {
      multiply_back(rows, in, beyond(dx, first * shape_.inner * sizes_.unit()));
    });
    through(activation, dx);
    if (x != nullptr) backward_weight(gathered.data(), x, magnitudes);
    return;
  }
  if (scatters()) {
    group_.all_gather(dy, gathered.data(), sizes_.local_tokens * shape_.columns, sizes_.type);
    dy = gathered.data();
  }
  if (x != nullptr && makes_both()) {
    backward_both(dy, x, dx, magnitudes);
    return through(activation, dx);
  }
  if (activation.dup == nullptr)
    multiply_back(shape_.rows, dy, dx, magnitudes);
  else
    run(LinearActivationBackward{.shape = shaped(shape_.rows, magnitudes),
                                 .activation = activation.shape,
                                 .dy = dy,
                                 .w = parameters_.value(weight_),
                                 .up = activation.up,
                                 .room = dx,
                                 .dup = activation.dup});
  if (x != nullptr) backward_weight(dy, x, magnitudes);
}

void Linear::through(const ActivationGradient& activation, const void* dy) {
  if (activation.dup != nullptr)
    run(ActivationBackward{.shape = activation.shape, .dy = dy, .x = activation.up, .dx = activation.dup});
}

void Linear::backward_weight(const void* dy, const void* x, const Magnitudes& magnitudes) {
  run(LinearBackwardWeight{.shape = shaped(shape_.rows, magnitudes),
                           .dy = dy,
                           .x = x,
                           .dw = parameters_.gradient(weight_),
                           .dbias = gradient_if(bias_)});
}

const void* Linear::gather_input(const void* x, const Buffer& all, Posted& posted) {
  if (!scatters()) return x;
  posted = {beside_, "gathering an input",
            [this, x, to = all.data(), count = sizes_.local_tokens * shape_.inner] {
              group_beside_.all_gather(x, to, count, sizes_.type);
            }};
  return all.data();
}

void Linear::backward_weight(const void* dy, const void* x, const Buffer& all) {
  Posted gathered;
  const void* const whole = gather_input(x, all, gathered);
  gathered.wait();
  backward_weight(dy, whole);
}

void Linear::backward_weights(const WeightOperands& own, Linear& columns, const WeightOperands& of_columns,
                              const Buffer& all, bool with_columns) {
  if (!with_columns && sizes_.weights_with_inputs) return;
  Posted gathered;
  const void* const whole = with_columns ? columns.gather_input(of_columns.x, all, gathered) : nullptr;
  backward_weight(own.dy, own.x, own.magnitudes);
  gathered.wait();
  if (with_columns) columns.backward_weight(of_columns.dy, whole, of_columns.magnitudes);
}

// Sums the output rows of `product` over the group while it works on the next rows.
template <class Product>
void Linear::sum_in_parts(void* y, int64_t columns, const TokenRoom& room, Product&& product) {
  if (scatters()) return scatter_in_parts(y, columns, room, product);
  const int64_t parts = group_.size();
  Posted last;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = shape_.rows * part / parts, rows = shape_.rows * (part + 1) / parts - first;
    void* const out = beyond(y, first * columns * sizes_.unit());
    product(first, rows, out);
    last = {beside_, "summing part of a product", [this, out, count = rows * columns] {
              group_beside_.all_reduce(out, count, sizes_.type, ReduceOperation::sum);
            }};
  }
  last.wait();
}

// Computes the rows of other ranks first, and this rank's last. During a computation the previous rows are
// sent, and partial sums for this rank arrive.
template <class Product>
void Linear::scatter_in_parts(void* y, int64_t columns, const TokenRoom& room, Product&& product) {
  const int ranks = group_.size(), rank = group_.rank();
  const int64_t local = sizes_.local_tokens, bytes = sizes_.local_bytes(columns);
  Posted last;
  for (int step = 1; step < ranks; ++step) {
    const int to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;
    void* const leaving = beyond(room.all.data(), to * bytes);
    product(to * local, local, leaving);
    last = {beside_, "scattering part of a product",
            [this, leaving, to, from, bytes, arriving = beyond(room.arriving.data(), from * bytes)] {
              group_beside_.send_receive(leaving, to, arriving, from, bytes);
            }};
  }
  product(rank * local, local, beyond(room.arriving.data(), rank * bytes));
  last.wait();
  run(SumRows{.tokens = local,
              .top = ranks,
              .columns = columns,
              .rows = sizes_.rows_of_parts.data(),
              .x = room.arriving.data(),
              .y = y});
}

// `product` works on the rank's own rows while the first others arrive, then on the rows of one rank after
// the other.
template <class Product>
void Linear::gather_in_parts(const void* own, void* all, int64_t columns, Product&& product) {
  const int ranks = group_.size(), rank = group_.rank();
  const int64_t local = sizes_.local_tokens, bytes = sizes_.local_bytes(columns);
  device_.copy(beyond(all, rank * bytes), own, bytes);
  std::vector<Posted> arriving;
  arriving.reserve(size_t(ranks));
  for (int step = 1; step < ranks; ++step) {
    const int to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;
    arriving.emplace_back(beside_, "gathering part of an input", [this, own, to, from, bytes, all] {
      group_beside_.send_receive(own, to, beyond(all, from * bytes), from, bytes);
    });
  }
  product(rank * local, local, beyond(all, rank * bytes));
  for (int step = 1; step < ranks; ++step) {
    const int from = (rank - step + ranks) % ranks;
    arriving[size_t(step - 1)].wait();
    product(from * local, local, beyond(all, from * bytes));
  }
}

}  // namespace mpt::runtime
