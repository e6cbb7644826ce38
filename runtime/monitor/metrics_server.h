// SPDX-License-Identifier: Apache-2.0
#pragma once

// MetricsServer: the newest step as Prometheus text (prometheus.io/docs/instrumenting/exposition_formats),
// for whoever asks on this machine's own address. Started only where a port was asked for.

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "reports/run_result.h"
#include "runtime/comm/sockets/socket.h"

namespace mpt::runtime {

std::string prometheus_text(const reports::StepRecord& record);

class MetricsServer {
 public:
  /// Listens on 127.0.0.1. Throws UserError if the port is taken.
  explicit MetricsServer(int port);
  ~MetricsServer();

  void set(const reports::StepRecord& record);
  int port() const { return listener_.port(); }

 private:
  void serve();
  void answer(const Socket& caller);

  Socket listener_;
  std::mutex mutex_;
  std::string text_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace mpt::runtime
