// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "profiler/hardware/profile_noise.h"
#include "profiler/measure/piece_samples.h"
#include "profiler/measure/profile_machine.h"
#include "tests/support/little_profile.h"

namespace mpt::profiler {
namespace {

PieceTiming timing(Phase phase, int64_t micro_batch, double seconds, double spread) {
  PieceTiming t;
  t.phase = phase;
  t.micro_batch = micro_batch;
  t.seconds = seconds;
  t.spread = spread;
  return t;
}

TEST(ProfileNoise, SpreadsBeyondAFifthAreDoubtful) {
  const std::vector<PieceTiming> pieces{timing(Phase::forward, 1, 1.0, 0.19),
                                        timing(Phase::forward, 2, 2.0, 0.21),
                                        timing(Phase::backward, 1, 2.0, 0.0)};
  EXPECT_EQ(doubtful_pieces(pieces), (std::vector<size_t>{1}));
}

TEST(ProfileNoise, ATimeThatDoesNotGrowWithTheMicroBatchIsDoubtful) {
  // Twice the micro-batch in three times the time; then four times it in less than the half.
  const std::vector<PieceTiming> pieces{
      timing(Phase::forward, 1, 1.49, 0.0), timing(Phase::forward, 2, 4.69, 0.0),
      timing(Phase::forward, 4, 9.0, 0.0), timing(Phase::forward, 8, 6.0, 0.0),
      timing(Phase::backward, 8, 6.0, 0.0)};
  EXPECT_EQ(doubtful_pieces(pieces), (std::vector<size_t>{0, 1, 2, 3}));
}

TEST(ProfileNoise, EmbeddingsAreTooShortToMatter) {
  PieceTiming t = timing(Phase::forward, 1, 1e-6, 3.0);
  t.piece = Piece::embedding;
  EXPECT_TRUE(doubtful_pieces({t}).empty());
}

TEST(ProfileNoise, TheNoteNamesTheWorstAndTheCommand) {
  Profile profile = test::little_profile();
  EXPECT_EQ(noise_note(profile, "profile.json", 32), "") << "1% and small messages are no noise";
  profile.pieces.push_back(timing(Phase::forward, 2, 1.0, 2.92));
  profile.transport.push_back({TransportOperation::all_reduce, 2, 16 << 20, 1e-3, 0.5});
  const std::string note = noise_note(profile, "my profile.json", 32);
  for (const char* part :
       {"too noisy: 2 of 3 timings vary by more than 20%", "layer forward, micro-batch 2 by 292%",
        "mpt-profile --model", "--seq 32 -o 'my profile.json'"})
    EXPECT_NE(note.find(part), std::string::npos) << part << "\n" << note;
  // Another sequence's timings are another plan's concern.
  profile.pieces.back().sequence = 64;
  EXPECT_EQ(noise_of(profile, 32).doubtful, 1u);
  EXPECT_EQ(noise_of(profile, 64).doubtful, 2u);
}

PhaseSamples samples(double first, double second) {
  const std::vector<double> both{first, second};
  return {both, both, both, both};
}

TEST(RepeatDoubtful, KeepsTheFasterSamplesAndStopsWhenAllIsQuiet) {
  std::vector<PieceCase> cases(2);
  cases[0].size.tensor = 2;
  cases[0].samples = samples(1.0, 1.0);
  cases[1].size.micro_batch = 2;
  cases[1].samples = samples(2.0, 9.0);
  int measured = 0;
  repeat_doubtful(cases, [&](const PieceTiming& size) {
    EXPECT_EQ(size.micro_batch, 2);
    ++measured;
    return samples(2.0, 2.1);
  });
  EXPECT_EQ(measured, 1);
  EXPECT_DOUBLE_EQ(cases[1].samples.of(Phase::forward).seconds, 2.05);
}

TEST(RepeatDoubtful, GivesUp) {
  std::vector<PieceCase> cases(1);
  cases[0].samples = samples(1.0, 9.0);
  int measured = 0;
  repeat_doubtful(cases, [&](const PieceTiming&) {
    ++measured;
    return samples(2.0, 20.0);
  });
  EXPECT_EQ(measured, kMostRepeats);
  EXPECT_DOUBLE_EQ(cases[0].samples.of(Phase::forward).seconds, 5.0) << "the slower samples are dropped";
  EXPECT_EQ(doubtful_pieces(timings_of(cases)).size(), EnumNames<Phase>::table().size());
}

TEST(RepeatWhileNoisy, TakesTheFirstQuietOneOrTheFastest) {
  std::vector<Measurement> results{{3.0, 0.9, 5}, {2.0, 0.8, 5}, {2.5, 0.7, 5}, {1.0, 0.0, 5}};
  size_t next = 0;
  EXPECT_DOUBLE_EQ(repeat_while_noisy([&] { return results[next++]; }).seconds, 2.0);
  EXPECT_EQ(next, 3u);
  results = {{3.0, 0.9, 5}, {3.5, 0.1, 5}};
  next = 0;
  EXPECT_DOUBLE_EQ(repeat_while_noisy([&] { return results[next++]; }).seconds, 3.5);
  EXPECT_EQ(next, 2u);
}

// As much as mpt-profile measures by default, and on eight GPUs.
Profile full_profile(size_t gpus) {
  Profile profile = test::little_profile();
  profile.pieces.clear();
  for (const int64_t tensor : {1, 2, 4}) {
    for (const int64_t micro_batch : {1, 2, 4, 8}) {
      for (const Piece piece : {Piece::layer, Piece::head}) {
        for (const Phase phase : {Phase::forward, Phase::backward})
          profile.pieces.push_back({piece, phase, micro_batch, tensor, Recompute::none, 1.0, 0.3});
      }
    }
  }
  profile.operators.resize(20, profile.operators.front());
  profile.transport.clear();
  for (const int64_t group : {2, 4, 8}) {
    for (const auto& [operation, name] : EnumNames<TransportOperation>::table()) {
      for (const int64_t bytes : {1 << 10, 1 << 20, 1 << 24})
        profile.transport.push_back({operation, group, bytes, 1.0, 0.0});
    }
  }
  profile.machine.gpus.resize(gpus);
  return profile;
}

TEST(ProfileSummary, IsOneScreenWithTheNoisyOnesMarked) {
  for (const size_t gpus : {size_t{0}, size_t{8}}) {
    const std::string text = profile_summary(full_profile(gpus));
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 35) << text;  // five more lines follow
    EXPECT_NE(text.find("1 s ±30%!"), std::string::npos) << text;
    EXPECT_NE(text.find("more in the file"), std::string::npos) << text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 103u) << line;
  }
}

}  // namespace
}  // namespace mpt::profiler
