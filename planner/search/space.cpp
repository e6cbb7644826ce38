// SPDX-License-Identifier: Apache-2.0
#include "planner/search/space.h"

#include <numeric>

#include "core/ties.h"

namespace mpt::planner {
namespace {

constexpr int64_t kFewestTokensPerPiece = 128;  // rows of a tile in flash attention kernels

// What is chosen before the experts are placed. It is no Layout, so that no rule of layouts can be asked of
// it.
struct DenseSplit {
  Degrees degrees;
  ContextMethod context_method = ContextMethod::ring;
  int64_t micro_batch = 1;
  RankOrder order = RankOrder::pipeline_outermost;
  bool sequence_parallel = false;
};

class DegreesEnumeration {
 public:
  DegreesEnumeration(const SearchProblem& problem, const VisitDegrees& visit, NotDividing& not_dividing,
                     const ListedPart& part)
      : problem_(problem), bounds_(problem.bounds), visit_(visit), not_dividing_(not_dividing), part_(part) {
    problem.set_job(node_);
  }

  void run() {
    bool any = false;
    size_t pair = 0;
    for (const int64_t tensor : divisors_of(problem_.ranks)) {
      if (!allowed(bounds_.tensor, tensor)) continue;
      for (const int64_t context : context_degrees(problem_.ranks / tensor)) {
        const bool listed = pair++ % part_.of == part_.index;
        const int64_t rest = problem_.ranks / tensor / context;
        for (const int64_t pipeline : divisors_of(rest)) {
          const int64_t data = rest / pipeline;
          if (listed && leaves_group(tensor * context)) {
            note(
                fmt::format("tensor x context of {} ranks would leave a group of devices", tensor * context));
            continue;
          }
          if (!allowed(bounds_.pipeline, pipeline) || !allowed(bounds_.data, data)) continue;
          any = true;
          const Degrees degrees{tensor, context, pipeline, data};
          if (listed && kinds_of_parallelism(degrees, 1) <= problem_.most_kinds) add_degrees(degrees);
        }
      }
    }
    if (!any) note(fmt::format("no allowed tensor x pipeline x data is {} ranks", problem_.ranks));
  }

 private:
  void note(const std::string& reason) { ++not_dividing_[reason]; }
  bool refused(const std::optional<Rejection>& rejection) {
    if (rejection) note(rejection->reason);
    return rejection.has_value();
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
    return any_of(groups, [&](const DeviceGroup& g) { return g.devices % block != 0; });
  }

  void add_degrees(const Degrees& degrees) {
    if (part_.stopped()) return;
    if (refused(
            problem_.refused([&](const frameworks::Framework& f) { return supports_degrees(f, degrees); })))
      return;
    if (degrees.pipeline > problem_.model.layers.count())
      return note(fmt::format("{} stages for {} layers", degrees.pipeline, problem_.model.layers.count()));
    if (refused(check_division(problem_.model, degrees, problem_.workload))) return;
    even_stages_ = even_stages(problem_.model.layers.count(), degrees.pipeline);
    DenseSplit split{degrees};
    possible_ = false;
    first_reason_.clear();
    for (const auto& [method, name] : EnumNames<ContextMethod>::table()) {
      if (degrees.context == 1 && method != ContextMethod::ring) continue;
      if (degrees.context > 1 && !allowed(bounds_.context_methods, method)) continue;
      split.context_method = method;
      add_micro_batches(split);
    }
    if (!possible_ && !first_reason_.empty()) note(first_reason_);
  }

  void add_micro_batches(DenseSplit& split) {
    const int64_t samples = problem_.workload.global_batch / split.degrees.data;
    bool any = false;
    for (const int64_t micro_batch : divisors_of(samples)) {
      if (!allowed(bounds_.micro_batch, micro_batch)) continue;
      any = true;
      split.micro_batch = micro_batch;
      add_orders(split);
    }
    if (!any)
      note(fmt::format("no allowed micro-batch divides the {} sequences of a data-parallel rank", samples));
  }

  void add_orders(DenseSplit& split) {
    const Degrees& d = split.degrees;
    for (const auto& [order, order_name] : EnumNames<RankOrder>::table()) {
      // Within one level of the network, or along one axis, the order changes nothing.
      const bool matters = d.pipeline > 1 && d.data > 1 && problem_.cluster.levels.size() > 1;
      if (order != RankOrder::pipeline_outermost && !matters) continue;
      if (matters && !allowed(bounds_.orders, order)) continue;
      split.order = order;
      for (const bool sequence_parallel : {false, true}) {
        if (sequence_parallel && d.tensor == 1) continue;
        if (d.tensor > 1 && !allowed(bounds_.sequence_parallel, sequence_parallel)) continue;
        split.sequence_parallel = sequence_parallel;
        add_experts(split);
      }
    }
  }

