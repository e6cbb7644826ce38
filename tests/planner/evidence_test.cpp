// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/evidence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "frameworks/framework.h"

namespace mpt::planner {
namespace {

TEST(Evidence, ThatIsBuiltInIsReadOnce) {
  EXPECT_EQ(published_evidence().data(), published_evidence().data());
}

TEST(Evidence, ThatIsBuiltInIsSortedAndOfKnownFrameworks) {
  const std::vector<Evidence>& all = published_evidence();
  EXPECT_GT(all.size(), 10u);
  std::vector<std::string> names = frameworks::framework_names();
  for (const auto& file :
       std::filesystem::directory_iterator(MPT_SOURCE_DIR "/reports/validation/frameworks"))
    names.push_back(file.path().stem().string());
  for (const Evidence& e : all) {
    EXPECT_EQ(std::count(names.begin(), names.end(), e.kind.framework), 1) << e.kind.framework;
    std::set<std::string> sources;
    for (const SourceEvidence& s : e.sources) {
      EXPECT_TRUE(sources.insert(s.source).second) << s.source << " twice in " << e.kind.framework;
      for (const std::vector<double>* values : {&s.step_time, &s.peak_memory, &s.failed})
        EXPECT_TRUE(std::is_sorted(values->begin(), values->end())) << e.kind.framework << " " << s.source;
    }
  }
}

}  // namespace
}  // namespace mpt::planner
