// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/dataset.h"

#include <bit>
#include <cmath>

#include "base/digest.h"
#include "base/error.h"
#include "base/ranges.h"

namespace mpt::runtime {
namespace {

uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

[[noreturn]] void refuse_token(const std::string& path, int64_t at, int32_t token, int64_t vocab) {
  refuse_input("--data " + path, fmt::format("token {} is {}", at, token),
               fmt::format("0 to {}, the model's vocabulary", vocab - 1),
               "plan a model with the tokenizer's vocabulary, or check --data-format");
}

// The bytes of text form a vocabulary of 256. Narrow elements hold tokens of another vocabulary, or ids that
// were cut to fit: each single one looks valid.
void check_width(const TokenSource& source, const std::string& path, const DatasetOptions& o) {
  const int64_t ids = source.ids();
  const bool text = ids == 256;
  if (o.format == DataFormat::text || (text ? o.vocab == ids : o.vocab <= ids)) return;
  refuse_input("--data " + path,
               fmt::format("{}, ids 0 to {}", text ? "bytes of text" : "narrow tokens", ids - 1),
               fmt::format("ids 0 to {}, the model's vocabulary", o.vocab - 1),
               text ? "mpt-run tokenize writes its tokens; --data-format text trains on its bytes"
                    : "write the tokens again with 32 bits each, and add --data-format uint32");
}

// Checks the beginning of each file, so that a wrong tokenizer or format is found before training.
void check_vocabulary(const TokenSource& source, const std::string& path, int64_t vocab, int64_t most) {
  constexpr int64_t kBlock = 4096;
  int32_t block[kBlock];
  const int64_t end = std::min(most, source.tokens());
  for (int64_t at = 0; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    source.read(at, count, block);
    for (int64_t i = 0; i < count; ++i)
      if (block[i] < 0 || block[i] >= vocab) refuse_token(path, at + i, block[i], vocab);
  }
}

// The number of samples over which a blend keeps its weights exactly, up to rounding.
constexpr int64_t kBlendBlock = 1024;

}  // namespace

int64_t permuted(int64_t index, int64_t size, uint64_t key) {
  const int half_bits = std::max(1, (int(std::bit_width(uint64_t(size - 1))) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = uint64_t(index);
  do {
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (scramble(right + scramble(key + round)) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= uint64_t(size));
  return int64_t(value);
}

std::vector<DataPart> parse_data_argument(const std::vector<std::string>& words) {
  if (words.empty() || !number_of<double>(words.front())) return {DataPart{1.0, words}};
  std::vector<DataPart> parts;
  for (size_t i = 0; i < words.size(); i += 2) {
    const auto weight = number_of<double>(words[i]);
    if (!weight || !(*weight > 0.0) || !std::isfinite(*weight) || i + 1 == words.size())
      refuse_input("--data", fmt::format("\"{}\" where a weight and its file are due", words[i]),
                   "pairs of a positive weight and a file: 0.7 a 0.3 b", "give every file a weight, or none");
    parts.push_back({*weight, {words[i + 1]}});
  }
  return parts;
}

// Contiguous sources, cut into windows; `first` .. `first` + `windows` of them belong to this split.
struct Dataset::Part {
  double weight_before = 0.0, weight = 0.0;  // shares of the blend
  std::vector<std::unique_ptr<TokenSource>> sources;
  int64_t tokens = 0, first = 0, windows = 0;

  void read(int64_t begin, int64_t count, int32_t* out) const {
    for (const auto& source : sources) {
      if (begin < source->tokens()) {
        const int64_t here = std::min(count, source->tokens() - begin);
        source->read(begin, here, out);
        out += here;
        count -= here;
        begin += here;
      }
      if (count == 0) return;
      begin -= source->tokens();
    }
  }
};

Dataset::~Dataset() = default;

Dataset::Dataset(const DatasetOptions& options, DataSplit split) : options_(options) {
  const double sum = sum_of<double>(options.parts, &DataPart::weight);
  double before = 0.0;
  for (const DataPart& described : options.parts) {
    Part part;
    part.weight_before = before;
    part.weight = described.weight / sum;
    before += part.weight;
    for (const std::string& path : described.paths) {
      part.sources.push_back(open_token_source(path, options.format));
      check_width(*part.sources.back(), path, options);
      check_vocabulary(*part.sources.back(), path, options.vocab, options.tokens_checked_first);
      part.tokens += part.sources.back()->tokens();
    }
    const int64_t behind = 1 + options.further;
    const int64_t windows = std::max<int64_t>(0, (part.tokens - behind) / options.sequence);
    const auto held_back = int64_t(std::ceil(options.validation_share * double(windows)));
    part.first = split == DataSplit::training ? 0 : windows - held_back;
    part.windows = split == DataSplit::training ? windows - held_back : held_back;
    if (part.windows < 1)
      refuse_input("--data", fmt::format("{} tokens in {} files", part.tokens, described.paths.size()),
                   fmt::format("at least {}: one sequence of {} tokens and the {} after it{}",
                               options.sequence + behind, options.sequence,
                               behind == 1 ? "token" : fmt::format("{} tokens", behind),
                               options.validation_share > 0.0 ? ", for training and for validation" : ""),
                   "add files, or plan with a shorter --seq");
    parts_.push_back(std::move(part));
  }
}

int64_t Dataset::tokens() const { return sum_of<int64_t>(parts_, &Part::tokens); }

int64_t Dataset::windows() const { return sum_of<int64_t>(parts_, &Part::windows); }

std::string Dataset::digest() const {
  Digest digest;
  for (size_t p = 0; p < parts_.size(); ++p) {
    digest.add(int64_t(std::llround(parts_[p].weight * 1e9)));
    for (size_t s = 0; s < parts_[p].sources.size(); ++s) {
      digest.add(std::filesystem::path(options_.parts[p].paths[s]).filename().string());
      digest.add(parts_[p].sources[s]->tokens());
    }
  }
  digest.add(parts_.front().first + parts_.front().windows);
  return digest.text();
}

// Part, and sample within it. Samples come in blocks. In each block every part has its share of places, in
// shuffled order. Its places in earlier blocks follow from rounding the running sums of shares.
std::pair<size_t, int64_t> Dataset::draw(int64_t number) const {
  if (parts_.size() == 1) return {0, number};
  const int64_t block = number / kBlendBlock;
  const int64_t place =
      permuted(number % kBlendBlock, kBlendBlock, options_.seed ^ scramble(uint64_t(block) + 77));
  const auto places_before = [&](size_t part, int64_t blocks) {
    if (part == parts_.size()) return blocks * kBlendBlock;
    return int64_t(std::floor(parts_[part].weight_before * double(blocks) * double(kBlendBlock)));
  };
  int64_t begin = 0;
  for (size_t p = 0; p < parts_.size(); ++p) {
    const int64_t earlier = places_before(p + 1, block) - places_before(p, block);
    const int64_t here = places_before(p + 1, block + 1) - places_before(p, block + 1) - earlier;
    if (place < begin + here) return {p, earlier + place - begin};
    begin += here;
  }
  MPT_CHECK(false, "place {} of a block of {}", place, kBlendBlock);
}

void Dataset::sample(int64_t number, int32_t* tokens, int32_t* targets) const {
  const auto [index, drawn] = draw(number);
  const Part& part = parts_[index];
  const uint64_t epoch = uint64_t(drawn / part.windows);
  const int64_t window =
      part.first + permuted(drawn % part.windows, part.windows, options_.seed ^ scramble(epoch + 1));
  const int64_t sequence = options_.sequence, begin = window * sequence;
  part.read(begin, sequence, tokens);
  const int64_t later = sequence + options_.further;
  part.read(begin + 1, later, targets);
  const auto wrong = [&](int32_t id) { return id < 0 || id >= options_.vocab; };
  const std::string& path = options_.parts[index].paths.front();
  if (wrong(tokens[0])) refuse_token(path, begin, tokens[0], options_.vocab);
  const int64_t at = std::find_if(targets, targets + later, wrong) - targets;
  if (at < later) refuse_token(path, begin + 1 + at, targets[at], options_.vocab);
}

}  // namespace mpt::runtime
