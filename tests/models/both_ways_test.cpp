// SPDX-License-Identifier: Apache-2.0

// config.json both ways: what is written is read as the same model, and written again as the same text.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "base/json.h"
#include "models/family.h"
#include "models/hf_config.h"
#include "models/values.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

std::string name_of(const std::optional<Value>& value) { return value ? enum_name(*value) : "nothing"; }

TEST(BothWays, Probe) {
  for (const std::string& name : zoo_names()) {
    const ModelSpec m = load_model(name);
    std::string ok;
    for (const std::string& type : family_types())
      if (!difference_of_type(m, type)) ok += type + " ";
    std::cout << "ZOO " << name << " : " << ok << "\n";
    if (ok.empty())
      for (const std::string& type : family_types()) std::cout << type << "=" << name_of(difference_of_type(m, type)) << " ";
    if (ok.empty()) std::cout << "\n";
  }
  for (const char* folder : {"configs", "siblings"})
    for (const auto& file : std::filesystem::recursive_directory_iterator(std::string(MPT_SOURCE_DIR) + "/tests/models/" + folder)) {
      if (file.path().extension() != ".json") continue;
      try {
      const ModelSpec m = load_model(file.path().string());
      const auto d = difference_of_type(m, m.type);
      std::cout << "FILE " << file.path().filename().string() << " " << m.type << " " << name_of(d) << "\n";
      } catch (const UserError& e) { std::cout << "FILE " << file.path().filename().string() << " unreadable\n"; }
    }
}

}  // namespace
}  // namespace mpt::models
