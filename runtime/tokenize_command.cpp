// SPDX-License-Identifier: Apache-2.0

// mpt-run tokenize: documents of text files to PREFIX.bin and PREFIX.idx of Megatron-LM.

#include <unistd.h>

#include <fstream>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/threads.h"
#include "runtime/data/token_source.h"
#include "runtime/program.h"
#include "runtime/text/tokenizer.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kRoundBytes = int64_t{8} << 20;  // of text for each thread, before its tokens are written

struct TokenizeOptions {
  std::vector<std::string> files;
  std::string tokenizer, prefix, end, key = "text", separator;
  size_t threads = std::max(1u, std::thread::hardware_concurrency());
};

// The .bin gets its name when it is complete.
class IndexedWriter {
 public:
  // Megatron-LM writes 16 bits below 65,500 ids, and 32 from there on.
  IndexedWriter(const std::string& prefix, int64_t ids)
      : narrow_(ids < 65'500),
        files_(indexed_pair(prefix)),
        part_(files_[0].string() + ".part"),
        bin_(part_, std::ios::binary) {}
  ~IndexedWriter() {
    std::error_code error;
    std::filesystem::remove(part_, error);
  }

  std::string written() const {
    return fmt::format("{} documents, {} tokens", format_count(int64_t(lengths_.size())),
                       format_count(tokens_));
  }

  int64_t tokens() const { return tokens_; }

  void add(const std::vector<int32_t>& tokens) {
    if (tokens.empty()) return;
    lengths_.push_back(int32_t(tokens.size()));
    places_.push_back(tokens_ * (narrow_ ? 2 : 4));
    documents_.push_back(int64_t(lengths_.size()));
    tokens_ += int64_t(tokens.size());
    bin_ << (narrow_ ? bytes_of(std::vector<uint16_t>(tokens.begin(), tokens.end())) : bytes_of(tokens));
    check();
  }

  void finish() {
    const std::string head(std::begin(IndexedFormat::kMagic), std::end(IndexedFormat::kMagic));
    const std::vector<uint64_t> version{1}, counts{lengths_.size(), documents_.size()};
    const char type = narrow_ ? IndexedFormat::kUint16 : IndexedFormat::kInt32;
    bin_.close();
    check();
    std::filesystem::remove(files_[1]);  // an older index does not fit the new tokens
    std::filesystem::rename(part_, files_[0]);
    write_file_atomically(files_[1], head + bytes_of(version) + type + bytes_of(counts) + bytes_of(lengths_) +
                                         bytes_of(places_) + bytes_of(documents_));
  }

 private:
  template <class T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  void check() const {
    if (!bin_) throw RunError(files_[0].string() + " cannot be written: is the disk full?");
  }

  bool narrow_;                                 // 16 bits a token
  std::array<std::filesystem::path, 2> files_;  // .bin and .idx
  std::filesystem::path part_;
  std::ofstream bin_;
  int64_t tokens_ = 0;
  std::vector<int32_t> lengths_;                // of the sequences, each a document
  std::vector<int64_t> places_, documents_{0};  // first bytes, and numbers of first sequences
};

struct Document {
  std::string_view text;
  std::string where;
  bool is_json;  // a line with an object
};

// The documents of all files, in order.
class Documents {
 public:
  explicit Documents(const TokenizeOptions& options) : options_(options) {
    for (const std::string& file : options.files) {
      files_.emplace_back(file, file);
      bytes_ += files_.back().size();
    }
  }

  int64_t bytes() const { return bytes_; }
  int64_t read_bytes() const { return read_bytes_; }
  /// The next ones, of kRoundBytes for each thread or more.
  std::vector<Document> next_round() {
    std::vector<Document> round;
    const int64_t end = read_bytes_ + kRoundBytes * int64_t(options_.threads);
    for (; file_ < files_.size(); ++file_) {
      for (; at_ < files_[file_].bytes().size(); read_bytes_ += int64_t(round.back().text.size())) {
        if (read_bytes_ >= end) return round;
        round.push_back(next());
      }
      at_ = line_ = 0;
    }
    return round;
  }

