// SPDX-License-Identifier: Apache-2.0
#pragma once

// TrainerFile: the parts of frameworks/pytorch/trainer, which are Python modules, merged into one file of
// what a plan needs. Lines between "# if NAME" or "# if not NAME" and "# end" stay where the condition holds;
// the lines from "# plan" to "# end plan" give way to the plan's constants.

#include <map>
#include <string>
#include <vector>

namespace mpt::frameworks {

using TrainerConditions = std::map<std::string, bool>;

/// Modules by name: "model.py". Built in.
const std::vector<std::pair<std::string_view, std::string_view>>& trainer_files();

/// The lines of a part that stay. Each condition must be known.
std::string kept_lines(std::string_view text, const TrainerConditions& conditions);

/// One file of the named parts, in their order, behind `head`: its docstring. Imports come first, each once
/// and without names that no line uses.
std::string trainer_file(const std::vector<std::string>& parts, const TrainerConditions& conditions,
                         const std::string& head, const std::string& constants);

}  // namespace mpt::frameworks
