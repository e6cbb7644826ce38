// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arguments of Hugging Face's Trainer as a JSON file, and accelerate's launch: shared by all Trainer exports.

#include <optional>

#include "frameworks/export.h"
#include "frameworks/import.h"
#include "frameworks/readers/settings.h"
#include "frameworks/readers/shell_words.h"

namespace mpt::frameworks {

/// The arguments that a plan decides. HfArgumentParser reads them, for a script with TrainingArguments and
/// run_clm.py's config_name and block_size.
Json trainer_arguments(const Plan& plan, const char* framework, Exported& exported);

/// The keys of accelerate's YAML file that any plan decides.
Json accelerate_config(const Plan& plan, const char* kind);

/// Adds a script that starts the user's training script with these files, and one for a trial. `settings`:
/// shell lines that come first; `options`: more options of accelerate launch.
void add_accelerate_scripts(const Plan& plan, const std::string& settings, const std::string& options,
                            Exported& exported);

/// Reads a recipe of LLaMA-Factory or axolotl, which train by the Trainer; nothing for other files. Throws
/// UserError.
std::optional<Imported> read_tuner(const Json& recipe, const std::filesystem::path& file);

/// null, false, 0, an empty text or list.
bool is_off(const Json& v);
/// FSDP's settings, by accelerate's names, of the Trainer's words and its `given` settings.
Json fsdp_of_trainer(const Json& words, const Json& given);
/// A table of tuner_keys.json.
const Json& tuner_table(const char* name);
/// A `tool`'s recipe with the Trainer's names, and PEFT's, for its keys, and its defaults, by
/// tuner_keys.json.
Json trainer_names(Json recipe, const std::string& tool);
/// Looks up the keys of a `tool`'s recipe, or of one `section`, in tuner_keys.json. Adds notes for keys that
/// are not priced, and to `in.unknown` those that cannot be judged.
void judge_keys(const Json& given, const std::string& tool, const std::string& section, Imported& in);

/// Reads accelerate's configuration with the Trainer's arguments, if known. Throws UserError.
Imported read_accelerate(const Settings& config, const std::optional<Settings>& arguments,
                         const std::filesystem::path& file);
/// Reads the first command of a script that starts a training by the Trainer; nothing if there is none.
/// Throws UserError.
std::optional<Imported> read_launch(const std::vector<ShellCommand>& commands,
                                    const std::filesystem::path& script);
/// Reads a recipe that trains by Megatron Core, whose flags its keys are; nothing if it has no mark of one.
std::optional<Imported> read_megatron_recipe(const Json& recipe, const std::filesystem::path& file);
/// Reads a recipe of TRL. Throws UserError.
Imported read_trl(const Json& recipe, const std::filesystem::path& file);
/// Stands for lora_target_modules that a recipe leaves to PEFT.
inline constexpr const char* kTargetsOfPeft = "those of PEFT";
/// Sets LoRA adapters, over weights in 4 bits if the settings say so.
void set_trainer_adapters(const Settings& s, Imported& in);

/// train.json in the folder of `file`, if there is one.
std::optional<Settings> arguments_beside(const std::filesystem::path& file);
/// How FSDP shares out weights; shards are left open. FSDP 2 has fsdp_reshard_after_forward, FSDP 1
/// fsdp_sharding_strategy, and neither reads the other's key
/// (findings/accelerate_loses_the_sharding_strategy_it_asked_for.sh). `version`: if the file names none.
FsdpRanks fsdp_sharding(const Settings& config, int64_t version, Imported& in);
/// The precision of a training. The Trainer's arguments override `launched`, that of `accelerate launch`.
Precision trainer_precision(const Settings& s, Precision launched);
/// Sets whether FSDP keeps whole gradients between micro-batches: the default, unless the settings change it.
void set_deferred_sums(const Settings& s, Imported& in);
/// Sets that weights, gradients, their sums and the residual stream have 16 bits. `optimizer_bytes` of a
/// weight: its moments, and with DDP the copy of its gradient in a bucket.
void train_in_16_bits(int optimizer_bytes, bool halves, Imported& in);
/// Records that each process builds the whole model in its host's memory with so many bytes of a weight, as
/// FSDP2 does without fsdp_cpu_ram_efficient_loading.
void build_in_each_process(int bytes, Imported& in);
/// Sets batch, sequence, recomputation, optimizer and model from the Trainer's arguments.
void set_trainer_settings(const Settings& s, const std::filesystem::path& folder, Imported& in);

}  // namespace mpt::frameworks
