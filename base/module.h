// SPDX-License-Identifier: Apache-2.0
#pragma once

// Modules: shared libraries that programs load when they are asked for, so that they start on machines that
// lack what a module needs.

#include <string>
#include <vector>

namespace mpt {

/// The first of some places that there is, from the program's folder; empty where there is none.
std::string beside_program(const std::vector<std::string>& places);

/// Beside the program in a build tree, in lib/mpt beside bin/ once installed. Null with an empty `reason` if
/// there is no such file, with the loader's words if it cannot be loaded. Never closed: the module's own
/// threads may outlive everything else.
void* open_module(const char* file, std::string& reason);
/// Null if the module has none of that name.
void* symbol_of(void* module, const char* name);

}  // namespace mpt
