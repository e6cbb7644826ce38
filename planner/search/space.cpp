// SPDX-License-Identifier: Apache-2.0
#include "planner/search/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "core/plan.h"

namespace mpt::planner {
namespace {

constexpr int64_t kFewestTokensPerPiece = 128;  // rows of a tile in flash attention kernels

class DegreesEnumeration {
 public:
  DegreesEnumeration(const SearchProblem& problem, const std::function<void(const Layout&)>& visit,
                     NotDividing& not_dividing)
      : problem_(problem), bounds_(problem.bounds), visit_(visit), not_dividing_(not_dividing) {
    base_.precision = problem.precision;
    base_.selective = problem.selective;
    base_.training = problem.training;
    base_.execution = problem.execution;
  }

  void run() {
    bool any = false;
    for (const int64_t tensor : divisors_of(problem_.ranks)) {
      if (!allowed(bounds_.tensor, tensor)) continue;
      for (const int64_t context : context_degrees(problem_.ranks / tensor)) {
        const int64_t rest = problem_.ranks / tensor / context;
        for (const int64_t pipeline : divisors_of(rest)) {
          const int64_t data = rest / pipeline;
          if (leaves_group(tensor * context)) {
            note(
                fmt::format("tensor x context of {} ranks would leave a group of devices", tensor * context));
            continue;
          }
          if (!allowed(bounds_.pipeline, pipeline) || !allowed(bounds_.data, data)) continue;
          any = true;
          Layout layout = base_;
          layout.tensor = tensor;
          layout.context = context;
          layout.pipeline = pipeline;
          layout.data = data;
          if (runs_degrees(layout)) add_split(layout);
        }
      }
    }
    if (!any) note(fmt::format("no allowed tensor x pipeline x data is {} ranks", problem_.ranks));
  }

 private:
  void note(const std::string& reason) { ++not_dividing_[reason]; }

  // Whether the framework that is to run the plan has such layouts.
  bool runs(const std::optional<Rejection>& rejection) {
    if (rejection) note(rejection->reason);
    return !rejection;
  }
  bool runs_degrees(const Layout& layout) {
    return !problem_.framework || runs(frameworks::supports_degrees(*problem_.framework, layout));
  }
  bool runs_split(const Layout& layout) {
    return !problem_.framework ||
           runs(frameworks::supports_split(*problem_.framework, problem_.model, layout, problem_.workload));
  }

  const std::vector<int64_t>& divisors_of(int64_t value) {
    std::vector<int64_t>& known = divisors_[value];
    if (known.empty()) known = divisors(value);
    return known;
  }

  std::vector<int64_t> context_degrees(int64_t ranks) {
    std::vector<int64_t> degrees;
    for (const int64_t c : divisors_of(ranks)) {
      // Each rank holds two pieces of the sequence. Below a tile of an attention kernel they make no sense,
      // unless somebody asks.
      const int64_t fewest = bounds_.context.empty() ? kFewestTokensPerPiece : 1;
      const bool divides = problem_.workload.sequence % (2 * c) == 0;
      const bool enough = problem_.workload.sequence / (2 * c) >= fewest;
      if (allowed(bounds_.context, c) && (c == 1 || (divides && enough))) degrees.push_back(c);
    }
    return degrees;
  }

  // Tensor and context ranks talk in every layer: they stay among devices of one kind.
  bool leaves_group(int64_t block) const {
    const std::vector<DeviceGroup>& groups = problem_.cluster.groups;
    return std::any_of(groups.begin(), groups.end(),
                       [&](const DeviceGroup& g) { return g.devices % block != 0; });
  }

  void add_split(Layout layout) {
    if (layout.pipeline > problem_.model.layers.count())
      return note(fmt::format("{} stages for {} layers", layout.pipeline, problem_.model.layers.count()));
    layout.layers_per_stage = even_stages(problem_.model.layers.count(), layout.pipeline);
    std::optional<Rejection> first;
    bool any = false;
    for (const auto& [method, name] : EnumNames<ContextMethod>::table()) {
      if (layout.context == 1 && method != ContextMethod::ring) continue;
      if (layout.context > 1 && !allowed(bounds_.context_methods, method)) continue;
      layout.context_method = method;
      const auto rejection = check_layout(problem_.model, layout, problem_.workload);
      if (rejection && !first) first = rejection;
      if (rejection) continue;
      any = true;
      add_micro_batches(layout);
    }
    if (!any && first) note(first->reason);
  }

  void add_micro_batches(Layout layout) {
    bool any = false;
    for (const int64_t micro_batch : divisors_of(problem_.workload.global_batch / layout.data)) {
      if (!allowed(bounds_.micro_batch, micro_batch)) continue;
      any = true;
      layout.micro_batch = micro_batch;
      add_orders(layout);
    }
    if (!any) {
      note(fmt::format("no allowed micro-batch divides the {} sequences of a data-parallel rank",
                       problem_.workload.global_batch / layout.data));
    }
  }

