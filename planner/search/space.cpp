// SPDX-License-Identifier: Apache-2.0
#include "planner/search/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/plan.h"
#include "frameworks/supports.h"
#include "planner/search/made_to_measure.h"

namespace mpt::planner {
namespace {

// Stages of a few layers in a model of thousands: nobody runs them, unless somebody asks for the chunks.
constexpr int64_t kMostStages = 1024;
constexpr int64_t kFewestTokensPerPiece = 128;  // rows of a tile in flash attention kernels

template <class T>
bool allowed(const std::vector<T>& bound, const T& value) {
  return bound.empty() || std::find(bound.begin(), bound.end(), value) != bound.end();
}
bool allowed(const std::vector<Switch>& bound, bool value) {
  return allowed(bound, value ? Switch::on : Switch::off);
}

class Enumeration {
 public:
  Enumeration(const SearchProblem& problem, const std::function<void(const Layout&)>& visit,
              NotDividing& not_dividing)
      : problem_(problem), bounds_(problem.bounds), visit_(visit), not_dividing_(not_dividing) {
    base_.precision = problem.precision;
    base_.selective = problem.selective;
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
    if (layout.pipeline > problem_.model.layers)
      return note(fmt::format("{} stages for {} layers", layout.pipeline, problem_.model.layers));
    layout.layers_per_stage = even_stages(problem_.model.layers, layout.pipeline);
    if (auto rejection = check_layout(problem_.model, layout, problem_.workload))
      return note(rejection->reason);
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
      for (const auto& [method, name] : EnumNames<ContextMethod>::table()) {
        if (layout.context == 1 && method != ContextMethod::ring) continue;
        if (layout.context > 1 && !allowed(bounds_.context_methods, method)) continue;
        layout.context_method = method;
        add_sequence_parallel(layout);
      }
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
    for (const int64_t expert : divisors_of(problem_.model.moe ? problem_.model.moe->experts : 1)) {
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
        if (expert == 1 || runs_split(layout)) add_group(layout);
      }
    }
  }

