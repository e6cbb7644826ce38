// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/quantity.h"
#include "planner/cost/operator_pieces.h"
#include "reports/table.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

using models::LayerKinds;
using models::OperatorKind;
using profiler::Phase;
using profiler::Piece;

OperatorTime time_of(const models::LayerProgram& program, size_t index, Piece piece, const Layout& layout,
                     const CostSource& source) {
  const models::Operator& op = program.operators[index];
  OperatorTime time;
  time.name = op.name;
  time.forward_s = source.operator_s(op.shape, Phase::forward);
  time.input_gradient_s = source.operator_s(op.shape, Phase::input_gradient);
  time.weight_gradient_s = source.operator_s(op.shape, Phase::weight_gradient);
  if (piece == Piece::layer) time.again = recomputed_share(program, index, layout.recompute);
  const OperatorKind kind = op.shape.kind;
  if (kind == OperatorKind::linear || kind == OperatorKind::expert_linear || kind == OperatorKind::attention)
    time.flop = models::forward_flop(op.shape) * (1.0 + time.again) + models::input_gradient_flop(op.shape) +
                models::weight_gradient_flop(op.shape);
  price_collectives(op.forward_collectives, op, layout, Phase::forward, false, source,
                    time.forward_collectives);
  price_collectives(op.backward_collectives, op, layout, Phase::input_gradient, true, source,
                    time.backward_collectives);
  return time;
}

double exposed_s(const std::vector<CollectiveCost>& costs) {
  double sum = 0.0;
  for (const CollectiveCost& c : costs) sum += c.exposed_s;
  return sum;
}

PieceTimes times_of(const models::LayerProgram& program, Piece piece, const Layout& layout,
                    const CostSource& source) {
  PieceTimes times;
  PieceSeconds& rest = times.rest = source.pieces_s(piece, layout, program)[size_t(layout.recompute)];
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const OperatorTime& op = times.operators.emplace_back(time_of(program, i, piece, layout, source));
    rest.forward_s -= op.forward_s;
    rest.backward_s -= op.compute_s() - op.forward_s;
    rest.input_gradient_s -= op.input_gradient_s + op.again * op.forward_s;
    rest.weight_gradient_s -= op.weight_gradient_s;
  }
  return times;
}

bool has_input_gradient(InstructionKind pass) {
  return pass == InstructionKind::backward || pass == InstructionKind::input_gradient;
}
bool has_weight_gradient(InstructionKind pass) {
  return pass == InstructionKind::backward || pass == InstructionKind::weight_gradient;
}

double seconds_of(const PieceSeconds& s, InstructionKind pass) {
  return pass == InstructionKind::forward          ? s.forward_s
         : pass == InstructionKind::backward       ? s.backward_s
         : pass == InstructionKind::input_gradient ? s.input_gradient_s
                                                   : s.weight_gradient_s;
}

std::string name_of_kind(size_t kind, bool mixed) {
  if (!mixed) return "decoder layer";
  const char* const names[LayerKinds::kCount] = {
      "decoder layer without experts", "decoder layer with experts",
      "decoder layer without experts, windowed", "decoder layer with experts, windowed"};
  return names[kind];
}

}  // namespace

double PieceTimes::seconds(InstructionKind pass, bool recomputes) const {
  double sum = seconds_of(rest, pass);
  for (const OperatorTime& op : operators) {
    const double forward_s = op.forward_s + exposed_s(op.forward_collectives);
    if (pass == InstructionKind::forward) sum += forward_s;
    if (has_input_gradient(pass)) sum += op.input_gradient_s + exposed_s(op.backward_collectives);
    if (has_input_gradient(pass) && recomputes) sum += op.again * forward_s;
    if (has_weight_gradient(pass)) sum += op.weight_gradient_s;
  }
  return sum;
}

namespace {

// By LayerKinds::of; embedding and head behind them. Empty where the model has none of a kind.
struct Pieces {
  std::array<PieceTimes, LayerKinds::kCount> layers;
  PieceTimes embedding, head;
};

Pieces pieces_of(const SearchProblem& problem, const Layout& layout) {
  models::PiecePrograms programs(problem.model, layout, problem.workload.sequence);
  const CostSource& source = problem.source(0);
  const LayerKinds::Counts& counts = programs.kinds()->all();
  const bool mixed = std::count(counts.begin(), counts.end(), 0) < ptrdiff_t(counts.size()) - 1;
  Pieces pieces;
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    if (counts[kind] == 0) continue;
    pieces.layers[kind] = times_of(programs.layer(kind), Piece::layer, layout, source);
    pieces.layers[kind].name = name_of_kind(kind, mixed);
    pieces.layers[kind].count = counts[kind];
  }
  pieces.embedding = times_of(programs.embedding(), Piece::embedding, layout, source);
  pieces.embedding.name = "embedding";
  pieces.head = times_of(programs.last_stage(), Piece::head, layout, source);
  pieces.head.name = "head and loss";
  return pieces;
}

}  // namespace

