// SPDX-License-Identifier: Apache-2.0
#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "races.h"

namespace cuda_on_cpu {
namespace {

// The functions of the program or module, local ones, too, which dladdr() does not know.
std::map<uintptr_t, std::string> read_functions() {
  const Object own = own_object();
  std::ifstream file(own.file, std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  std::map<uintptr_t, std::string> names;
  if (image.empty()) return names;
  const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(image.data());
  const auto* const sections = reinterpret_cast<const ElfW(Shdr)*>(image.data() + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* const symbols = reinterpret_cast<const ElfW(Sym)*>(image.data() + sections[i].sh_offset);
    const char* const strings = image.data() + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC)
        names[own.base + symbols[s].st_value] = strings + symbols[s].st_name;
    }
  }
  return names;
}

// Null: not this object.
uintptr_t end_if_it_holds(const dl_phdr_info& object, uintptr_t address) {
  uintptr_t end = 0;
  bool holds = false;
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object.dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t begin = object.dlpi_addr + part.p_vaddr;
    holds = holds || (address >= begin && address < begin + part.p_memsz);
    end = std::max<uintptr_t>(end, begin + part.p_memsz);
  }
  return holds ? end : 0;
}

}  // namespace

Object own_object() {
  Object own;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        const uintptr_t end = end_if_it_holds(*info, reinterpret_cast<uintptr_t>(&own_object));
        if (end == 0) return 0;
        // The program has no name. Both are linked to begin at their base.
        const std::string name = info->dlpi_name;
        *static_cast<Object*>(to) = {name.empty() ? "/proc/self/exe" : name, info->dlpi_addr, info->dlpi_addr,
                                     end};
        return 1;
      },
      &own);
  return own;
}

std::string name_of(const void* function) {
  static const std::map<uintptr_t, std::string> names = read_functions();
  const auto found = names.find(reinterpret_cast<uintptr_t>(function));
  // A stripped file has no names.
  if (found == names.end()) return fmt::format("the kernel at {}", function);
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
