// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/operators.h"

#include "base/quantity.h"
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

}  // namespace mpt::planner
