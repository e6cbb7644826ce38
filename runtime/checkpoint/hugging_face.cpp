// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/hugging_face.h"

#include "base/files.h"
#include "base/json.h"
#include "runtime/comm/reduction.h"

namespace mpt::runtime {
namespace {

using models::HuggingFaceTensor;

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

// The files of the weights: the only one, or those that the index names.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder) {
  if (is_there(folder / kSingle)) return {folder / kSingle};
  const std::filesystem::path index = folder / kIndex;
  if (!is_there(index))
    refuse_input(folder.string(), "no weights", fmt::format("{} or {}", kSingle, kIndex),
                 "name a folder of a Hugging Face model");
  const Json json = load_json(index);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object())
    refuse_input(index.string() + " at /weight_map", "missing or no object", "file names by tensor");
  std::set<std::filesystem::path> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
      refuse_input(index.string() + " at /weight_map/" + detail::escape_pointer(tensor),
                   detail::describe_json(file), "a file in the same folder");
    files.insert(folder / file.get<std::string>());
  }
  return {files.begin(), files.end()};
}

// The parts of one tensor of the export.
using TensorParts = std::vector<HuggingFaceTensor>;

// One tensor of the export, in the export's type and arrangement.
std::vector<char> tensor_data(const TensorSource& source, const TensorParts& parts, DataType type) {
  const int64_t count = parts.front().count();
  std::vector<float> floats(static_cast<size_t>(count));
  for (const HuggingFaceTensor& t : parts) {
    std::vector<double> values(static_cast<size_t>(t.rows * t.columns));
    source.read(TensorKind::value, t.name, {t.row, t.rows, 0, t.columns}, values.data());
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t c = 0; c < t.columns; ++c)
        floats[size_t(t.element(r, c))] = float(values[size_t(r * t.columns + c)] - t.added);
  }
  std::vector<char> data(size_t(count * size_of(type)));
  if (type == DataType::float32)
    std::copy_n(reinterpret_cast<const char*>(floats.data()), data.size(), data.data());
  else
    narrow(type, floats.data(), count, data.data());
  return data;
}

