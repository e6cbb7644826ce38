// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "base/error.h"
#include "core/short_form.h"
#include "planner/api.h"
#include "planner/explain/screen.h"
#include "planner/explain/utilisation.h"
#include "planner/observe/features.h"
#include "planner/observe/next_run.h"
#include "planner/observe/observed_plan.h"
#include "planner/observe/observed_run.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

struct Example {
  CorrectionPrior prior{{0.1, 0.2, 0.05}, 0.04, 0.02};
  std::vector<CorrectedPoint> points;
  LogTimes log_times;
};

Example example(size_t n, uint64_t seed) {
  Example e;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  e.log_times.resize(Eigen::Index(n));
  for (size_t i = 0; i < n; ++i) {
    e.points.push_back({{1.0, share(random), 3.0 * share(random)}, fmt::format("layout {}", i % (n - 1))});
    e.log_times(Eigen::Index(i)) = 0.1 * share(random);
  }
  return e;
}

// The covariance element by element, as its definition says it.
Eigen::MatrixXd dense_covariance(const Example& e) {
  const auto n = Eigen::Index(e.points.size());
  Eigen::MatrixXd k(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < n; ++j) {
      const CorrectedPoint &a = e.points[size_t(i)], &b = e.points[size_t(j)];
      k(i, j) = a.layout == b.layout ? e.prior.layout * e.prior.layout : 0.0;
      for (size_t f = 0; f < 3; ++f)
        k(i, j) += std::pow(e.prior.weights[f], 2) * a.features[f] * b.features[f];
    }
  }
  return k;
}

TEST(Correction, IsThePosteriorOfTheDenseFormula) {
  const Example e = example(7, 1);
  const std::vector<Eigen::Index> seen{2, 5, 2};  // one of them twice
  const Eigen::Vector3d values(0.11, -0.04, 0.13);
  Posterior posterior(e.points, e.prior);
  for (size_t i = 0; i < seen.size(); ++i) posterior.observe(size_t(seen[i]), values(Eigen::Index(i)));

  const Eigen::MatrixXd k = dense_covariance(e);
  Eigen::MatrixXd with(7, 3), among(3, 3);
  for (Eigen::Index j = 0; j < 3; ++j) {
    with.col(j) = k.col(seen[size_t(j)]);
    for (Eigen::Index i = 0; i < 3; ++i) among(i, j) = k(seen[size_t(i)], seen[size_t(j)]);
  }
  among.diagonal().array() += e.prior.measurement * e.prior.measurement;
  const Eigen::VectorXd mean = with * among.inverse() * values;
  const Eigen::MatrixXd covariance = k - with * among.inverse() * with.transpose();
  EXPECT_LT((posterior.means() - mean).cwiseAbs().maxCoeff(), 1e-12);
  EXPECT_LT((posterior.covariance() - covariance).cwiseAbs().maxCoeff(), 1e-12);
}

// Draws of all points from a mean and a covariance, by a factor of Cholesky.
class Draws {
 public:
  Draws(Eigen::VectorXd mean, const Eigen::MatrixXd& covariance) : mean_(std::move(mean)) {
    const auto n = mean_.size();
    factor_ = (covariance + 1e-12 * Eigen::MatrixXd::Identity(n, n)).llt().matrixL();
  }
  Eigen::VectorXd operator()() {
    Eigen::VectorXd z(mean_.size());
    for (double& x : z) x = normal_(random_);
    return mean_ + factor_ * z;
  }
  double noise(double spread) { return spread * normal_(random_); }

 private:
  Eigen::VectorXd mean_;
  Eigen::MatrixXd factor_;
  std::mt19937_64 random_{7};
  std::normal_distribution<double> normal_;
};

TEST(Correction, OfARunWithoutMemoryHasTheMomentsOfDrawsThatRanOut) {
  const Example e = example(4, 2);
  constexpr double kAtLeast = 0.15;
  Posterior posterior(e.points, e.prior);
  posterior.observe_at_least(1, kAtLeast);

  Draws draws(Eigen::VectorXd::Zero(4), dense_covariance(e));
  Eigen::Vector4d sum = Eigen::Vector4d::Zero(), squares = Eigen::Vector4d::Zero();
  int64_t kept = 0;
  for (int d = 0; d < 400'000; ++d) {
    const Eigen::VectorXd x = draws();
    if (x(1) + draws.noise(e.prior.measurement) < kAtLeast) continue;
    sum += x;
    squares += x.cwiseProduct(x);
    ++kept;
  }
  ASSERT_GT(kept, 50'000);
  for (Eigen::Index i = 0; i < 4; ++i) {
    const double mean = sum(i) / double(kept);
    EXPECT_NEAR(posterior.mean(size_t(i)), mean, 2e-3) << i;
    EXPECT_NEAR(posterior.variance(size_t(i)), squares(i) / double(kept) - mean * mean, 4e-4) << i;
  }
}

TEST(Correction, OfARunThatFittedMirrorsThatOfOneThatDidNot) {
  const Example e = example(4, 2);
  for (const double limit : {-0.3, 0.0, 0.15}) {
    Posterior fitted(e.points, e.prior), failed(e.points, e.prior);
    fitted.observe_at_most(1, -limit);
    failed.observe_at_least(1, limit);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(fitted.mean(i), -failed.mean(i), 1e-12) << i;
      EXPECT_NEAR(fitted.variance(i), failed.variance(i), 1e-12) << i;
    }
  }
}

