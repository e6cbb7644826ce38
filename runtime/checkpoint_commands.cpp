// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint_commands.h"

#include "core/command_line.h"
#include "core/json.h"
#include "core/quantity.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/hugging_face.h"

namespace mpt::runtime {
namespace {

std::unique_ptr<Checkpoint> open_for_reading(const std::string& path) {
  std::vector<std::string> notes;
  auto checkpoint = open_newest(path, notes);
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
  if (checkpoint) return checkpoint;
  throw UserError(Problem{path, "no whole checkpoint", "a folder step-*, or one with such folders",
                          "name what mpt-run --checkpoints was given"});
}

void print_summary(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  int64_t bytes = 0, weights = 0;
  for (const CheckpointFile& file : info.files) bytes += file.bytes;
  const auto tensors = checkpoint.tensors();
  for (const auto& [name, t] : tensors) weights += t.rows * t.columns;
  fmt::print(
      "{}\n  model    {}, {} weights in {} tensors\n  step     {} ({} skipped), {} sequences seen, loss "
      "{:.4f}\n",
      checkpoint.folder().string(), info.model.name, format_count(weights), tensors.size(), info.step,
      info.step - info.optimizer_steps, info.samples, info.loss);
  fmt::print("  layout   {} (any other loads it)\n  files    {}, {}, all whole\n", info.layout,
             info.files.size(), format_bytes(double(bytes)));
}

}  // namespace

int inspect(int argc, char** argv) {
  std::string path;
  bool tensors = false, json = false;
  CLI::App app{"Checks a checkpoint and says what it holds.", "mpt-run inspect"};
  app.add_option("checkpoint", path, "A checkpoint, or a folder of them: its newest whole one")->required();
  app.add_flag("--tensors", tensors, "List every tensor");
  app.add_flag("--json", json, "Print checkpoint.json");
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
    fmt::print("  {:<44} {:>7} x {:<7} in {} piece{}\n", name, t.rows, t.columns, t.pieces,
               t.pieces == 1 ? "" : "s");
  return kExitOk;
}

int export_weights(int argc, char** argv) {
  std::string path, folder, type = "fp32";
  double shard_gib = 5.0;
  const std::map<std::string, DataType> types{
      {"fp32", DataType::float32}, {"bf16", DataType::bfloat16}, {"fp16", DataType::float16}};
  CLI::App app{"Writes a checkpoint's weights as a Hugging Face model: config.json and safetensors.",
               "mpt-run export"};
  app.add_option("checkpoint", path, "A checkpoint, or a folder of them: its newest whole one")->required();
  app.add_option("folder", folder, "Where to; is made")->required();
  app.add_option("--type", type, "fp32, bf16 or fp16")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app.add_option("--shard-gib", shard_gib, "Largest file")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 1e6));
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  const auto checkpoint = open_for_reading(path);
  const auto files = export_hugging_face(*checkpoint, checkpoint->info().model, folder,
                                         {types.at(type), int64_t(shard_gib * double(int64_t{1} << 30))});
  for (const auto& file : files) fmt::print("wrote {}\n", file.string());
  return kExitOk;
}

}  // namespace mpt::runtime
