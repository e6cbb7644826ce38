// SPDX-License-Identifier: Apache-2.0

// Several processes' worlds within one process: each has its own sockets, as if it were alone.

#include "runtime/comm/sockets/socket_world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "runtime/comm/sockets/socket.h"
#include "tests/support/check_collectives.h"

namespace mpt::runtime {
namespace {

using namespace std::chrono_literals;

int free_port() { return Socket::listen("127.0.0.1", 0).port(); }

struct Outcome {
  std::vector<std::unique_ptr<World>> worlds;
  std::vector<std::string> errors;
};

Outcome meet(int processes, int ranks, const std::vector<std::string>& digests,
             std::chrono::milliseconds timeout) {
  Outcome outcome;
  outcome.worlds.resize(size_t(processes));
  outcome.errors.resize(size_t(processes));
  const int port = free_port();
  std::vector<std::thread> threads;
  for (int p = 0; p < processes; ++p) {
    threads.emplace_back([&, p] {
      try {
        SocketWorldOptions options;
        options.launch = {p, processes, "127.0.0.1", port, "test"};
        options.ranks = ranks;
        options.plan_digest = digests[size_t(p) % digests.size()];
        options.timeout = timeout;
        outcome.worlds[size_t(p)] = make_socket_world(options);
      } catch (const std::exception& error) {
        outcome.errors[size_t(p)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

// Ends all worlds at once, as processes do: good-byes are waited for.
void part(Outcome& outcome) {
  std::vector<std::thread> threads;
  for (auto& world : outcome.worlds) threads.emplace_back([&world] { world.reset(); });
  for (std::thread& thread : threads) thread.join();
}

TEST(SocketWorld, CollectivesAreExactWithOneRankOrSeveralInAProcess) {
  for (const auto& [process_count, rank_count] : {std::pair{2, 2}, {3, 3}, {2, 4}, {3, 6}}) {
    const int processes = process_count, ranks = rank_count;  // a lambda takes no bindings before Clang 16
    Outcome outcome = meet(processes, ranks, {"0123456789abcdef"}, 20s);
    const auto world_of = [&](int rank) -> World& {
      return *outcome.worlds[size_t(rank / (ranks / processes))];
    };
    for (const int64_t count : {0, 1, 1000, 10007}) {
      test::check_collectives<float>(ranks, world_of, count);
      test::check_collectives<double>(ranks, world_of, count);
    }
    test::check_sums_of_threads(ranks, world_of);
    part(outcome);
  }
}

TEST(SocketWorld, AnotherPlanIsRefusedEverywhere) {
  const Outcome outcome = meet(2, 2, {"0123456789abcdef", "fedcba9876543210"}, 1s);
  for (const std::string& error : outcome.errors)
    EXPECT_NE(error.find("the same plan.json"), std::string::npos) << error;
}

TEST(SocketWorld, RanksThatDoNotDivideAreRefused) {
  const Outcome outcome = meet(2, 3, {"0123456789abcdef"}, 10s);
  for (const std::string& error : outcome.errors)
    EXPECT_NE(error.find("divides"), std::string::npos) << error;
}

TEST(SocketWorld, WhoDoesNotComeIsNotWaitedForForEver) {
  SocketWorldOptions options;
  options.launch = {0, 2, "127.0.0.1", free_port(), "test"};
  options.ranks = 2;
  options.timeout = 200ms;
  EXPECT_THROW(make_socket_world(options), RunError);
  options.launch.process = 1;
  EXPECT_THROW(make_socket_world(options), RunError);
}

TEST(SocketWorld, AnAbortReachesEveryProcessWithItsReason) {
  Outcome outcome = meet(3, 3, {"0123456789abcdef"}, 30s);
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      const auto group = outcome.worlds[size_t(r)]->communicator(r, {0, 1, 2}, "test");
      if (r == 1) {
        std::this_thread::sleep_for(50ms);
        return outcome.worlds[1]->abort("planted");
      }
      try {
        group->barrier();
      } catch (const CommunicationError& error) {
        errors[size_t(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int r : {0, 2})
    EXPECT_NE(errors[size_t(r)].find("planted"), std::string::npos) << errors[size_t(r)];
  part(outcome);
}

TEST(SocketWorld, StrangersAndGarbageDoNotStopTheMeeting) {
  const int port = free_port();
  std::thread stranger([port] {
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    const Socket socket = Socket::connect("127.0.0.1", port, deadline);
    const std::string garbage(500, 'x');
    try {
      socket.send_all(garbage.data(), garbage.size());
    } catch (const RunError&) {
    }
  });
  std::vector<std::unique_ptr<World>> worlds(2);
  std::vector<std::thread> threads;
  for (int p = 0; p < 2; ++p) {
    threads.emplace_back([&, p] {
      SocketWorldOptions options;
      options.launch = {p, 2, "127.0.0.1", port, "test"};
      options.ranks = 2;
      options.timeout = 10s;
      if (p == 1) std::this_thread::sleep_for(100ms);
      worlds[size_t(p)] = make_socket_world(options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  stranger.join();
  Outcome outcome{std::move(worlds), {}};
  part(outcome);
}

Patience soon() { return std::chrono::steady_clock::now() + 20s; }

SocketWorldOptions options_of(int process, int processes, int port) {
  SocketWorldOptions options;
  options.launch = {process, processes, "127.0.0.1", port, "test"};
  options.ranks = processes;
  options.plan_digest = "0123456789abcdef";
  options.timeout = 4s;
  return options;
}

// What a process says first, as bytes; see socket_world.cpp.
std::string hello_of(uint32_t process, uint32_t processes, const std::string& digest) {
  std::string hello("mpt-run\0", 8);
  for (const uint32_t number : {uint32_t{2}, process, processes, uint32_t{1}})
    hello.append(reinterpret_cast<const char*>(&number), sizeof number);
  hello += digest + "127.0.0.1";
  hello.resize(8 + 4 * 4 + 16 + 64);
  return hello;
}

void say(const Socket& socket, const std::string& bytes) { socket.send_all(bytes.data(), bytes.size()); }

TEST(SocketWorld, StrangersThatSayNothingDoNotTakeTimeFromTheMeeting) {
  const int port = free_port();
  std::vector<std::unique_ptr<World>> worlds(2);
  std::vector<std::string> errors(2);
  const auto come = [&](int p) {
    try {
      worlds[size_t(p)] = make_socket_world(options_of(p, 2, port));
    } catch (const std::exception& error) {
      errors[size_t(p)] = error.what();
    }
  };
  std::thread first([&] { come(0); });
  std::vector<Socket> silent;
  for (int i = 0; i < 6; ++i) silent.push_back(Socket::connect("127.0.0.1", port, soon()));
  say(silent[0], "mpt");
  std::thread second([&] { come(1); });
  first.join();
  second.join();
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
  Outcome outcome{std::move(worlds), {}};
  part(outcome);
}

TEST(SocketWorld, ADripDoesNotKeepAProcessBeyondItsTimeout) {
  const int port = free_port();
  std::atomic<bool> ended{false};
  std::thread stranger([&] {
    const Socket socket = Socket::connect("127.0.0.1", port, soon());
    const std::string hello = hello_of(1, 2, "0123456789abcdef");
    try {
      for (size_t i = 0; i + 1 < hello.size() && !ended; ++i) {
        say(socket, hello.substr(i, 1));
        std::this_thread::sleep_for(100ms);
      }
    } catch (const RunError&) {
    }
  });
  SocketWorldOptions options = options_of(0, 2, port);
  options.timeout = 1s;
  EXPECT_THROW(make_socket_world(options), RunError);
  EXPECT_FALSE(ended);
  ended = true;
  stranger.join();
}

TEST(SocketWorld, AnotherProgramAtTheAddressIsNotWaitedForForEver) {
  const Socket other = Socket::listen("127.0.0.1", 0);
  SocketWorldOptions options = options_of(1, 2, other.port());
  options.timeout = 300ms;
  EXPECT_THROW(make_socket_world(options), RunError);
}

TEST(SocketWorld, AWishToStopEndsTheMeetingEverywhere) {
  const Socket other = Socket::listen("127.0.0.1", 0);
  std::atomic<bool> stop{false};
  for (auto& options :
       {options_of(0, 2, free_port()), options_of(1, 2, free_port()), options_of(1, 2, other.port())}) {
    stop = false;
    std::thread person([&] {
      std::this_thread::sleep_for(50ms);
      stop = true;
    });
    SocketWorldOptions patient = options;
    patient.timeout = 300s;
    patient.stop = &stop;
    EXPECT_THROW(make_socket_world(patient), StopRequested);
    person.join();
  }
}

TEST(SocketWorld, AStrangerWithAnotherPlanDoesNotEndTheRun) {
  const int port = free_port();
  std::vector<std::unique_ptr<World>> worlds(2);
  std::thread first([&] { worlds[0] = make_socket_world(options_of(0, 2, port)); });
  {
    const Socket stranger = Socket::connect("127.0.0.1", port, soon());
    say(stranger, hello_of(1, 2, "ffffffffffffffff"));
    uint32_t verdict = 9;
    EXPECT_TRUE(stranger.receive_all(&verdict, sizeof verdict, soon()));
    EXPECT_EQ(verdict, 0u);
  }
  worlds[1] = make_socket_world(options_of(1, 2, port));
  first.join();
  Outcome outcome{std::move(worlds), {}};
  part(outcome);
}

// A world of two processes, of which the second is a socket that says what it likes. Returns what the first
// one's barrier ends with.
std::string barrier_against(const std::string& said) {
  const int port = free_port();
  std::unique_ptr<World> world;
  std::thread first([&] { world = make_socket_world(options_of(0, 2, port)); });
  auto peer = std::make_unique<Socket>(Socket::connect("127.0.0.1", port, soon()));
  say(*peer, hello_of(1, 2, "0123456789abcdef"));
  first.join();
  say(*peer, said);
  peer.reset();
  std::string reason;
  try {
    world->communicator(0, {0, 1}, "test")->barrier();
  } catch (const CommunicationError& error) {
    reason = error.what();
  }
  return reason;
}

std::string frame_of(uint64_t group, int64_t bytes) {
  const Frame frame{group, 1, 0, bytes};
  return {reinterpret_cast<const char*>(&frame), sizeof frame};
}

TEST(SocketWorld, ALengthWithoutAMessageTakesNoMemory) {
  EXPECT_NE(barrier_against(frame_of(7, Frame::kMostBytes) + "little").find("rank 1 died"),
            std::string::npos);
}

TEST(SocketWorld, AReasonFromElsewhereHoldsNoControlCharacters) {
  const std::string reason = barrier_against(frame_of(0, 8) + "\033[2Jgone");
  EXPECT_NE(reason.find("?[2Jgone"), std::string::npos) << reason;
}

TEST(Launch, ReadsWhatLaunchersSet) {
  const char* names[] = {"RANK",
                         "WORLD_SIZE",
                         "OMPI_COMM_WORLD_RANK",
                         "OMPI_COMM_WORLD_SIZE",
                         "PMI_RANK",
                         "PMI_SIZE",
                         "SLURM_PROCID",
                         "SLURM_STEP_NUM_TASKS",
                         "MASTER_ADDR",
                         "MASTER_PORT",
                         "SLURM_NODEID",
                         "SLURM_STEP_TASKS_PER_NODE",
                         "LOCAL_RANK",
                         "LOCAL_WORLD_SIZE",
                         "TORCHELASTIC_USE_AGENT_STORE"};
  const auto with = [&](const std::vector<std::pair<const char*, const char*>>& set) {
    for (const char* name : names) ::unsetenv(name);
    for (const auto& [name, value] : set) ::setenv(name, value, 1);
    return launch_from_environment();
  };
  EXPECT_FALSE(with({}));
  EXPECT_FALSE(with({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(with({{"SLURM_PROCID", "0"}}));
  const auto torch = with({{"RANK", "3"},
                           {"WORLD_SIZE", "8"},
                           {"MASTER_ADDR", "node7"},
                           {"MASTER_PORT", "1234"},
                           {"LOCAL_WORLD_SIZE", "4"},
                           {"LOCAL_RANK", "2"}});
  ASSERT_TRUE(torch);
  EXPECT_EQ(torch->process, 3);
  EXPECT_EQ(torch->processes, 8);
  EXPECT_EQ(torch->process_of_host, 2);
  EXPECT_EQ(torch->processes_of_host, 4);
  EXPECT_EQ(torch->master_address, "node7");
  EXPECT_EQ(torch->master_port, 1234);
  EXPECT_EQ(with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})->launcher, "mpirun");
  EXPECT_EQ(with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})->launcher, "Hydra");
  EXPECT_EQ(with({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}})->launcher, "srun");
  for (const auto& [host, processes] : {std::pair{"0", 2}, {"2", 2}, {"3", 1}})
    EXPECT_EQ(with({{"SLURM_PROCID", "1"},
                    {"SLURM_STEP_NUM_TASKS", "7"},
                    {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                    {"SLURM_NODEID", host}})
                  ->processes_of_host,
              processes)
        << host;
  EXPECT_THROW(with({{"RANK", "8"}, {"WORLD_SIZE", "8"}}), UserError);
  EXPECT_THROW(with({{"RANK", "x"}, {"WORLD_SIZE", "8"}}), UserError);
  EXPECT_THROW(with({{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}), UserError);
  EXPECT_THROW(with({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}), UserError);
  with({});
}

TEST(Launch, MeetsBesideThePortThatTorchrunHolds) {
  const auto port = [](const char* master_port, const char* agent_store, int asked) {
    for (const auto& [name, value] : {std::pair{"RANK", "1"},
                                      {"WORLD_SIZE", "2"},
                                      {"MASTER_PORT", master_port},
                                      {"TORCHELASTIC_USE_AGENT_STORE", agent_store}})
      ::setenv(name, value, 1);
    const auto launch = launch_from_environment(asked);
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
      ::unsetenv(name);
    return launch ? launch->master_port : 0;
  };
  EXPECT_EQ(port("43489", "True", 0), 43490);
  EXPECT_EQ(port("65535", "True", 0), 1024);
  EXPECT_EQ(port("43489", "False", 0), 43489);
  EXPECT_EQ(port("43489", "True", 5000), 5000);
  EXPECT_EQ(port("43489", "", 5000), 5000);
}

}  // namespace
}  // namespace mpt::runtime