std::vector<std::vector<TensorParts>> shards_of(const ModelSpec& model, const HuggingFaceExport& options) {
  std::vector<std::vector<TensorParts>> shards(1);
  int64_t bytes = 0;
  for (const HuggingFaceTensor& tensor : models::hugging_face_tensors(model)) {
    if (!shards.back().empty() && shards.back().back().front().source == tensor.source) {
      shards.back().back().push_back(tensor);
      continue;
    }
    const int64_t own = tensor.count() * size_of(*options.type);
    if (bytes > 0 && bytes + own > options.shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back({tensor});
    bytes += own;
  }
  return shards;
}

std::string shard_name(size_t shard, size_t shards) {
  return shards == 1 ? kSingle : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

// Files get their final names when all are complete. After a failure all of them are removed, so that a
// second try finds an empty folder.
class Parts {
 public:
  Parts() = default;
  Parts& operator=(Parts&&) = delete;
  ~Parts() {
    std::error_code error;
    for (const auto& file : files_) std::filesystem::remove(part_of(file), error);
  }

  std::filesystem::path add(const std::filesystem::path& file) {
    files_.push_back(file);
    return part_of(file);
  }
  std::vector<std::filesystem::path> give_names() {
    for (const auto& file : files_) {
      std::error_code error;
      std::filesystem::rename(part_of(file), file, error);
      // A name is on the disk before the next: the index, then config.json come last, and nothing loads
      // without them.
      if (!error) error = sync_folder(file.parent_path());
      if (error) fail_run("{}: {}", file.string(), error.message());
    }
    return std::exchange(files_, {});
  }

 private:
  static std::filesystem::path part_of(const std::filesystem::path& file) { return file.string() + ".part"; }

  std::vector<std::filesystem::path> files_;
};

void write_shard(const std::filesystem::path& file, const std::vector<TensorParts>& shard,
                 const TensorSource& source, DataType type) {
  std::vector<NamedTensor> tensors;
  for (const TensorParts& t : shard) tensors.push_back({t.front().source, type, t.front().shape});
  SafetensorsWriter writer(file, tensors, {{"format", "pt"}});
  for (const TensorParts& t : shard) {
    const std::vector<char> data = tensor_data(source, t, type);
    writer.append(data.data(), int64_t(data.size()));
  }
  writer.finish();
}

std::string index_of(const std::vector<std::vector<TensorParts>>& shards, DataType type) {
  Json map = Json::object();
  int64_t total = 0;
  for (size_t s = 0; s < shards.size(); ++s)
    for (const TensorParts& t : shards[s]) {
      map[t.front().source] = shard_name(s, shards.size());
      total += t.front().count() * size_of(type);
    }
  const Json index{{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  return index.dump(2) + "\n";
}

constexpr const char* kFilesBeside[] = {
#include "generated/FilesBeside.inc"
};

// The model's config.json, with what no ModelSpec holds.
std::string config_of(const ModelSpec& model, HuggingFaceExport& options) {
  Json config = Json::parse(models::hugging_face_config(model));
  const std::filesystem::path file = options.like / "config.json";
  const Json other = !options.like.empty() && is_there(file) ? load_json(file) : Json::object();
  for (const char* key : {"dtype", "torch_dtype"})
    if (!options.type && other.contains(key) && other[key].is_string())
      options.type = enum_value<DataType>(other[key].get<std::string>());
  if (!options.type || options.type == DataType::float64) options.type = DataType::float32;
  config["dtype"] = enum_name(*options.type);
  // Without a number transformers takes the usual one of the type, which is another token here.
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (other.contains(key) || !options.tokenizer.empty()) config[key] = other.value(key, Json());
  return config.dump(2) + "\n";
}

void make_empty_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (const auto failed = make_folders(folder))
    refuse_input(folder.string(), "cannot be made (" + failed.message() + ")", "a folder");
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool of_a_model =
        name == "config.json" || name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
    if (of_a_model)  // shards of another export would be mixed with those of this one
      refuse_input(entry.path().string(), "is there already", "an empty folder", "name another one");
  }
}

}  // namespace

HuggingFaceWeights::HuggingFaceWeights(const std::filesystem::path& folder, const ModelSpec& model)
    : folder_(folder) {
  for (const auto& file : weight_files(folder)) files_.push_back(std::make_unique<SafetensorsFile>(file));
  tensors_ = models::hugging_face_tensors(
      model, [this](const std::string& source) { return find(source).has_value(); });
  const bool has_modules = std::any_of(tensors_.begin(), tensors_.end(), [&](const HuggingFaceTensor& t) {
    return t.of_module && !t.copy && find(t.source).has_value();
  });
  for (const HuggingFaceTensor& tensor : tensors_) {
    if (has_modules || !tensor.of_module || tensor.copy)
      place(tensor);
    else
      lacking_.insert(tensor.name);
  }
}

// Models saved without their head lack the first part of their names: "h.0.attn" for "transformer.h.0.attn".
// With a vision tower the text model has another name.
std::optional<HuggingFaceWeights::Place> HuggingFaceWeights::find(const std::string& source) const {
  const std::string shorter = source.substr(source.find('.') + 1);
  for (const auto& file : files_)
    for (const std::string& name : {source, shorter, "model.language_model." + shorter})
      if (const auto* entry = find_value(file->entries(), name)) return Place{file.get(), entry, name};
  return std::nullopt;
}

void HuggingFaceWeights::place(const HuggingFaceTensor& tensor) {
  const std::optional<Place> found = find(tensor.source);
  if (!found && tensor.copy) return;
  if (!found)
    refuse_input(folder_.string(), "no tensor " + tensor.source, "every weight of the plan's model",
                 "plan the model of this folder: mpt-plan --model " + folder_.string());
  if (found->entry->shape != tensor.shape)
    refuse_input(folder_.string(), fmt::format("{} is {}", found->name, shape_text(found->entry->shape)),
                 shape_text(tensor.shape) + ", as in the plan's model",
                 "plan the model of this folder: mpt-plan --model " + folder_.string());
  placed_[tensor.name].push_back({tensor, found->file, found->entry});
}

void HuggingFaceWeights::read(TensorKind kind, const std::string& name, const ShardBlock& block,
                              double* out) const {
  const auto placed = placed_.find(name);
  if (kind != TensorKind::value || placed == placed_.end())
    refuse_input(folder_.string(), "no " + enum_name(kind) + " of " + name, "",
                 "use a checkpoint of mpt-run");
  for (const Placed& p : placed->second) {
    const HuggingFaceTensor& t = p.tensor;
    const int64_t first = std::max(block.global_row, t.row);
    const int64_t last = std::min(block.global_row + block.rows, t.row + t.rows);
    if (first >= last) continue;
    double* const to = out + (first - block.global_row) * block.columns;
    const ShardBlock part{first - t.row, last - first, block.global_column, block.columns};
    read_part(p, part, to);
    for (int64_t i = 0; i < part.count() && t.added != 0.0; ++i) to[i] += t.added;
  }
}

// `part` is in rows of the tensor. Reads whole rows if a row is contiguous, else columns, with rows apart.
void HuggingFaceWeights::read_part(const Placed& p, const ShardBlock& part, double* to) {
  const HuggingFaceTensor& t = p.tensor;
  if (t.column_stride == 1 || part.columns == 1) {
    if (t.columns == 1 && t.row_stride == 1)
      return read_elements(*p.file, *p.entry, t.element(part.global_row, 0), part.rows, to);
    for (int64_t row = 0; row < part.rows; ++row)
      read_elements(*p.file, *p.entry, t.element(part.global_row + row, part.global_column), part.columns,
                    to + row * part.columns);
    return;
  }
  std::vector<double> column(static_cast<size_t>((part.rows - 1) * t.row_stride + 1));
  for (int64_t c = 0; c < part.columns; ++c) {
    read_elements(*p.file, *p.entry, t.element(part.global_row, part.global_column + c),
                  int64_t(column.size()), column.data());
    for (int64_t r = 0; r < part.rows; ++r) to[r * part.columns + c] = column[size_t(r * t.row_stride)];
  }
}

std::vector<std::filesystem::path> export_hugging_face(const TensorSource& source, const ModelSpec& model,
                                                       const std::filesystem::path& folder,
                                                       HuggingFaceExport options) {
  const std::string config = config_of(model, options);
  const auto shards = shards_of(model, options);
  make_empty_folder(folder);
  Parts parts;
  for (size_t s = 0; s < shards.size(); ++s)
    write_shard(parts.add(folder / shard_name(s, shards.size())), shards[s], source, *options.type);
  if (shards.size() > 1) write_file_atomically(parts.add(folder / kIndex), index_of(shards, *options.type));
  for (const std::string name : kFilesBeside) {
    const bool own = name == "tokenizer.json" && !options.tokenizer.empty();
    const std::filesystem::path from = own ? options.tokenizer : options.like / name;
    if (from != name && is_there(from)) write_file_atomically(parts.add(folder / name), read_file(from));
  }
  write_file_atomically(parts.add(folder / "config.json"), config);
  return parts.give_names();
}

}  // namespace mpt::runtime
