// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

namespace mpt::runtime::cuda {
namespace {

// Calls body(c, pack) for the packs of W logits in a row that belong to this thread.
template <int W, class T, class Body>
__device__ void for_each_logit_pack(const T* row, int64_t columns, Body&& body) {
#pragma unroll 4
  for (int64_t c = int64_t(threadIdx.x) * W; c < columns; c += int64_t(blockDim.x) * W)
    body(c, load<W>(row + c));
}

// A block per token. Logits stay in their type and place through all three steps.
template <class T, int W>
__global__ void loss_maximum_kernel(LossShape s, const T* logits, State<T>* maximum) {
  using S = State<T>;
  constexpr S kLowest = sizeof(S) == sizeof(float) ? S(-3.4028234663852886e38) : S(-1.7976931348623157e308);
  const int64_t t = blockIdx.x;
  S highest = kLowest;
  for_each_logit_pack<W>(logits + t * s.columns, s.used, [&](int64_t c, const Pack<T, W>& pack) {
    for (int i = 0; i < W; ++i) highest = c + i < s.used ? max(highest, wide(pack.at[i])) : highest;
  });
  highest = block_reduce(highest, Maximum(), kLowest);
  if (threadIdx.x == 0) maximum[t] = highest;
}

template <class T, int W>
__global__ void loss_exponentials_kernel(LossShape s, const int32_t* targets, const State<T>* maximum,
                                         T* logits, State<T>* sums) {
  using S = State<T>;
  const int64_t t = blockIdx.x, target = targets[t] - s.first;
  T* const row = logits + t * s.columns;
  const S highest = maximum[t];
  if (threadIdx.x == 0)
    sums[s.tokens + t] = target >= 0 && target < s.used ? wide(row[target]) - highest : S(0);
  __syncthreads();  // the target's logit has been read
  S sum = 0;
  for_each_logit_pack<W>(row, s.columns, [&](int64_t c, Pack<T, W> pack) {
    for (int i = 0; i < W; ++i) {
      // The last columns are padding of the vocabulary.
      const S value = c + i < s.used ? exp(wide(pack.at[i]) - highest) : S(0);
      sum += value;
      pack.at[i] = narrow<T>(value);
    }
    store<W>(row + c, pack);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[t] = sum;
}

// A block per token. The derivative of the cap is 1 - (logit / cap)^2. The logit is recovered from its
// exponential; a logit with exponential zero has no gradient.
template <class T>
__global__ void capped_loss_gradient_kernel(LossShape s, const int32_t* targets, const State<T>* maximum,
                                            const State<T>* sums, State<T> scale, State<T> cap, T* logits,
                                            double* losses) {
  using S = State<T>;
  const int64_t t = blockIdx.x, target = targets[t] - s.first;
  T* const row = logits + t * s.columns;
  for (int64_t c = threadIdx.x; c < s.used; c += blockDim.x) {
    const S e = wide(row[c]);
    if (c != target && e == S(0)) continue;
    const S logit = (c == target ? sums[s.tokens + t] : log(e)) + maximum[t];
    const S p = e / sums[t] - (c == target ? S(1) : S(0));
    row[c] = narrow<T>(p * scale * (S(1) - logit * logit / (cap * cap)));
  }
  if (threadIdx.x == 0) losses[t] = log(double(sums[t])) - double(sums[s.tokens + t]);
}

// loss = log(sum) - (target logit - maximum); its gradient is softmax - one-hot. Padding holds zeros and
// keeps them, even if a word of another rank has the same number.
template <class T, int W>
__global__ void loss_gradient_kernel(LossShape s, const int32_t* targets, const State<T>* sums,
                                     State<T> scale, T* logits, double* losses) {
  const int64_t t = blockIdx.x, target = targets[t] - s.first;
  T* const row = logits + t * s.columns;
  const State<T> factor = scale / sums[t];
  for_each_logit_pack<W>(row, s.used, [&](int64_t c, Pack<T, W> pack) {
    for (int i = 0; i < W; ++i) {
      const State<T> value = wide(pack.at[i]) * factor;
      if (c + i < s.used) pack.at[i] = narrow<T>(c + i == target ? value - scale : value);
    }
    store<W>(row + c, pack);
  });
  if (threadIdx.x == 0) losses[t] = log(double(sums[t])) - double(sums[s.tokens + t]);
}

// A block per token, W logits in one access. One reading pass computes the sum of exponentials (Milakov and
// Gimelshein 2018, arXiv:1805.02867). Then the gradient is written in place.
template <class T, int W>
__global__ void loss_of_all_kernel(LossShape s, const int32_t* targets, State<T> scale, T* logits,
                                   double* losses) {
  using S = State<T>;
  constexpr S kLowest = sizeof(S) == sizeof(float) ? S(-3.4028234663852886e38) : S(-1.7976931348623157e308);
  const int64_t t = blockIdx.x, target = targets[t];
  T* const row = logits + t * s.columns;
  const S at_target = threadIdx.x == 0 && target >= 0 && target < s.used ? wide(row[target]) : S(0);
  S highest = kLowest, sum = 0;
  for_each_logit_pack<W>(row, s.used, [&](int64_t c, const Pack<T, W>& pack) {
    S most = highest;
    for (int i = 0; i < W; ++i) most = c + i < s.used ? max(most, wide(pack.at[i])) : most;
    sum *= exp(highest - most);
    highest = most;
    for (int i = 0; i < W; ++i) sum += c + i < s.used ? exp(wide(pack.at[i]) - highest) : S(0);
  });
  const S top = block_reduce(highest, Maximum(), kLowest);
  const S total = block_sum(sum * exp(highest - top));
  const S factor = scale / total;
  for_each_logit_pack<W>(row, s.columns, [&](int64_t c, Pack<T, W> pack) {
    for (int i = 0; i < W; ++i) {
      const S value = c + i < s.used ? exp(wide(pack.at[i]) - top) * factor : S(0);  // the rest is padding
      pack.at[i] = narrow<T>(c + i == target ? value - scale : value);
    }
    store<W>(row + c, pack);
  });
  if (threadIdx.x == 0) losses[t] = log(double(total)) - double(at_target - top);
}

// The stretches of one launch; stretch i has the blocks first[i] .. first[i + 1].
constexpr int kStretches = 64;
struct Stretches {
  const void* data[kStretches];
  int64_t count[kStretches];
  int first[kStretches + 1];
};

template <class T, int W>
__device__ double squares_of_pack(const T* data) {
  const Pack<T, W> pack = load<W>(data);
  double sum = 0;
  for (int k = 0; k < W; ++k) sum += double(wide(pack.at[k])) * double(wide(pack.at[k]));
  return sum;
}

// Packs begin at aligned addresses. Elements before the first pack and after the last are added one by one.
template <class T>
__global__ void sum_of_squares_kernel(Stretches stretches, double* partial) {
  constexpr int W = int(16 / sizeof(T));
  const int block = int(blockIdx.x);
  int mine = 0;
  while (block >= stretches.first[mine + 1]) ++mine;
  const T* const data = static_cast<const T*>(stretches.data[mine]);
  const int64_t count = stretches.count[mine];
  const int64_t before = int64_t((W - reinterpret_cast<uintptr_t>(data) / sizeof(T) % W) % W);
  const int64_t head = before < count ? before : count, packs = (count - head) / W;
  const int64_t thread = int64_t(block - stretches.first[mine]) * blockDim.x + threadIdx.x;
  const int64_t threads = int64_t(stretches.first[mine + 1] - stretches.first[mine]) * blockDim.x;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = thread; i < packs; i += threads) sum += squares_of_pack<T, W>(data + head + i * W);
  if (thread < head) sum += squares_of_pack<T, 1>(data + thread);
  if (const int64_t rest = head + packs * W + thread; rest < count) sum += squares_of_pack<T, 1>(data + rest);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[block] = sum;
}

__global__ void sum_kernel(int64_t count, const double* data, bool add, double* result) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += data[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = add ? *result + sum : sum;
}

// out[i - begin] = the sources' elements i joined in order, for begin <= i < end. Ranks of one process reduce
// each other's buffers in this way.
struct Sources {
  const void* at[kMostSources];
  int count = 0;
};
template <class T>
__global__ void reduce_in_order_kernel(Sources sources, bool maximum, int64_t begin, int64_t end, T* out) {
  for (int64_t i = begin + grid_index(); i < end; i += grid_stride()) {
    State<T> value = wide(static_cast<const T*>(sources.at[0])[i]);
    for (int s = 1; s < sources.count; ++s) {
      const State<T> next = wide(static_cast<const T*>(sources.at[s])[i]);
      value = maximum ? max(value, next) : value + next;
    }
    out[i - begin] = narrow<T>(value);
  }
}

// A block per token, with more threads for long rows; by packs where rows are whole ones.
constexpr int kMany = 512;
template <class T>
int loss_threads(int64_t columns) {
  return columns >= int64_t(kMany) * int64_t(16 / sizeof(T)) ? kMany : kThreads;
}
// Calls `body` with memory for the losses of tokens, and adds their sum to `loss`.
template <class Body>
void sum_losses(StreamDevice& gpu, int64_t tokens, double* loss, Body&& body) {
  const Scratch losses(gpu.streams(), tokens * int64_t(sizeof(double)));
  body(losses.data());
  launch(gpu.stream(), dim3(1), kThreads, 0, sum_kernel, tokens, losses.data(), true, loss);
}

// The sum over all stretches. The number of a stretch's blocks is proportional to its elements, and at least
// one.
constexpr int64_t kPartialSums = 2048;
template <class T>
void sum_of_squares(cudaStream_t stream, std::span<const Stretch> stretches, double* partial,
                    double* result) {
  bool more = false;
  do {
    const size_t now = std::min<size_t>(stretches.size(), kStretches);
    int64_t elements = 0;
    for (const Stretch& s : stretches.first(now)) elements += s.count;
    const int64_t each = std::max<int64_t>(8 * kThreads, ceil_div(elements, kPartialSums - kStretches));
    Stretches of_launch{};
    for (size_t i = 0; i < now; ++i) {
      of_launch.data[i] = stretches[i].data;
      of_launch.count[i] = stretches[i].count;
      of_launch.first[i + 1] =
          of_launch.first[i] + int(std::max<int64_t>(1, ceil_div(stretches[i].count, each)));
    }
    const int blocks = of_launch.first[now];
    launch(stream, dim3(unsigned(blocks)), kThreads, 0, sum_of_squares_kernel<T>, of_launch, partial);
    launch(stream, dim3(1), kThreads, 0, sum_kernel, blocks, partial, more, result);
    stretches = stretches.subspan(now);
    more = true;
  } while (!stretches.empty());
}

const void* end_of(DataType type, const Stretch& stretch) {
  return as<char>(stretch.data) + stretch.count * size_of(type);
}

}  // namespace

void run(StreamDevice& gpu, DataType type, const LossMaximum& o) {
  const LossShape& s = o.shape;
  MPT_DISPATCH(type, {
    with_packs<T>(in_packs<T>(s.columns, o.logits), [&](auto width) {
      launch(gpu.stream(), dim3(unsigned(s.tokens)), loss_threads<T>(s.columns), 0,
             loss_maximum_kernel<T, width()>, s, o.logits, o.maximum);
    });
  });
}

void run(StreamDevice& gpu, DataType type, const LossExponentials& o) {
  const LossShape& s = o.shape;
  const StreamDevice::Numbers targets(gpu, o.targets, s.tokens);
  MPT_DISPATCH(type, {
    with_packs<T>(in_packs<T>(s.columns, o.logits), [&](auto width) {
      launch(gpu.stream(), dim3(unsigned(s.tokens)), loss_threads<T>(s.columns), 0,
             loss_exponentials_kernel<T, width()>, s, targets.data(), o.maximum, o.logits, o.sums);
    });
  });
}

void run(StreamDevice& gpu, DataType type, const LossGradient& o) {
  const LossShape& s = o.shape;
  const StreamDevice::Numbers targets(gpu, o.targets, s.tokens);
  const dim3 blocks(unsigned(s.tokens));
  sum_losses(gpu, s.tokens, o.loss, [&](void* losses) {
    MPT_DISPATCH(type, {
      if (o.cap > 0.0)
        return launch(gpu.stream(), blocks, kThreads, 0, capped_loss_gradient_kernel<T>, s, targets.data(),
                      o.maximum, o.sums, o.scale, o.cap, o.logits, losses);
      with_packs<T>(in_packs<T>(s.columns, o.logits), [&](auto width) {
        launch(gpu.stream(), blocks, loss_threads<T>(s.columns), 0, loss_gradient_kernel<T, width()>, s,
               targets.data(), o.sums, o.scale, o.logits, losses);
      });
    });
  });
}

// The maxima and sums of the three steps also occupy memory here, for a plan's memory includes them.
void run(StreamDevice& gpu, DataType type, const LossOfAll& o) {
  const LossShape& s = o.shape;
  const int64_t unit = size_of(state_type_of(type));
  const Buffer maximum(gpu, s.tokens * unit), sums(gpu, 2 * s.tokens * unit);
  const StreamDevice::Numbers targets(gpu, o.targets, s.tokens);
  sum_losses(gpu, s.tokens, o.loss, [&](void* losses) {
    MPT_DISPATCH(type, {
      with_packs<T>(in_packs<T>(s.columns, o.logits), [&](auto width) {
        launch(gpu.stream(), dim3(unsigned(s.tokens)), loss_threads<T>(s.columns), 0,
               loss_of_all_kernel<T, width()>, s, targets.data(), o.scale, o.logits, losses);
      });
    });
  });
}

// One launch for all stretches, and adjacent ones together.
double squared_norm(StreamDevice& gpu, DataType type, std::span<const Stretch> parts) {
  std::vector<Stretch> joined;
  for (const Stretch& part : parts) {
    if (!joined.empty() && end_of(type, joined.back()) == part.data)
      joined.back().count += part.count;
    else
      joined.push_back(part);
  }
  const Scratch room(gpu.streams(), (kPartialSums + 1) * int64_t(sizeof(double)));
  double* const partial = as<double>(room.data());
  MPT_DISPATCH(type, sum_of_squares<T>(gpu.stream(), joined, partial, partial + kPartialSums));
  return gpu.read(partial + kPartialSums);
}

void reduce(StreamDevice& gpu, DataType type, ReduceOperation operation,
            const std::vector<const void*>& parts, int64_t begin, int64_t end, void* to) {
  Sources sources{};
  sources.count = int(parts.size());
  std::copy(parts.begin(), parts.end(), sources.at);
  const bool maximum = operation == ReduceOperation::maximum;
  MPT_DISPATCH(type, launch_each(gpu.stream(), end - begin, reduce_in_order_kernel<T>, sources, maximum,
                                 begin, end, to));
}

}  // namespace mpt::runtime::cuda
