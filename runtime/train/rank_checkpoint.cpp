// SPDX-License-Identifier: Apache-2.0

// A rank's part in loading and saving checkpoints.

#include "runtime/train/rank_worker.h"

namespace mpt::runtime {

void RankWorker::load(const TensorSource& source, bool moments) {
  for (auto& [s, h] : held_) {
    Parameters& parameters = h.stage->parameters();
    for (const Parameter& p : parameters.list()) {
      if (parameters.stops()) return;
      parameters.set(p, source.lacks(p.name) ? start_values(p) : read_part(source, TensorKind::value, p));
    }
    if (!moments) continue;
    for (const OwnedRange& range : parameters.owned()) {
      if (parameters.stops()) return;
      for (const TensorKind kind : {TensorKind::first_moment, TensorKind::second_moment}) {
        const std::vector<double> part = read_part(source, kind, *range.parameter);
        void* const to = kind == TensorKind::first_moment ? h.optimizer->first_moment(range)
                                                          : h.optimizer->second_moment(range);
        parameters.state_device().upload(parameters.state_type(), part.data() + range.begin, range.count, to);
      }
    }
  }
}

std::vector<double> RankWorker::start_values(const Parameter& parameter) const {
  std::vector<double> values(size_t(parameter.count), 0.0);
  draw(parameter, uint64_t(options_.seed), 0, values);
  return values;
}

RankSnapshot RankWorker::snapshot() {
  RankSnapshot snapshot;
  snapshot.type = state_type_of(type_);
  const int64_t unit = size_of(snapshot.type);
  for (auto& [s, h] : held_) {
    h.stage->parameters().finish_gathering();
    for (const OwnedRange& range : h.stage->parameters().owned()) {
      if (!range.parameter->is_first_copy || !h.optimizer->is_first_replica(*range.parameter)) continue;
      const std::pair<TensorKind, const void*> kinds[] = {
          {TensorKind::value, h.stage->parameters().master(range)},
          {TensorKind::first_moment, h.optimizer->first_moment(range)},
          {TensorKind::second_moment, h.optimizer->second_moment(range)}};
      for (const auto& [kind, base] : kinds) {
        const char* at = static_cast<const char*>(base);
        for (const ShardBlock& block : rectangles(*range.parameter, range.begin, range.count)) {
          CheckpointPiece piece{kind, range.parameter->name, block,
                                std::vector<char>(size_t(block.count() * unit))};
          h.stage->parameters().state_device().copy(piece.data.data(), at, int64_t(piece.data.size()));
          at += piece.data.size();
          snapshot.pieces.push_back(std::move(piece));
        }
      }
    }
  }
  return snapshot;
}

}  // namespace mpt::runtime
