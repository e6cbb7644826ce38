// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mpt::profiler {

/// A bar with the time left, if stderr is a terminal; silent otherwise.
class Progress {
 public:
  Progress(int total, bool quiet);
  ~Progress();
  void advance();

 private:
  int total_, done_ = 0;
  bool visible_;
  double start_s_;
};

}  // namespace mpt::profiler
