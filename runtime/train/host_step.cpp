// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/host_step.h"

namespace mpt::runtime {

AdamW options_of(const AdamW& options, bool decays, double fixed_step) {
  AdamW own = options;
  if (!decays) own.weight_decay = 0.0;
  if (fixed_step == 0.0) return own;
  // With both betas 0, AdamW's step is the sign of the gradient.
  own.learning_rate = fixed_step;
  own.beta1 = own.beta2 = 0.0;
  own.epsilon = std::numeric_limits<float>::min();
  own.gradient_scale = 1.0;
  return own;
}

HostStep::HostStep(Device& device, HostCores cores, DataType type, std::span<const HostedRange> ranges,
                   int64_t piece)
    : device_(device), cores_(std::move(cores)), type_(type), state_type_(state_type_of(type)) {
  for (const HostedRange& range : ranges) add(range, piece);
  const auto largest = max_of<int64_t>(pieces_, 0, &Piece::count);
  for (size_t t = 0; t < std::max<size_t>(1, cores_.threads.size()); ++t)
    rooms_.push_back(
        {HostBuffer(device, largest * size_of(state_type_)), HostBuffer(device, largest * size_of(type_))});
}

HostedRange HostStep::from(const HostedRange& range, int64_t begin, int64_t count) const {
  const int64_t state = begin * size_of(state_type_);
  return {count,
          range.decays,
          range.fixed_step,
          range.gradient + state,
          range.value + begin * size_of(type_),
          range.master + state,
          range.first_moment + state,
          range.second_moment + state};
}

// Small weights share a piece if their gradients are contiguous, and so are their values.
void HostStep::add(const HostedRange& range, int64_t most) {
  for (int64_t done = 0; done < range.count;) {
    const HostedRange rest = from(range, done, range.count - done);
    const auto goes_on = [&](const Piece& piece) {
      const HostedRange &last = piece.parts.back().range, end = from(last, last.count, 0);
      return piece.count < most && end.gradient == rest.gradient && end.value == rest.value;
    };
    if (pieces_.empty() || !goes_on(pieces_.back())) pieces_.emplace_back();
    Piece& piece = pieces_.back();
    const int64_t count = std::min(rest.count, most - piece.count);
    piece.parts.push_back({piece.count, from(rest, 0, count)});
    piece.count += count;
    done += count;
  }
}

void HostStep::run(const AdamW& options) {
  std::atomic<size_t> next{0};
  const auto work = [&](const Room& room) {
    for (size_t p = next++; p < pieces_.size(); p = next++) update(pieces_[p], options, room);
  };
  if (cores_.threads.empty()) return work(rooms_.front());
  std::vector<SideStream::Ticket> tickets;
  for (size_t t = 0; t < cores_.threads.size(); ++t)
    tickets.push_back(cores_.threads[t]->post("optimizer step on the host", [&, t] { work(rooms_[t]); }));
  // Awaits all tickets, because their work uses this stack frame.
  std::exception_ptr failure;
  for (size_t t = 0; t < tickets.size(); ++t) {
    try {
      cores_.threads[t]->await(tickets[t]);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void HostStep::update(const Piece& piece, const AdamW& options, const Room& room) const {
  const HostedRange& first = piece.parts.front().range;
  device_.copy(room.gradients.data(), first.gradient, piece.count * size_of(state_type_));
  for (const auto& [begin, range] : piece.parts) {
    const AdamW own = options_of(options, range.decays, range.fixed_step);
    cores_.device->run(state_type_, AdamStep{.count = range.count,
                                             .options = own,
                                             .gradient = static_cast<char*>(room.gradients.data()) +
                                                         begin * size_of(state_type_),
                                             .parameter = range.master,
                                             .first_moment = range.first_moment,
                                             .second_moment = range.second_moment});
    cores_.device->convert(state_type_, range.master, type_,
                           static_cast<char*>(room.values.data()) + begin * size_of(type_), range.count);
  }
  device_.copy(first.value, room.values.data(), piece.count * size_of(type_));
}

}  // namespace mpt::runtime
