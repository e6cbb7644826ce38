// SPDX-License-Identifier: Apache-2.0
#include "reports/trace.h"

#include "base/json.h"

namespace mpt::reports {
namespace {

constexpr const char* kStreamNames[kStreamCount] = {"compute",       "activations out", "activations in",
                                                    "gradients out", "gradients in",    "reduction"};

Json name_event(const char* what, int process, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json span_event(const StepProgram& program, InstructionId id, const Span& span, int process,
                const Lane& lane) {
  const Instruction& i = program.instructions[size_t(id)];
  Json event{{"ph", "X"},
             {"name", instruction_name(program, id)},
             {"cat", enum_name(i.kind)},
             {"pid", process},
             {"tid", int(lane.stream)},
             {"ts", span.start_s * 1e6},
             {"dur", span.seconds() * 1e6}};
  event["args"] = {{"id", id}, {"stage", i.stage}, {"micro_batch", i.micro_batch}, {"bytes", i.bytes}};
  return event;
}

// The bytes that the rank holds over time: they rise when an action starts and fall when it ends.
void add_memory(const StepProgram& program, const Timeline& timeline, int rank, int process, Json& events) {
  const auto counter = [&](double at_s, int64_t bytes) {
    events.push_back({{"ph", "C"},
                      {"name", "memory"},
                      {"pid", process},
                      {"ts", at_s * 1e6},
                      {"args", {{"bytes", bytes}}}});
  };
  for (const MemoryPoint& point : memory_trace(program, rank)) {
    const Span& span = timeline.spans[size_t(point.id)];
    counter(span.start_s, point.during_bytes);
    counter(span.end_s, point.after_bytes);
  }
}

}  // namespace

std::string trace_json(const StepProgram& program, const std::vector<NamedTimeline>& timelines) {
  Json events = Json::array();
  for (size_t t = 0; t < timelines.size(); ++t) {
    for (int rank = 0; rank < program.ranks; ++rank) {
      const int process = int(t) * program.ranks + rank;
      events.push_back(name_event("process_name", process, 0,
                                  fmt::format("{}, pipeline rank {}", timelines[t].name, rank)));
      for (int s = 0; s < kStreamCount; ++s)
        events.push_back(name_event("thread_name", process, s, kStreamNames[s]));
      add_memory(program, timelines[t].timeline, rank, process, events);
    }
    for (InstructionId id = 0; id < program.size(); ++id)
      for (const Lane& lane : program.lanes(id))
        events.push_back(span_event(program, id, timelines[t].timeline.spans[size_t(id)],
                                    int(t) * program.ranks + lane.rank, lane));
  }
  return json_text(Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}) + "\n";
}

}  // namespace mpt::reports
