// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cpu/cpu_device.h"

#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/quantity.h"
#include "runtime/device/cpu/operators.h"
#include "runtime/device/run_in_parts.h"

namespace mpt::runtime {
namespace {

bool is_wide(DataType type) { return type == DataType::float32 || type == DataType::float64; }

class CpuDevice final : public Device {
 public:
  ~CpuDevice() override {
    for (auto& [bytes, blocks] : free_)
      for (void* block : blocks) std::free(block);
  }

  void* allocate(int64_t bytes) override {
    const int64_t size = rounded_bytes(bytes);
    in_use_ += size;
    peak_ = std::max(peak_, in_use_);
    if (auto& blocks = free_[size]; !blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      return block;
    }
    void* block = std::aligned_alloc(size_t(kAllocationUnit), size_t(std::max(size, kAllocationUnit)));
    if (block == nullptr)
      fail_run("out of memory: {} more could not be allocated; the rank has {}", format_bytes(double(size)),
               format_bytes(double(in_use_ - size)));
    return block;
  }

  void release(void* data, int64_t bytes) override {
    const int64_t size = rounded_bytes(bytes);
    in_use_ -= size;
    MPT_CHECK(in_use_ >= 0, "more memory released than allocated");
    free_[size].push_back(data);
  }

  int64_t in_use_bytes() const override { return in_use_; }
  int64_t peak_bytes() const override { return peak_; }
  void copy(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, size_t(bytes)); }
  void zero(void* data, int64_t bytes) override { std::memset(data, 0, size_t(bytes)); }

  void upload(DataType type, const double* from, int64_t count, void* to) override {
    if (type == DataType::float64) return copy(to, from, count * size_of(type));
    const std::vector<float> floats(from, from + count);
    cpu::convert(DataType::float32, floats.data(), type, to, count);
  }
  void download(DataType type, const void* from, int64_t count, double* to) override {
    if (type == DataType::float64) return copy(to, from, count * size_of(type));
    std::vector<float> floats(static_cast<size_t>(count));
    cpu::convert(type, from, DataType::float32, floats.data(), count);
    std::copy(floats.begin(), floats.end(), to);
  }

  void run(DataType type, const Operation& operation) override {
    std::visit([&](const auto& o) { run_one(type, o); }, operation);
  }
  double squared_norm(DataType type, std::span<const Stretch> parts) override {
    return sum_of<double>(parts, [&](const Stretch& part) {
      return cpu::sum_of_squares({type, memory_}, part);
    });
  }

 private:
  template <class Operator>
  void run_one(DataType type, const Operator& o) {
    if constexpr (requires { run_in_parts(*this, type, o); })
      run_in_parts(*this, type, o);
    else
      cpu::run({type, memory_, products_.get()}, o);
  }

  cpu::WideningMemory memory_;
  std::unique_ptr<cpu::Products> products_ = cpu::make_products();
  int64_t in_use_ = 0;
  int64_t peak_ = 0;
  std::unordered_map<int64_t, std::vector<void*>> free_;  // by size; steps repeat their sizes
};

}  // namespace

namespace cpu {

std::unique_ptr<Products> make_products() {
  const char* const choice = std::getenv("MPT_PRODUCTS");
  const std::string_view name = choice == nullptr ? "" : choice;
  if (name == "own") return nullptr;
  const auto refuse = [](const std::string& found) {
    refuse_input("MPT_PRODUCTS", found, "own or onednn", "unset it, or try: export MPT_PRODUCTS=own");
  };
  if (!name.empty() && name != "onednn") refuse(std::string(name));
  std::string reason;
  std::unique_ptr<Products> products = make_onednn_products(reason);
  if (!name.empty() && products == nullptr) refuse("onednn, but " + reason);
  return products;
}

void convert(DataType from_type, const void* from, DataType to_type, void* to, int64_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, size_t(count * size_of(to_type)));
    return;
  }
  MPT_CHECK(is_wide(from_type) != is_wide(to_type) &&
                (from_type == DataType::float32 || to_type == DataType::float32),
            "no conversion between these types");
  from_type == DataType::float32 ? narrow(to_type, static_cast<const float*>(from), count, to)
                                 : widen(from_type, from, count, static_cast<float*>(to));
}

void run(const Call& call, const CopyColumns& o) {
  for (int64_t r = 0; r < o.rows; ++r)
    convert(call.type, static_cast<const char*>(o.from) + r * o.from_stride * size_of(call.type), o.to_type,
            static_cast<char*>(o.to) + r * o.to_stride * size_of(o.to_type), o.columns);
}

}  // namespace cpu

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace mpt::runtime
