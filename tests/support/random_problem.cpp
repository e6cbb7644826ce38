// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_problem.h"

#include "base/quantity.h"
#include "core/schedule_catalog.h"
#include "planner/search/layout_resolver.h"
#include "planner/search/leaves.h"
#include "tests/support/make_plan.h"

namespace mpt::test {
namespace {

using planner::CostSource;

constexpr int64_t kCommunicatorBytes = 130 * kMiB;

// The roofline, where each launch costs something, too.
class CostWithLaunches final : public CostSource {
 public:
  CostWithLaunches(const ClusterSpec& cluster, double dispatch_s)
      : CostSource(planner::shipped_calibration()),
        roofline_(planner::make_roofline_cost(cluster)),
        dispatch_s_(dispatch_s) {}

  double piece_s(profiler::Piece piece, profiler::Phase phase, const Layout& layout,
                 const models::LayerProgram& program) const override {
    return roofline_->piece_s(piece, phase, layout, program);
  }
  double operator_s(const models::OperatorShape& shape, profiler::Phase phase) const override {
    return roofline_->operator_s(shape, phase);
  }
  double collective_s(models::CollectiveKind kind, int64_t bytes,
                      const planner::GroupPlace& group) const override {
    return roofline_->collective_s(kind, bytes, group);
  }
  double transfer_s(int64_t bytes, int64_t first, int64_t last, int64_t senders) const override {
    return roofline_->transfer_s(bytes, first, last, senders);
  }
  double optimizer_s(int64_t parameters) const override { return roofline_->optimizer_s(parameters); }
  double offloaded_optimizer_s(int64_t parameters) const override {
    return roofline_->offloaded_optimizer_s(parameters);
  }
  double gradient_norm_s(int64_t parameters) const override { return roofline_->gradient_norm_s(parameters); }
  double host_copy_s(int64_t bytes) const override { return roofline_->host_copy_s(bytes); }
  double dispatch_s() const override { return dispatch_s_; }
  std::vector<double> rate_by_active_ranks() const override { return roofline_->rate_by_active_ranks(); }
  CostOrigin origin() const override { return roofline_->origin(); }

