// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/published_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/json.h"
#include "base/quantity.h"
#include "core/schema.h"
#include "frameworks/framework.h"
#include "planner/api.h"
#include "planner/explain/streams.h"
#include "planner/validate/framework_values.h"

namespace mpt::planner {
namespace {

template <class T>
std::vector<T> values_or(const std::vector<T>& values, T otherwise) {
  return values.empty() ? std::vector<T>{otherwise} : values;
}

// Layers of stages, the ends with one less where only that divides, as most frameworks split them.
std::vector<int64_t> usual_stages(int64_t layers, int64_t stages) {
  if (stages == 1 || layers % stages == 0 || (layers + 2) % stages != 0) return even_stages(layers, stages);
  std::vector<int64_t> counts(size_t(stages), (layers + 2) / stages);
  --counts.front();
  --counts.back();
  return counts;
}

Layout with_values(const Layout& layout, int64_t layers, int64_t chunks, int64_t micro_batch, int64_t zero,
                   Recompute recompute) {
  Layout l = layout;
  if (chunks != layout.chunks) {
    l.chunks = chunks;
    l.schedule = chunks > 1 ? "interleaved" : "1f1b";
    l.layers_per_stage = usual_stages(layers, l.stages());
    l.recomputed_layers.clear();
  }
  l.micro_batch = micro_batch;
  if (zero != layout.zero) {
    l.zero = zero;
    l.shard = zero == 0 ? 1 : l.replicas();
  }
  if (recompute != layout.recompute) {
    l.recompute = recompute;
    l.recomputed_layers.clear();
  }
  return l;
}

// The layouts that the source leaves open, without the request's own.
std::vector<Layout> other_layouts(const PublishedRun& run, const Layout& own, const ModelSpec& model) {
  std::vector<Layout> others;
  const OpenFields& open = run.unknown;
  for (const int64_t chunks : values_or(open.chunks, own.chunks)) {
    for (const int64_t micro_batch : values_or(open.micro_batch, own.micro_batch)) {
      for (const int64_t zero : values_or(open.zero, own.zero)) {
        for (const Recompute recompute : values_or(open.recompute, own.recompute)) {
          Layout l = with_values(own, model.layers.count(), chunks, micro_batch, zero, recompute);
          if (l != own) others.push_back(std::move(l));
        }
      }
    }
  }
  return others;
}

void widen(const Estimated& e, RunPrediction& prediction) {
  const double step_s = e.candidate.evaluation.step_time_s;
  if (e.fits() < prediction.fits) return;
  const bool first_that_fits = e.fits() && !prediction.fits;
  prediction.fits = e.fits();
  prediction.least_s = first_that_fits ? step_s : std::min(prediction.least_s, step_s);
  prediction.most_s = first_that_fits ? step_s : std::max(prediction.most_s, step_s);
}

// Layouts that do not divide the model or the batch were not run.
void try_others(const PublishedRun& run, const PlanRequest& request, const Calibration& calibration,
                const Estimated& own, RunPrediction& prediction) {
  PlanRequest other = request;
  const ModelSpec& model = own.resolved->problem.model;
  for (const Layout& layout : other_layouts(run, own.candidate.estimate.layout, model)) {
    if (check_layout(model, layout, own.resolved->problem.workload)) continue;
    other.layout = layout;
    widen(estimate(other, calibration), prediction);
  }
}

std::vector<std::string> open_names(const OpenFields& open) {
  std::vector<std::string> names;
  if (!open.chunks.empty()) names.emplace_back("chunks");
  if (!open.micro_batch.empty()) names.emplace_back("micro_batch");
  if (!open.zero.empty()) names.emplace_back("zero");
  if (!open.recompute.empty()) names.emplace_back("recompute");
  return names;
}

}  // namespace

std::vector<PublishedRun> load_published_runs(const std::string& file) {
  std::istringstream lines(read_file(file));
  std::vector<PublishedRun> runs;
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", file, number);
    runs.push_back(from_json<PublishedRun>(parse_json(line, where), where));
  }
  return runs;
}

PlanRequest request_of(const PublishedRun& run) {
  PlanRequest request = run.request;
  const std::vector<std::string> published = names_of_published_frameworks();
  if (std::find(published.begin(), published.end(), request.framework) == published.end()) return request;
  const Execution values = values_of_framework(request.framework, "request/framework");
  if (!request.layout) request.layout.emplace();
  request.layout->execution = frameworks::with_changes(values, request.execution, "request/execution");
  request.framework.clear();
  request.execution.clear();
  return request;
}

RunPrediction predict(const PublishedRun& run, const Calibration& calibration, bool streams) {
  const PlanRequest request = request_of(run);
  const Estimated e = estimate(request, calibration);
  const SearchProblem& problem = e.resolved->problem;
  RunPrediction p;
  p.layout = e.candidate.estimate.layout;
  p.model = problem.model;
  p.workload = problem.workload;
  p.gpu = problem.cluster.device.name;
  p.priced_by = problem.cost->origin().source;
  p.step_s = streams
                 ? step_time_s(simulate_streams(problem, p.layout, e.candidate.evaluation.program).timeline)
                 : e.candidate.evaluation.step_time_s;
  p.least_s = p.most_s = p.step_s;
  p.fits = e.fits();
  p.limit_bytes = problem.memory_limit_bytes;
  p.memory = e.candidate.evaluation.memory;
  p.peak_gib = observed_gib(run.observed, problem.execution, problem.cluster.device, p.memory);
  p.breakdown = breakdown(problem, e.candidate);
  p.work = critical_work(problem, e.candidate);
  p.unknown = open_names(run.unknown);
  if (!streams) try_others(run, request, calibration, e, p);
  return p;
}

double observed_gib(const Observation& observed, const Execution& execution, const DeviceSpec& device,
                    const std::vector<RankMemory>& memory) {
  int64_t bytes = 0;
  for (size_t r = 0; r < memory.size(); ++r) {
    const std::vector<int64_t>& ranks = observed.ranks;
    if (ranks.empty() || std::find(ranks.begin(), ranks.end(), int64_t(r)) != ranks.end())
      bytes = std::max(bytes, memory[r].peak_bytes);
  }
  double gib = double(bytes) / double(kGiB);
  if (observed.how == MemoryMeasure::allocated) return gib;
  const double cached = gib * execution.allocator_cache;
  gib *= 1.0 + execution.allocator_slack;
  if (observed.how == MemoryMeasure::device) gib += execution.context_gib;
  // The cache is given back where the device is full.
  return std::max(gib, std::min(gib + cached, double(device.memory_bytes) / double(kGiB)));
}

std::string published_run_schema_text() { return schema_text<PublishedRun>("mpt published run"); }

}  // namespace mpt::planner