TEST(Correction, StaysFiniteWhereMemoryRanOutAgainstAllOdds) {
  const Example e = example(4, 2);
  Posterior posterior(e.points, e.prior);
  posterior.observe_at_least(1, 40.0);
  EXPECT_NEAR(posterior.mean(1), 40.0, 0.5);
  EXPECT_GT(posterior.variance(1), 0.0);
}

TEST(NextRun, IsWorthWhatDrawnRunsGain) {
  const Example e = example(6, 3);
  Posterior posterior(e.points, e.prior);
  posterior.observe(0, 0.05);
  const double now = (e.log_times + posterior.means()).minCoeff();
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  for (size_t point = 1; point < 6; ++point) {
    constexpr int kRuns = 100'000;
    double sum = 0.0;
    for (int r = 0; r < kRuns; ++r) {
      Posterior after = posterior;
      after.observe(point, posterior.mean(point) + std::sqrt(posterior.run_variance(point)) * normal(random));
      sum += now - (e.log_times + after.means()).minCoeff();
    }
    EXPECT_NEAR(worth_of_run(e.log_times, posterior, point), sum / kRuns, 5e-4) << point;
  }
}

TEST(NextRun, IsWorthNothingWhereItCannotChangeTheChoice) {
  Example e = example(3, 4);
  e.log_times << 0.0, 50.0, 60.0;
  const Posterior posterior(e.points, e.prior);
  EXPECT_EQ(worth_of_run(e.log_times, posterior, 1), 0.0);
}

TEST(NextRun, LosesWhatDrawnTimesLose) {
  const Example e = example(6, 5);
  Posterior posterior(e.points, e.prior);
  posterior.observe(2, -0.02);
  Eigen::Index choice = 0;
  (e.log_times + posterior.means()).minCoeff(&choice);
  Draws draws(e.log_times + posterior.means(), posterior.covariance());
  double sum = 0.0;
  constexpr int kDraws = 1'000'000;
  for (int d = 0; d < kDraws; ++d) {
    const Eigen::VectorXd times = draws().array().exp();
    sum += times(choice) / times.minCoeff() - 1.0;
  }
  EXPECT_NEAR(draw_losses(e.log_times, posterior, size_t(choice), kDraws).mean(), sum / kDraws, 5e-4);
}

std::vector<Choosable> choosable(const Example& e) {
  std::vector<Choosable> all;
  for (size_t i = 0; i < e.points.size(); ++i)
    all.push_back({e.points[i], std::exp(e.log_times(Eigen::Index(i))), 1.0, false});
  return all;
}

TEST(NextRun, RecommendsWhatRanBeforeWhatIsExpectedToBeAsFast) {
  Example e = example(4, 6);
  e.log_times << 0.0, 0.005, 0.3, 0.4;
  const Posterior prior(e.points, e.prior);
  std::vector<Choosable> all = choosable(e);
  EXPECT_EQ(recommended(all, prior), 0U);
  all[1].ran = true;
  EXPECT_EQ(recommended(all, prior), 1U);
  all[1].ran = false;
  all[2].ran = true;
  EXPECT_EQ(recommended(all, prior), 0U);
  all[0].likely_to_fit = 0.5;
  EXPECT_EQ(recommended(all, prior), 1U);
  for (Choosable& c : all) c.likely_to_fit = 0.1;
  all[3].likely_to_fit = 0.2;
  EXPECT_EQ(recommended(all, prior), 3U);
}

