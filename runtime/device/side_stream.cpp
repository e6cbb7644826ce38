// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/side_stream.h"

#include "base/error.h"

namespace mpt::runtime {

SideStream::SideStream(Device& device, OnFailure on_failure)
    : on_failure_(std::move(on_failure)),
      marks_(device.make_marks(2 * kMarked)),
      thread_([this] { serve(); }) {}

SideStream::~SideStream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  posted_changed_.notify_one();
  thread_.join();
}

SideStream::Ticket SideStream::post(const std::string& name, std::function<void()> work) {
  std::unique_lock lock(mutex_);
  // A mark is reusable once the work of its earlier ticket is complete.
  done_changed_.wait(lock, [&] { return posted_ - done_ < kMarked; });
  const Ticket ticket = posted_++;
  if (marks_) marks_->end(posted_mark(ticket));
  tasks_.push_back({name, std::move(work)});
  lock.unlock();
  posted_changed_.notify_one();
  lock.lock();
  if (in_turn_) done_changed_.wait(lock, [&] { return done_ > ticket; });
  return ticket;
}

void SideStream::await(Ticket ticket) {
  if (ticket == kNothing) return;
  std::unique_lock lock(mutex_);
  done_changed_.wait(lock, [&] { return done_ > ticket; });
  if (failure_) std::rethrow_exception(failure_);
  if (marks_) marks_->await(end_mark(ticket));
}

void SideStream::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_changed_.wait(lock, [&] { return closing_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    const Ticket ticket = done_;
    if (!failure_) {
      lock.unlock();
      run(task, ticket);
      lock.lock();
    }
    ++done_;
    // Notifies without the lock: woken threads would wait for it at once.
    lock.unlock();
    done_changed_.notify_all();
    lock.lock();
  }
}

void SideStream::run(const Task& task, Ticket ticket) {
  try {
    if (marks_) marks_->await(posted_mark(ticket));
    task.work();
    if (marks_) marks_->end(end_mark(ticket));
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    on_failure_(task.name, failure_text(error));
  }
}

Posted::Posted(const BesideCompute& beside, const char* what, std::function<void()> work) : beside_(beside) {
  if (beside.stream == nullptr)
    work();
  else
    ticket_ = beside.stream->post(what, std::move(work));
}

// If compute failed in the meantime, wait() was not called.
Posted::~Posted() {
  try {
    wait();
  } catch (const std::exception&) {
  }
}

void Posted::wait() {
  if (ticket_ == SideStream::kNothing) return;
  const Stopwatch watch(*beside_.waited);
  beside_.stream->await(take());
}

}  // namespace mpt::runtime
