// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/profile.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "base/digest.h"
#include "base/json.h"
#include "models/layer_kinds.h"

namespace mpt::profiler {
namespace {

constexpr int64_t kMaxProfileBytes = int64_t{64} << 20;

// The sizes that decide a layer's time: without name, number of layers and length of the position table.
ModelSpec layer_sizes(ModelSpec model) {
  model.name.clear();
  const models::LayerKinds kinds(model);
  model.layers = LayerList::of(int64_t(kinds.size()), [&](int64_t k) { return kinds.kind(size_t(k)); });
  model.max_positions = 1;
  return model;
}

}  // namespace

Profile load_profile(const std::filesystem::path& path) {
  const std::string file = path.string();
  const Json json = load_json(path, kMaxProfileBytes);
  if (!json.is_object() || json.value("format", Json()) != "mpt-profile")
    refuse_input(file + " at /format", "not a profile", "\"mpt-profile\"", "make one with mpt-profile");
  auto profile = from_json<Profile>(json, file);
  validate_model(profile.model, file + " at /model");
  JsonProblems problems(file);
  if (profile.pieces.empty())
    problems.add("/pieces", "an empty list", "timings", "measure again with mpt-profile");
  const bool timed = any_of(profile.pieces, [](const PieceTiming& t) { return t.seconds > 0.0; });
  if (!profile.pieces.empty() && !timed)
    problems.add("/pieces", "timings that are all 0", "seconds above 0", "measure again with mpt-profile");
  if (profile.rate_by_active_ranks.empty())
    problems.add("/rate_by_active_ranks", "an empty list", "at least one rate");
  for (size_t i = 0; i < profile.pieces.size(); ++i)
    if (profile.pieces[i].layer >= profile.model.layers.count())
      problems.add(fmt::format("/pieces/{}/layer", i), std::to_string(profile.pieces[i].layer),
                   fmt::format("a layer of the model: 0 to {}", profile.model.layers.count() - 1));
  problems.throw_if_any();
  return profile;
}

std::string profile_to_text(const Profile& profile) { return json_text(to_json(profile), 1) + "\n"; }

std::string profile_digest(const Profile& profile) { return text_digest(profile_to_text(profile)); }

int64_t sequence_of(const Profile& profile, const PieceTiming& timing) {
  return timing.sequence > 0 ? timing.sequence : profile.sequence;
}

bool profile_matches(const Profile& profile, const ModelSpec& model, int64_t sequence, Precision precision) {
  const bool timed =
      any_of(profile.pieces, [&](const PieceTiming& t) { return sequence_of(profile, t) == sequence; });
  return timed && profile.precision == precision && layer_sizes(profile.model) == layer_sizes(model);
}

MachineDescription describe_machine() {
  MachineDescription machine;
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; machine.device.empty() && std::getline(cpuinfo, line);)
    if (line.starts_with("model name")) machine.device = line.substr(line.find(':') + 2);
  utsname system{};
  uname(&system);
  if (machine.device.empty()) machine.device = system.machine;
  machine.system = fmt::format("{} {}, {}", system.sysname, system.release, "g++ " __VERSION__);
#ifdef MPT_WITHOUT_THREADS
  machine.cores = 1;
#else
  // The cores that this process may use: in a container fewer than the machine has.
  cpu_set_t allowed;
  machine.cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed)
                                                                      : sysconf(_SC_NPROCESSORS_ONLN);
#endif
  machine.memory_bytes = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return machine;
}

}  // namespace mpt::profiler
