// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arguments of Hugging Face's Trainer as a JSON file, and accelerate's launch: what both kinds of it share.

#include <optional>

#include "base/json.h"
#include "frameworks/export.h"
#include "frameworks/import.h"
#include "frameworks/readers/settings.h"
#include "frameworks/readers/shell_words.h"

namespace mpt::frameworks {

/// Arguments that a plan decides on, as HfArgumentParser reads them for a script with TrainingArguments and
/// the arguments of transformers' run_clm.py: config_name and block_size.
Json trainer_arguments(const Plan& plan, const std::string& model);

/// Of accelerate's YAML file, what any plan decides on.
Json accelerate_config(const Plan& plan, const char* kind);

/// A script that starts a training script of the user's with these files, and one for a trial. `settings`:
/// lines of the shell before, `options`: more options of accelerate launch.
void add_accelerate_scripts(const Plan& plan, const std::string& settings, const std::string& options,
                            Exported& exported);

/// A recipe of LLaMA-Factory or axolotl, which train by the Trainer; nothing for other files. Throws
/// UserError.
std::optional<Imported> read_tuner(const Json& recipe, const std::filesystem::path& file);

/// accelerate's configuration with the Trainer's arguments, where these are known. Throws UserError.
Imported read_accelerate(const Settings& config, const std::optional<Settings>& arguments,
                         const std::filesystem::path& file);
/// The first command of a script that starts a training by the Trainer; nothing where none does. Throws
/// UserError.
std::optional<Imported> read_launch(const std::vector<ShellCommand>& commands,
                                    const std::filesystem::path& script);
/// Adapters of low rank, over weights in 4 bits where the settings say so.
void set_trainer_adapters(const Settings& s, Imported& in);

/// train.json in the folder of `file`, where there is one.
std::optional<Settings> arguments_beside(const std::filesystem::path& file);
/// The precision of a training. The Trainer's arguments come before `launched`, that of `accelerate launch`.
Precision trainer_precision(const Settings& s, Precision launched);
/// Whether FSDP leaves gradients whole between micro-batches, as it does unless the settings say otherwise.
void set_deferred_sums(const Settings& s, Imported& in);
/// Each process builds the whole model, as FSDP2 without fsdp_cpu_ram_efficient_loading does.
void build_in_each_process(Imported& in);
/// Batch, sequence, recomputation, optimizer and model of the Trainer's arguments.
void set_trainer_settings(const Settings& s, const std::filesystem::path& folder, Imported& in);

}  // namespace mpt::frameworks
