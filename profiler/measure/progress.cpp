// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/quantity.h"
#include "base/terminal.h"

namespace mpt::profiler {
Progress::Progress(int total, bool quiet)
    : total_(std::max(1, total)), visible_(!quiet && isatty(2) == 1), start_s_(now_s()) {}

Progress::~Progress() {
  if (visible_) std::fputs("\r\033[K", stderr);
}

void Progress::advance() {
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

}  // namespace mpt::profiler
