// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint.h"

#include <set>

#include "base/files.h"
#include "base/json.h"
#include "models/parameter_count.h"

namespace mpt::runtime {
namespace {

constexpr char kInfoFile[] = "checkpoint.json";
constexpr char kPrefix[] = "step-";
constexpr char kFormat[] = "mpt-checkpoint";
constexpr int64_t kMostRows = int64_t{1} << 48;  // and columns, as in a shape (safetensors.cpp)

// "value/layers.0.mlp.up.weight@64,0" -> its key and first row and column.
std::optional<std::pair<std::string, std::pair<int64_t, int64_t>>> parse_name(const std::string& text) {
  const size_t at = text.rfind('@'), comma = text.rfind(',');
  if (at == std::string::npos || comma == std::string::npos || comma < at) return std::nullopt;
  const auto row = number_of<int64_t>(text.substr(at + 1, comma - at - 1));
  const auto column = number_of<int64_t>(text.substr(comma + 1));
  const auto fits = [](const auto& number) { return number && *number >= 0 && *number <= kMostRows; };
  if (!fits(row) || !fits(column)) return std::nullopt;
  return std::pair{text.substr(0, at), std::pair{*row, *column}};
}

std::string key_of(TensorKind kind, const std::string& name) { return enum_name(kind) + "/" + name; }

[[noreturn]] void refuse_damaged(const std::filesystem::path& where, const std::string& found,
                                 const std::string& expected) {
  refuse_input(where.string(), found, expected, "the checkpoint is damaged: take an earlier one");
}

void check_file(const std::filesystem::path& folder, const CheckpointFile& file) {
  const std::filesystem::path path = folder / file.name;
  if (file.name.find('/') != std::string::npos)
    refuse_input((folder / kInfoFile).string(), "file \"" + file.name + "\"", "one in the folder");
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error)
    refuse_damaged(path, "cannot be read (" + error.message() + ")", fmt::format("{} bytes", file.bytes));
  if (int64_t(bytes) != file.bytes)
    refuse_damaged(path, fmt::format("{} bytes", bytes), fmt::format("{} bytes", file.bytes));
  const uint32_t crc = file_crc32(path);
  if (int64_t(crc) != file.crc32)
    refuse_damaged(path, fmt::format("checksum {:08x}", crc), fmt::format("{:08x}", file.crc32));
}

// Whether a folder of such a name may contain a part of a checkpoint. A folder that cannot be read may.
bool may_hold_checkpoint(const std::filesystem::path& folder) {
  using Type = std::filesystem::file_type;
  std::error_code error;
  const Type type = std::filesystem::status(folder, error).type();
  if (type != Type::directory) return type == Type::none || type == Type::not_found;  // a link to nowhere
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != end(entry); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name == kInfoFile || name.starts_with("rank-")) return true;
  }
  return bool(error);
}

}  // namespace

std::vector<double> read_part(const TensorSource& source, TensorKind kind, const Parameter& parameter) {
  std::vector<double> values(size_t(parameter.count), 0.0);
  double* at = values.data();
  for (const ShardBlock& block : parameter.blocks) {
    if (block.count() > 0) source.read(kind, parameter.name, block, at);
    at += block.count();
  }
  return values;
}

// Elements of a block in row order, as rectangles: part of its first row, whole rows, part of the last row.
std::vector<ShardBlock> rectangles(const Parameter& parameter, int64_t begin, int64_t count) {
  std::vector<ShardBlock> out;
  int64_t first = 0;
  for (const ShardBlock& block : parameter.blocks) {
    int64_t at = std::max<int64_t>(begin - first, 0);
    const int64_t end = std::min(begin + count - first, block.count());
    while (at < end) {
      const int64_t row = at / block.columns, column = at % block.columns;
      const bool whole = column == 0 && end - at >= block.columns;
      const int64_t rows = whole ? (end - at) / block.columns : 1;
      const int64_t columns = whole ? block.columns : std::min(block.columns - column, end - at);
      out.push_back({block.global_row + row, rows, block.global_column + column, columns});
      at += rows * columns;
    }
    first += block.count();
  }
  return out;
}

