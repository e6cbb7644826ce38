// SPDX-License-Identifier: Apache-2.0
#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "races.h"

namespace cuda_on_cpu {
namespace {

// The program's own functions, local ones too, which dladdr() does not know.
std::map<uintptr_t, std::string> read_functions() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  std::map<uintptr_t, std::string> names;
  const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(image.data());
  const auto* const sections = reinterpret_cast<const ElfW(Shdr)*>(image.data() + header.e_shoff);
  uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<uintptr_t*>(to) = info->dlpi_addr;
        return 1;  // the program is the first
      },
      &base);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* const symbols = reinterpret_cast<const ElfW(Sym)*>(image.data() + sections[i].sh_offset);
    const char* const strings = image.data() + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC)
        names[base + symbols[s].st_value] = strings + symbols[s].st_name;
    }
  }
  return names;
}

}  // namespace

std::string name_of(const void* function) {
  static const std::map<uintptr_t, std::string> names = read_functions();
  const auto found = names.find(reinterpret_cast<uintptr_t>(function));
  if (found == names.end()) return "a kernel without a symbol";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> whole(
      abi::__cxa_demangle(found->second.c_str(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? whole.get() : found->second;
  // Neither result, name spaces nor parameters.
  const std::string nameless = "(anonymous namespace)";
  for (size_t at = name.find(nameless); at != std::string::npos; at = name.find(nameless))
    name.erase(at, nameless.size());
  name = name.substr(0, name.find_first_of("<("));
  return name.substr(name.find_last_of(": ") == std::string::npos ? 0 : name.find_last_of(": ") + 1);
}

}  // namespace cuda_on_cpu