TEST(NextRun, IsTheRecommendedLayoutAndThenAnother) {
  const Example e = example(6, 7);
  Posterior posterior(e.points, e.prior);
  std::vector<Choosable> all = choosable(e);
  const size_t first = recommended(all, posterior);
  const NextRun before = next_run(all, posterior, first);
  EXPECT_EQ(before.layout, first);
  EXPECT_GT(before.loss, before.loss_after);
  posterior.observe(first, 0.1);
  all[first].ran = true;
  const NextRun after = next_run(all, posterior, recommended(all, posterior));
  ASSERT_TRUE(after.layout);
  EXPECT_NE(after.layout, first);
  for (Choosable& c : all) c.ran = true;
  EXPECT_FALSE(next_run(all, posterior, first).layout);
}

TEST(ObservedFeatures, HaveNamesAndASpreadEach) {
  const ObservedPriors priors = published_priors();
  EXPECT_EQ(priors.time.weights.size(), time_features().size());
  EXPECT_EQ(priors.memory.weights.size(), memory_features().size());
  std::set<std::string> names;
  for (const Feature& f : time_features()) EXPECT_TRUE(names.insert(f.name).second) << f.name;
  EXPECT_GT(priors.time.weights.front(), priors.time.measurement);
  EXPECT_TRUE(std::is_sorted(priors.scales.begin(), priors.scales.end()));
  ASSERT_GE(priors.scales.size(), 10u);
  EXPECT_LT(priors.scales.front(), 1.0);
  EXPECT_GT(priors.scales.back(), 1.0);
}

TEST(ObservedFeatures, RefuseAPriorThatLacksOne) {
  const std::string text =
      R"({"source": "s", "script": "s", "date": "2026-01-01", "time": {}, "memory": {}})";
  try {
    priors_from_text(text, "prior.json");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("no spread of all"), std::string::npos) << error.what();
  }
}

PlanRequest observed_request() {
  PlanRequest request;
  request.model.name = "llama3-8b";
  request.cluster.name = "dgx-h100:1";
  request.global_batch = 64;
  request.threads = 1;
  return request;
}

TEST(ShortForm, IsReadAsLayoutsAreWritten) {
  const Plan plan = planner::plan(observed_request());
  for (const RankedLayout& r : plan.ranking) {
    const std::string name = layout_name(r.layout);
    if (name.find('-', name.find("recompute=")) != std::string::npos &&
        name.find("recompute=") != std::string::npos)
      continue;  // a range of layers: no single layout
    PlanRequest request = observed_request();
    const ShortForm form = parse_short_form(name, "test");
    request.bounds = form.bounds;
    EXPECT_EQ(layout_name(form.complete(layout_to_estimate(*resolve(request)))), name);
  }
}

TEST(ShortForm, OfEveryPartIsRead) {
  const ShortForm form = parse_short_form(
      "recompute=core_attn+mlp tp4+sp cp2a2a pp4 dp8 ep8 etp2 zero3/8 mbs2 interleaved x3 dp-outermost "
      "offload",
      "test");
  const SearchBounds& b = form.bounds;
  EXPECT_EQ(b.tensor, std::vector<int64_t>{4});
  EXPECT_EQ(b.sequence_parallel, std::vector<Switch>{Switch::on});
  EXPECT_EQ(b.context, std::vector<int64_t>{2});
  EXPECT_EQ(b.context_methods, std::vector<ContextMethod>{ContextMethod::all_to_all});
  EXPECT_EQ(b.pipeline, std::vector<int64_t>{4});
  EXPECT_EQ(b.data, std::vector<int64_t>{8});
  EXPECT_EQ(b.expert, std::vector<int64_t>{8});
  EXPECT_EQ(b.expert_tensor, std::vector<int64_t>{2});
  EXPECT_EQ(b.zero, std::vector<int64_t>{3});
  EXPECT_EQ(form.shard, 8);
  EXPECT_EQ(b.micro_batch, std::vector<int64_t>{2});
  EXPECT_EQ(b.schedules, std::vector<std::string>{"interleaved"});
  EXPECT_EQ(b.chunks, std::vector<int64_t>{3});
  EXPECT_EQ(b.orders, std::vector<RankOrder>{RankOrder::data_outermost});
  EXPECT_EQ(b.offload, std::vector<Switch>{Switch::on});
  EXPECT_EQ(b.recomputes, std::vector<Recompute>{Recompute::selective});
  EXPECT_EQ(form.recompute_modules, (std::vector<std::string>{"core_attn", "mlp"}));
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}
void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
}

