// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/operators.h"

#include "base/quantity.h"
#include "planner/search/split_model.h"
#include "reports/table.h"
#include "reports/utilisation.h"

namespace mpt::planner {

std::vector<PieceTimes> operator_times(const SearchProblem& problem, const Layout& layout) {
  models::PiecePrograms programs(problem.model, layout, problem.workload.sequence);
  ModelPieces pieces = piece_times(programs, problem.source(0));
  std::vector<PieceTimes> times{std::move(pieces.embedding)};
  for (PieceTimes& layer : pieces.layers)
    if (!layer.operators.empty()) times.push_back(std::move(layer));
  times.push_back(std::move(pieces.head));
  return times;
}

namespace {

// The seconds, or "-" for 0.
std::string seconds_or_dash(double seconds) {
  return std::abs(seconds) < 1e-9 ? "-" : (seconds < 0 ? "-" : "") + format_seconds(std::abs(seconds));
}

// Names of collectives in forward and backward, each once.
std::string collective_names(const OperatorTime& op) {
  std::string text;
  const auto add = [&](const std::vector<CollectiveCost>& collectives, const char* when) {
    for (const CollectiveCost& c : collectives)
      if (c.ranks > 1) text += (text.empty() ? "" : ", ") + (when + collective_name(c));
  };
  add(op.forward.costs, "");
  add(op.backward.costs, "back ");
  add(op.weight.costs, "back ");
  return text;
}

std::string table_of(const PieceTimes& piece, double peak) {
  reports::Table table(reports::columns({"<operator", "forward", "backward", "recompute", "share", "FLOP/s",
                                         "of peak", "collectives", "not hidden", "<which"}));
  const double whole = piece.seconds(InstructionKind::forward) + piece.seconds(InstructionKind::backward);
  for (const OperatorTime& op : piece.operators) {
    const double again = 1.0 + op.again;
    const double collectives = again * op.forward.seconds() + op.backward.seconds() + op.weight.seconds();
    const double exposed = again * op.forward.exposed_s() + op.backward.exposed_s() + op.weight.exposed_s();
    const double rate = op.compute_s() > 0 ? op.flop / op.compute_s() : 0.0;
    table.add_row(
        {op.name, seconds_or_dash(op.forward_s), seconds_or_dash(op.input_gradient_s + op.weight_gradient_s),
         seconds_or_dash(op.again * op.forward_s), format_percent((op.compute_s() + exposed) / whole),
         rate > 0 ? format_flop_rate(rate) : "-", rate > 0 && peak > 0 ? format_percent(rate / peak) : "-",
         seconds_or_dash(collectives), seconds_or_dash(exposed), collective_names(op)});
  }
  const PieceSeconds& beside = piece.rest[1];
  const double rest = beside.forward_s + beside.backward_s;
  if (std::abs(rest) > 1e-9)
    table.add_row({"beside its operators", seconds_or_dash(beside.forward_s),
                   seconds_or_dash(beside.backward_s), "-", format_percent(rest / whole), "-", "-", "-", "-",
                   ""});
  return table.text();
}

// Its seconds are bytes, and compute takes none: a step's price is then its traffic, nothing of it hidden.
class BytesOfCollectives final : public CostSource {
 public:
  double piece_s(profiler::Piece, profiler::Phase, const Layout&,
                 const models::LayerProgram&) const override {
    return 0.0;
  }
  double operator_s(const models::OperatorShape&, profiler::Phase) const override { return 0.0; }
  double collective_s(models::CollectiveKind, int64_t bytes, const GroupPlace& group) const override {
    return group.ranks > 1 ? double(bytes) : 0.0;
  }
  double transfer_s(int64_t bytes, int64_t, int64_t, int64_t) const override { return double(bytes); }
  double optimizer_s(int64_t) const override { return 0.0; }
  double offloaded_optimizer_s(int64_t) const override { return 0.0; }
  double gradient_norm_s(int64_t) const override { return 0.0; }
  double dispatch_s() const override { return 0.0; }
  std::vector<double> rate_by_active_ranks() const override { return {}; }
  CostOrigin origin() const override { return {}; }
};

}  // namespace

std::string describe_operators(const SearchProblem& problem, const Layout& layout) {
  std::string text = fmt::format("Operators on one rank, for a micro-batch of {} x {} tokens\n",
                                 layout.micro_batch, problem.workload.sequence);
  const bool mixed = problem.cluster.mixed();
  const DeviceSpec& device = mixed ? problem.cluster.groups.front().device : problem.cluster.device;
  if (mixed) text += fmt::format("  on {}\n", device.name);
  const double peak = reports::peak_flop_per_s(device, layout.precision);
  for (const PieceTimes& piece : operator_times(problem, layout))
    text += fmt::format("\n{}{}: forward {}, backward {}\n", piece.name,
                        piece.count > 1 ? fmt::format(", {} of them", piece.count) : "",
                        format_seconds(piece.seconds(InstructionKind::forward)),
                        format_seconds(piece.seconds(InstructionKind::backward))) +
            table_of(piece, peak);
  return text;
}

std::vector<RankTraffic> traffic_of_ranks(const Plan& plan) {
  const BytesOfCollectives bytes;
  SearchProblem problem;
  problem.model = plan.model;
  problem.workload = plan.workload;
  problem.cost = &bytes;
  Layout layout = plan.layout;
  layout.overlap_gradient_reduce = layout.overlap_parameter_gather = false;  // other collectives hide nothing
  const StepProgram program = program_of(plan);
  const SplitModel split(problem, layout);
  const StepCost cost = cost_of(problem, split, layout, program.rank_of_stage);
  std::vector<RankTraffic> ranks(size_t(program.ranks), RankTraffic{});
  for (const Instruction& i : program.instructions) {
    if (i.stage < 0 || i.kind == InstructionKind::optimizer_step) continue;
    RankTraffic& rank = ranks[size_t(program.rank_of_stage[size_t(i.stage)])];
    const auto add = [&](CommunicationKind kind, double of) { rank[size_t(kind)] += std::llround(of); };
    if (i.is_transfer()) {
      add(CommunicationKind::transfer, cost.of(i));
    } else if (i.is_compute()) {
      for (size_t kind = 0; kind < kInsideKinds; ++kind)
        add(CommunicationKind(kind), cost.inside_compute(i).seconds[kind]);
    } else {
      add(i.kind == InstructionKind::gather_parameters ? CommunicationKind::sharding
                                                       : CommunicationKind::gradients,
          cost.of(i));
    }
  }
  return ranks;
}

std::string describe_traffic(const Plan& plan) {
  reports::Table table(reports::columns(
      {"pipeline rank", "tensor", "context", "expert", "sharding", "transfer", "gradients"}));
  const std::vector<RankTraffic> ranks = traffic_of_ranks(plan);
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::vector<std::string> row{fmt::format("{}", r)};
    for (const int64_t bytes : ranks[r]) row.push_back(bytes > 0 ? format_bytes(double(bytes)) : "-");
    table.add_row(std::move(row));
  }
  return "Collectives and messages of a rank in a step\n" + table.text();
}

}  // namespace mpt::planner