  void add_group(Layout layout) {
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

}  // namespace

bool has_schedule(const SearchProblem& problem, const std::string& name) {
  if (!allowed(problem.bounds.schedules, name)) return false;
  if (!problem.framework) return true;
  const auto& can = problem.framework->abilities.schedules;
  return std::any_of(can.begin(), can.end(),
                     [&](const frameworks::ScheduleAbility& s) { return s.schedule == name; });
}

namespace {

// Without a pipeline there is nothing to order: 1F1B, which holds the fewest micro-batches, stands for all.
const ScheduleEntry* only_schedule(const SearchBounds& bounds) {
  const auto& entries = schedule_catalog();
  for (const ScheduleEntry& entry : entries) {
    if (entry.name == Layout{}.schedule && allowed(bounds.schedules, entry.name)) return &entry;
  }
  for (const ScheduleEntry& entry : entries) {
    if (entry.min_chunks == 1 && allowed(bounds.schedules, entry.name)) return &entry;
  }
  return nullptr;
}

void add_recomputes(const SearchProblem& problem, Member member, std::vector<Member>& members) {
  const std::pair<RecomputeChoice, Recompute> choices[] = {{RecomputeChoice::none, Recompute::none},
                                                           {RecomputeChoice::selective, Recompute::selective},
                                                           {RecomputeChoice::full, Recompute::full},
                                                           {RecomputeChoice::fitted, Recompute::full}};
  for (const auto& [choice, recompute] : choices) {
    if (!allowed(problem.bounds.recomputes, recompute)) continue;
    const bool partial = choice == RecomputeChoice::fitted;
    if (partial && !problem.fits_recompute) continue;
    if (problem.framework && frameworks::supports_recompute(*problem.framework, recompute, partial)) continue;
    member.recompute = choice;
    members.push_back(member);
  }
}

std::optional<Rejection> schedule_rejection(const frameworks::Framework* framework, const Layout& split,
                                            const ScheduleEntry& entry, int64_t chunks, int64_t micro) {
  if (framework == nullptr) return std::nullopt;
  return frameworks::supports_schedule(*framework, split, entry.name, chunks, micro);
}

// Beyond what list scheduling is for, a schedule made to measure is the best named one and stands only where
// that one is not asked for by its own name.
bool is_worth_making(const SearchProblem& problem, const ScheduleEntry& entry, int64_t ranks, int64_t chunks,
                     int64_t micro, const std::function<void(const std::string&)>& note) {
  if (ranks * chunks * micro > kMostGeneratedCells) {
    note(fmt::format("no {} schedule of more than {} stages x micro-batches", entry.name,
                     kMostGeneratedCells));
    return false;
  }
  if (chunks <= kMostListedChunks) return true;
  return !has_schedule(problem, leanest_schedule(entry, int(chunks)).name);
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

Recompute recompute_of(RecomputeChoice choice) {
  return choice == RecomputeChoice::none        ? Recompute::none
         : choice == RecomputeChoice::selective ? Recompute::selective
                                                : Recompute::full;
}

Recompute least_recompute(RecomputeChoice choice) {
  return choice == RecomputeChoice::fitted ? Recompute::none : recompute_of(choice);
}

void visit_groups(const SearchProblem& problem, const std::function<void(const Layout&)>& visit,
                  NotDividing* not_dividing) {
  NotDividing unused;
  Enumeration(problem, visit, not_dividing != nullptr ? *not_dividing : unused).run();
}

namespace {

// Ranks within one node that ZeRO's state can be shared over in place of all; 0: none.
int64_t shard_within_node(const SearchProblem& problem, const Layout& layout) {
  const int64_t neighbours = layout.order == RankOrder::pipeline_outermost
                                 ? problem.cluster.devices_per_node / layout.tensor
                                 : layout.context;
  const int64_t inside = std::gcd(layout.replicas(), std::max<int64_t>(1, neighbours));
  return inside > 1 && inside < layout.replicas() ? inside : 0;
}

}  // namespace

std::vector<Sharding> shardings_of(const SearchProblem& problem, const Layout& group) {
  const SearchBounds& bounds = problem.bounds;
  const DeviceSpec& device = problem.cluster.device;
  const bool reaches_host = device.kind == DeviceKind::cpu || device.host_bandwidth_bytes_per_s > 0;
  const bool zero_free = group.reduces_gradients() && group.replicas() > 1;
  const int64_t inside = shard_within_node(problem, group);
  std::vector<Sharding> shardings;
  shardings.reserve(16);
  for (int64_t zero = 0; zero <= (zero_free ? 3 : 0); ++zero) {
    if (zero_free && !allowed(bounds.zero, zero)) continue;
    for (const int64_t shard : {zero == 0 ? 1 : group.replicas(), zero == 0 ? 0 : inside}) {
      if (shard == 0) continue;
      for (const bool offload : {false, true}) {
        if (reaches_host ? !allowed(bounds.offload, offload) : offload) continue;
        const Sharding sharding{zero, shard, offload};
        if (!problem.framework || !frameworks::supports_sharding(*problem.framework, group, sharding))
          shardings.push_back(sharding);
      }
    }
  }
  return shardings;
}

Family family_of(const Layout& group, const Sharding& sharding) {
  Family family{group};
  family.layout.zero = sharding.zero;
  family.layout.shard = sharding.shard;
  family.layout.offload_optimizer = sharding.offload;
  return family;
}

void visit_families(const SearchProblem& problem, const std::function<void(const Family&)>& visit,
                    NotDividing* not_dividing) {
  visit_groups(
      problem,
      [&](const Layout& group) {
        for (const Sharding& sharding : shardings_of(problem, group)) visit(family_of(group, sharding));
      },
      not_dividing);
}

std::vector<Member> members_of(const SearchProblem& problem, const Family& family,
                               NotDividing* not_dividing) {
  const auto note = [&](const std::string& reason) {
    if (not_dividing != nullptr) ++(*not_dividing)[reason];
  };
  const Layout& split = family.layout;
  const bool only_one = split.pipeline == 1;
  const ScheduleEntry* const only = only_one ? only_schedule(problem.bounds) : nullptr;
  const int64_t micro = micro_batches(split, problem.workload);
  const frameworks::Framework* framework = problem.framework.get();
  std::vector<Member> members;
  for (const ScheduleEntry& entry : schedule_catalog()) {
    if (!allowed(problem.bounds.schedules, entry.name) || (only_one && &entry != only)) continue;
    const int64_t most = std::min<int64_t>(entry.max_chunks, problem.model.layers / split.pipeline);
    for (int64_t chunks = entry.min_chunks; chunks <= most; ++chunks) {
      if (!allowed(problem.bounds.chunks, chunks) || (only_one && chunks > 1)) continue;
      if (split.pipeline * chunks > kMostStages && problem.bounds.chunks.empty()) {
        note(fmt::format("more than {} virtual stages", kMostStages));
        continue;
      }
      if (split.pipeline * chunks * micro > kMostScheduleCells) {
        note(fmt::format("more than {} stages x micro-batches", kMostScheduleCells));
        continue;
      }
      if (entry.made_to_measure && !is_worth_making(problem, entry, split.pipeline, chunks, micro, note))
        continue;
      if (auto r = schedule_rejection(framework, split, entry, chunks, micro)) {
        note(r->reason);
        continue;
      }
      Member member;
      member.schedule = uint16_t(&entry - schedule_catalog().data());
      member.chunks = uint16_t(chunks);
      const bool equal = problem.model.layers % (split.pipeline * chunks) == 0;
      if (framework == nullptr || !frameworks::supports_stages(*framework, equal))
        add_recomputes(problem, member, members);
      if (only_one || (framework != nullptr && frameworks::supports_stages(*framework, false))) continue;
      member.split = StageSplit::balanced;
      add_recomputes(problem, member, members);
      if (problem.pools.empty()) continue;
      member.split = StageSplit::by_memory;
      add_recomputes(problem, member, members);
    }
  }
  if (members.empty())
    note(fmt::format("no allowed schedule and chunks for {} pipeline stages", split.pipeline));
  return members;
}

bool in_rounds(const Member& member) {
  return member.chunks != 2 || schedule_catalog()[member.schedule].placement == round_robin_placement;
}

Layout layout_of(const SearchProblem& problem, const Family& family, const Member& member) {
  Layout layout = family.layout;
  layout.schedule = schedule_catalog()[member.schedule].name;
  layout.chunks = member.chunks;
  layout.recompute = recompute_of(member.recompute);
  layout.layers_per_stage = even_stages(problem.model.layers, layout.stages());
  return layout;
}

}  // namespace mpt::planner
