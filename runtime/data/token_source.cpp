// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/token_source.h"

#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/mapped_file.h"

namespace mpt::runtime {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, std::string found, std::string expected,
                         std::string remedy = "") {
  refuse_input("--data " + file.string(), std::move(found), std::move(expected), std::move(remedy));
}

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Elements of type T, starting at byte `first`.
template <class T>
class FlatTokens final : public TokenSource {
 public:
  FlatTokens(MappedFile file, size_t first)
      : file_(std::move(file)),
        first_(file_.bytes().data() + first),
        tokens_((file_.size() - int64_t(first)) / int64_t(sizeof(T))) {}

  int64_t tokens() const override { return tokens_; }
  int64_t ids() const override { return int64_t(narrowed(std::numeric_limits<T>::max())) + 1; }
  void read(int64_t begin, int64_t count, int32_t* out) const override {
    const uint8_t* at = first_ + begin * int64_t(sizeof(T));
    for (int64_t i = 0; i < count; ++i) out[i] = narrowed(load<T>(at + i * int64_t(sizeof(T))));
  }

 private:
  // A token beyond 32 bits is outside every vocabulary, and must not wrap back into it.
  static int32_t narrowed(T token) {
    if (std::in_range<int32_t>(token)) return int32_t(token);
    return token < T{0} ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
  }

  MappedFile file_;
  const uint8_t* first_;
  int64_t tokens_;
};

template <class T>
std::unique_ptr<TokenSource> flat(const std::filesystem::path& path, MappedFile file, size_t first) {
  if ((file.bytes().size() - first) % sizeof(T) != 0)
    refuse(path, fmt::format("{} bytes of tokens", file.bytes().size() - first),
           fmt::format("a multiple of {}", sizeof(T)), "the file is cut off, or of another --data-format");
  return std::make_unique<FlatTokens<T>>(std::move(file), first);
}

// llm.c, dev/data/data_common.py: 256 int32; the first three are magic, version and number of tokens.
constexpr size_t kHeaderBytes = 1024;
constexpr int32_t kMagic16 = 20240520, kMagic32 = 20240801;

void check_header(const std::filesystem::path& path, const MappedFile& file, int64_t token_bytes) {
  const int64_t said = load<int32_t>(file.bytes().data() + 2 * sizeof(int32_t));
  const int64_t held = (file.size() - int64_t(kHeaderBytes)) / token_bytes;
  if (said == held) return;
  refuse(path, fmt::format("{} tokens behind a header that says {}", held, said), "as many as it says",
         "the file is cut off, or was written to twice");
}

// By code; the other codes are not integers.
constexpr struct {
  int64_t bytes = 0;
  std::unique_ptr<TokenSource> (*open)(const std::filesystem::path&, MappedFile, size_t first) = nullptr;
} kElements[] = {
    {}, {1, flat<uint8_t>}, {1, flat<int8_t>}, {2, flat<int16_t>}, {4, flat<int32_t>}, {8, flat<int64_t>}, {},
    {}, {2, flat<uint16_t>}};

void check_index(const std::filesystem::path& path, const MappedFile& index, int64_t size,
                 int64_t bin_bytes) {
  const uint8_t* at = index.bytes().data();
  const auto sequences = load<uint64_t>(at + 18), documents = load<uint64_t>(at + 26);
  // 12 bytes a sequence and 8 a document. The first test refuses absurd numbers, the second compares exactly.
  const auto room = uint64_t(index.size()) - IndexedFormat::kHeader;
  if (sequences > room / 12 || documents > room / 8 || sequences * 12 + documents * 8 > room)
    refuse(path, fmt::format("{} sequences and {} documents in {} bytes", sequences, documents, index.size()),
           "an index that holds them", "the file is cut off");
  const uint8_t* lengths = at + IndexedFormat::kHeader;
  const uint8_t* pointers = lengths + sequences * 4;
  int64_t listed = 0;
  for (uint64_t s = 0; s < sequences; ++s) {
    const int64_t length = load<int32_t>(lengths + s * 4), first = load<int64_t>(pointers + s * 8);
    if (length >= 0 && first >= 0 && first <= bin_bytes && length <= (bin_bytes - first) / size) {
      listed += length;
      continue;
    }
    refuse(path, fmt::format("sequence {}: {} tokens from byte {}", s, length, first),
           fmt::format("to lie in the {} bytes of the .bin file", bin_bytes),
           "the two files do not belong together");
  }
  if (listed == bin_bytes / size) return;
  refuse(path, fmt::format("sequences of {} tokens in all", listed),
         fmt::format("the {} of the .bin file", bin_bytes / size), "the two files do not belong together");
}