  void add_orders(Layout layout) {
    for (const auto& [order, order_name] : EnumNames<RankOrder>::table()) {
      // Within one level of the network, or along one axis, the order changes nothing.
      const bool matters = layout.pipeline > 1 && layout.data > 1 && problem_.cluster.levels.size() > 1;
      if (order != RankOrder::pipeline_outermost && !matters) continue;
      if (matters && !allowed(bounds_.orders, order)) continue;
      layout.order = order;
      add_sequence_parallel(layout);
    }
  }

  void add_sequence_parallel(Layout layout) {
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && layout.tensor == 1) continue;
      if (layout.tensor > 1 && !allowed(bounds_.sequence_parallel, sequence_parallel)) continue;
      layout.sequence_parallel = sequence_parallel;
      if (runs_split(layout)) add_experts(layout);
    }
  }

  void add_experts(Layout layout) {
    const int64_t pool = layout.tensor * layout.context * layout.data;
    for (const int64_t expert :
         divisors_of(problem_.model.moe() != nullptr ? problem_.model.moe()->experts : 1)) {
      if (pool % expert != 0 || !allowed(bounds_.expert, expert)) continue;
      // With data outermost, experts beyond the ranks that share a sequence would talk over the slowest
      // links.
      const bool far = layout.order == RankOrder::data_outermost && expert > 1;
      for (const int64_t split : divisors_of(layout.tensor)) {
        // Anything between whole experts and a split like the dense layers' is in use nowhere.
        const bool as_tensor = split == layout.tensor;
        if (!as_tensor && (expert == 1 || split != 1)) continue;
        if (far && expert * split > layout.tensor * layout.context) continue;
        if (pool % (expert * split) != 0 || !allowed(bounds_.expert_tensor, split)) continue;
        layout.expert = expert;
        layout.expert_tensor = as_tensor ? 0 : split;
        problem_.set_overlaps(layout);
        if (check_layout(problem_.model, layout, problem_.workload)) continue;
        if (expert == 1 || runs_split(layout)) add_degrees(layout);
      }
    }
  }

  void add_degrees(Layout layout) {
    layout.layers_per_stage.clear();
    if (shardings_of(problem_, layout).empty()) return note("no allowed ZeRO stage or offload");
    visit_(layout);
  }

  const SearchProblem& problem_;
  const SearchBounds& bounds_;
  const std::function<void(const Layout&)>& visit_;
  NotDividing& not_dividing_;
  std::map<int64_t, std::vector<int64_t>> divisors_;  // stay where they are
  Layout base_;
};

// Ranks within one node that ZeRO's state can be shared over in place of all; 0: none.
int64_t shard_within_node(const SearchProblem& problem, const Layout& layout) {
  const int64_t neighbours = layout.order == RankOrder::pipeline_outermost
                                 ? problem.cluster.devices_per_node / layout.tensor
                                 : layout.context;
  const int64_t inside = std::gcd(layout.replicas(), std::max<int64_t>(1, neighbours));
  return inside > 1 && inside < layout.replicas() ? inside : 0;
}

}  // namespace

std::vector<int64_t> divisors(int64_t value) {
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= value; ++d) {
    if (value % d != 0) continue;
    small.push_back(d);
    if (d != value / d) large.push_back(value / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

void visit_degrees(const SearchProblem& problem, const std::function<void(const Layout&)>& visit,
                   NotDividing* not_dividing) {
  NotDividing unused;
  DegreesEnumeration(problem, visit, not_dividing != nullptr ? *not_dividing : unused).run();
}

std::vector<Sharding> shardings_of(const SearchProblem& problem, const Layout& degrees) {
  const SearchBounds& bounds = problem.bounds;
  const DeviceSpec& device = problem.cluster.device;
  const bool reaches_host = device.kind == DeviceKind::cpu || device.host_bandwidth_bytes_per_s > 0;
  const bool zero_free = degrees.reduces_gradients() && degrees.replicas() > 1;
  const int64_t inside = shard_within_node(problem, degrees);
  std::vector<Sharding> shardings;
  shardings.reserve(16);
  for (int64_t zero = 0; zero <= (zero_free ? 3 : 0); ++zero) {
    if (zero_free && !allowed(bounds.zero, zero)) continue;
    for (const int64_t shard : {zero == 0 ? 1 : degrees.replicas(), zero == 0 ? 0 : inside}) {
      if (shard == 0) continue;
      for (const bool offload : {false, true}) {
        if (reaches_host ? !allowed(bounds.offload, offload) : offload) continue;
        const Sharding sharding{zero, shard, offload};
        if (!problem.framework || !frameworks::supports_sharding(*problem.framework, degrees, sharding))
          shardings.push_back(sharding);
      }
    }
  }
  return shardings;
}

Layout with_sharding(const Layout& degrees, const Sharding& sharding) {
  Layout layout = degrees;
  layout.zero = sharding.zero;
  layout.shard = sharding.shard;
  layout.offload_optimizer = sharding.offload;
  return layout;
}

void visit_shardings(const SearchProblem& problem, const std::function<void(const Layout&)>& visit,
                     NotDividing* not_dividing) {
  visit_degrees(
      problem,
      [&](const Layout& degrees) {
        for (const Sharding& sharding : shardings_of(problem, degrees))
          visit(with_sharding(degrees, sharding));
      },
      not_dividing);
}

}  // namespace mpt::planner