std::vector<PieceTimes> operator_times(const SearchProblem& problem, const Layout& layout) {
  Pieces pieces = pieces_of(problem, layout);
  std::vector<PieceTimes> times{std::move(pieces.embedding)};
  for (PieceTimes& layer : pieces.layers) {
    if (!layer.operators.empty()) times.push_back(std::move(layer));
  }
  times.push_back(std::move(pieces.head));
  return times;
}

namespace {

// "-" for nothing.
std::string seconds_or_dash(double seconds) {
  return std::abs(seconds) < 1e-9 ? "-" : (seconds < 0 ? "-" : "") + format_seconds(std::abs(seconds));
}

std::string collective_name(const CollectiveCost& c) {
  std::string kind = enum_name(c.collective.kind);
  std::replace(kind.begin(), kind.end(), '_', '-');
  return fmt::format("{} {} x{}", kind, format_bytes(double(c.collective.bytes)), c.ranks);
}

// Forward and backward, each once.
std::string collective_names(const OperatorTime& op) {
  std::string text;
  const auto add = [&](const std::vector<CollectiveCost>& collectives, const char* when) {
    for (const CollectiveCost& c : collectives) {
      if (c.ranks > 1) text += (text.empty() ? "" : ", ") + (when + collective_name(c));
    }
  };
  add(op.forward_collectives, "");
  add(op.backward_collectives, "back ");
  return text;
}

double seconds_of(const std::vector<CollectiveCost>& collectives) {
  double sum = 0.0;
  for (const CollectiveCost& c : collectives) sum += c.seconds;
  return sum;
}

std::string table_of(const PieceTimes& piece, double peak) {
  reports::Table table({{"operator", reports::Align::left},
                        {"forward"},
                        {"backward"},
                        {"recompute"},
                        {"share"},
                        {"FLOP/s"},
                        {"of peak"},
                        {"collectives"},
                        {"not hidden"},
                        {"which", reports::Align::left}});
  const double whole = piece.seconds(InstructionKind::forward) + piece.seconds(InstructionKind::backward);
  for (const OperatorTime& op : piece.operators) {
    const double again = 1.0 + op.again;
    const double collectives =
        again * seconds_of(op.forward_collectives) + seconds_of(op.backward_collectives);
    const double exposed = again * exposed_s(op.forward_collectives) + exposed_s(op.backward_collectives);
    const double rate = op.compute_s() > 0 ? op.flop / op.compute_s() : 0.0;
    table.add_row(
        {op.name, seconds_or_dash(op.forward_s), seconds_or_dash(op.input_gradient_s + op.weight_gradient_s),
         seconds_or_dash(op.again * op.forward_s), format_percent((op.compute_s() + exposed) / whole),
         rate > 0 ? format_flop_rate(rate) : "-", rate > 0 && peak > 0 ? format_percent(rate / peak) : "-",
         seconds_or_dash(collectives), seconds_or_dash(exposed), collective_names(op)});
  }
  const double rest = piece.rest.forward_s + piece.rest.backward_s;
  if (std::abs(rest) > 1e-9) {
    table.add_row({"beside its operators", seconds_or_dash(piece.rest.forward_s),
                   seconds_or_dash(piece.rest.backward_s), "-", format_percent(rest / whole), "-", "-", "-",
                   "-", ""});
  }
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
  for (const PieceTimes& piece : operator_times(problem, layout)) {
    text += fmt::format("\n{}{}: forward {}, backward {}\n", piece.name,
                        piece.count > 1 ? fmt::format(", {} of them", piece.count) : "",
                        format_seconds(piece.seconds(InstructionKind::forward)),
                        format_seconds(piece.seconds(InstructionKind::backward))) +
            table_of(piece, peak);
  }
  return text;
}

namespace {

// Lays operators one behind the other, from `now_s` on.
class InnerLine {
 public:
  InnerLine(InstructionId id, double now_s, double stretch, std::vector<reports::InnerSpan>& spans)
      : id_(id), now_s_(now_s), stretch_(stretch), spans_(spans) {}

