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
/// The file's entries for these words. What the rule cannot say is left out.
void write_mixers(FamilyWriter& writer, const std::vector<std::string>& mixers);
void write_mlps(FamilyWriter& writer, const std::vector<std::string>& mlps);

/// What a family's rules cannot say. `read` changes the draft that they made of a file; `write` changes a
/// draft to what they make of that file, and writes what they do not. Null: nothing.
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
