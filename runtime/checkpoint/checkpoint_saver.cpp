// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_saver.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "runtime/checkpoint/folder_lock.h"

namespace mpt::runtime {
namespace {

constexpr char kUnfinished[] = ".unfinished-";
constexpr char kDescription[] = "checkpoint.json";

std::string rank_file(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

[[noreturn]] void fail(const std::filesystem::path& path, const std::error_code& error) {
  fail_run("checkpoint {}: {}", path.string(), error.message());
}

void sync_or_fail(const std::filesystem::path& folder) {
  if (const std::error_code error = sync_folder(folder)) fail(folder, error);
}

// Writes under a temporary name and renames when complete, so a file of the final name is always complete.
// Returns the checksum of what was to be written.
int64_t write_rank(const std::filesystem::path& folder, int rank, const RankSnapshot& snapshot,
                   const std::string& run) {
  std::vector<NamedTensor> tensors;
  for (const CheckpointPiece& p : snapshot.pieces)
    tensors.push_back(
        {fmt::format("{}/{}@{},{}", enum_name(p.kind), p.name, p.block.global_row, p.block.global_column),
         snapshot.type,
         {p.block.rows, p.block.columns}});
  const std::filesystem::path part = folder / (rank_file(rank) + ".part");
  SafetensorsWriter writer(part, tensors, {{"format", "mpt-checkpoint"}, {kRunKey, run}});
  for (const CheckpointPiece& p : snapshot.pieces) writer.append(p.data.data(), int64_t(p.data.size()));
  writer.finish();
  std::error_code error;
  std::filesystem::rename(part, folder / rank_file(rank), error);
  if (error) fail(part, error);
  return int64_t(writer.crc32());
}

bool is_own_file(const std::filesystem::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code error;
  return entry.symlink_status(error).type() == std::filesystem::file_type::regular &&
         (name == kDescription || is_temporary_name(name) ||
          (name.starts_with("rank-") && (name.ends_with(".safetensors") || name.ends_with(".part"))));
}

// Removes mpt-run's files from the folder, and the folder if it is then empty.
void remove_own_files(const std::filesystem::path& folder) {
  std::error_code error;
  // The description is removed first. If the process dies here, the rest does not look like a checkpoint.
  std::filesystem::remove(folder / kDescription, error);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (is_own_file(entry)) files.push_back(entry.path());
  for (const auto& file : files) std::filesystem::remove(file, error);
  if (std::filesystem::remove(folder, error) || !error) return;
  // A folder that holds files of others stays, as its owner wants. Else the disk fills up.
  if (error != std::errc::directory_not_empty || std::filesystem::exists(folder / kDescription))
    warn(fmt::format("mpt-run: note: {} is no longer needed and cannot be removed ({})", folder.string(),
                     error.message()));
}

// The folder is first renamed to unfinished. If the process is killed in between, the next run deletes the
// rest.
void remove_checkpoint(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  const bool only_own = !error && std::all_of(begin(entries), end(entries), is_own_file);
  const auto unfinished = folder.parent_path() / (kUnfinished + folder.filename().string());
  if (only_own) std::filesystem::rename(folder, unfinished, error);
  remove_own_files(only_own && !error ? unfinished : folder);
}

void remove_unfinished(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const std::string step = name.substr(0, name.find('.', 1));  // without the run's number
    if (step.starts_with(kUnfinished) && step_of_name(step.substr(sizeof kUnfinished - 1)) &&
        entry.symlink_status(error).type() == std::filesystem::file_type::directory)
      found.push_back(entry.path());
  }
  for (const auto& unfinished : found) remove_own_files(unfinished);
}

// Renames a file or folder that has a checkpoint's name but is not a complete checkpoint of mpt-run.
void move_aside(const std::filesystem::path& path) {
  std::filesystem::path aside;
  std::error_code error;
  for (int i = 1; i == 1 || std::filesystem::exists(std::filesystem::symlink_status(aside, error)); ++i)
    aside = fmt::format("{}.before-{}", path.string(), i);
  std::filesystem::rename(path, aside, error);
  if (error) fail(path, error);
  warn(fmt::format("mpt-run: note: {} was no whole checkpoint and is now {}", path.string(),
                   aside.filename().string()));
}

}  // namespace

bool is_name_of_saver(const std::string& name) {
  return name == kLockFile || name.starts_with(kUnfinished) || step_of_name(name).has_value();
}

void check_no_later_checkpoints(const std::filesystem::path& folder, int64_t start_step,
                                const std::string& remedy) {
  for (const auto& checkpoint : checkpoints_in(folder)) {  // newest first
    const std::string name = checkpoint.filename().string();
    const CheckpointOwner owner = owner_of(checkpoint);
    if (owner == CheckpointOwner::others || step_of_name(name) <= start_step) continue;
    refuse_input("--checkpoints " + folder.string(),
                 fmt::format("holds {}{}, and this run would begin after step {}", name,
                             owner == CheckpointOwner::unknown ? ", which cannot be read" : "", start_step),
                 "a folder without later checkpoints", remedy);
  }
}

CheckpointSaver::CheckpointSaver(const SaveOptions& options) : options_(options) {
  make_checkpoint_folder(options_.folder);
  if (options_.leader) remove_unfinished(options_.folder);
}

CheckpointSaver::~CheckpointSaver() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointSaver::add(int rank, const CheckpointInfo& info, RankSnapshot snapshot, bool kept) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !writing_; });
  if (failure_) std::rethrow_exception(failure_);
  collected_[rank] = std::move(snapshot);
  if (int(collected_.size()) < options_.local_ranks) return;
  if (thread_.joinable()) thread_.join();
  writing_ = true;
  thread_ = std::thread([this, info, kept, snapshots = std::exchange(collected_, {})] {
    std::exception_ptr failure;
    try {
      write(info, snapshots, kept);
    } catch (const UserError& error) {  // training has begun, so it is no input error
      failure = std::make_exception_ptr(RunError(error.what()));
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

void CheckpointSaver::write(const CheckpointInfo& info, const std::map<int, RankSnapshot>& snapshots,
                            bool kept) {
  const auto unfinished =
      options_.folder / fmt::format("{}{}.{}", kUnfinished, checkpoint_name(info.step), info.run);
  std::error_code error;
  std::filesystem::create_directories(unfinished, error);
  if (error) fail(unfinished, error);
  std::map<int, int64_t> checksums;
  for (const auto& [rank, snapshot] : snapshots)
    checksums[rank] = write_rank(unfinished, rank, snapshot, info.run);
  if (!options_.leader) return;
  describe(info, unfinished, checksums);
  if (kept) give_name(unfinished, info.step);
  if (kept) prune(info.step);
  options_.on_saved(kept ? options_.folder / checkpoint_name(info.step) : unfinished, info.step);
  if (!kept) remove_own_files(unfinished);
}

// Checks that every file exists under its name and can be read back, and lists it.
void CheckpointSaver::describe(CheckpointInfo info, const std::filesystem::path& unfinished,
                               const std::map<int, int64_t>& checksums) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.patience_s);
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const std::filesystem::path file = unfinished / rank_file(rank);
    while (!is_there(file)) {
      if (const bool failed = options_.has_failed(); failed || std::chrono::steady_clock::now() > deadline)
        fail_run("checkpoint {}: rank {} has not written its part{}", unfinished.string(), rank,
                 failed ? ", for its process is gone" : fmt::format(" within {} s", options_.patience_s));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    info.files.push_back(
        {rank_file(rank), int64_t(std::filesystem::file_size(file)), int64_t(file_crc32(file))});
    const auto meant = checksums.find(rank);  // those of other processes are not known here
    if (meant != checksums.end() && meant->second != info.files.back().crc32)
      fail_run("checkpoint {}: reads back as other bytes than were written", file.string());
  }
  write_file_atomically(unfinished / kDescription, to_json(info).dump(1) + "\n");
  sync_or_fail(unfinished);
}

void CheckpointSaver::give_name(const std::filesystem::path& unfinished, int64_t step) {
  const std::filesystem::path whole = options_.folder / checkpoint_name(step);
  std::error_code error;
  // The checkpoint of this step may have been damaged when this run resumed from an earlier one.
  if (std::filesystem::exists(std::filesystem::symlink_status(whole, error))) move_aside(whole);
  std::filesystem::rename(unfinished, whole, error);
  if (error) fail(whole, error);
  sync_or_fail(options_.folder);
  written_.insert(step);
}

// A checkpoint that is neither of this run nor older than its start was damaged when the run resumed. It must
// not displace a complete one, so it does not count.
void CheckpointSaver::prune(int64_t newest) {
  int64_t kept = 0;
  for (const auto& checkpoint : checkpoints_in(options_.folder)) {  // newest first
    const auto step = own_checkpoint_step(checkpoint);
    if (!step || *step > newest) continue;
    const bool of_this_run = *step <= options_.start_step || written_.contains(*step);
    if (of_this_run && ++kept > options_.keep) remove_checkpoint(checkpoint);
  }
}

}  // namespace mpt::runtime
