// SPDX-License-Identifier: Apache-2.0
#pragma once

// Modules: shared libraries that programs load on demand. The programs then start on machines that lack the
// libraries a module needs.

#include <string>
#include <vector>

namespace mpt {

/// The first of `places`, relative to the program's folder, that exists; empty if none does.
std::string beside_program(const std::vector<std::string>& places);

/// Looks in the program's folder in a build tree, and in lib/mpt next to bin/ after installation. Null with
/// an empty `reason` if there is no such file; null with the loader's message if it cannot be loaded. Never
/// closed: the module's threads may run until the process ends.
void* open_module(const char* file, std::string& reason);
/// Null if the module has none of that name.
void* symbol_of(void* module, const char* name);

}  // namespace mpt
