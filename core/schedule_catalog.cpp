// SPDX-License-Identifier: Apache-2.0
#include "core/schedule_catalog.h"

#include "base/error.h"
#include "base/ranges.h"
#include "core/schedules/generated.h"
#include "core/schedules/list_scheduler.h"

namespace mpt {
namespace {

const std::vector<ScheduleEntry> kSchedules{
    {.name = "gpipe",
     .source = "Huang et al. 2019 (arXiv:1811.06965), section 2.3",
     .generate = generate_gpipe,
     .repeats = false},
    {.name = "1f1b",
     .source = "Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.1",
     .generate = generate_one_f_one_b,
     .warm_start = true,
     .leanest = {1, 1},
     .holds_one_round = true},
    {.name = "interleaved",
     .min_chunks = 2,
     .max_chunks = 64,
     .source = "Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.2",
     .generate = [](int p, int v, int m) { return generate_interleaved(p, v, m, p); },
     .generate_in_groups = generate_interleaved,
     .warm_start = true},
    {.name = "zb-interleaved",
     .min_chunks = 2,
     .max_chunks = 64,
     .source = "PyTorch 2.15.0, torch/distributed/pipelining/schedules.py, ScheduleInterleavedZeroBubble",
     .generate = [](int p, int v, int m) { return generate_zb_interleaved(p, v, m, p); },
     .generate_in_groups = generate_zb_interleaved,
     .splits_backward = true,
     .leanest = {3, 64}},
    {.name = "zb-h1",
     .source = "Qi et al. 2023 (arXiv:2401.10241), section 2.1",
     .generate = generate_zb_h1,
     .splits_backward = true,
     .holds_one_round = true},
    {.name = "zb-h2",
     .source = "Qi et al. 2023 (arXiv:2401.10241), section 2.2",
     .generate = generate_zb_h2,
     .splits_backward = true},
    {.name = "zb-v",
     .min_chunks = 2,
     .max_chunks = 2,
     .source = "Qi et al. 2024 (arXiv:2405.15362), section 3",
     .generate = generate_zb_v,
     .splits_backward = true,
     .placement = v_placement,
     .warm_start = true},
    {.name = "v-half",
     .min_chunks = 2,
     .max_chunks = 2,
     .source = "Qi et al. 2024 (arXiv:2405.15362), section 3",
     .generate = generate_v_half,
     .splits_backward = true,
     .placement = v_placement},
    {.name = "v-min",
     .min_chunks = 2,
     .max_chunks = 2,
     .source = "Qi et al. 2024 (arXiv:2405.15362), section 3",
     .generate = generate_v_min,
     .splits_backward = true,
     .placement = v_placement,
     .leanest = {2, 2}},
    {.name = "dualpipe-v",
     .min_chunks = 2,
     .max_chunks = 2,
     .source = "DeepSeek-AI 2024 (arXiv:2412.19437), section 3.2.1, cut in half",
     .generate = generate_dualpipe_v,
     .splits_backward = true,
     .placement = v_placement,
     .warm_start = true},
    {.name = "generated",
     .max_chunks = 64,
     .source = "list scheduling with the layout's own durations (core/schedules/list_scheduler.h)",
     .generate = generate_list,
     .splits_backward = true,
     .placement = generated_placement,
     .made_to_measure = true,
     .repeats = false},
};

}  // namespace

const std::vector<ScheduleEntry>& schedule_catalog() { return kSchedules; }

const ScheduleEntry& leanest_schedule(const ScheduleEntry& entry, int chunks) {
  if (!entry.made_to_measure) return entry;
  for (const ScheduleEntry& named : schedule_catalog())
    if (named.leanest.has(chunks)) return named;
  MPT_CHECK(false, "no leanest schedule of {} chunks", chunks);
  return entry;
}

// `equal_rounds`: torch/distributed/pipelining/schedules.py, ScheduleInterleaved1F1B, number_of_rounds.
Schedule make_schedule(const ScheduleEntry& entry, int ranks, int chunks, int micro_batches, bool equal) {
  if (!equal || entry.generate_in_groups == nullptr) return entry.generate(ranks, chunks, micro_batches);
  const int rounds = std::max(1, micro_batches / ranks);
  return entry.generate_in_groups(ranks, chunks, micro_batches, (micro_batches + rounds - 1) / rounds);
}

int64_t equivalent_micro_batches(const ScheduleEntry& entry, int64_t ranks, int64_t micro_batches) {
  const int64_t middle = 3 * ranks;
  return !entry.repeats || micro_batches <= middle ? micro_batches : middle + micro_batches % ranks;
}

const ScheduleEntry& find_schedule(const std::string& name, const std::string& where) {
  for (const ScheduleEntry& entry : schedule_catalog())
    if (entry.name == name) return entry;
  refuse_input(
      where,
      fmt::format("unknown schedule \"{}\"{}", name.substr(0, 80), did_you_mean(name, schedule_names())),
      one_of(schedule_names()));
}

std::vector<std::string> schedule_names() {
  return mapped<std::string>(schedule_catalog(), &ScheduleEntry::name);
}

}  // namespace mpt
