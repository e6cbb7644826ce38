// SPDX-License-Identifier: Apache-2.0
#pragma once

// RunRecord: a training run that somebody measured and published, as docs/validation.md describes its form.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <regex>
#include <source_location>
#include <string>
#include <vector>

#include "base/json.h"
#include "core/model_spec.h"
#include "planner/validate/run_date.h"
#include "planner/validate/word_trace.h"

namespace mpt::planner {

/// A pipeline stage of a run whose stages differ, as the source counts it.
struct RunStage {
  int64_t gpus = 1, operators = 1, recomputed_operators = 0;
  int64_t tensor = 1, data = 1;  // ranks that its operators are split over, and that repeat them
};

struct RunRecord {  // NOLINT(bugprone-exception-escape): moving JSON throws nothing
  std::string id, family, framework, notes, source;
  std::string options;                  // the text of everything else that the source said
  std::optional<Month> released;        // its software
  bool released_at_the_latest = false;  // that is a page's date: it may have stood there for years
  ModelSpec model;
  int64_t sequence = 0;

  std::string gpu, inter_node, profile;
  int64_t gpus = 1, gpus_per_node = 8, fast_links = 8;

  // Absent: not published.
  std::optional<int64_t> tensor, pipeline, chunks, context, expert, expert_tensor, data, micro_batch, zero;
  int64_t global_batch = 0;
  std::optional<bool> sequence_parallel;
  std::string precision, schedule, sharding, overlap, context_method;
  std::optional<std::string> recompute;
  bool recomputes_some_layers = false;         // as many whole ones as somebody chose
  std::vector<std::string> recompute_modules;  // of selective recompute, by Megatron-LM's names
  std::optional<bool> fused_loss, async_tensor, compiled, ends_one_layer_less;
  bool vocabulary_is_padded = false;       // the record says how
  bool embedding_counts_as_layer = false;  // stages were balanced with the embedding as one of the layers
  std::optional<int64_t> recomputed_layers_per_stage;
  std::vector<RunStage> stages;
  std::vector<int64_t> layers_per_stage;  // of virtual stages, where the source lists them; or none

  // Over what the words say; field names as in a plan. An absent or empty object: nothing.
  Json execution;
  std::optional<bool> overlap_gradient_reduce, overlap_parameter_gather, overlap_tensor, overlap_transfer,
      overlap_exchange;

  std::optional<double> measured_s, measured_gib;
  bool out_of_memory = false;       // it failed for lack of the devices' memory
  std::vector<std::string> filled;  // what the record leaves out, with the value that stands in
};

/// Records say much in free text.
inline bool mentions(const std::string& text, const char* part,
                     const std::source_location& reader = std::source_location::current()) {
  const bool found = text.find(part) != std::string::npos;
  if (found) WordTrace::note(part, reader);
  return found;
}

inline bool mentions_one(const std::string& text, std::initializer_list<const char*> parts,
                         const std::source_location& reader = std::source_location::current()) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return mentions(text, part, reader); });
}

/// The first words of the text that a pattern matches.
inline bool finds(const std::string& text, std::smatch& words, const std::regex& pattern,
                  const std::source_location& reader = std::source_location::current()) {
  const bool found = std::regex_search(text, words, pattern);
  if (found) WordTrace::note(words[0], reader);
  return found;
}
inline bool finds(const std::string& text, const std::regex& pattern,
                  const std::source_location& reader = std::source_location::current()) {
  std::smatch words;
  return finds(text, words, pattern, reader);
}

/// Whether a phrase stands in the text other than denied: not "no DeepEP", nor "expert overlap off".
bool says(const std::string& text, const std::regex& phrase,
          const std::source_location& reader = std::source_location::current());

/// False where nothing tells.
inline bool released_before(const RunRecord& run, const Month& month) {
  return run.released && *run.released < month;
}

/// Reads one element of the file. Throws UserError that names the field: the record is then skipped.
RunRecord read_run_record(const Json& json, const std::string& where);

}  // namespace mpt::planner
