// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenSource: one file, or one indexed pair of files, as a run of tokens. Everything is memory-mapped.
//
//   text      bytes are tokens (vocabulary 256, or any other if --data-format asks for text)
//   uint16,   tokens without a header (nanoGPT's train.bin), or with the 1,024-byte header of llm.c
//   uint32    (magic 20240520 for 16 bits, 20240801 for 32), which then decides the width
//   megatron  PREFIX.bin and PREFIX.idx of Megatron-LM (megatron/core/datasets/indexed_dataset.py): its
//             documents one after the other, in the file's order

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace mpt::runtime {

enum class DataFormat { auto_, text, uint16, uint32, megatron };

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t tokens() const = 0;
  virtual int64_t ids() const = 0;  // that its elements can hold: 256 of text, 65,536 of 16 bits
  /// Tokens begin .. begin + count.
  virtual void read(int64_t begin, int64_t count, int32_t* out) const = 0;
};

/// `auto_`: a .bin with an .idx of the same name is an indexed pair. A .bin with a known header states its
/// width. Other .bin files need a format, and everything else is text. Throws UserError.
std::unique_ptr<TokenSource> open_token_source(const std::filesystem::path& path, DataFormat format);

/// Megatron-LM's index: magic, version, code of the element type, numbers of sequences and of documents, then
/// length and first byte of each sequence, then the first sequence of each document, and the end.
struct IndexedFormat {
  static constexpr char kMagic[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
  static constexpr size_t kHeader = sizeof kMagic + 8 + 1 + 8 + 8;
  static constexpr uint8_t kInt32 = 4, kUint16 = 8;
};

/// The .bin and the .idx file of format `megatron`; `path` has either ending or none.
std::array<std::filesystem::path, 2> indexed_pair(std::filesystem::path path);

}  // namespace mpt::runtime
