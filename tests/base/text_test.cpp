// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fields.h"

namespace mpt {
namespace {

TEST(Text, PrintableShowsWhatATerminalWouldCarryOut) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("one\ntwo\t\r\x7f"), "one\\x0atwo\\x09\\x0d\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\x9b2J");  // CSI in one character
  EXPECT_EQ(printable("a\xe2\x80\xa8"
                      "b\xe2\x80\xae"
                      "c"),
            "a\\u2028b\\u202ec");  // line separator, override
  EXPECT_EQ(printable("\xef\xbf\xbd\xef\xbf\xbe\xef\xbf\xbf"),
            "\xef\xbf\xbd\\ufffe\\uffff");  // XML holds the first alone
  EXPECT_EQ(printable_lines("one\n\x1b"), "one\n\\x1b");
  EXPECT_EQ(printable_lines("\ttwo\tcolumns\r\nand\r"), "\ttwo\tcolumns\nand\\x0d");
}

TEST(Text, IsSplitAtALetter) {
  EXPECT_EQ(split_at("a,,b,", ','), (std::vector<std::string>{"a", "", "b", ""}));
  EXPECT_EQ(split_at("", ','), std::vector<std::string>{""});
}

TEST(Text, OrdinaryTextStaysAsItIs) {
  for (const char* text : {"", "llama3-70b", "Modell für alle", "模型", "🙂 \"quoted\" \\ `x` $y"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_TRUE(is_printable(text)) << text;
  }
}

TEST(Text, BytesThatAreNoUtf8AreShownOneByOne) {
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // a longer form of "/"
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond the last
  EXPECT_EQ(printable("x\xe6\xa8"), "x\\xe6\\xa8");                  // cut off
  EXPECT_FALSE(is_printable("x\xe6\xa8"));
}

TEST(Text, ACutNeverSplitsACharacter) {
  EXPECT_EQ(cut_text("ab", 5), "ab");
  EXPECT_EQ(cut_text("aä", 2), "a");
  EXPECT_EQ(cut_text("aä", 3), "aä");
  EXPECT_EQ(cut_text("模型", 5), "模");
  EXPECT_EQ(cut_text("模型", 0), "");
}

TEST(Text, ErrorsShowTextFromFilesHarmlessly) {
  const UserError error(
      Problem{"a\x1b]0;x\x07.json", "the key \"\x1b[31m\"", "\x9b", "did you mean \"\x1b\"?"});
  EXPECT_EQ(std::string(error.what()).find_first_of("\x1b\x07\x9b"), std::string::npos) << error.what();
  EXPECT_EQ(std::string(RunError("rank 1 said \x1b[2J").what()), "rank 1 said \\x1b[2J");
  EXPECT_EQ(std::string(UserError(Problem{"p", "a grid\n  of rows", "", ""}).what()), "p: a grid\n  of rows");
}

TEST(Text, NumbersAreWholeTexts) {
  EXPECT_EQ(number_of<int64_t>("-12"), -12);
  EXPECT_EQ(number_of<double>("1e-5"), 1e-5);
  for (const char* text : {"", "1.5", "3 ", " 3", "99999999999999999999", "x"})
    EXPECT_FALSE(number_of<int64_t>(text)) << text;
  EXPECT_EQ(lower_case("Qwen2.5-\xc3\x84"), "qwen2.5-\xc3\x84");
  EXPECT_EQ(replaced("a_b_c", '_', '-'), "a-b-c");
}

enum class Colour : uint8_t { red, auto_, dark_blue };

TEST(Text, NamesOfEnumeratorsAreThoseOfTheCode) {
  EXPECT_EQ(enum_names<Colour>(), (std::vector<std::string>{"red", "auto", "dark_blue"}));
  EXPECT_EQ(enum_name(Colour::dark_blue), "dark_blue");
  EXPECT_EQ(enum_name(Colour(7)), "?");
  EXPECT_EQ(enum_value<Colour>("auto"), Colour::auto_);
  EXPECT_FALSE(enum_value<Colour>("auto_"));
}

}  // namespace
}  // namespace mpt
