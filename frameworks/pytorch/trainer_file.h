// SPDX-License-Identifier: Apache-2.0
#pragma once

// TrainerFile: the Python modules of frameworks/pytorch/trainer, merged into one file for a plan. Lines
// between "# if NAME" (or "# if not NAME") and "# end" stay if the condition holds. The plan's constants
// replace the lines from "# plan" to "# end plan".

#include <map>
#include <string>
#include <vector>

namespace mpt::frameworks {

using TrainerConditions = std::map<std::string, bool>;

/// Modules by name: "model.py". Built in.
const std::vector<std::pair<std::string_view, std::string_view>>& trainer_files();

/// The lines of a part that stay. Each condition must be known.
std::string kept_lines(std::string_view text, const TrainerConditions& conditions);

/// The module of that name.
std::string trainer_part(const std::string& name);

/// One file from `head`, its docstring, and texts of parts in their order. Imports come first, each once,
/// without unused names.
std::string trainer_file(const std::vector<std::string>& parts, const TrainerConditions& conditions,
                         const std::string& head, const std::string& constants);

}  // namespace mpt::frameworks
