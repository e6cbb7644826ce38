// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every transport must do, for tests of each.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/threads/thread_world.h"

namespace mpt::test {

using runtime::Communicator;
using runtime::DataType;
using runtime::ReduceOperation;

/// Runs `body` on every rank, or on those `here` if others are in other processes; `world_of` gives each rank
/// its world. A rank that throws aborts its world so that its peers do not wait for it.
inline void on_ranks(int ranks, const std::function<runtime::World&(int)>& world_of,
                     const std::function<void(int, Communicator&)>& body, std::vector<int> here = {}) {
  std::vector<int> members;
  for (int r = 0; r < ranks; ++r) members.push_back(r);
  if (here.empty()) here = members;
  std::vector<std::thread> threads;
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  for (const int r : here) {
    threads.emplace_back([&, r] {
      try {
        const auto group = world_of(r).communicator(r, members, "test");
        body(r, *group);
      } catch (const std::exception& error) {
        errors[size_t(r)] = error.what();
        world_of(r).abort(error.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Integers small enough that any order of adding them is exact: results are compared to the bit.
template <class T>
T value(int rank, int64_t i) {
  return T((i * 7 + rank * 13) % 101 - 50);
}

template <class T>
void check_collectives(int ranks, const std::function<runtime::World&(int)>& world_of, int64_t count,
                       const std::vector<int>& here = {}) {
  const DataType type = sizeof(T) == 4 ? DataType::float32 : DataType::float64;
  const auto body = [&](int rank, Communicator& group) {
    for (int round = 0; round < 3; ++round) {
      std::vector<T> data, expected(size_t(count), T(0)), top(size_t(count), T(-1000));
      for (int64_t i = 0; i < count; ++i) data.push_back(value<T>(rank, i));
      for (int r = 0; r < ranks; ++r) {
        for (int64_t i = 0; i < count; ++i) {
          expected[size_t(i)] += value<T>(r, i);
          top[size_t(i)] = std::max(top[size_t(i)], value<T>(r, i));
        }
      }
      std::vector<T> sum = data, maximum = data;
      group.all_reduce(sum.data(), count, type, ReduceOperation::sum);
      EXPECT_EQ(sum, expected);
      group.all_reduce(maximum.data(), count, type, ReduceOperation::maximum);
      EXPECT_EQ(maximum, top);

      std::vector<T> gathered(size_t(count * ranks));
      group.all_gather(data.data(), gathered.data(), count, type);
      for (int r = 0; r < ranks; ++r) {
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(gathered[size_t(r * count + i)], value<T>(r, i));
      }
      std::vector<T> part(static_cast<size_t>(count));
      group.reduce_scatter(gathered.data(), part.data(), count, type);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(part[size_t(i)], value<T>(rank, i) * T(ranks));

      std::vector<T> root = data;
      group.broadcast(root.data(), count * int64_t(sizeof(T)), ranks - 1);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(root[size_t(i)], value<T>(ranks - 1, i));
      // Rank r sends r + 1 + p elements to rank p.
      std::vector<int64_t> sent, received;
      std::vector<T> out, in;
      for (int p = 0; p < ranks; ++p) {
        sent.push_back((rank + 1 + p) * int64_t(sizeof(T)));
        received.push_back((p + 1 + rank) * int64_t(sizeof(T)));
        out.insert(out.end(), size_t(rank + 1 + p), T(rank * 100 + p));
      }
      for (int p = 0; p < ranks; ++p) in.insert(in.end(), size_t(p + 1 + rank), T(-1));
      group.all_to_all(out.data(), sent, in.data(), received);
      size_t at = 0;
      for (int p = 0; p < ranks; ++p) {
        for (int i = 0; i < p + 1 + rank; ++i) ASSERT_EQ(in[at++], T(p * 100 + rank));
      }
      std::vector<T> around(static_cast<size_t>(count));
      group.send_receive(data.data(), (rank + 1) % ranks, around.data(), (rank + ranks - 1) % ranks,
                         count * int64_t(sizeof(T)));
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(around[size_t(i)], value<T>((rank + ranks - 1) % ranks, i));
      group.barrier();
    }
  };
  on_ranks(ranks, world_of, body, here);
}

/// Sums of numbers that depend on the order of adding, in every type and in several windows: to the bit as
/// between threads.
inline void check_sums_of_threads(int ranks, const std::function<runtime::World&(int)>& world_of,
                                  const std::vector<int>& here = {}) {
  runtime::ThreadWorld threads(std::chrono::seconds(60), ranks);
  for (const DataType type : {DataType::float32, DataType::float64, DataType::bfloat16, DataType::float16}) {
    const int64_t count = 2'500'000 + ranks, part = count / ranks;
    std::vector<std::vector<char>> expected(static_cast<size_t>(ranks)), got(expected);
    const auto sum_into = [&](std::vector<std::vector<char>>& results) {
      return [&](int rank, Communicator& group) {
        std::vector<char>& data = results[size_t(rank)];
        for (int64_t i = 0; i < count * size_of(type); ++i) data.push_back(char((i * 31 + rank * 7919) % 53));
        std::vector<char> sums(size_t(part * size_of(type)));
        group.reduce_scatter(data.data(), sums.data(), part, type);
        group.all_reduce(data.data(), count, type, ReduceOperation::sum);
        data.insert(data.end(), sums.begin(), sums.end());
      };
    };
    on_ranks(
        ranks, [&](int) -> runtime::World& { return threads; }, sum_into(expected));
    on_ranks(ranks, world_of, sum_into(got), here);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_TRUE(got[size_t(rank)].empty() || got[size_t(rank)] == expected[size_t(rank)])
          << "type " << int(type) << ", rank " << rank;
  }
}

}  // namespace mpt::test
