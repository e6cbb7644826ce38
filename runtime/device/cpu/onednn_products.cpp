// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "runtime/device/cpu/products.h"

namespace mpt::runtime::cpu {
namespace {

using dnnl::memory;

// Smaller products are fast enough in float, and oneDNN makes code for each new shape first.
constexpr int64_t kFewestMultiplications = int64_t{1} << 18;
// Experts have another number of rows each time. oneDNN itself keeps the code of 1,024 shapes.
constexpr size_t kMostKept = 256;

// A rank is a thread: oneDNN may not start others. OpenMP keeps this number for each thread that asks.
void use_one_thread() {
  thread_local bool done = false;
  if (done) return;
  using SetThreads = void(int);
  if (auto* const set = reinterpret_cast<SetThreads*>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set(1);
  done = true;
}

memory::desc matrix(int64_t rows, int64_t columns, bool transposed, memory::data_type type) {
  return {{rows, columns}, type, transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

dnnl::matmul::primitive_desc describe(const ProductShape& s, const dnnl::engine& engine) {
  using enum memory::data_type;
  const auto a = matrix(s.rows, s.inner, s.a_transposed, bf16);
  const auto b = matrix(s.inner, s.columns, s.b_transposed, bf16);
  const auto c = matrix(s.rows, s.columns, false, s.adds ? f32 : bf16);
  const auto bias = s.has_bias ? matrix(1, s.columns, false, bf16) : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.adds) {
    dnnl::post_ops after;
    after.append_sum();
    attributes.set_post_ops(after);
  }
  constexpr bool kMayBeEmpty = true;
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, bias, c, attributes, kMayBeEmpty};
#else
  return {dnnl::matmul::desc(a, b, bias, c), attributes, engine, kMayBeEmpty};
#endif
}

class OneDnnProducts final : public Products {
 public:
  bool multiply(const ProductShape& shape, const ProductOperands& o, WideningMemory& room) override {
    if (shape.rows * shape.columns * shape.inner < kFewestMultiplications) return false;
    use_one_thread();
    Product& product = product_of(shape);
    if (!product.code) return false;
    product.set(DNNL_ARG_SRC, o.a);
    product.set(DNNL_ARG_WEIGHTS, o.b);
    product.set(DNNL_ARG_DST, o.c);
    if (shape.has_bias) product.set(DNNL_ARG_BIAS, o.bias);
    const auto floats = int64_t((product.scratch_bytes + sizeof(float) - 1) / sizeof(float));
    product.set(DNNL_ARG_SCRATCHPAD, room.take(floats));
    product.code.execute(stream_, product.arguments);
    room.give_back();
    return true;
  }

 private:
  struct Product {
    dnnl::matmul code;  // empty: it is not computed here
    size_t scratch_bytes = 0;
    std::unordered_map<int, memory> arguments;

    // oneDNN has one type for what is read and what is written.
    void set(int argument, const void* data) {
      arguments.at(argument).set_data_handle(const_cast<void*>(data));
    }
  };

  Product& product_of(const ProductShape& shape) {
    if (const auto found = products_.find(shape); found != products_.end()) return found->second;
    if (products_.size() == kMostKept) products_.clear();
    Product& made = products_[shape];
    const dnnl::matmul::primitive_desc description = describe(shape, engine_);
    // Its reference is far slower than floats.
    if (!description || std::string_view(description.impl_info_str()).starts_with("ref")) return made;
    made.scratch_bytes = description.scratchpad_desc().get_size();
    const auto add = [&](int argument, const memory::desc& layout) {
      made.arguments.emplace(argument, memory(layout, engine_, DNNL_MEMORY_NONE));
    };
    add(DNNL_ARG_SRC, description.src_desc());
    add(DNNL_ARG_WEIGHTS, description.weights_desc());
    add(DNNL_ARG_DST, description.dst_desc());
    add(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    if (shape.has_bias) add(DNNL_ARG_BIAS, description.bias_desc());
    made.code = dnnl::matmul(description);
    return made;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<ProductShape, Product> products_;
};

}  // namespace

std::unique_ptr<Products> make_onednn_products(std::string& reason) {
  constexpr auto kBits = unsigned(dnnl::cpu_isa::avx512_core_bf16);  // AMX includes it
  if ((unsigned(dnnl::get_effective_cpu_isa()) & kBits) != kBits) {
    reason = "the processor has neither AVX-512 BF16 nor AMX";
    return nullptr;
  }
  return std::make_unique<OneDnnProducts>();
}

}  // namespace mpt::runtime::cpu
