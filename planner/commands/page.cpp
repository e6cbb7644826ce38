// SPDX-License-Identifier: Apache-2.0

// mpt-plan page: writes the planner for browsers, as built by scripts/page, to a folder.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/module.h"
#include "planner/commands/commands.h"

namespace mpt::planner {
namespace {

namespace fs = std::filesystem;

// The folder of the page in an installation, or in the source tree that the program was built in.
fs::path built_page() {
  const fs::path file = beside_program({"../share/mpt/page/mpt.html", "../../site/mpt.html"});
  if (!file.empty()) return file.parent_path();
  refuse_input("page", "the page was not built with this mpt-plan",
               "mpt.html in build/site of its source tree, or installed with it",
               "run scripts/page in the source tree: it says what it needs; docs/page.md");
}

void copy_page(const fs::path& folder) {
  const fs::path page = built_page();
  try {
    fs::create_directories(folder);
    for (const fs::directory_entry& file : fs::directory_iterator(page)) {
      fs::copy_file(file, folder / file.path().filename(), fs::copy_options::overwrite_existing);
      fmt::print("wrote {}\n", (folder / file.path().filename()).string());
    }
  } catch (const fs::filesystem_error& error) {
    refuse_input("--output", error.what(), "a folder that can be written", "name another one");
  }
}

}  // namespace

std::function<int()> add_page(CLI::App& app) {
  auto* command = app.add_subcommand("page", "Write the planner as a page for browsers, without a server");
  auto folder = std::make_shared<std::string>("site");
#include "generated/PageOptions.inc"
  return done_by([folder] { copy_page(*folder); });
}

}  // namespace mpt::planner
