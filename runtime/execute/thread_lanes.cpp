// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/thread_lanes.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace mpt::runtime {
namespace {

class ThreadLanes final : public Lanes {
 public:
  using OnFailure = std::function<void(const std::string&, const std::string&)>;

  ThreadLanes(const StepProgram& program, int rank, OnFailure on_failure, std::unique_ptr<WorkMarks> marks,
              double patience_s)
      : program_(program),
        on_failure_(std::move(on_failure)),
        marks_(std::move(marks)),
        done_(program.instructions.size(), false),
        spans_(program.instructions.size()),
        patience_s_(patience_s) {
    for (InstructionId id = 0; id < program.size(); ++id)
      if (const auto lane = program.lane_on(id, rank)) {
        if (auto& queue = queues_[size_t(lane->stream)]; !queue) queue = std::make_unique<Queue>();
      }
    for (auto& one : queues_)
      if (one) one->thread = std::thread([this, q = one.get()] { serve(*q); });
  }

  ~ThreadLanes() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    for (auto& queue : queues_)
      if (queue) queue->changed.notify_one();
    for (auto& queue : queues_)
      if (queue) queue->thread.join();
  }

  void begin_step() override {
    const std::lock_guard lock(mutex_);
    done_.assign(done_.size(), false);
    if (marks_) marks_->begin_step();
  }

  void launch(InstructionId id, Stream stream, std::span<const InstructionId> waits,
              std::function<void()> work) override {
    Queue& queue = *queues_[size_t(stream)];
    bool starts = false;
    {
      const std::lock_guard lock(mutex_);
      queue.tasks.push_back({id, {waits.begin(), waits.end()}, std::move(work)});
      ++unfinished_;
      starts = queue.tasks.size() == 1 && ready(queue);
    }
    if (starts) queue.changed.notify_one();
  }

  void hand_over() override {
    std::unique_lock lock(mutex_);
    while (!finished_.wait_for(lock, std::chrono::milliseconds(500), [&] { return unfinished_ == 0; }))
      look_for_silence(lock);
    if (failure_) std::rethrow_exception(failure_);
  }

  void synchronize() override {
    hand_over();
    if (!marks_) return;
    marks_->finish();
    for (InstructionId id = 0; id < program_.size(); ++id) {
      if (!done_[size_t(id)]) continue;
      const auto [start_s, end_s] = marks_->time_s(id);
      spans_[size_t(id)] = {start_s, end_s};
    }
  }

  Span span(InstructionId id) const override { return spans_[size_t(id)]; }

 private:
  struct Task {
    InstructionId id;
    std::vector<InstructionId> waits;
    std::function<void()> work;
  };
  struct Queue {
    std::deque<Task> tasks;
    std::condition_variable changed;  // wakes the queue's thread
    std::thread thread;
    InstructionId running = -1;  // -1: none
  };

  // Waits are themselves calls and have a time limit. So a device without any call for longer has threads
  // stuck in its driver.
  void look_for_silence(std::unique_lock<std::mutex>& lock) {
    const double silent_s = marks_ ? now_s() - marks_->last_call_s() : 0.0;
    const auto held = find_if(queues_, [](const auto& queue) { return queue && queue->running >= 0; });
    if (silent_s <= patience_s_ || held == queues_.end() || std::exchange(told_silence_, true)) return;
    const std::string name = instruction_name(program_, (*held)->running);
    lock.unlock();
    on_failure_(name, fmt::format("a call of the GPU's driver has not returned for {:.0f} s", silent_s));
    lock.lock();
  }

  bool ready(const Queue& queue) const {
    if (queue.tasks.empty()) return false;
    if (failure_) return true;  // to be skipped
    return all_of(queue.tasks.front().waits, [&](InstructionId wait) { return done_[size_t(wait)]; });
  }

  void serve(Queue& queue) {
    std::unique_lock lock(mutex_);
    while (true) {
      queue.changed.wait(lock, [&] { return closing_ || ready(queue); });
      if (closing_) return;
      const Task task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
      const bool skip = failure_ != nullptr;
      queue.running = task.id;
      lock.unlock();
      if (!skip) run(task);
      lock.lock();
      queue.running = -1;
      done_[size_t(task.id)] = true;
      --unfinished_;
      wake_others(queue, lock);
    }
  }

  // Wakes only threads that can proceed, and without the lock: woken threads would wait for it at once.
  void wake_others(const Queue& own, std::unique_lock<std::mutex>& lock) {
    std::array<Queue*, kStreamCount> woken{};
    size_t count = 0;
    for (const auto& queue : queues_)
      if (queue && queue.get() != &own && ready(*queue)) woken[count++] = queue.get();
    const bool finished = unfinished_ == 0;
    if (count == 0 && !finished) return;
    lock.unlock();
    for (size_t i = 0; i < count; ++i) woken[i]->changed.notify_one();
    if (finished) finished_.notify_one();
    lock.lock();
  }

  void run(const Task& task) {
    Span& span = spans_[size_t(task.id)];
    span.start_s = now_s();
    try {
      if (marks_) {
        for (const InstructionId wait : task.waits) marks_->await(wait);
        marks_->start(task.id);
      }
      task.work();
      if (marks_) marks_->end(task.id);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
      on_failure_(instruction_name(program_, task.id), failure_text(error));
    }
    span.end_s = now_s();
  }

  const StepProgram& program_;
  OnFailure on_failure_;
  std::unique_ptr<WorkMarks> marks_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::vector<bool> done_;
  std::vector<Span> spans_;  // each entry is written by one thread before its done_ flag is set
  std::array<std::unique_ptr<Queue>, kStreamCount> queues_;
  int64_t unfinished_ = 0;
  bool closing_ = false;
  std::exception_ptr failure_;
  const double patience_s_;
  bool told_silence_ = false;
};

}  // namespace

std::unique_ptr<Lanes> make_thread_lanes(
    const StepProgram& program, int rank,
    std::function<void(const std::string&, const std::string&)> on_failure, std::unique_ptr<WorkMarks> marks,
    double patience_s) {
  return std::make_unique<ThreadLanes>(program, rank, std::move(on_failure), std::move(marks), patience_s);
}

}  // namespace mpt::runtime