Checkpoint::Checkpoint(const std::filesystem::path& folder) : folder_(folder) {
  const std::filesystem::path file = folder / kInfoFile;
  info_ = from_json<CheckpointInfo>(load_json(file), file.string());
  if (info_.format != kFormat) refuse_input(file.string() + " at /format", info_.format, kFormat);
  validate_model(info_.model, file.string());
  for (const CheckpointFile& described : info_.files) {
    check_file(folder, described);
    files_.push_back(std::make_unique<SafetensorsFile>(folder / described.name));
    if (auto metadata = files_.back()->metadata(); metadata[kRunKey] != info_.run)
      refuse_damaged(folder / described.name,
                     fmt::format("a file of run \"{}\"", cut_text(metadata[kRunKey], kMostNameBytes)),
                     fmt::format("one of run \"{}\", which wrote {}", info_.run, kInfoFile));
    for (const auto& [name, entry] : files_.back()->entries()) {
      const auto parsed = parse_name(name);
      if (!parsed || entry.shape.size() != 2)
        refuse_input((folder / described.name).string(), "tensor \"" + name.substr(0, 80) + "\"",
                     "kind/name@row,column of two dimensions");
      const auto& [key, place] = *parsed;
      pieces_[key].push_back(
          {files_.size() - 1, {place.first, entry.shape[0], place.second, entry.shape[1]}, entry});
    }
  }
  check_pieces();
  check_completeness();
}

// read() only counts elements, so a duplicate element would hide a missing one.
void Checkpoint::check_pieces() {
  for (auto& [key, pieces] : pieces_) {
    sort_by(pieces, [](const Piece& piece) { return piece.block.global_row; });
    for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
      const ShardBlock& p = piece->block;
      const auto is_beside = [&p](const Piece& other) {
        const ShardBlock& o = other.block;
        return p.global_column + p.columns <= o.global_column ||
               o.global_column + o.columns <= p.global_column;
      };
      auto next = std::next(piece);
      while (next != pieces.end() && next->block.global_row < p.global_row + p.rows && is_beside(*next))
        ++next;
      if (next == pieces.end() || next->block.global_row >= p.global_row + p.rows || p.count() == 0 ||
          next->block.count() == 0)
        continue;
      refuse_damaged(
          folder_,
          fmt::format("two pieces of {} that hold row {}, column {}", cut_text(key, kMostNameBytes),
                      next->block.global_row, std::max(p.global_column, next->block.global_column)),
          "each element once");
    }
  }
}

// Pieces do not overlap, so counts of elements show whether all are there: of each tensor, of its moments,
// and of the model. Next-token modules are not counted among the model's own weights.
void Checkpoint::check_completeness() const {
  int64_t weights = 0;
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> sizes;  // of each name, over its kinds
  for (const auto& [key, pieces] : pieces_) {
    const TensorSummary whole = summary_of(pieces);
    const int64_t elements = sum_of<int64_t>(pieces, [](const Piece& piece) { return piece.block.count(); });
    if (double(elements) != double(whole.rows) * double(whole.columns))
      refuse_damaged(folder_, fmt::format("{} elements of {}", elements, cut_text(key, kMostNameBytes)),
                     fmt::format("{} x {}", whole.rows, whole.columns));
    if (key.starts_with(key_of(TensorKind::value, ""))) weights += elements;
    sizes[key.substr(key.find('/') + 1)].emplace(whole.rows, whole.columns);
  }
  for (const auto& [name, of_kinds] : sizes)
    for (const std::string& kind : enum_names<TensorKind>())
      if (of_kinds.size() != 1 || !pieces_.contains(fmt::format("{}/{}", kind, name)))
        refuse_damaged(
            folder_,
            fmt::format("no {} of the size of the others for {}", kind, cut_text(name, kMostNameBytes)),
            "values and both moments of each weight, of one size");
  if (const int64_t total = models::count_parameters(info_.model).total; weights < total)
    refuse_damaged(folder_, fmt::format("{} weights", weights),
                   fmt::format("the {} of {}", total, info_.model.name));
}

