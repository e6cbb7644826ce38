// SPDX-License-Identifier: Apache-2.0
#include "planner/observe/features.h"

#include <numeric>

#include "base/json.h"
#include "planner/explain/operators.h"

namespace mpt::planner {

const std::vector<std::pair<std::string_view, std::string_view>>& observed_prior_files();  // generated

namespace {

double doublings(int64_t n) { return std::log2(double(n)); }

using L = Layout;
struct Part {
  Feature feature;
  double (*of)(const L& layout);
};
constexpr Part kPartFeatures[] = {
    {{"recompute_full", "full recompute"}, [](const L& l) { return double(l.recompute == Recompute::full); }},
    {{"recompute_selective", "selective recompute"},
     [](const L& l) { return double(l.recompute == Recompute::selective); }},
    {{"tensor_doublings", "tensor parallelism"}, [](const L& l) { return doublings(l.tensor); }},
    {{"context_doublings", "context parallelism"}, [](const L& l) { return doublings(l.context); }},
    {{"pipeline_doublings", "more stages"}, [](const L& l) { return doublings(l.pipeline); }},
    {{"expert_doublings", "expert parallelism"}, [](const L& l) { return doublings(l.expert); }},
    {{"micro_batch_doublings", "larger micro-batches"}, [](const L& l) { return doublings(l.micro_batch); }},
    {{"zero3", "sharded weights (ZeRO 3)"}, [](const L& l) { return double(l.zero == 3); }},
    {{"sequence_parallel", "sequence parallelism"}, [](const L& l) { return double(l.sequence_parallel); }},
    {{"chunk_doublings", "more chunks per stage"}, [](const L& l) { return doublings(l.chunks); }},
    {{"offload", "the optimizer in host memory"}, [](const L& l) { return double(l.offload_optimizer); }}};

// `own`, followed by the parts of layouts.
std::vector<Feature> with_parts(std::vector<Feature> own) {
  for (const Part& part : kPartFeatures) own.push_back(part.feature);
  return own;
}
std::vector<double> with_parts(std::vector<double> own, const Layout& layout) {
  for (const Part& part : kPartFeatures) own.push_back(part.of(layout));
  return own;
}

// Standard deviations of weights, by feature.
using Spreads = std::map<std::string, double>;

struct PriorFile {
#include "generated/PriorFile.inc"
};

double spread_of(const Spreads& spreads, const std::string& name, const std::string& where) {
  const auto found = spreads.find(name);
  if (found == spreads.end())
    refuse_input(where, "no spread of " + name, "one of each feature", "fit it again");
  return found->second;
}

CorrectionPrior prior_of(const Spreads& spreads, std::span<const Feature> features, const std::string& at) {
  CorrectionPrior prior;
  for (const Feature& f : features) prior.weights.push_back(spread_of(spreads, f.name, at));
  prior.layout = spread_of(spreads, "layout", at);
  prior.measurement = spread_of(spreads, "measurement", at);
  return prior;
}

}  // namespace

std::span<const Feature> time_features() {
  static const std::vector<Feature> features = with_parts({
      {"all", nullptr},
#include "generated/TimeFeatures.inc"
  });
  return features;
}

std::vector<double> time_features_of(const SearchProblem& problem, const Candidate& candidate) {
  const WorkSeconds work = critical_work(problem, candidate);
  const double step_s = std::accumulate(work.begin(), work.end(), 0.0);
  std::vector<double> values{1.0};
  for (const double seconds : work) values.push_back(seconds / step_s);
  values.push_back(candidate.evaluation.bubble_share);
  return with_parts(std::move(values), candidate.estimate.layout);
}

std::span<const Feature> memory_features() {
  static const std::vector<Feature> features = with_parts({
      {"all", nullptr},
#include "generated/MemoryFeatures.inc"
  });
  return features;
}

std::vector<double> memory_features_of(const SearchProblem& /*problem*/, const Candidate& candidate) {
  const std::vector<RankMemory>& memory = candidate.evaluation.memory;
  const RankMemory& fullest = *max_by(memory, [](const RankMemory& rank) { return rank.peak_bytes; });
  const auto share = [&](int64_t bytes) { return double(bytes) / double(fullest.peak_bytes); };
  return with_parts({1.0, share(fullest.parameter_bytes), share(fullest.gradient_bytes),
                     share(fullest.optimizer_bytes), share(fullest.activation_peak_bytes)},
                    candidate.estimate.layout);
}

ObservedPriors priors_from_text(const std::string& text, const std::string& file) {
  const auto read = from_json<PriorFile>(parse_json(text, file), file);
  return {prior_of(read.time, time_features(), file + "/time"),
          prior_of(read.memory, memory_features(), file + "/memory"), read.scales};
}

ObservedPriors published_priors() {
  const auto& [file, text] = observed_prior_files().front();
  return priors_from_text(std::string(text), std::string(file));
}

}  // namespace mpt::planner