TEST(ObservedRun, ErrorsNamePlaceFindingExpectationAndRemedy) {
  expect_parts(message_of([] { parse_short_form("tp2 qq4", "--observed"); }),
               {"--observed", "'qq4' in the layout", "tp2, pp8", "docs/notation.md"});
  expect_parts(message_of([] { parse_short_form("tp2 tp4", "--observed"); }), {"'tp4'", "each part once"});
  expect_parts(message_of([] { read_observed("28.1s", "--observed", ""); }),
               {"--observed", "'28.1s'", "LAYOUT=FIGURES", "in quotes"});
  const Plan plan = planner::plan(observed_request());
  expect_parts(message_of([&] { parse_figures("oom,28s", "--observed", plan); }),
               {"oom alone", "leave its figures out"});
  expect_parts(message_of([&] { parse_figures("fast", "--observed", plan); }), {"--observed", "fast"});
}

TEST(ObservedRun, IsReadFromLinesOfAFile) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "mpt_observed_runs.txt";
  std::ofstream(file) << "# Tuesday\n\ntp2 pp4 recompute=full = 3.5s, 41GiB\ntp1 dp8 = oom\n";
  const auto runs = read_observed(file.string(), "--observed", "");
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].layout, "tp2 pp4 recompute=full");
  EXPECT_EQ(runs[0].measured, "3.5s, 41GiB");
  const Plan plan = planner::plan(observed_request());
  const MeasuredFigures figures = parse_figures(runs[0].measured, "test", plan);
  EXPECT_DOUBLE_EQ(figures.seconds.value_or(0.0), 3.5);
  EXPECT_EQ(figures.bytes.value_or(0), int64_t{41} << 30);
  EXPECT_TRUE(parse_figures(runs[1].measured, "test", plan).out_of_memory);
  std::ofstream(file) << "tp2 pp4=3.5s\ntp1 dp8\n";
  expect_parts(message_of([&] { read_observed(file.string(), "--observed", ""); }),
               {"at line 2", "'tp1 dp8'"});
  std::filesystem::remove(file);
}

const CorrectedLayout& corrected_of(const Plan& plan, const Layout& layout) {
  const auto& all = plan.corrected->layouts;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const CorrectedLayout& c) { return c.layout == layout; });
  if (found == all.end()) throw std::runtime_error("no such layout");
  return *found;
}

std::string run_of(const RankedLayout& r, double factor) {
  return fmt::format("{}={}s", layout_name(r.layout), factor * r.step_time_s);
}

TEST(ObservedPlan, FollowsARunAndKeepsItForOtherBatches) {
  const Plan before = planner::plan(observed_request());
  PlanRequest request = observed_request();
  request.observed = read_observed(run_of(before.ranking.front(), 1.2), "--observed", "");
  const Plan after = planner::plan(request);
  ASSERT_TRUE(after.corrected);
  const CorrectedLayout& ran = corrected_of(after, before.layout);
  EXPECT_TRUE(ran.ran);
  EXPECT_GT(ran.step_time_s, 1.15 * ran.predicted_s);
  EXPECT_LT(ran.step_time_s, 1.25 * ran.predicted_s);
  EXPECT_NE(after.corrected->learned.front().find("From 1 run: this cluster is"), std::string::npos);
  for (const CorrectedLayout& c : after.corrected->layouts) EXPECT_GT(c.step_time_s, c.predicted_s);

  PlanRequest other = after.request;  // what plan.json keeps
  ASSERT_EQ(other.observed.size(), 1U);
  EXPECT_TRUE(other.observed.front().exact);
  other.global_batch = 128;
  const Plan larger = planner::plan(other);
  ASSERT_TRUE(larger.corrected);
  for (const CorrectedLayout& c : larger.corrected->layouts) {
    EXPECT_GT(c.step_time_s, 1.03 * c.predicted_s);
    EXPECT_FALSE(c.ran);
  }
  EXPECT_EQ(larger.request.observed.front().global_batch, 64);
  expect_parts(plan_screen(larger), {"From 1 run", "CORRECTED ORDER", "MEASURE NEXT"});
}

TEST(ObservedPlan, LeavesOutALayoutThatRanOutOfMemory) {
  const Plan before = planner::plan(observed_request());
  PlanRequest request = observed_request();
  request.observed = read_observed(layout_name(before.layout) + "=oom", "--observed", "");
  const Plan after = planner::plan(request);
  EXPECT_NE(after.layout, before.layout);
  const CorrectedLayout& failed = corrected_of(after, before.layout);
  EXPECT_TRUE(failed.out_of_memory);
  EXPECT_EQ(failed.confidence.fits.value_or(1.0), 0.0);
}

