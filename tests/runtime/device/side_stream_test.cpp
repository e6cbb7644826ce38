// SPDX-License-Identifier: Apache-2.0

// The side stream: order, tickets, failures, and the end.

#include "runtime/device/side_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <new>
#include <stdexcept>
#include <vector>

#include "runtime/device/cpu/cpu_device.h"

namespace mpt::runtime {
namespace {

using namespace std::chrono_literals;

class SideStreamTest : public testing::Test {
 protected:
  std::unique_ptr<SideStream> make() {
    return std::make_unique<SideStream>(*device_, [this](const std::string& work, const std::string& what) {
      failures_.push_back(work + ": " + what);
    });
  }
  std::unique_ptr<Device> device_ = make_cpu_device();
  std::vector<std::string> failures_;
};

TEST_F(SideStreamTest, WorkRunsInTheOrderOfPostingBesideItsCaller) {
  const auto side = make();
  std::vector<int> seen;
  std::latch go(1);
  side->post("wait", [&] { go.wait(); });  // the caller is not held up
  SideStream::Ticket last = SideStream::kNothing;
  for (int i = 0; i < 200; ++i) last = side->post("note", [&seen, i] { seen.push_back(i); });
  go.count_down();
  side->await(last);
  ASSERT_EQ(seen.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(seen[size_t(i)], i);
}

TEST_F(SideStreamTest, InTurnTheCallerGoesOnBehindTheWork) {
  const auto side = make();
  side->set_in_turn(true);
  std::atomic<int> done{0};
  for (int i = 1; i <= 3; ++i) {
    side->post("slow", [&] { std::this_thread::sleep_for(20ms), ++done; });
    EXPECT_EQ(done, i);
  }
}

TEST_F(SideStreamTest, ATicketStandsForAllBeforeIt) {
  const auto side = make();
  std::atomic<int> done{0};
  side->post("slow", [&] { std::this_thread::sleep_for(30ms), ++done; });
  const SideStream::Ticket second = side->post("quick", [&] { ++done; });
  side->await(second);
  EXPECT_EQ(done, 2);
  side->await(SideStream::kNothing);
  side->await(second);  // again
}

// More than there are marks for: the caller waits for room.
TEST_F(SideStreamTest, TakesAnyNumber) {
  const auto side = make();
  std::atomic<int> done{0};
  SideStream::Ticket last = SideStream::kNothing;
  for (int i = 0; i < 5000; ++i) last = side->post("count", [&] { ++done; });
  side->await(last);
  EXPECT_EQ(done, 5000);
}

TEST_F(SideStreamTest, AFailureIsToldOnceAndWhatFollowsIsSkipped) {
  const auto side = make();
  bool ran = false;
  side->post("reducing gradients", [] { throw std::runtime_error("planted"); });
  const SideStream::Ticket after = side->post("more", [&] { ran = true; });
  EXPECT_THROW(side->await(after), std::runtime_error);
  EXPECT_THROW(side->await(after), std::runtime_error);
  EXPECT_FALSE(ran);
  EXPECT_EQ(failures_, std::vector<std::string>{"reducing gradients: planted"});
}

TEST_F(SideStreamTest, LackOfMemoryIsToldInWords) {
  const auto side = make();
  const SideStream::Ticket ticket = side->post("gathering weights", [] { throw std::bad_alloc(); });
  EXPECT_THROW(side->await(ticket), std::bad_alloc);
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_TRUE(failures_.front().starts_with("gathering weights: out of memory")) << failures_.front();
}

TEST_F(SideStreamTest, ItsEndWaitsForWhatWasPosted) {
  std::atomic<int> done{0};
  {
    const auto side = make();
    for (int i = 0; i < 20; ++i) side->post("count", [&] { std::this_thread::sleep_for(1ms), ++done; });
  }
  EXPECT_EQ(done, 20);
}

// The time of work beside compute counts from where somebody waits for it.
TEST_F(SideStreamTest, PostedWorkCostsWhatIsWaitedForIt) {
  const auto side = make();
  CallTime waited{0.0};
  std::atomic<bool> done{false};
  Posted work({side.get(), &waited}, "sleep", [&] { std::this_thread::sleep_for(60ms), done = true; });
  std::this_thread::sleep_for(90ms);  // compute
  work.wait();
  EXPECT_TRUE(done);
  EXPECT_LT(waited.load(), 0.05);
  Posted slow({side.get(), &waited}, "sleep", [] { std::this_thread::sleep_for(60ms); });
  slow.wait();
  EXPECT_GT(waited.load(), 0.04);
  const double before = waited;
  slow.wait();
  EXPECT_EQ(waited.load(), before) << "once is enough";
}

TEST_F(SideStreamTest, PostedWorkIsDoneBeforeItsMemoryGoes) {
  const auto side = make();
  CallTime waited{0.0};
  bool done = false;
  const auto fails = [&] {
    const Posted work({side.get(), &waited}, "sleep",
                      [&] { std::this_thread::sleep_for(20ms), done = true; });
    throw std::runtime_error("compute failed meanwhile");
  };
  EXPECT_THROW(fails(), std::runtime_error);
  EXPECT_TRUE(done);
}

TEST_F(SideStreamTest, WithoutAStreamPostedWorkIsDoneInPlace) {
  bool done = false;
  Posted work({}, "here", [&] { done = true; });
  EXPECT_TRUE(done);
  work.wait();
}

}  // namespace
}  // namespace mpt::runtime
