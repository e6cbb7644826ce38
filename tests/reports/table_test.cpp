// SPDX-License-Identifier: Apache-2.0
#include "reports/table.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mpt::reports {
namespace {

TEST(Table, AlignsColumnsByWhatIsSeen) {
  Table table({{"name", Align::left}, {"time"}, {"spread"}});
  table.add_row({"a", "12.3 ms", "±5%"});
  table.add_row({"longer", "1 s", "-"});
  EXPECT_EQ(table.text(),
            "  name       time  spread\n"
            "  ------  -------  ------\n"
            "  a       12.3 ms     ±5%\n"
            "  longer      1 s       -\n");
}

TEST(Table, LeavesNoBlanksAtTheEndAndRefusesRaggedRows) {
  Table table({{"a", Align::left}, {"b", Align::left}});
  table.add_row({"x", ""});
  EXPECT_EQ(table.text(), "  a  b\n  -  -\n  x\n");
  EXPECT_THROW(table.add_row({"only one"}), InternalError);
}

TEST(Table, ShowsWhatATerminalWouldCarryOut) {
  Table table({{"a\x1b[1m", Align::left}});
  table.add_row({"one\ntwo\x1b[2J"});
  EXPECT_EQ(table.text(), "  a\\x1b[1m\n  -----------------\n  one\\x0atwo\\x1b[2J\n");
}

TEST(Table, BreaksWordsToKeepAWidthAndNeverANumber) {
  Table table({{"layout", Align::left}, {"step"}, {"trade", Align::left}});
  table.add_row({"tp1 pp2 dp4 zero1", "12,345", "same speed, less memory"});
  EXPECT_EQ(table.text(45),
            "  layout               step  trade\n"
            "  -----------------  ------  ----------------\n"
            "  tp1 pp2 dp4 zero1  12,345  same speed, less\n"
            "                             memory\n");
  EXPECT_EQ(table.text(40),
            "  layout              step  trade\n"
            "  ----------------  ------  ------------\n"
            "  tp1 pp2 dp4       12,345  same speed,\n"
            "  zero1                     less memory\n");
  EXPECT_EQ(table.text(1000), table.text()) << "wide enough";
  Table untitled({{"", Align::left}, {""}});
  untitled.add_row({"a", "1 s"});
  EXPECT_EQ(untitled.text(), "  a  1 s\n");
  Table numbers({{"a"}, {"b"}});
  numbers.add_row({"1,000,000", "2,000,000"});
  EXPECT_EQ(numbers.text(10), numbers.text());
}

TEST(Table, GoesOnBelowWhereLinesAreTooShort) {
  Table table({{"name", Align::left}, {"one"}, {"two"}, {"three", Align::left}});
  table.add_row({"a", "1,000", "2,000", "words that go on"});
  table.add_row({"b", "1", "-", "-"});
  EXPECT_EQ(table.stacked(1, 1000), table.text());
  EXPECT_EQ(table.stacked(1, 22),
            "  name    one    two\n"
            "  ----  -----  -----\n"
            "  a     1,000  2,000\n"
            "  b         1      -\n"
            "\n"
            "  name  three\n"
            "  ----  --------------\n"
            "  a     words that go\n"
            "        on\n"
            "  b     -\n");
}

}  // namespace
}  // namespace mpt::reports