 private:
  Document next() {
    const std::span<const uint8_t> rest = files_[file_].bytes().subspan(at_);
    const std::string& name = options_.files[file_];
    const std::string ending = std::filesystem::path(name).extension();
    const bool is_json = ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
    const std::string separator = is_json ? "\n" : options_.separator;
    std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
    if (!separator.empty()) text = text.substr(0, text.find(separator));
    at_ += text.size() + separator.size();
    if (text.size() >= size_t{1} << 31)  // the index has 32 bits for the tokens
      refuse_input(name, fmt::format("a document of {} bytes", text.size()), "less than 2 GiB",
                   "divide it, for example with --separator");
    return {text, is_json ? fmt::format("{}, line {}", name, ++line_) : name, is_json};
  }

  const TokenizeOptions& options_;
  std::vector<MappedFile> files_;
  int64_t bytes_ = 0, read_bytes_ = 0;
  size_t file_ = 0, at_ = 0, line_ = 0;
};

// The text of a document; nothing for a line of blanks.
std::optional<std::string> text_of(const Document& document, const std::string& key) {
  if (!document.is_json) return std::string(document.text);
  if (document.text.find_first_not_of(" \t\r") == std::string_view::npos) return std::nullopt;
  const Json json = parse_json(std::string(document.text), document.where);
  const Json text = json.is_object() ? json.value(key, Json()) : Json();
  if (text.is_string()) return text.get<std::string>();
  refuse_input(document.where, fmt::format("no text under \"{}\"", key),
               fmt::format("an object such as {{\"{}\": \"...\"}}", key), "name the key with --key");
}

// On one line of the terminal.
void show_progress(double share, double seconds, const std::string& written) {
  fmt::print("{}", live_line(fmt::format("{:.0f}%  {}  about {} left", 100.0 * share, written,
                                         format_duration(seconds * (1.0 - share) / share))));
  std::fflush(stdout);
}

void tokenize_files(const TokenizeOptions& o) {
  const double start_s = now_s();
  const Tokenizer tokenizer(o.tokenizer);
  const auto end = o.end.empty() ? std::nullopt : tokenizer.id_of(o.end);
  if (!end && !o.end.empty())
    refuse_input("--append " + o.end, "no token of the tokenizer", "one of its tokens as text",
                 "look it up in " + o.tokenizer);
  Documents documents(o);
  IndexedWriter writer(o.prefix, tokenizer.ids());
  std::vector<TokenOutput> outputs(o.threads);
  for (std::vector<Document> round; !(round = documents.next_round()).empty();) {
    std::vector<std::vector<int32_t>> tokens(round.size());
    on_threads(round.size(), o.threads, [&](size_t d, size_t thread) {
      TokenOutput& out = outputs[thread];
      const auto text = text_of(round[d], o.key);
      if (!text) return;
      tokenizer.encode(*text, round[d].where, out);
      if (end && !out.tokens.empty()) out.tokens.push_back(*end);
      tokens[d] = std::exchange(out.tokens, {});
    });
    for (const std::vector<int32_t>& document : tokens) writer.add(document);
    if (isatty(1) == 1)
      show_progress(double(documents.read_bytes()) / double(documents.bytes()), now_s() - start_s,
                    writer.written());
  }
  if (writer.tokens() == 0)
    refuse_input("FILES", fmt::format("{} bytes without text", documents.bytes()),
                 "text, or JSON lines with a text each", "name files that have some");
  writer.finish();
  const double seconds = now_s() - start_s, megabytes = double(documents.bytes()) / 1e6;
  if (isatty(1) == 1) fmt::print("\r\033[K");
  fmt::print("{} of {:.1f} MB in {}: {:.1f} MB/s on {} threads\n", writer.written(), megabytes,
             format_seconds(seconds), megabytes / seconds, o.threads);
  const auto [bin, index] = indexed_pair(o.prefix);
  fmt::print("wrote {} and {}: --data {} trains a model with a vocabulary of {} or more\n", bin.string(),
             index.string(), shell_word((bin.parent_path() / bin.stem()).string()), tokenizer.ids());
}

}  // namespace

int tokenize(int argc, char** argv) {
  TokenizeOptions o;
  CLI::App app{
      "Writes the tokens of text as Megatron-LM's indexed dataset, for --data. A text file is one document; "
      "of JSON lines (.jsonl, .ndjson, .json), each is one.",
      "mpt-run tokenize"};
#include "generated/TokenizeOptions.inc"
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  for (const auto& output : indexed_pair(o.prefix)) files_of_program().writes({"-o", output});
  files_of_program().check_writable();
  tokenize_files(o);
  return kExitOk;
}

}  // namespace mpt::runtime
