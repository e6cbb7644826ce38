// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/dataset.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/error.h"

namespace mpt::runtime {
namespace {

std::string write(const std::string& name, const std::string& text) {
  std::string file = testing::TempDir() + "/" + name;
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

DatasetOptions options(const std::vector<std::string>& words, int64_t sequence, uint64_t seed = 7) {
  DatasetOptions o;
  o.parts = parse_data_argument(words);
  o.sequence = sequence;
  o.seed = seed;
  return o;
}

std::vector<int32_t> tokens_of(const Dataset& data, int64_t number, int64_t sequence) {
  std::vector<int32_t> tokens(static_cast<size_t>(sequence)), targets(tokens.size());
  data.sample(number, tokens.data(), targets.data());
  for (size_t i = 0; i + 1 < tokens.size(); ++i) EXPECT_EQ(targets[i], tokens[i + 1]);
  return tokens;
}

std::string message_of(const DatasetOptions& o) {
  try {
    Dataset(o, DataSplit::training);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Megatron-LM's pair, documents of the given lengths; `code` says the type: 8 for 16 bits, 5 for 64.
template <class T = uint16_t>
std::string write_indexed(const std::string& name, const std::vector<T>& tokens,
                          const std::vector<int32_t>& lengths, char code = 8) {
  std::vector<int64_t> pointers, documents{0};
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    pointers.push_back(at * int64_t(sizeof(T)));
    at += lengths[i];
    documents.push_back(int64_t(i) + 1);
  }
  std::string index("MMIDIDX\0\0", 9);
  index += raw<uint64_t>({1}) + code + raw<uint64_t>({lengths.size(), documents.size()});
  index += raw(lengths) + raw(pointers) + raw(documents);
  write(name + ".idx", index);
  write(name + ".bin", raw(tokens));
  return testing::TempDir() + "/" + name;
}

std::vector<uint16_t> counting(int64_t count) {
  std::vector<uint16_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(uint16_t(i % 1000));
  return tokens;
}

// Next-token modules predict tokens behind those of a window.
TEST(Dataset, FurtherTargetsGoOnBehindTheWindow) {
  std::string text(42, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = char('0' + i);
  DatasetOptions o = options({write("further.txt", text)}, 10);
  EXPECT_EQ(Dataset(o, DataSplit::training).windows(), 4);
  o.further = 2;
  const Dataset data(o, DataSplit::training);
  ASSERT_EQ(data.windows(), 3) << "the fourth window has but one token behind it";
  for (int64_t number = 0; number < data.windows(); ++number) {
    std::vector<int32_t> tokens(10), targets(12);
    data.sample(number, tokens.data(), targets.data());
    for (int32_t i = 0; i < 12; ++i) EXPECT_EQ(targets[size_t(i)], tokens[0] + 1 + i);
  }
  o.sequence = 40;
  EXPECT_NE(message_of(o).find("at least 43: one sequence of 40 tokens and the 3 tokens after it"),
            std::string::npos)
      << message_of(o);
}

TEST(Dataset, PermutationHitsEveryIndexOnce) {
  for (const int64_t size : {1, 2, 3, 7, 64, 65, 1000}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t p = permuted(i, size, 42);
      EXPECT_GE(p, 0);
      EXPECT_LT(p, size);
      seen.insert(p);
    }
    EXPECT_EQ(int64_t(seen.size()), size);
  }
}

TEST(Dataset, AnEpochShowsEveryWindowOnceAndTheNextInAnotherOrder) {
  std::string text;
  for (int i = 0; i < 401; ++i) text += char('a' + i % 23);
  const Dataset data(options({write("corpus.txt", text)}, 4), DataSplit::training);
  ASSERT_EQ(data.windows(), 100);
  std::vector<std::vector<int32_t>> epochs[2];
  for (int64_t n = 0; n < 200; ++n) epochs[n / 100].push_back(tokens_of(data, n, 4));
  EXPECT_NE(epochs[0], epochs[1]);
  std::multiset<std::vector<int32_t>> first(epochs[0].begin(), epochs[0].end()),
      second(epochs[1].begin(), epochs[1].end());
  EXPECT_EQ(first, second);
}

TEST(Dataset, BytesAboveAsciiAreTokensUpTo255) {
  const Dataset data(options({write("bytes.txt", "\xff\xfe\xfd\xfc\xfb")}, 4), DataSplit::training);
  int32_t tokens[4], targets[4];
  data.sample(0, tokens, targets);
  EXPECT_EQ(tokens[0], 255);
  EXPECT_EQ(targets[3], 0xfb);
}

TEST(Dataset, EveryFormatGivesTheSameTokens) {
  const std::vector<uint16_t> tokens = counting(101);
  const std::vector<uint32_t> wide(tokens.begin(), tokens.end());
  std::vector<int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 101;
  const std::pair<std::string, DataFormat> files[] = {
      {write("raw16.bin", raw(tokens)), DataFormat::uint16},
      {write("raw32.bin", raw(wide)), DataFormat::uint32},
      {write("llmc.bin", raw(header) + raw(tokens)), DataFormat::auto_},
      {write_indexed("megatron", tokens, {40, 1, 60}), DataFormat::auto_},
      {testing::TempDir() + "/megatron.bin", DataFormat::auto_}};
  for (const auto& [file, format] : files) {
    DatasetOptions o = options({file}, 10);
    o.format = format;
    o.vocab = 1000;
    const Dataset data(o, DataSplit::training);
    EXPECT_EQ(data.tokens(), 101) << file;
    std::set<int32_t> firsts;
    for (int64_t n = 0; n < 10; ++n) firsts.insert(tokens_of(data, n, 10).front());
    EXPECT_EQ(firsts, (std::set<int32_t>{0, 10, 20, 30, 40, 50, 60, 70, 80, 90})) << file;
  }
}

TEST(Dataset, ValidationWindowsAreNeverTrainedOn) {
  std::string text(4001, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = char(i / 40 % 256);
  DatasetOptions o = options({write("split.txt", text)}, 40);
  o.validation_share = 0.1;
  const Dataset training(o, DataSplit::training), validation(o, DataSplit::validation);
  EXPECT_EQ(training.windows(), 90);
  EXPECT_EQ(validation.windows(), 10);
  for (int64_t n = 0; n < 180; ++n) EXPECT_LT(tokens_of(training, n, 40).front(), 90);
  for (int64_t n = 0; n < 20; ++n) EXPECT_GE(tokens_of(validation, n, 40).front(), 90);
}

// Each part's samples come in its own order without a gap, and as often as its weight says.
TEST(Dataset, ABlendKeepsItsWeightsAndSkipsNothing) {
  std::string a(4001, 'a'), b(2001, 'b');
  for (size_t i = 0; i < 400; ++i) a[i * 10] = char(i % 50);
  const Dataset data(options({"3", write("a.txt", a), "1", write("b.txt", b)}, 10), DataSplit::training);
  const Dataset alone(options({testing::TempDir() + "/a.txt"}, 10), DataSplit::training);
  std::multiset<std::vector<int32_t>> of_a, of_alone;
  for (int64_t n = 0; n < 4096; ++n) {
    const auto tokens = tokens_of(data, n, 10);
    if (tokens.back() == 'a') of_a.insert(tokens);
  }
  EXPECT_EQ(of_a.size(), 3072u);
  for (int64_t n = 0; n < 3072; ++n) of_alone.insert(tokens_of(alone, n, 10));
  EXPECT_EQ(of_a, of_alone);
}

TEST(Dataset, BadFilesAreUserErrorsThatNameThem) {
  const auto error_of = [](const std::string& file) { return message_of(options({file}, 16)); };
  EXPECT_NE(error_of("/no/such/text.txt").find("/no/such/text.txt"), std::string::npos);
  EXPECT_NE(error_of(testing::TempDir()).find("is a folder"), std::string::npos);
  EXPECT_NE(error_of(write("empty.txt", "")).find("0 tokens in 1 files"), std::string::npos);
  EXPECT_NE(error_of(write("short.txt", "0123456789abcdef")).find("at least 17"), std::string::npos);
  EXPECT_NE(error_of(write("what.bin", "0123456789abcdef")).find("--data-format"), std::string::npos);
  EXPECT_THROW(parse_data_argument({"0.5", "a", "b", "c"}), UserError);
  EXPECT_THROW(parse_data_argument({"0.5", "a", "0.5"}), UserError);
  EXPECT_THROW(parse_data_argument({"-1", "a"}), UserError);
}

TEST(Dataset, TokensBeyondTheVocabularyAreRefusedWithTheirPlace) {
  DatasetOptions o = options({write_indexed("beyond", counting(500), {500})}, 8);
  EXPECT_NE(message_of(o).find("token 256 is 256"), std::string::npos) << message_of(o);
}

// Text is the bytes of one vocabulary, and 16 bits do not hold the ids of a large one: nothing in the file is
// beyond the vocabulary, and all of it is wrong.
TEST(Dataset, TokensOfAnotherVocabularyAreRefusedWithTheirRemedy) {
  const auto refused = [](const std::string& file, DataFormat format, int64_t vocab) {
    DatasetOptions o = options({file}, 8);
    o.format = format;
    o.vocab = vocab;
    return message_of(o);
  };
  const std::string text = write("words.txt", std::string(100, 'a'));
  const std::string indexed = write_indexed("narrow", counting(100), {100});
  const std::string plain = write("narrow16.bin", raw(counting(100)));
  for (const int64_t vocab : {128, 257, 4096}) {
    EXPECT_NE(refused(text, DataFormat::auto_, vocab).find("--data-format text"), std::string::npos) << vocab;
    EXPECT_EQ(refused(text, DataFormat::text, vocab), "") << vocab;
  }
  EXPECT_EQ(refused(text, DataFormat::auto_, 256), "");
  for (const auto& [file, format] : {std::pair{indexed, DataFormat::auto_}, {plain, DataFormat::uint16}}) {
    EXPECT_EQ(refused(file, format, 65536), "") << file;
    EXPECT_NE(refused(file, format, 65537).find("--data-format uint32"), std::string::npos) << file;
  }
  const std::vector<int16_t> shorter(100, 7);
  EXPECT_NE(
      refused(write_indexed("int16", shorter, {100}, 3), DataFormat::auto_, 50000).find("ids 0 to 32767"),
      std::string::npos);
}

TEST(Dataset, TokensOf64BitsAreNotCut) {
  for (const int64_t token : {(int64_t{1} << 32) + 5, -(int64_t{1} << 32) + 5, int64_t{1} << 31}) {
    std::vector<int64_t> tokens(100, 7);
    tokens[40] = token;
    const std::string wrong = message_of(options({write_indexed("wide", tokens, {100}, 5)}, 8));
    EXPECT_NE(wrong.find("token 40 is"), std::string::npos) << token << ": " << wrong;
  }
}

// What the beginning did not show is refused when it comes: in each place of a sample, its last target too.
TEST(Dataset, AWrongTokenFurtherOnIsRefusedByItsSample) {
  for (const size_t at : {20, 24, 25}) {
    std::vector<uint16_t> tokens(26, 7);  // one window of 25, and the target of its last token
    tokens[at] = 300;
    DatasetOptions o = options({write("further.bin", raw(tokens))}, 25);
    o.format = DataFormat::uint16;
    o.tokens_checked_first = 20;
    const Dataset data(o, DataSplit::training);
    std::vector<int32_t> sample(25), targets(25);
    try {
      data.sample(0, sample.data(), targets.data());
      ADD_FAILURE() << at;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("token {} is 300", at)), std::string::npos)
          << error.what();
    }
  }
}

TEST(Dataset, AFileWithAnotherNumberOfTokensThanItSaysIsRefused) {
  std::vector<int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 101;
  const std::string cut = message_of(options({write("cut.bin", raw(header) + raw(counting(90)))}, 8));
  EXPECT_NE(cut.find("90 tokens behind a header that says 101"), std::string::npos) << cut;
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{10}, {}, {50, 49}}) {
    const std::string fewer = message_of(options({write_indexed("fewer", counting(100), lengths)}, 8));
    EXPECT_NE(fewer.find("do not belong together"), std::string::npos) << fewer;
  }
}

// Every byte of an index may be wrong; what is wrong is refused, and nothing is read beyond the files.
TEST(Dataset, ADamagedIndexIsRefusedOrHarmless) {
  const std::string path = write_indexed("damaged", counting(120), {50, 70});
  std::string index;
  {
    std::ifstream in(path + ".idx", std::ios::binary);
    index.assign(std::istreambuf_iterator<char>(in), {});
  }
  DatasetOptions o = options({path}, 8);
  o.vocab = 65536;
  o.format = DataFormat::megatron;
  for (size_t cut = 0; cut < index.size(); cut += 3) {
    write("damaged.idx", index.substr(0, cut));
    EXPECT_NE(message_of(o), "") << cut;
  }
  for (size_t at = 0; at < index.size(); ++at) {
    std::string wrong = index;
    wrong[at] = char(wrong[at] ^ 0xff);
    write("damaged.idx", wrong);
    try {
      const Dataset data(o, DataSplit::training);
      for (int64_t n = 0; n < 20; ++n) tokens_of(data, n, 8);
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace mpt::runtime
