// SPDX-License-Identifier: Apache-2.0
#pragma once

// KernelProfile: kernel times that a user measured elsewhere, in the form of kernels.json. They override the
// catalog's tables shape by shape. Other shapes keep the catalog's times.

#include <filesystem>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/json.h"

namespace mpt::profiler {

/// C[m, n] = A[m, k] B[k, n] in bf16 or fp16. Each pass has its own shape: a weight gradient of a layer of
/// `columns` x `inner` over `rows` tokens is m = columns, n = inner, k = rows.
enum class ProductPass { any, forward, input_gradient, weight_gradient };
enum class AttentionPass { forward, backward };

struct ProductTime {
  ProductPass pass = ProductPass::any;
  int64_t m = 1, n = 1, k = 1;
  double seconds = 0.0;

  bool operator==(const ProductTime&) const = default;

  static void describe(auto& v) {
    using T = ProductTime;
    v.field("pass", &T::pass, "pass that runs it");
    v.field("m", &T::m, "rows of the result", between(1, 1e12));
    v.field("n", &T::n, "columns of the result", between(1, 1e12));
    v.field("k", &T::k, "length of the sums", between(1, 1e12));
    v.field("seconds", &T::seconds, "time of one execution", between(1e-9, 1e4));
  }
};

/// A causal attention core in bf16 or fp16.
struct AttentionTime {
  AttentionPass pass = AttentionPass::forward;
  int64_t sequence = 1, heads = 1, kv_heads = 1, head_dim = 1;
  double seconds = 0.0;

  bool operator==(const AttentionTime&) const = default;

  static void describe(auto& v) {
    using T = AttentionTime;
    v.field("pass", &T::pass, "forward or backward");
    v.field("sequence", &T::sequence, "tokens", between(1, 1e12));
    v.field("heads", &T::heads, "heads of queries", between(1, 1e6));
    v.field("kv_heads", &T::kv_heads, "heads of keys and values", between(1, 1e6));
    v.field("head_dim", &T::head_dim, "width of a head", between(1, 1e6));
    v.field("seconds", &T::seconds, "time of one sequence", between(1e-9, 1e4));
  }
};

struct CollectiveTime {
  std::string operation;  // all_reduce, all_gather, reduce_scatter or all_to_all
  int64_t ranks = 2;
  int64_t bytes = 1;  // the whole message, as nccl-tests counts it
  double seconds = 0.0;
  int64_t hosts = 1;  // that the ranks are spread over, evenly

  bool operator==(const CollectiveTime&) const = default;

  static void describe(auto& v) {
    using T = CollectiveTime;
    v.field("operation", &T::operation, "all_reduce, all_gather, reduce_scatter or all_to_all");
    v.field("ranks", &T::ranks, "ranks of the group", between(2, 1e7));
    v.field("bytes", &T::bytes, "whole message", between(1, 1e15));
    v.field("seconds", &T::seconds, "time of one execution", between(1e-9, 1e4));
    FieldRule hosts = optional_field(between(1, 1e6));
    hosts.omits_default = true;  // so that files without it keep their digest
    v.field("hosts", &T::hosts, "hosts that the group is spread over", hosts);
  }
};

struct KernelProfile {
  std::string format = "mpt-kernels";
  int64_t version = 1;
  std::string device;
  std::vector<std::string> sources;
  std::vector<ProductTime> products;
  std::vector<AttentionTime> attention;
  std::vector<CollectiveTime> collectives;

  bool operator==(const KernelProfile&) const = default;

  static void describe(auto& v) {
    using T = KernelProfile;
    v.field("format", &T::format, "always mpt-kernels");
    v.field("version", &T::version, "of this form", between(1, 1));
    v.field("device", &T::device, "device of the catalog that was measured");
    v.field("sources", &T::sources, "files that the times came from", long_text());
    v.field("products", &T::products, "matrix products");
    v.field("attention", &T::attention, "attention cores", optional_field());
    v.field("collectives", &T::collectives, "collectives, inside a node or between hosts");
  }
};

/// Throws UserError.
KernelProfile load_kernel_profile(const std::filesystem::path& file);

/// Facts about an nccl-tests log that the log does not state; empty and 0 if the caller has none.
struct LogHints {
  std::string operation;
  int64_t ranks = 0;
  int64_t hosts = 0;
};
/// Adds the times of a file to a profile. The file is output of nccl-tests (text), a PyTorch profiler
/// (Kineto) trace with recorded shapes, a SimuMax system file, or a profile.json of the same GPU in bf16 or
/// fp16 (the last three are JSON). Of several times of one shape the shortest counts. Throws UserError if the
/// file is none of them, or has no usable time.
void import_times(KernelProfile& profile, const std::filesystem::path& file, const LogHints& hints);

}  // namespace mpt::profiler
