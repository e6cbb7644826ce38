// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/profile_machine.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <ctime>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/version.h"
#include "frameworks/supports/supports.h"
#include "models/footprint.h"
#include "profiler/measure/compute.h"
#include "profiler/measure/transport.h"

namespace mpt::profiler {
namespace {

// A bar with the time left, if stderr is a terminal; silent otherwise.
class Progress {
 public:
  Progress(int total, bool quiet)
      : total_(std::max(1, total)), visible_(!quiet && isatty(2) == 1), start_s_(now_s()) {}
  ~Progress() {
    if (visible_) std::fputs("\r\033[K", stderr);
  }
  void advance() {
    done_ = std::min(done_ + 1, total_);
    if (!visible_) return;
    constexpr int kWidth = 32;
    const int filled = kWidth * done_ / total_;
    const double left_s = (now_s() - start_s_) / done_ * (total_ - done_);
    const std::string line = fmt::format("  [{}{}] {}/{}  about {} left", std::string(size_t(filled), '#'),
                                         std::string(size_t(kWidth - filled), '.'), done_, total_,
                                         format_duration(std::max(left_s, 0.0)));
    std::fputs(live_line(line, "", stderr).c_str(), stderr);
    std::fflush(stderr);
  }

 private:
  int total_, done_ = 0;
  bool visible_;
  double start_s_;
};

std::vector<int64_t> powers_of_two(int64_t most) {
  std::vector<int64_t> values;
  for (int64_t v = 1; v <= most; v *= 2) values.push_back(v);
  return values;
}

std::vector<int64_t> tensor_widths(const ModelSpec& model, int64_t most) {
  std::vector<int64_t> widths = powers_of_two(most);
  std::erase_if(widths, [&](int64_t t) {
    return model.attention().heads % t != 0 || model.attention().kv_heads % t != 0 ||
           model.mlp().ffn_hidden % t != 0;
  });
  return widths;
}

// Memory that measure_pieces() holds at once for the largest piece: weights, gradients, one micro-batch in
// flight, and the boundary tensors in place of its neighbours.
int64_t timing_bytes(const ModelSpec& model, int64_t sequence, int64_t micro_batch) {
  Layout layout;
  layout.micro_batch = micro_batch;
  const models::StagePieces pieces(model, layout, sequence);
  std::vector<StageContent> timed{{0, 0, true, false}, {0, 0, false, true}};
  for (size_t kind = 0; kind < pieces.kinds().size(); ++kind)
    timed.push_back({pieces.kinds().first_layer(kind), 1, false, false});
  int64_t most = 0;
  for (const StageContent& piece : timed) {
    const StageFootprint f = pieces.footprint(layout, piece, 0);
    most = std::max(most, f.parameter_bytes + f.gradient_bytes + f.saved_bytes + 2 * f.boundary_bytes +
                              std::max(f.forward_workspace_bytes, f.backward_workspace_bytes));
  }
  return kPieceInstances * most;
}

MachineDescription machine_of(const Target& target) {
  MachineDescription machine = describe_machine();
  if (target.backend != nullptr) {
    machine.gpus = target.backend->describe_gpus();
    machine.device = target.backend->device_name();
    machine.kind = DeviceKind::gpu;
    machine.memory_bytes = target.backend->memory_bytes();
  }
  return machine;
}

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Ranks that share a GPU do not measure links.
int64_t ranks_of(const ProfileRequest& request) {
  return request.target.backend == nullptr
             ? request.max_ranks
             : std::min<int64_t>(request.max_ranks, request.target.backend->device_count());
}

StoppingRule timing_rule(const ProfileRequest& request) {
  StoppingRule rule;
  rule.budget_s = request.quick ? 0.02 : 0.12;
  rule.least_samples = request.quick ? 3 : 5;
  // Each sample ends with a wait, which takes up to a tenth of a millisecond on GPUs.
  if (request.target.backend != nullptr) rule.least_sample_s = 5e-3;
  return rule;
}
StoppingRule shortened(StoppingRule rule) {
  rule.budget_s /= 4;
  return rule;
}

// The timings to take at each sequence length.
std::vector<ComputeRequest> computes_of(const ProfileRequest& request, int64_t memory_bytes) {
  std::vector<ComputeRequest> computes;
  for (const int64_t sequence : request.sequences)
    computes.push_back(
        {request.model, sequence, request.precision,
         fitting_micro_batches(request.model, sequence, request.max_micro_batch, memory_bytes / 2),
         tensor_widths(request.model, request.max_tensor), timing_rule(request), request.target});
  return computes;
}

// The number of measurements: pieces and operators, then rates and transport.
int measurements_of(const ProfileRequest& request, const std::vector<ComputeRequest>& computes) {
  const int64_t ranks = ranks_of(request);
  int64_t count = 5 + (request.target.backend == nullptr ? ranks : 0) + int64_t(powers_of_two(ranks).size());
  for (const ComputeRequest& compute : computes) count += layer_measurements(compute);
  return int(count);
}

void measure_layers(std::vector<ComputeRequest> computes, const OnMeasured& advance, Profile& profile) {
  for (ComputeRequest& compute : computes) {
    append(profile.pieces, measure_pieces(compute, advance));
    compute.rule = shortened(compute.rule);
    append(profile.operators, measure_operators(compute, advance));
  }
}

// Runs last: once tracing is on, every call of the driver takes longer.
void trace_layers(const std::vector<ComputeRequest>& computes, Profile& profile) {
  std::string reason;
  for (const ComputeRequest& compute : computes) append(profile.kernels, trace_kernels(compute, reason));
  if (!reason.empty()) warn("mpt-profile: note: kernels are not traced: " + reason);
}

void set_head(const ProfileRequest& request, Profile& profile) {
  profile.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  profile.mpt_version = kVersion;
  profile.model = request.model;
  profile.sequence = request.sequences.front();
  profile.precision = request.precision;
}

}  // namespace

std::vector<int64_t> fitting_micro_batches(const ModelSpec& model, int64_t sequence, int64_t most,
                                           int64_t memory_bytes) {
  if (const int64_t least = timing_bytes(model, sequence, 1); least > memory_bytes)
    refuse_input(fmt::format("model \"{}\" at sequence {}", model.name, sequence),
                 fmt::format("timing one layer needs {}", format_bytes(double(least))),
                 fmt::format("at most {}, half of this machine's memory", format_bytes(double(memory_bytes))),
                 "use a smaller --seq, or plan with a cluster of the catalog instead of a profile");
  std::vector<int64_t> sizes = powers_of_two(most);
  std::erase_if(sizes, [&](int64_t size) { return timing_bytes(model, sequence, size) > memory_bytes; });
  return sizes;
}

Profile profile_machine(const ProfileRequest& request) {
  frameworks::check_own_runtime(request.model);
  Profile profile;
  profile.machine = machine_of(request.target);
  const std::vector<ComputeRequest> computes = computes_of(request, profile.machine.memory_bytes);
  const int measurements = measurements_of(request, computes);
  if (!request.quiet)
    warn(fmt::format("measuring {} in {} steps, each repeated up to {} times if it is too noisy",
                     request.model.name, measurements, kMostRepeats));
  Progress progress(measurements, request.quiet);
  const auto advance = [&] { progress.advance(); };
  const int64_t ranks = ranks_of(request);
  // Runs first, while the other processes are here.
  TransportTimings transport =
      measure_transport({ranks, request.launch, shortened(timing_rule(request)), request.target}, advance);
  profile.machine.hosts = transport.hosts;
  profile.transport = std::move(transport.timings);
  if (request.launch && request.launch->process > 0) return profile;
  set_head(request, profile);
  warm_up(request.target);
  measure_layers(computes, advance, profile);
  measure_rates(timing_rule(request), request.target, advance, profile);
  // Ranks on CPUs share caches and memory; GPUs do not.
  profile.rate_by_active_ranks = request.target.backend == nullptr
                                     ? measure_concurrency(computes.front(), int(ranks), advance)
                                     : std::vector<double>(size_t(ranks), 1.0);
  trace_layers(computes, profile);
  return profile;
}

}  // namespace mpt::profiler