// The tokens are contiguous in the .bin. The index gives their width and is checked against the .bin.
std::unique_ptr<TokenSource> open_megatron(const std::filesystem::path& path) {
  const auto [bin, idx] = indexed_pair(path);
  const MappedFile index(idx, "--data " + idx.string());
  if (index.bytes().size() < IndexedFormat::kHeader ||
      std::memcmp(index.bytes().data(), IndexedFormat::kMagic, sizeof IndexedFormat::kMagic) != 0)
    refuse(idx, "no index of Megatron-LM", "a file that begins with MMIDIDX",
           "check --data-format, or make the index again with Megatron-LM's preprocess_data.py");
  if (const auto version = load<uint64_t>(index.bytes().data() + 9); version != 1)
    refuse(idx, fmt::format("version {}", version), "version 1",
           "make it again with Megatron-LM's preprocess_data.py");
  const uint8_t code = index.bytes()[17];
  if (code >= std::size(kElements) || kElements[code].open == nullptr)
    refuse(idx, fmt::format("tokens of type {}", code), "a type of whole numbers",
           "make it again with Megatron-LM's preprocess_data.py");
  MappedFile tokens(bin, "--data " + bin.string());
  check_index(idx, index, kElements[code].bytes, tokens.size());
  return kElements[code].open(bin, std::move(tokens), 0);
}

bool is_indexed(const std::filesystem::path& path) {
  const auto [bin, idx] = indexed_pair(path);
  return is_there(bin) && is_there(idx);
}

std::unique_ptr<TokenSource> open_numbers(const std::filesystem::path& path, MappedFile file,
                                          DataFormat format) {
  const int32_t magic = file.bytes().size() >= kHeaderBytes ? load<int32_t>(file.bytes().data()) : 0;
  if (magic == kMagic16 || magic == kMagic32) {
    check_header(path, file, magic == kMagic16 ? 2 : 4);
    if (magic == kMagic16) return flat<uint16_t>(path, std::move(file), kHeaderBytes);
    return flat<uint32_t>(path, std::move(file), kHeaderBytes);
  }
  if (format == DataFormat::uint16) return flat<uint16_t>(path, std::move(file), 0);
  if (format == DataFormat::uint32) return flat<uint32_t>(path, std::move(file), 0);
  refuse(path, "tokens of unknown width", "a known header, or an index (.idx) beside it",
         "say what it is: --data-format uint16, uint32 or text");
}

}  // namespace

std::array<std::filesystem::path, 2> indexed_pair(std::filesystem::path path) {
  if (path.extension() == ".bin" || path.extension() == ".idx") path.replace_extension();
  return {path.string() + ".bin", path.string() + ".idx"};
}

std::unique_ptr<TokenSource> open_token_source(const std::filesystem::path& path, DataFormat format) {
  if (format == DataFormat::megatron || (format == DataFormat::auto_ && is_indexed(path)))
    return open_megatron(path);
  MappedFile file(path, "--data " + path.string());
  if (format == DataFormat::text || (format == DataFormat::auto_ && path.extension() != ".bin"))
    return flat<uint8_t>(path, std::move(file), 0);
  return open_numbers(path, std::move(file), format);
}

}  // namespace mpt::runtime
