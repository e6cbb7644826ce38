// SPDX-License-Identifier: Apache-2.0
#pragma once

// Damaging a good file at random, and reading it: refused with a UserError or read, and nothing else happens.
// MPT_FUZZ_ROUNDS=1000000 makes a soak of it, best under the sanitizers; MPT_FUZZ_SEED another one.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>

#include "base/error.h"

namespace mpt::test {

inline int64_t number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

// Edits of both kinds: of bytes, and of what numbers and words stand for.
class Damage {
 public:
  explicit Damage(uint64_t seed) : random_(seed) {}

  std::string of(std::string text) {
    static const char* const kWords[] = {"-1",
                                         "0",
                                         "1e308",
                                         "-1e-308",
                                         "9223372036854775807",
                                         "18446744073709551616",
                                         "null",
                                         "true",
                                         "\"\"",
                                         "[]",
                                         "{}",
                                         "\"x\"",
                                         "1e999",
                                         "0.5",
                                         "[[[[",
                                         "\\u0000"};
    for (uint64_t edits = 1 + random_() % 3; edits > 0 && !text.empty(); --edits) {
      const size_t at = random_() % text.size();
      switch (random_() % 7) {
        case 0:
          text[at] = char(random_());
          break;
        case 1:
          text.resize(at);
          break;
        case 2:
          text.insert(at, text.substr(random_() % text.size(), random_() % 64));
          break;
        case 3:
          text.erase(at, random_() % 32);
          break;
        default:
          replace_value(text, at, kWords[random_() % std::size(kWords)]);
      }
    }
    return text;
  }

 private:
  // The number or word that begins after the next colon, comma or equals sign.
  static void replace_value(std::string& text, size_t from, const char* word) {
    const size_t begin = text.find_first_of(":,[=", from);
    if (begin == std::string::npos) return;
    const size_t end = text.find_first_of(",}]\n", begin + 1);
    text.replace(begin + 1, end == std::string::npos ? std::string::npos : end - begin - 1, word);
  }

  std::mt19937_64 random_;
};

inline void fuzz(const std::string& good, int64_t rounds,
                 const std::function<void(const std::string&)>& read) {
  read(good);
  Damage damage(uint64_t(number("MPT_FUZZ_SEED", 1)));
  for (int64_t round = 0; round < number("MPT_FUZZ_ROUNDS", rounds); ++round) {
    const std::string bad = damage.of(good);
    try {
      read(bad);
    } catch (const UserError&) {
    } catch (const std::exception& error) {
      FAIL() << error.what() << "\nfrom\n" << bad.substr(0, 4000);
    }
  }
}

inline std::string path_of(const std::string& name) { return testing::TempDir() + "/fuzz_" + name; }
inline void put(const std::string& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}
inline std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace mpt::test