  void add_experts(const DenseSplit& split) {
    const Degrees& d = split.degrees;
    const int64_t pool = d.tensor * d.context * d.data;
    bool any = false;
    for (const int64_t expert :
         divisors_of(problem_.model.moe() != nullptr ? problem_.model.moe()->experts : 1)) {
      if (pool % expert != 0 || !allowed(bounds_.expert, expert)) continue;
      if (kinds_of_parallelism(d, expert) > problem_.most_kinds) continue;
      // With data outermost, experts beyond the ranks that share a sequence would talk over the slowest
      // links.
      const bool far = split.order == RankOrder::data_outermost && expert > 1;
      for (const int64_t expert_split : divisors_of(d.tensor)) {
        // Anything between whole experts and a split like the dense layers' is in use nowhere.
        if (expert_split != d.tensor && (expert == 1 || expert_split != 1)) continue;
        if (far && expert * expert_split > d.tensor * d.context) continue;
        if (pool % (expert * expert_split) != 0 || !allowed(bounds_.expert_tensor, expert_split)) continue;
        any = true;
        complete(split, expert, expert_split);
        add_node();
      }
    }
    if (!any && first_reason_.empty())
      first_reason_ = fmt::format(
          "no allowed expert degree divides the ranks, where experts stay whole or are split {} ways",
          d.tensor);
  }

  // All layouts below the node have these choices.
  void complete(const DenseSplit& split, int64_t expert, int64_t expert_split) {
    const Degrees& d = split.degrees;
    node_.tensor = d.tensor;
    node_.context = d.context;
    node_.pipeline = d.pipeline;
    node_.data = d.data;
    node_.context_method = split.context_method;
    node_.micro_batch = split.micro_batch;
    node_.order = split.order;
    node_.sequence_parallel = split.sequence_parallel;
    node_.expert = expert;
    node_.expert_tensor = expert_split == d.tensor ? 0 : expert_split;
    problem_.set_overlaps(node_);
  }

  void add_node() {
    if (part_.stopped()) return;
    node_.layers_per_stage = even_stages_;
    const auto rejection = check_layout(problem_.model, node_, problem_.workload);
    node_.layers_per_stage.clear();
    if (rejection) {
      if (first_reason_.empty()) first_reason_ = rejection->reason;
      return;
    }
    possible_ = true;
    for (const BoundWords& bound : problem_.meant)
      if (const std::string word = axis_word(bound.name, node_);
          word.empty() || (bound.name == "order" && !contains(bound.values, word)))
        return note("--" + bound.name + " would change nothing");
    if (refused(problem_.refused([&](const frameworks::Framework& f) {
          return supports_split(f, problem_.model, node_, problem_.workload);
        })))
      return;
    const std::vector<Sharding> shardings = shardings_of(problem_, node_);
    if (shardings.empty()) return note("no allowed ZeRO stage or offload");
    visit_(node_, shardings);
  }

  const SearchProblem& problem_;
  const SearchBounds& bounds_;
  const VisitDegrees& visit_;
  NotDividing& not_dividing_;
  const ListedPart& part_;
  std::map<int64_t, std::vector<int64_t>> divisors_;  // stay where they are
  // Of the degrees at hand: their stages, whether any layout divides the model, and why the first does not.
  std::vector<int64_t> even_stages_;
  bool possible_ = false;
  std::string first_reason_;
  Layout node_;  // of the last split that was completed
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

void visit_degrees(const SearchProblem& problem, const ListedPart& part, const VisitDegrees& visit,
                   NotDividing& not_dividing) {
  DegreesEnumeration(problem, visit, not_dividing, part).run();
}

std::vector<Sharding> shardings_of(const SearchProblem& problem, const Layout& degrees) {
  const SearchBounds& bounds = problem.bounds;
  const DeviceSpec& device = problem.cluster.device;
  const bool reaches_host = device.kind == DeviceKind::cpu || device.host_bandwidth_bytes_per_s > 0;
  const bool zero_free = degrees.replicas() > 1;
  const int64_t inside = shard_within_node(problem, degrees);
  std::vector<Sharding> shardings;
  shardings.reserve(16);
  for (int64_t zero = 0; zero <= 3; ++zero) {
    if ((zero_free || zero > 0) && !allowed(bounds.zero, zero)) continue;
    for (const int64_t shard : {zero == 0 ? 1 : degrees.replicas(), zero == 0 ? 0 : inside}) {
      if (shard == 0) continue;
      for (const bool offload : {false, true}) {
        if (reaches_host ? !allowed(bounds.offload, offload) : offload) continue;
        // One replica has nothing to share, but some frameworks offload with ZeRO alone.
        if (zero > 0 && !zero_free && !offload) continue;
        const Sharding sharding{zero, shard, offload};
        if (!problem.refused([&](const frameworks::Framework& f) {
              return refuses_sharding(f, problem.model, degrees, sharding);
            }))
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

}  // namespace mpt::planner