  void add(const PieceTimes& piece, InstructionKind pass, bool recomputes) {
    for (const OperatorTime& op : piece.operators) {
      if (pass == InstructionKind::forward) forward(op, 1.0, op.name);
      if (has_input_gradient(pass) && recomputes && op.again > 0.0) forward(op, op.again, op.name + " again");
    }
    for (auto op = piece.operators.rbegin(); op != piece.operators.rend(); ++op) {
      if (has_input_gradient(pass)) {
        const double weight_s = has_weight_gradient(pass) ? op->weight_gradient_s : 0.0;
        add(op->name + " back", op->input_gradient_s + weight_s, op->backward_collectives, 1.0);
      } else if (has_weight_gradient(pass) && op->weight_gradient_s > 0.0) {
        add(op->name + " weight", op->weight_gradient_s, {}, 1.0);
      }
    }
    now_s_ += stretch_ * std::max(0.0, seconds_of(piece.rest, pass));
  }

 private:
  void forward(const OperatorTime& op, double share, const std::string& name) {
    add(name, op.forward_s * share, op.forward_collectives, share);
  }

  // What gathers inputs comes before the operator, what sends results behind it, and the rest beside.
  void add(const std::string& name, double compute_s, const std::vector<CollectiveCost>& collectives,
           double share) {
    const auto is_beside = [](const CollectiveCost& c) { return c.exposed_s < c.seconds; };
    const auto gathers = [](const CollectiveCost& c) {
      return c.collective.kind == models::CollectiveKind::all_gather;
    };
    for (const CollectiveCost& c : collectives) {
      if (!is_beside(c) && gathers(c)) collective(c, share);
    }
    const double start_s = now_s_;
    double lost_s = 0.0;
    for (const CollectiveCost& c : collectives) {
      if (!is_beside(c)) continue;
      lost_s += share * c.exposed_s;
      collective(c, share);
    }
    now_s_ = start_s + stretch_ * (compute_s + lost_s);
    spans_.push_back({id_, reports::kOperators, name, start_s, now_s_});
    for (const CollectiveCost& c : collectives) {
      if (!is_beside(c) && !gathers(c)) collective(c, share);
    }
  }
  void collective(const CollectiveCost& c, double share) {
    if (c.seconds <= 0.0) return;
    const double end_s = now_s_ + stretch_ * share * c.seconds;
    spans_.push_back({id_, 1 + int(c.kind), collective_name(c), now_s_, end_s});
    now_s_ = end_s;
  }

  const InstructionId id_;
  double now_s_;
  const double stretch_;
  std::vector<reports::InnerSpan>& spans_;
};

}  // namespace

std::vector<reports::InnerSpan> inner_spans(const SearchProblem& problem, const Layout& layout,
                                            const StepProgram& program, const Timeline& timeline) {
  const Pieces pieces = pieces_of(problem, layout);
  const auto contents = stage_contents(problem.model, layout);
  std::vector<reports::InnerSpan> spans;
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    if (i.micro_batch != 0 || !i.is_compute()) continue;
    const StageContent& content = contents[size_t(i.stage)];
    const int64_t recomputed =
        layout.recomputed_layers.empty() ? content.layer_count : layout.recomputed_layers[size_t(i.stage)];
    std::vector<std::pair<const PieceTimes*, bool>> order;  // and whether it recomputes
    if (content.has_embedding) order.emplace_back(&pieces.embedding, false);
    for (int64_t l = 0; l < content.layer_count; ++l)
      order.emplace_back(&pieces.layers[LayerKinds::of(problem.model, content.first_layer + l)],
                         l < recomputed);
    if (content.has_head) order.emplace_back(&pieces.head, false);
    double seconds = 0.0;
    for (const auto& [piece, recomputes] : order) seconds += piece->seconds(i.kind, recomputes);
    const Span& span = timeline.spans[size_t(id)];
    InnerLine line(id, span.start_s, std::min(1.0, span.seconds() / seconds), spans);
    if (i.kind != InstructionKind::forward) std::reverse(order.begin(), order.end());
    for (const auto& [piece, recomputes] : order) line.add(*piece, i.kind, recomputes);
  }
  return spans;
}

}  // namespace mpt::planner