void Checkpoint::read(TensorKind kind, const std::string& name, const ShardBlock& block, double* out) const {
  int64_t found = 0;
  if (const auto* pieces = find_value(pieces_, key_of(kind, name)))
    for (const Piece& piece : *pieces) {
      const ShardBlock& p = piece.block;
      const int64_t row = std::max(block.global_row, p.global_row);
      const int64_t last_row = std::min(block.global_row + block.rows, p.global_row + p.rows);
      const int64_t column = std::max(block.global_column, p.global_column);
      const int64_t last_column = std::min(block.global_column + block.columns, p.global_column + p.columns);
      if (row >= last_row || column >= last_column) continue;
      for (int64_t r = row; r < last_row; ++r)
        read_elements(*files_[piece.file], piece.entry,
                      (r - p.global_row) * p.columns + column - p.global_column, last_column - column,
                      out + (r - block.global_row) * block.columns + column - block.global_column);
      found += (last_row - row) * (last_column - column);
    }
  if (found == block.count()) return;
  refuse_input(folder_.string(),
               fmt::format("{} of the {} elements of {} from row {}, column {}", found, block.count(),
                           key_of(kind, name), block.global_row, block.global_column),
               "all of them", "the checkpoint is of another model, or lacks a rank's file");
}

std::map<std::string, Checkpoint::TensorSummary> Checkpoint::tensors() const {
  std::map<std::string, TensorSummary> all;
  const std::string prefix = key_of(TensorKind::value, "");
  for (const auto& [key, pieces] : pieces_)
    if (key.starts_with(prefix)) all[key.substr(prefix.size())] = summary_of(pieces);
  return all;
}

Checkpoint::TensorSummary Checkpoint::summary_of(const std::vector<Piece>& pieces) {
  TensorSummary summary;
  for (const Piece& piece : pieces) {
    summary.rows = std::max(summary.rows, piece.block.global_row + piece.block.rows);
    summary.columns = std::max(summary.columns, piece.block.global_column + piece.block.columns);
    ++summary.pieces;
  }
  return summary;
}

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = number_of<int64_t>(name.substr(sizeof kPrefix - 1));
  return step && name == checkpoint_name(*step) ? step : std::nullopt;
}

std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder) {
  std::vector<std::pair<int64_t, std::filesystem::path>> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return {};
  for (; !error && entry != end(entry); entry.increment(error)) {
    const auto step = step_of_name(entry->path().filename().string());
    if (step && may_hold_checkpoint(entry->path())) found.emplace_back(*step, entry->path());
  }
  if (error)
    refuse_input(folder.string(), fmt::format("cannot be listed ({})", error.message()),
                 "a folder of checkpoints that can be read", "check its owner and mode; nothing was changed");
  std::sort(found.rbegin(), found.rend());
  return mapped<std::filesystem::path>(found, [](const auto& checkpoint) { return checkpoint.second; });
}

CheckpointOwner owner_of(const std::filesystem::path& folder) {
  const auto step = step_of_name(folder.filename().string());
  std::error_code error;
  if (!step || std::filesystem::is_symlink(folder, error)) return CheckpointOwner::others;
  try {
    const Json json = load_json(folder / kInfoFile);
    const bool own = json.is_object() && json.contains("format") && json["format"] == kFormat &&
                     json.contains("step") && json["step"] == *step;
    return own ? CheckpointOwner::mpt_run : CheckpointOwner::others;
  } catch (const UserError&) {
    return CheckpointOwner::unknown;
  }
}

std::optional<int64_t> own_checkpoint_step(const std::filesystem::path& folder) {
  return owner_of(folder) == CheckpointOwner::mpt_run ? step_of_name(folder.filename().string())
                                                      : std::nullopt;
}

std::unique_ptr<Checkpoint> open_newest(const std::filesystem::path& path, std::vector<std::string>& notes) {
  if (is_there(path / kInfoFile)) return std::make_unique<Checkpoint>(path);
  std::vector<Problem> problems;
  for (const auto& folder : checkpoints_in(path)) {
    try {
      auto checkpoint = std::make_unique<Checkpoint>(folder);
      if (!problems.empty()) notes.back() += fmt::format("; taking {} instead", folder.filename().string());
      return checkpoint;
    } catch (const UserError& unreadable) {
      problems.push_back(unreadable.problems().front());
      problems.back().remedy.clear();
      notes.push_back(fmt::format("passed over {}: {}", folder.string(), UserError(problems.back()).what()));
    }
  }
  if (problems.empty()) return nullptr;
  problems.insert(
      problems.begin(),
      Problem{path.string(), fmt::format("none of its {} checkpoints can be read", problems.size()),
              "a whole one",
              "nothing was changed: restore one of them from a copy, or name another folder with "
              "--checkpoints to start anew"});
  notes.clear();
  throw UserError(std::move(problems));
}

}  // namespace mpt::runtime
