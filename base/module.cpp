// SPDX-License-Identifier: Apache-2.0
#include "base/module.h"

#include <dlfcn.h>

#include <filesystem>

namespace mpt {

void* open_module(const char* file, std::string& reason) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& place : {program / file, program.parent_path() / "lib" / "mpt" / file}) {
    if (!std::filesystem::exists(place, error)) continue;
    void* const module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) reason = dlerror();
    return module;
  }
  return nullptr;
}

void* symbol_of(void* module, const char* name) { return dlsym(module, name); }

}  // namespace mpt
