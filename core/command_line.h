// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the three programs share about their command lines: exit codes and the form of errors. Include only
// from the programs.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/version.h"

namespace mpt {

/// Parses; returns the exit code if the program is done (help, version), nothing if it goes on. A wrong
/// option is a UserError that names the nearest option. CLI11's own exit codes (105 and others) never show.
inline std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version", version_text());
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    app.exit(done);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    std::string hint;
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const std::string name = word.substr(0, word.find('='));
      if (name.starts_with("--") && std::find(known.begin(), known.end(), name) == known.end()) {
        hint = did_you_mean(name, known);
      }
    }
    throw UserError(Problem{"command line", error.what() + hint, "", "see --help"});
  }
  return std::nullopt;
}

}  // namespace mpt