TEST(ObservedEstimate, IsCorrectedInTimeMemoryAndWhetherItFits) {
  PlanRequest request = observed_request();
  request.bounds.tensor = {2};
  const Estimated before = estimate(request);
  EXPECT_FALSE(before.plan.corrected);
  const double step_s = before.plan.prediction.step_time_s;
  const auto peak = double(before.candidate.evaluation.peak_bytes);
  request.observed =
      read_observed(fmt::format("tp2={}s,{}B", 1.2 * step_s, int64_t(0.5 * peak)), "--observed", "");
  const Estimated ran = estimate(request);
  ASSERT_TRUE(ran.plan.corrected);
  EXPECT_TRUE(ran.fits());
  const Plan shown = as_observed(ran.plan);
  EXPECT_NEAR(shown.prediction.step_time_s / step_s, 1.2, 0.03);
  EXPECT_NEAR(shown.prediction.tokens_per_s * shown.prediction.step_time_s,
              before.plan.prediction.tokens_per_s * step_s, 1.0);
  EXPECT_NEAR(double(reports::peak_bytes(shown)) / peak, 0.5, 0.03);
  EXPECT_EQ(shown.prediction.confidence.fits, 1.0);
  expect_parts(describe_task(ran.plan) + describe_figures(ran.plan),
               {"From 1 run: this cluster is", "than predicted", "without the runs"});

  request.bounds.tensor = {4};  // another layout: by what both have
  const Estimated other = estimate(request);
  const CorrectedLayout& corrected = other.plan.corrected->layouts.front();
  EXPECT_FALSE(corrected.ran);
  EXPECT_GT(corrected.step_time_s, 1.03 * corrected.predicted_s);
  EXPECT_LT(double(corrected.peak_bytes), 0.95 * double(other.candidate.evaluation.peak_bytes));

  request.bounds.tensor = {2};
  request.observed = read_observed("tp2=oom", "--observed", "");
  const Estimated failed = estimate(request);
  EXPECT_FALSE(failed.fits());
  expect_parts(describe_verdict(failed.plan, std::nullopt), {"DOES NOT FIT: it ran out of memory."});
}

TEST(ObservedEstimate, LeavesOutRunsOnOtherDevicesAndSaysSo) {
  PlanRequest request = observed_request();
  request.observed = read_observed("tp2=3s", "--observed", "");
  PlanRequest other = estimate(request).plan.request;
  other.cluster = {"dgx-a100:1", {}};
  const Estimated e = estimate(other);
  EXPECT_FALSE(e.plan.corrected);
  expect_parts(fmt::format("{}", fmt::join(e.plan.notes, " ")),
               {"1 observed run is of other nodes or software"});
}

TEST(ObservedComparison, CorrectsTheRowsOfTheSameNodes) {
  const Plan before = planner::plan(observed_request());
  PlanRequest request = observed_request();
  request.observed = read_observed(run_of(before.ranking.front(), 1.2), "--observed", "");
  std::vector<PlanRequest> rows(3, planner::plan(request).request);
  rows[1].global_batch = 128;
  rows[2].cluster = {"dgx-a100:1", {}};
  const auto answers = compare(rows);
  for (const size_t row : {0U, 1U}) {
    ASSERT_TRUE(answers[row].plan && answers[row].plan->corrected) << row;
    EXPECT_GT(as_observed(*answers[row].plan).prediction.step_time_s,
              1.03 * answers[row].plan->prediction.step_time_s);
  }
  ASSERT_TRUE(answers[2].plan);
  EXPECT_FALSE(answers[2].plan->corrected);
}

// What all layouts have alike tells nothing of a kind.
TEST(ObservedPlan, SaysNothingOfWhatAllLayoutsShare) {
  PlanRequest request = observed_request();
  request.bounds.tensor = {8};
  request.bounds.recomputes = {Recompute::full};
  request.observed = read_observed("tp8 recompute=full=30s", "--observed", "");
  const Plan plan = planner::plan(request);
  for (const std::string& sentence : plan.corrected->learned) {
    EXPECT_EQ(sentence.find("full recompute"), std::string::npos) << sentence;
    EXPECT_EQ(sentence.find("tensor parallelism"), std::string::npos) << sentence;
  }
}

TEST(ObservedPlan, RefusesARunOnOtherDevices) {
  const Plan before = planner::plan(observed_request());
  PlanRequest request = observed_request();
  request.observed = read_observed(run_of(before.ranking.front(), 1.2), "--observed", "");
  PlanRequest other = planner::plan(request).request;
  other.cluster.name = "dgx-a100:1";
  expect_parts(message_of([&] { planner::plan(other); }),
               {"--observed", "dgx-h100", "dgx-a100", "\"observed\""});
}

}  // namespace
}  // namespace mpt::planner
