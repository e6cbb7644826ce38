// SPDX-License-Identifier: Apache-2.0
#pragma once

// Records of published runs for tests to change.

#include "base/json.h"
#include "planner/validate/predict_run.h"
#include "planner/validate/run_record.h"

namespace mpt::planner {

// A run of Table 5 of arXiv:2205.05198, in the form of docs/validation.md.
inline Json record() {
  return parse_json(R"({
    "id": "seqpar", "family": "seqpar", "framework": "Megatron-LM",
    "model": {"name": "gpt-22b", "layers": 48, "hidden": 6144, "ffn_hidden": 24576, "heads": 64, "kv_heads": 64,
              "vocab": 51200, "seq_len": 2048, "gated_mlp": false, "norm": "layernorm", "position": "learned",
              "tied_embeddings": true},
    "hardware": {"gpu": "a100-sxm-80gb", "gpus": 8, "gpus_per_node": 8, "nvlink_domain": 8, "intra": "NVLink3"},
    "layout": {"tp": 8, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "dp": 1, "sequence_parallel": true, "micro_batch": 4,
               "global_batch": 4, "zero_stage": 0, "precision": "fp16", "schedule": "none", "recompute": "selective"},
    "measured": {"iter_time_s": 1.1, "peak_mem_gib": null}, "notes": ""})",
                    "record");
}

inline RunPrediction predicted(const Json& json) { return predict_run(read_run_record(json, "/0")); }

inline Json small_pipeline(const char* framework, int stages) {
  Json json = record();
  json["framework"] = framework;
  json["hardware"]["gpus"] = json["layout"]["pp"] = stages;
  json["layout"]["tp"] = 1;
  json["layout"]["sequence_parallel"] = false;
  json["layout"]["micro_batch"] = 1;
  json["layout"]["global_batch"] = 64;
  json["layout"]["recompute"] = "none";
  json["layout"]["schedule"] = "1f1b";
  return json;
}

// Two stages of a model of 48 layers, 13 operators each, and the embedding's one and the head's two.
inline Json two_stages(int first_gpus, int second_gpus, int first_operators = 313, int recomputed = 0) {
  Json json = small_pipeline("Aceso runtime (Megatron-LM 2.x fork)", 2);
  json["hardware"]["gpus"] = first_gpus + second_gpus;
  json["layout"]["tp"] = nullptr;
  json["layout"]["dp"] = nullptr;
  json["layout"]["recompute"] = "per";
  json["layout"]["stages"] =
      Json::array({{{"gpus", first_gpus}, {"ops", first_operators}, {"recompute_ops", recomputed}},
                   {{"gpus", second_gpus}, {"ops", 627 - first_operators}, {"recompute_ops", recomputed}}});
  return json;
}

}  // namespace mpt::planner
