// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/resolved_run.h"

#include <algorithm>
#include <cmath>

#include "base/quantity.h"
#include "core/schema.h"
#include "planner/validate/framework_values.h"
#include "planner/validate/run_memory.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

Json fields_that_differ(const Json& fields, const Json& usual, const Json& required = Json::array()) {
  Json changed = Json::object();
  for (const auto& [name, value] : fields.items()) {
    const bool needed = std::find(required.begin(), required.end(), name) != required.end();
    if (needed || !usual.contains(name) || usual[name] != value) changed[name] = value;
  }
  return changed;
}

// What a file must have, and what differs from defaults.
template <class T>
Json brief_json(const T& value) {
  static const Json usual = to_json(T{}), required = SchemaWriter::object_of<T>()["required"];
  return fields_that_differ(to_json(value), usual, required);
}

Json layout_json(const Layout& layout) {
  Json json = to_json(layout);
  json.erase("execution");
  return json;
}

Json cluster_json(const ClusterSpec& cluster) {
  Json json = brief_json(cluster);
  if (const auto known = profiler::cluster_of_device(cluster.device.name, {})) {
    json["device"] = fields_that_differ(to_json(cluster.device), to_json(known->device));
    json["device"]["like"] = known->device.name;
  }
  json["levels"].clear();
  for (const LinkLevel& level : cluster.levels) json["levels"].push_back(brief_json(level));
  return json;
}

double nine_digits(double value) {
  const double scale = value == 0.0 ? 1.0 : std::pow(10.0, 8.0 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

// What the estimate of a request does not do.
Json adjustments(const RunRecord& run, const RunPrediction& p) {
  Json json = Json::object();
  if (p.batches != 1.0) json["batches"] = p.batches;
  if (p.unlike_stages) json["unlike_stages"] = true;
  if (p.pending_work) json["pending_work"] = true;
  if (p.in_host > 0) json["layers_in_host"] = p.in_host;
  if (offloads_modules(run)) json["offloads_modules"] = true;
  return json;
}

Json reading_json(const RunRecord& run, const RunPrediction& p) {
  const MemoryReading reading = memory_reading(run, p.memory.size());
  Json json{{"how", reading.whole_device ? "device" : reading.reserved ? "reserved" : "allocated"}};
  if (reading.first > 0 || reading.end < p.memory.size()) json["ranks"] = {reading.first, reading.end - 1};
  return json;
}

Json possible_json(const PossibleRun& possible, const Json& chosen) {
  Json json{{"layout", fields_that_differ(layout_json(possible.layout), chosen)},
            {"s", nine_digits(possible.step_s)},
            {"gib", nine_digits(double(possible.peak_bytes) / double(kGiB))}};
  if (!possible.fits) json["fits"] = false;
  return json;
}

}  // namespace

Json resolved_run(const RunRecord& run, const RunPrediction& p, const WordTrace& trace) {
  const std::string& framework = p.execution.framework;
  const Json layout = layout_json(p.layout);
  Json json{{"id", run.id},
            {"framework", framework},
            {"execution",
             fields_that_differ(to_json(p.execution), to_json(values_of_framework(framework, "framework")))},
            {"layout", brief_json(p.layout)},
            {"model", brief_json(p.model)},
            {"cluster", cluster_json(p.cluster)},
            {"global_batch", p.workload.global_batch},
            {"seq", p.workload.sequence},
            {"adjusted", adjustments(run, p)},
            {"memory_read", reading_json(run, p)},
            {"filled", p.filled}};
  if (p.possible.size() > 1) {
    for (const PossibleRun& possible : p.possible)
      json["possible"].push_back(possible_json(possible, layout));
  }
  json["layout"].erase("execution");
  json["words"] = trace.words();
  if (!p.fits) json["fits"] = false;
  json["s"] = nine_digits(p.step_s);
  json["gib"] = nine_digits(p.peak_gib);
  return json;
}

}  // namespace mpt::planner