 private:
  const std::unique_ptr<CostSource> roofline_;
  const double dispatch_s_;
};

}  // namespace

RandomProblem::RandomProblem(uint32_t seed, double dispatch_s) : random(seed) {
  problem.model = pick({0, 1}) == 0 ? test::little_gpt(pick({2, 4, 6, 8})) : test::little_llama(pick({4, 8}));
  problem.workload = {pick({4, 8, 12, 16}), 16};
  ClusterSpec& cluster = problem.cluster;
  cluster.name = "random";
  cluster.device = {"d",  pick({0, 1}) == 0 ? DeviceKind::cpu : DeviceKind::gpu,
                    kGiB, 1e9 * double(pick({1, 10})),
                    1e10, 2e10};
  cluster.devices = pick({1, 2, 4, 6, 8});
  cluster.devices_per_node = 2;
  cluster.levels = {{"inner", 2, 1e-6, 1e9 * double(pick({1, 10}))},
                    {"outer", cluster.devices, 1e-5, 1e8 * double(pick({1, 10}))}};
  problem.ranks = cluster.devices;
  problem.memory_limit_bytes = pick({1, 2, 4, 1000}) * 300'000;
  // On GPUs some have room for few communicators of NCCL, which take far more than these little models.
  if (cluster.device.kind == DeviceKind::gpu)
    problem.memory_limit_bytes += (seed % 4 == 0 ? 3 : 20) * kCommunicatorBytes;
  problem.precision = pick({0, 1}) == 0 ? Precision::fp32 : Precision::bf16;
  cluster.cores_per_node = pick({1, 2, 8});
  limit_space();
  if (seed % 3 == 2) {  // experts in every layer or every other one, and a layer behind the head
    problem.model = test::little_mixtral(problem.model.layers.count());
    const int64_t interval = 1 + int64_t(random() % 2);
    problem.model =
        test::with_dense_layers(problem.model, [&](int64_t l) { return (l + 1) % interval != 0; });
    problem.model.next_token_layers = int64_t(random() % 2);
  }
  if (seed % 7 == 4) problem.model = test::little_hybrid(problem.model.layers.count());
  train_otherwise(seed);
  source = dispatch_s > 0.0 ? std::make_unique<CostWithLaunches>(cluster, dispatch_s)
                            : planner::make_roofline_cost(cluster);
  problem.cost = source.get();
}

namespace {

// Some choices of a layout exclude each other, or were never seen together.
void set_combinations(uint32_t seed, frameworks::Abilities& a) {
  using frameworks::Trait;
  std::vector<Trait> all;
  for (const auto& [trait, name] : EnumNames<Trait>::table()) all.push_back(trait);
  a.judged = {{all, "run: a test"}};
  const std::vector<Trait> choices{
      Trait::tensor,       Trait::pipeline,          Trait::zero_0,         Trait::zero_2,
      Trait::zero_3,       Trait::virtual_stages,    Trait::split_backward, Trait::full_recompute,
      Trait::expert_ranks, Trait::larger_micro_batch};
  std::mt19937 dice(seed);
  const auto choice = [&] { return choices[dice() % choices.size()]; };
  if (seed % 3 == 0)
    a.combinations = {
        {{choice(), choice()}, {}, {}, {}, frameworks::Outcome::refuses, "does not", "run: a test"},
        {{choice(), choice()},
         {Trait::sequence_parallel},
         {},
         {},
         frameworks::Outcome::trains_wrong,
         "loses gradients",
         "run: a test"}};
  if (seed % 5 != 0) return;
  a.judged.push_back(a.judged.front());
  for (frameworks::JudgedSet& set : a.judged) std::erase(set.with, choice());
}

}  // namespace

// Can run some of what layouts may have.
std::shared_ptr<const frameworks::Framework> RandomProblem::random_framework() {
  using namespace frameworks;
  auto framework = std::make_shared<Framework>();
  framework->title = "this framework";
  Abilities& a = framework->abilities;
  const auto coin = [&] { return random() % 2 == 0; };
  const std::vector<int64_t> all{0, 1, 2, 3};
  for (const ScheduleEntry& entry : schedule_catalog())
    a.schedules.push_back({entry.name, entry.min_chunks, entry.max_chunks});
  a.tensor = true;
  a.sequence_parallel = coin() ? SequenceParallelRule::optional : SequenceParallelRule::none;
  if (coin()) a.context_methods = {ContextMethod::ring, ContextMethod::all_to_all};
  a.expert = coin();
  a.zero = a.zero_in_pipeline = coin() ? all : std::vector<int64_t>{0};
  a.zero_with_shard_groups = a.zero_with_experts = all;
  if (coin()) a.zero_with_offload = all;
  a.orders = {RankOrder::pipeline_outermost};
  if (coin()) a.orders.push_back(RankOrder::data_outermost);
  a.recomputes = {Recompute::none, Recompute::selective, Recompute::full};
  const auto dice = random();
  const PartialRecompute rules[] = {
      PartialRecompute::any, PartialRecompute::none, PartialRecompute::same_count, PartialRecompute::none,
      PartialRecompute::any, PartialRecompute::none, PartialRecompute::every_nth,  PartialRecompute::none};
  a.partial_recompute = rules[dice % 8];
  a.stage_division = dice % 128 < 16 ? StageDivision::equal : StageDivision::any;
  a.overlap_exchange = true;
  for (const auto& [feature, name] : EnumNames<TrainingFeature>::table()) a.trains.push_back(feature);
  set_combinations(uint32_t(dice), a);
  return framework;
}

// One in eleven each adapts, updates whole matrices, or keeps activations elsewhere.
void RandomProblem::train_otherwise(uint32_t seed) {
  Training& t = problem.training;
  if (seed % 11 == 3) {
    t.adapter_rank = 4;
    t.adapter_targets = {AdapterTarget::qkv, AdapterTarget::up, AdapterTarget::experts};
    t.frozen_format = FrozenFormat::nf4;
  }
  if (seed % 11 == 5) t.optimizer = OptimizerKind::muon;
  if (seed % 11 == 7) {
    t.optimizer = OptimizerKind::adamw8;
    t.offloaded = {OffloadModule::core_attn, OffloadModule::mlp_norm};
    t.frozen = {FrozenPart::embedding, FrozenPart::head};
  }
  if (seed % 11 == 9) {
    t.packed_length = 5.0;
    t.packed_spread = 0.4;
    t.packed_sequences = problem.workload.global_batch;
  }
}

// A part of the space, another one for each seed.
void RandomProblem::limit_space() {
  for (int i = 0; i < 3; ++i)
    problem.bounds.schedules.push_back(schedule_catalog()[random() % schedule_catalog().size()].name);
  problem.framework = random_framework();
  problem.overlaps = {random() % 2 == 0, random() % 2 == 0, random() % 2 == 0, random() % 2 == 0};
  problem.cluster.device.host_bandwidth_bytes_per_s = 1e9;
  const auto dice = random() % 16;
  problem.execution.traffic.keeps_gathered_in_pipeline = dice % 4 == 0;
  problem.execution.traffic.defers_gradient_sums = dice >= 12;
  problem.execution.traffic.sums_shares_in_backward = random() % 4 == 0;
  problem.execution.traffic.deduplicates_dispatch = random() % 2 == 0;
  problem.overlaps.exchange = random() % 2 == 0;
}

}  // namespace mpt::test

namespace mpt::planner {

void visit_degrees(const SearchProblem& problem, const VisitDegrees& visit) {
  NotDividing unused;
  visit_degrees(problem, {}, visit, unused);
}

void visit_shardings(const SearchProblem& problem, const std::function<void(const Layout&)>& visit) {
  visit_degrees(problem, [&](const Layout& degrees, const std::vector<Sharding>& shardings) {
    for (const Sharding& sharding : shardings) visit(with_sharding(degrees, sharding));
  });
}

std::vector<Layout> enumerate_layouts(const SearchProblem& problem) {
  LayoutResolver resolver(problem);
  std::vector<Layout> layouts;
  visit_shardings(problem, [&](const Layout& node) {
    for (const Leaf& leaf : leaves_of(problem, node)) {
      const StageKinds* stages = resolver.stages(node, leaf);
      if (stages == nullptr) continue;
      Layout layout = resolver.layout(node, leaf);
      const bool open = leaf.recompute == RecomputeChoice::fitted;
      if (open && resolver.fit(problem, layout, *stages) == FitOutcome::duplicate) continue;
      layouts.push_back(std::move(layout));
    }
  });
  return layouts;
}

}  // namespace mpt::planner
