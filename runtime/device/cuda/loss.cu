// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/kernels.h"

namespace mpt::runtime::cuda {
namespace {

// A block per token. Logits stay in their own type and place through all three steps.
template <class T>
__global__ void loss_maximum_kernel(int64_t columns, int64_t used, const T* logits, State<T>* maximum) {
  using S = State<T>;
  constexpr S kLowest = sizeof(S) == sizeof(float) ? S(-3.4028234663852886e38) : S(-1.7976931348623157e308);
  const int64_t t = blockIdx.x;
  S highest = kLowest;
  for (int64_t c = threadIdx.x; c < used; c += blockDim.x)
    highest = max(highest, wide(logits[t * columns + c]));
  highest = block_reduce(highest, Maximum(), kLowest);
  if (threadIdx.x == 0) maximum[t] = highest;
}

template <class T>
__global__ void loss_exponentials_kernel(int64_t tokens, int64_t columns, int64_t used, int64_t first,
                                         const int32_t* targets, const State<T>* maximum, T* logits,
                                         State<T>* sums) {
  using S = State<T>;
  const int64_t t = blockIdx.x, target = targets[t] - first;
  T* const row = logits + t * columns;
  const S highest = maximum[t];
  if (threadIdx.x == 0) sums[tokens + t] = target >= 0 && target < used ? wide(row[target]) - highest : S(0);
  __syncthreads();  // the target's logit has been read
  S sum = 0;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const S value = c < used ? exp(wide(row[c]) - highest) : S(0);  // behind them: padding of the vocabulary
    sum += value;
    row[c] = narrow<T>(value);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[t] = sum;
}

// loss = log(sum) - (target logit - maximum); its gradient is softmax - one-hot.
template <class T>
__global__ void loss_gradient_kernel(int64_t tokens, int64_t columns, int64_t used, int64_t first,
                                     const int32_t* targets, const State<T>* sums, State<T> scale, T* logits,
                                     double* losses) {
  const int64_t t = blockIdx.x, target = targets[t] - first;
  const State<T> factor = scale / sums[t];
  for (int64_t c = threadIdx.x; c < used; c += blockDim.x) {
    const State<T> value = wide(logits[t * columns + c]) * factor;
    logits[t * columns + c] = narrow<T>(c == target ? value - scale : value);
  }
  if (threadIdx.x == 0) losses[t] = log(double(sums[t])) - double(sums[tokens + t]);
}

template <class T>
__global__ void sum_of_squares_kernel(int64_t count, const T* data, double* partial) {
  double sum = 0;
  for (int64_t i = grid_index(); i < count; i += grid_stride())
    sum += double(wide(data[i])) * double(wide(data[i]));
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void sum_kernel(int64_t count, const double* data, double* result) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += data[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = sum;
}

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

}  // namespace

template <class T>
void loss_maximum(cudaStream_t stream, int64_t tokens, int64_t columns, int64_t used, const T* logits,
                  State<T>* maximum) {
  launch(stream, dim3(unsigned(tokens)), kThreads, 0, loss_maximum_kernel<T>, columns, used, logits, maximum);
}

template <class T>
void loss_exponentials(cudaStream_t stream, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                       const int32_t* targets, const State<T>* maximum, T* logits, State<T>* sums) {
  launch(stream, dim3(unsigned(tokens)), kThreads, 0, loss_exponentials_kernel<T>, tokens, columns, used,
         first, targets, maximum, logits, sums);
}

template <class T>
void loss_gradient(cudaStream_t stream, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                   const int32_t* targets, const State<T>* sums, double scale, T* logits, double* losses) {
  launch(stream, dim3(unsigned(tokens)), kThreads, 0, loss_gradient_kernel<T>, tokens, columns, used, first,
         targets, sums, State<T>(scale), logits, losses);
}

template <class T>
void sum_of_squares(cudaStream_t stream, int64_t count, const T* data, double* scratch, double* result) {
  const int64_t blocks = std::clamp<int64_t>(ceil_div(count, 8 * kThreads), 1, kPartialSums);
  launch(stream, dim3(unsigned(blocks)), kThreads, 0, sum_of_squares_kernel<T>, count, data, scratch);
  sum(stream, blocks, scratch, result);
}

void sum(cudaStream_t stream, int64_t count, const double* data, double* result) {
  launch(stream, dim3(1), kThreads, 0, sum_kernel, count, data, result);
}

template <class T>
void reduce_in_order(cudaStream_t stream, const Sources& sources, bool maximum, int64_t begin, int64_t end,
                     T* out) {
  launch(stream, blocks_for(end - begin), kThreads, 0, reduce_in_order_kernel<T>, sources, maximum, begin,
         end, out);
}

#define MPT_INSTANTIATE(T)                                                                          \
  template void loss_maximum(cudaStream_t, int64_t, int64_t, int64_t, const T*, State<T>*);         \
  template void loss_exponentials(cudaStream_t, int64_t, int64_t, int64_t, int64_t, const int32_t*, \
                                  const State<T>*, T*, State<T>*);                                  \
  template void loss_gradient(cudaStream_t, int64_t, int64_t, int64_t, int64_t, const int32_t*,     \
                              const State<T>*, double, T*, double*);                                \
  template void sum_of_squares(cudaStream_t, int64_t, const T*, double*, double*);                  \
  template void reduce_in_order(cudaStream_t, const Sources&, bool, int64_t, int64_t, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)
MPT_INSTANTIATE(Bfloat16)
MPT_INSTANTIATE(Half)

}  // namespace mpt::runtime::cuda
