// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_saver.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/error.h"
#include "core/json.h"

namespace mpt::runtime {
namespace {

constexpr char kUnfinished[] = ".unfinished-";

std::string rank_file(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

[[noreturn]] void fail(const std::filesystem::path& path, const std::error_code& error) {
  throw RunError(fmt::format("checkpoint {}: {}", path.string(), error.message()));
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const std::error_code error(errno, std::generic_category());
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) fail(folder, error);
}

// Beside its final name until it is whole, so that a name stands for a whole file.
void write_rank(const std::filesystem::path& folder, int rank, const RankSnapshot& snapshot) {
  std::vector<NamedTensor> tensors;
  for (const CheckpointPiece& p : snapshot.pieces) {
    tensors.push_back({fmt::format("{}/{}@{},{}", enum_name(p.kind), p.name, p.row, p.column),
                       snapshot.type,
                       {p.rows, p.columns}});
  }
  const std::filesystem::path part = folder / (rank_file(rank) + ".part");
  SafetensorsWriter writer(part, tensors, {{"format", "mpt-checkpoint"}});
  for (const CheckpointPiece& p : snapshot.pieces) writer.append(p.data.data(), int64_t(p.data.size()));
  writer.finish();
  std::error_code error;
  std::filesystem::rename(part, folder / rank_file(rank), error);
  if (error) fail(part, error);
}

}  // namespace

CheckpointSaver::CheckpointSaver(const SaveOptions& options) : options_(options) {
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error || ::access(options_.folder.c_str(), W_OK) != 0) {
    throw UserError(
        Problem{"--checkpoints " + options_.folder.string(),
                fmt::format("cannot be written ({})", error ? error.message() : std::strerror(errno)),
                "a folder, or a name for one", ""});
  }
  if (!options_.leader) return;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, error)) {
    if (entry.path().filename().string().starts_with(kUnfinished))
      std::filesystem::remove_all(entry.path(), error);
  }
}

CheckpointSaver::~CheckpointSaver() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointSaver::add(int rank, const CheckpointInfo& info, RankSnapshot snapshot) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !writing_; });
  if (failure_) std::rethrow_exception(failure_);
  collected_[rank] = std::move(snapshot);
  if (int(collected_.size()) < options_.local_ranks) return;
  if (thread_.joinable()) thread_.join();
  writing_ = true;
  thread_ = std::thread([this, info, snapshots = std::exchange(collected_, {})] {
    std::exception_ptr failure;
    try {
      write(info, snapshots);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard guard(mutex_);
    failure_ = failure;
    writing_ = false;
    changed_.notify_all();
  });
}

void CheckpointSaver::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !writing_; });
  if (failure_) std::rethrow_exception(failure_);
}

void CheckpointSaver::write(const CheckpointInfo& info, const std::map<int, RankSnapshot>& snapshots) {
  const std::filesystem::path unfinished = options_.folder / (kUnfinished + checkpoint_name(info.step));
  std::error_code error;
  std::filesystem::create_directories(unfinished, error);
  if (error) fail(unfinished, error);
  for (const auto& [rank, snapshot] : snapshots) write_rank(unfinished, rank, snapshot);
  if (options_.leader) finish(info, unfinished);
}

// Every file is there under its own name, is read back, and is listed; only then the folder gets its name.
void CheckpointSaver::finish(CheckpointInfo info, const std::filesystem::path& unfinished) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.patience_s);
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const std::filesystem::path file = unfinished / rank_file(rank);
    std::error_code error;
    while (!std::filesystem::exists(file, error)) {
      const bool failed = options_.has_failed();
      if (failed || std::chrono::steady_clock::now() > deadline) {
        throw RunError(fmt::format(
            "checkpoint {}: rank {} has not written its part{}", unfinished.string(), rank,
            failed ? ", for its process is gone" : fmt::format(" within {} s", options_.patience_s)));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    info.files.push_back(
        {rank_file(rank), int64_t(std::filesystem::file_size(file)), int64_t(file_crc32(file))});
  }
  write_file_atomically(unfinished / "checkpoint.json", to_json(info).dump(1) + "\n");
  sync_folder(unfinished);
  const std::filesystem::path whole = options_.folder / checkpoint_name(info.step);
  std::error_code error;
  std::filesystem::remove_all(whole, error);  // the same step, saved by a run before this one was resumed
  std::filesystem::rename(unfinished, whole, error);
  if (error) fail(whole, error);
  sync_folder(options_.folder);
  prune();
}

void CheckpointSaver::prune() {
  const auto all = checkpoints_in(options_.folder);
  std::error_code error;
  for (size_t i = size_t(options_.keep); i < all.size(); ++i) {
    // Its description goes first: what is left when the process dies here is no checkpoint.
    std::filesystem::remove(all[i] / "checkpoint.json", error);
    std::filesystem::remove_all(all[i], error);
  }
}

}  // namespace mpt::runtime
