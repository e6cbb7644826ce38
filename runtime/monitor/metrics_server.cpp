// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/metrics_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace mpt::runtime {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr std::chrono::milliseconds kPatience{500};  // with one caller, from its first byte to its last

Socket listen_or_refuse(int port) {
  try {
    return Socket::listen(kLoopback, port);
  } catch (const RunError& error) {
    throw UserError(
        Problem{fmt::format("--metrics-port {}", port), error.what(), "a free port", "take another one"});
  }
}

}  // namespace

std::string prometheus_text(const reports::StepRecord& r) {
  std::string text;
  const auto gauge = [&](const char* name, const char* help, double value) {
    text += fmt::format("# HELP mpt_{0} {1}\n# TYPE mpt_{0} gauge\nmpt_{0} {2}\n", name, help, value);
  };
  gauge("step", "optimizer steps done", double(r.step));
  gauge("loss", "mean over the step's tokens, natural logarithm", r.loss);
  if (r.next_token_loss)
    gauge("next_token_loss", "of next-token modules, their mean, natural logarithm", *r.next_token_loss);
  gauge("gradient_norm", "before clipping", r.gradient_norm);
  gauge("step_seconds", "of the last step", r.step_time_s);
  gauge("tokens_per_second", "over all ranks", r.tokens_per_s);
  gauge("model_flop_utilization", "model FLOP/s over the devices' peak", r.model_flop_utilization);
  gauge("bubble_share", "share of the ranks' time without compute", r.bubble_share);
  gauge("data_wait_seconds", "of the slowest rank", r.data_wait_s);
  const auto by_rank = [&](const char* name, const char* help, auto&& value) {
    text += fmt::format("# HELP mpt_{0} {1}\n# TYPE mpt_{0} gauge\n", name, help);
    for (const reports::RankRecord& rank : r.ranks)
      text += fmt::format("mpt_{}{{rank=\"{}\"}} {}\n", name, rank.rank, value(rank));
  };
  by_rank("rank_compute_seconds", "compute of the last step",
          [](const auto& rank) { return rank.compute_s; });
  by_rank("rank_idle_seconds", "of the last step", [](const auto& rank) { return rank.idle_s; });
  by_rank("rank_memory_bytes", "in use", [](const auto& rank) { return rank.memory_bytes; });
  by_rank("rank_peak_memory_bytes", "highest so far", [](const auto& rank) { return rank.peak_bytes; });
  const auto spread = [](const auto& rank) { return rank.expert_load > 0.0; };
  if (std::any_of(r.ranks.begin(), r.ranks.end(), spread))
    by_rank("rank_expert_load", "copies its experts got, over an even share",
            [](const auto& rank) { return rank.expert_load; });
  return text;
}

MetricsServer::MetricsServer(int port) : listener_(listen_or_refuse(port)), thread_([this] { serve(); }) {}

MetricsServer::~MetricsServer() {
  closing_ = true;
  thread_.join();
}

void MetricsServer::set(const reports::StepRecord& record) {
  std::string text = prometheus_text(record);
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
}

// Whatever is asked, the answer is the same.
void MetricsServer::answer(const Socket& caller) {
  const Patience patience(std::chrono::steady_clock::now() + kPatience, &closing_);
  char first = 0;
  if (!caller.receive_all(&first, 1, patience)) return;
  std::string body;
  {
    const std::lock_guard lock(mutex_);
    body = text_;
  }
  const std::string text = fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: "
      "close\r\n\r\n{}",
      body.size(), body);
  caller.send_all(text.data(), text.size(), patience);
  caller.drain(4096, patience);
}

// One caller at a time, and none for long.
void MetricsServer::serve() {
  while (!closing_) {
    try {
      answer(listener_.accept({std::chrono::steady_clock::now() + std::chrono::hours(1), &closing_}));
    } catch (const std::exception&) {
      // The caller went away, or there is no memory or descriptor for it: the run goes on, and so does this,
      // but not at once.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace mpt::runtime
