// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which layers of a config.json are of which kind, by the rules of its family, both ways; and pairs of
// functions for what no rule says.

#include <string>
#include <vector>

#include "models/family_reader.h"
#include "models/family_writer.h"

namespace mpt::models {

/// Words for `layers` layers as the file has them.
std::vector<std::string> read_mixers(FamilyReader& reader, int64_t layers);
std::vector<std::string> read_mlps(FamilyReader& reader, int64_t layers);
/// Writes the entries for these words. Layers that the rule cannot describe are left out.
void write_mixers(FamilyWriter& writer, const std::vector<std::string>& mixers);
void write_mlps(FamilyWriter& writer, const std::vector<std::string>& mlps);

/// The exceptions of a family. `read` completes the draft after the rules have read a file. `write` prepares
/// a draft for the rules, and writes further keys. Null: nothing.
struct FamilyCode {
  void (*read)(FamilyReader& reader, ModelDraft& draft) = nullptr;
  void (*write)(FamilyWriter& writer, ModelDraft& draft) = nullptr;
};
FamilyCode family_code(const Family& family);
std::vector<std::string> family_code_names();

/// Models with attention over pooled tokens (DeepSeek-V4).
FamilyCode deepseek_v4();
/// Models whose blocks are one part each, or differ one by one (Nemotron-H, Nemotron-NAS).
FamilyCode nemotron_h();
FamilyCode nemotron_nas();

}  // namespace mpt::models
