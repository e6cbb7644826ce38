// SPDX-License-Identifier: Apache-2.0
#include "base/module.h"

#include <dlfcn.h>

#include <filesystem>

namespace mpt {

std::string beside_program(const std::vector<std::string>& places) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::string& place : places)
    if (std::filesystem::exists(folder / place, error)) return std::filesystem::canonical(folder / place);
  return "";
}

void* open_module(const char* file, std::string& reason) {
  const std::string place = beside_program({file, std::string("../lib/mpt/") + file});
  void* const module = place.empty() ? nullptr : dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!place.empty() && module == nullptr) reason = dlerror();
  return module;
}

void* symbol_of(void* module, const char* name) { return dlsym(module, name); }

}  // namespace mpt
