// SPDX-License-Identifier: Apache-2.0
#include "reports/table.h"

#include <gtest/gtest.h>

#include "core/error.h"

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

}  // namespace
}  // namespace mpt::reports
