// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace mpt::runtime {

struct TrainOptions {
  int64_t steps = 100;
  double learning_rate = 1e-3;
  double minimum_learning_rate = 1e-4;  // at the end of the cosine
  int64_t warmup_steps = 10;
  double clip = 1.0;  // gradient norm; 0 is no clipping
  // Factor on the mean loss of next-token modules, which is added to the model's own (Megatron-LM's default).
  double next_token_weight = 0.1;
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  uint64_t seed = 1;
  int64_t most_skipped = 4;           // steps in a row without finite gradients; one more ends the run
  double first_loss_scale = 65536.0;  // fp16: halved at an overflow, doubled after loss_scale_window steps
  int64_t loss_scale_window = 1000;   // (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2)
  int64_t evaluate_every = 0;         // steps between passes over validation data; 0: none
  int64_t evaluation_steps = 8;
  std::string checkpoints;      // folder; empty: none are written
  int64_t save_every = 0;       // 0: at the end only
  int64_t sample_every = 0;     // steps between checkpoints for RunInputs::on_saved alone; 0: none
  int64_t keep = 2;             // newest checkpoints that stay
  std::string like, tokenizer;  // a Hugging Face folder and a file, which checkpoints name for exports
  std::chrono::milliseconds timeout{300'000};
};

/// Linear warm-up, then half a cosine down to the minimum (Loshchilov and Hutter 2017, arXiv:1608.03983, eq.
/// 5 without restarts). `step` counts from 0.
double learning_rate_at(const TrainOptions& options, int64_t step);

}  // namespace mpt::runtime
