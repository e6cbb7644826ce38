// SPDX-License-Identifier: Apache-2.0
#include "runtime/program.h"

#include "base/command_line.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/ranges.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/hugging_face.h"
#include "runtime/text/tokenizer.h"

namespace mpt::runtime {

std::unique_ptr<Checkpoint> open_for_reading(const std::string& path, const std::string& option,
                                             bool may_lack) {
  std::vector<std::string> notes;
  auto checkpoint = open_newest(path, notes);
  for (const std::string& note : notes) warn((option.empty() ? "note: " : "mpt-run: ") + note);
  if (checkpoint || may_lack) return checkpoint;
  refuse_input(option + (option.empty() ? "" : " ") + path, "no complete checkpoint here",
               option == "--init" ? "a checkpoint, or a Hugging Face folder with config.json"
                                  : "a folder step-*, or one with such folders",
               "name the folder that mpt-run --checkpoints wrote to");
}

namespace {

void print_summary(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  const auto bytes = sum_of<int64_t>(info.files, &CheckpointFile::bytes);
  const auto tensors = checkpoint.tensors();
  const auto weights =
      sum_of<int64_t>(tensors, [](const auto& t) { return t.second.rows * t.second.columns; });
  fmt::print(
      "{}\n  model    {}, {} weights in {} tensors\n  step     {} ({} skipped), {} sequences seen, loss "
      "{:.4f}\n",
      checkpoint.folder().string(), info.model.name, format_count(weights), tensors.size(), info.step,
      info.step - info.optimizer_steps, info.samples, info.loss);
  fmt::print("  layout   saved by {}; any layout can resume it\n  files    {}, {}, all checksums right\n",
             info.layout, info.files.size(), format_bytes(double(bytes)));
}

}  // namespace

int inspect(int argc, char** argv) {
  std::string path;
  bool tensors = false, json = false;
  CLI::App app{"Checks the files of a checkpoint and says what it holds.", "mpt-run inspect"};
#include "generated/InspectOptions.inc"
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  const auto checkpoint = open_for_reading(path);
  if (json) {
    fmt::print("{}\n", to_json(checkpoint->info()).dump(1));
    return kExitOk;
  }
  print_summary(*checkpoint);
  if (!tensors) return kExitOk;
  fmt::print("\n");
  for (const auto& [name, t] : checkpoint->tensors())
    fmt::print("  {:<44} {:>7} x {:<7} in {} piece{}\n", printable(cut_text(name, kMostNameBytes)), t.rows,
               t.columns, t.pieces, t.pieces == 1 ? "" : "s");
  return kExitOk;
}

int export_weights(int argc, char** argv) {
  std::string path, folder, like, type;
  double shard_gib = 5.0;
  const std::map<std::string, DataType> types{
      {"fp32", DataType::float32}, {"bf16", DataType::bfloat16}, {"fp16", DataType::float16}};
  CLI::App app{"Writes a checkpoint's weights as a Hugging Face model: config.json and safetensors.",
               "mpt-run export"};
#include "generated/ExportWeightsOptions.inc"
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  const auto checkpoint = open_for_reading(path);
  HuggingFaceExport options{copy_of(types, type), int64_t(shard_gib * double(int64_t{1} << 30)), like};
  if (like.empty()) {
    options.like = checkpoint->info().like;
    options.tokenizer = checkpoint->info().tokenizer;
    if (options.like.empty()) options.like = options.tokenizer.parent_path();
    for (const auto& used : {options.like, options.tokenizer})
      if (!used.empty() && !is_there(used))
        warn(fmt::format("note: {}, which the run used, is gone; --like names a folder with a tokenizer",
                         used.string()));
    // A stranger's checkpoint may name any file of this machine, which an export must not hand on.
    if (is_there(options.tokenizer)) const Tokenizer read(options.tokenizer);
  }
  const auto files = export_hugging_face(*checkpoint, checkpoint->info().model, folder, options);
  for (const auto& file : files) fmt::print("wrote {}\n", file.string());
  fmt::print("{} at step {}", checkpoint->info().model.name, checkpoint->info().step);
  if (!is_there(std::filesystem::path(folder) / "tokenizer.json"))
    fmt::print(
        ", without a tokenizer (--like adds one): tokens are numbers to mpt-run. If it was trained on text "
        "files, a token is a byte.");
  fmt::print("\n");
  return kExitOk;
}

}  // namespace mpt::runtime
