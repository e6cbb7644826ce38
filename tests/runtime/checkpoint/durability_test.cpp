// SPDX-License-Identifier: Apache-2.0

// What a machine that loses power leaves of a checkpoint depends on the order of the calls that write it.
// They are recorded: these definitions stand before those of the C library.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "runtime/checkpoint/checkpoint_saver.h"
#include "tests/support/make_plan.h"

namespace {

std::mutex calls_mutex;
std::vector<std::string> calls;
bool is_recording = false;

void record(const std::string& call, const std::filesystem::path& path) {
  const std::lock_guard lock(calls_mutex);
  if (is_recording) calls.push_back(call + " " + path.filename().string());
}

template <class Function>
Function* the_real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int fsync(int descriptor) {
  std::error_code error;
  record("fsync", std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), error));
  return the_real<int(int)>("fsync")(descriptor);
}

extern "C" int rename(const char* from, const char* to) {
  record("rename to", to);
  return the_real<int(const char*, const char*)>("rename")(from, to);
}

extern "C" int remove(const char* path) {
  record("remove", path);
  return the_real<int(const char*)>("remove")(path);
}

namespace mpt::runtime {
namespace {

constexpr int kRanks = 8;

// Saves steps 1 and 2 and keeps one; returns the calls of the second.
std::vector<std::string> calls_of_a_save() {
  const auto folder = std::filesystem::path(testing::TempDir()) / "durability";
  std::filesystem::remove_all(folder);
  SaveOptions options;
  options.folder = folder;
  options.keep = 1;
  options.ranks = options.local_ranks = kRanks;
  CheckpointSaver saver(options);
  for (const int64_t step : {1, 2}) {
    saver.wait();
    {
      const std::lock_guard lock(calls_mutex);
      is_recording = step == 2;
    }
    CheckpointInfo info;
    info.step = step;
    info.model = test::little_gpt();
    RankSnapshot snapshot;
    snapshot.pieces = {{TensorKind::value, "w", 0, 1, 0, 1, std::vector<char>(4)}};
    for (int rank = 0; rank < kRanks; ++rank) saver.add(rank, info, snapshot);
  }
  saver.wait();
  is_recording = false;
  return std::exchange(calls, {});
}

TEST(Durability, AFileIsOnTheDiskBeforeItHasItsName) {
  const std::vector<std::string> made = calls_of_a_save();
  const auto place = [&](const std::string& call) {
    const auto at =
        std::find_if(made.begin(), made.end(), [&](const auto& c) { return c.starts_with(call); });
    EXPECT_NE(at, made.end()) << call << " is not among\n" << testing::PrintToString(made);
    return at - made.begin();
  };
  // No rank's file of the older checkpoint goes before its name and its description have gone.
  const std::vector<std::string> order{"fsync rank-00003.safetensors.part",
                                       "rename to rank-00003.safetensors",
                                       "fsync .mpt-",  // the description, under a temporary name
                                       "rename to checkpoint.json",
                                       "fsync .unfinished-step-00000002",
                                       "rename to step-00000002",
                                       "fsync durability",
                                       "rename to .unfinished-step-00000001",
                                       "remove checkpoint.json",
                                       "remove rank-"};
  for (size_t i = 1; i < order.size(); ++i)
    EXPECT_LT(place(order[i - 1]), place(order[i])) << order[i] << testing::PrintToString(made);
}

}  // namespace
}  // namespace mpt::runtime
