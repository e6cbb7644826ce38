// SPDX-License-Identifier: Apache-2.0

// The table of families says where it is wrong, what stands there, what may stand there and what to do.

#include <gtest/gtest.h>

#include "base/json.h"
#include "models/family.h"

namespace mpt::models {
namespace {

std::string table_error(const std::string& entry) {
  const std::string table = read_file(std::string(MPT_SOURCE_DIR) + "/models/dialects/hugging_face.json");
  const size_t end = table.rfind('}');
  try {
    read_families(table.substr(0, end) + ", \"new\": " + entry + "}");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(FamilyTable, NamesThePlaceOfAMistakeAndWhatMayStandThere) {
  struct Mistake {
    const char *entry, *place, *text;
  };
  const Mistake mistakes[] = {
      {R"({"like": "lama"})", "/new/like", "did you mean \"llama\"?"},
      {R"({"like": "new"})", "/new/like", "a type above it, such as llama, mistral"},
      {R"({"like": "llama", "code": "jambe"})", "/new/code", "did you mean \"jamba\"?"},
      {R"({"like": "llama", "keyz": {}})", "/new/keyz", "did you mean \"keys\"?"},
      {R"({"like": "llama", "mixerz": {}})", "/new/mixerz", "did you mean \"mixers\"?"},
      {R"({"like": "llama", "numbers": {"windwo": 0}})", "/new/numbers/windwo", "did you mean \"window\"?"},
      {R"({"like": "llama", "keys": {"fnn": ["d_ff"]}})", "/new/keys/fnn", "did you mean \"ffn\"?"},
      {R"({"like": "llama", "keys": {"mixers": ["layer_types"]}})", "/new/keys/mixers", "no key says"},
      {R"({"like": "llama", "numbers": {"latent": 1}})", "/new/numbers/latent", "no key says"},
      {R"({"like": "llama", "numbers": {"norm": 1}})", "/new/numbers/norm",
       "expected a text under \"words\""},
      {R"({"like": "llama", "words": {"window": "long"}})", "/new/words/window",
       "a number under \"numbers\""},
      {R"({"like": "llama", "words": {"norm": "layernorm"}})", "/new/words/norm",
       "expected one of layer_norm, rms_norm\n    did you mean \"layer_norm\"?"},
      {R"({"like": "llama", "words": {"activation": "gelu_tahn"}})", "/new/words/activation",
       "did you mean \"gelu_tanh\"?"},
      {R"({"like": "llama", "mixers": {"others": "windows"}})", "/new/mixers/others",
       "did you mean \"window\"?"},
      {R"({"like": "llama", "mixers": {"list": ["l"], "words": {"a/b": "ful"}}})", "/new/mixers/words/a~1b",
       "did you mean \"full\"?"},
      {R"({"like": "llama", "mixers": {"every": ["n"], "others": "window"}})", "/new/mixers", "at_period"},
      {R"({"like": "llama", "mixers": {"indices": ["n"], "others": "window"}})", "/new/mixers", "at_indices"},
      {R"({"like": "llama", "mixers": {"until": ["n"]}})", "/new/mixers/until", "without effect"},
      {R"({"like": "llama", "experts": {"words": {"sparse": "expert"}}})", "/new/experts/words/sparse",
       "did you mean \"experts\"?"},
      {R"({"like": "llama", "experts": {"others": "dense"}})", "/new/experts/others", "without effect"},
      {R"({"like": "llama", "weights": {"experts": "fusd"}})", "/new/weights/experts",
       "did you mean \"fused\"?"},
  };
  for (const Mistake& m : mistakes) {
    const std::string error = table_error(m.entry);
    EXPECT_NE(error.find(std::string("models/dialects/hugging_face.json at ") + m.place), std::string::npos)
        << m.entry << "\n"
        << error;
    EXPECT_NE(error.find(m.text), std::string::npos) << m.entry << "\n" << error;
  }
  EXPECT_EQ(table_error(R"({"like": "llama", "mixers": {"others": "window"}})"), "");
}

// All mistakes at once, so that one build shows them.
TEST(FamilyTable, NamesAllMistakes) {
  const std::string error =
      table_error(R"({"like": "llama", "code": "x", "words": {"norm": "x", "gate": "x"}})");
  for (const char* place : {"/new/code", "/new/words/norm", "/new/words/gate"})
    EXPECT_NE(error.find(place), std::string::npos) << error;
}

}  // namespace
}  // namespace mpt::models
