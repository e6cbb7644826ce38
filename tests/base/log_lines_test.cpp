// SPDX-License-Identifier: Apache-2.0
#include "base/log_lines.h"

#include <gtest/gtest.h>

#include <random>

namespace mpt {
namespace {

struct Prefixed {
  const char *line, *text, *speaker;
  int64_t rank;
};

TEST(LogLines, PrefixesOfLaunchersAreApart) {
  const Prefixed cases[] = {
      {"step: 10  loss: 6.0", "step: 10  loss: 6.0", "", -1},
      {"0: # Rank", " # Rank", "0", 0},
      {" 12:   1048576 float", "   1048576 float", "12", 12},
      {"[3] text", " text", "3", 3},
      {"[1,7]<stdout>:text", "text", "1,7", 7},
      {"[1,7]<stderr>: text", " text", "1,7", 7},
      {"[prterun-host-12@1,5]<stdout>: text", " text", "prterun-host-12@1,5", 5},
      {"[rank3]:[titan] 2026-01-01 00:00:00,000 - step: 1", "[titan] 2026-01-01 00:00:00,000 - step: 1",
       "rank3", 3},
      {"[default4]:text", "text", "default4", 4},
      {"node1: [0]: text", " text", "node1 0", 0},
      {"10.0.0.1: text", " text", "10.0.0.1", -1},
      {"2026-01-01T10:00:00.123Z 5: text", " text", "5", 5},
      {"[2026-01-01 10:00:00,123] [INFO] text", " [INFO] text", "", -1},
      {"10:00:00 text", " text", "", -1},
      {"train_fp8/0 Step Time : 9.09s", " Step Time : 9.09s", "train_fp8/0", -1},
      {"(Worker pid=7, ip=10.0.0.1) text", " text", "Worker pid=7, ip=10.0.0.1", -1},
      {"stdout: [2022-12-20 08:26:26,101] text", " text", "", -1},
      {"[Rank 0] step=40, skipped=2", "[Rank 0] step=40, skipped=2", "", -1},
      {"0/40, SamplesPerSec=83.4", "0/40, SamplesPerSec=83.4", "", -1},
  };
  for (const Prefixed& c : cases) {
    const std::vector<LogLine> lines = log_lines(c.line);
    ASSERT_EQ(lines.size(), 1u) << c.line;
    EXPECT_EQ(lines[0].text, c.text) << c.line;
    EXPECT_EQ(lines[0].speaker, c.speaker) << c.line;
    EXPECT_EQ(lines[0].rank, c.rank) << c.line;
  }
}

TEST(LogLines, ProgressBarsEndLinesWithCarriageReturns) {
  const std::vector<LogLine> lines = log_lines("one\n 1/9\r 2/9\r\n\nlast");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[2].text, " 2/9");
  EXPECT_EQ(lines[1].number, 2u);
  EXPECT_EQ(lines[2].number, 2u);
  EXPECT_EQ(lines[3].number, 4u);
}

TEST(LogLines, ColoursAreNoText) {
  EXPECT_EQ(without_colours("\x1b[31mstep: \x1b[0m 10\x1b[1;32m\n"), "step:  10\n");
  EXPECT_EQ(without_colours("\x1b[31\nnext"), "\nnext");
  EXPECT_EQ(without_colours("cut\x1b["), "cut");
}

TEST(LogLines, AnyBytesHaveLines) {
  std::mt19937 random(5);
  const std::string alphabet("[](){}:,@/ 0123456789rankdefault<stdout>\x1b\r\n.-TZ\0", 48);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int n = int(random() % 200); n > 0; --n) text += alphabet[random() % alphabet.size()];
    for (const LogLine& line : log_lines(without_colours(text))) EXPECT_GE(line.rank, -1);
  }
}

}  // namespace
}  // namespace mpt
