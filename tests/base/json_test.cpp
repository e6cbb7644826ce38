// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/layout.h"
#include "core/model_spec.h"
#include "tests/support/schema.h"

namespace mpt {
namespace {

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n in: " << text;
}

Json layout_json() { return to_json(Layout{}); }

TEST(Json, RoundTripsEveryKindOfField) {
  Layout layout;
  layout.tensor = 4;
  layout.recompute = Recompute::full;
  layout.layers_per_stage = {3, 4, 5};
  EXPECT_EQ(from_json<Layout>(to_json(layout), "f"), layout);

  ModelSpec model;
  model.name = "m";
  model.hidden = model.vocab = model.max_positions = 8;
  LayerKind kind;
  kind.attention =
      Attention{.heads = 8, .kv_heads = 8, .head_dim = 8, .latent = LatentAttention{1, 2, 3, 4, 5}};
  kind.attention->window = 128;
  kind.moe = MixtureOfExperts{.experts = 8, .experts_per_token = 2, .expert = Mlp{16}};
  model.layers = LayerList(8, kind);
  EXPECT_EQ(from_json<ModelSpec>(to_json(model), "f"), model);
}

struct Inner {
  int64_t depth = 1;
  bool rare = false;
  bool operator==(const Inner&) const = default;
  static void describe(auto& v) {
    v.field("depth", &Inner::depth, "a number", between(1, 9));
    v.field("rare", &Inner::rare, "a switch", rare_field());
  }
};
struct Middle {
  Inner inner;
  static void describe(auto& v) { describe_part(v, &Middle::inner); }
};
struct Outer {
  std::string title = "x";
  Middle middle;
  static void describe(auto& v) {
    v.field("title", &Outer::title, "a text");
    describe_part(v, &Outer::middle);
  }
};

TEST(Json, FieldsOfAPartStandAmongThoseOfItsOwner) {
  Outer outer{"y", {{3, true}}};
  EXPECT_EQ(to_json(outer), (Json{{"title", "y"}, {"depth", 3}, {"rare", true}}));
  EXPECT_EQ(from_json<Outer>(to_json(outer), "f").middle.inner, outer.middle.inner);
  outer.middle.inner.rare = false;
  EXPECT_EQ(to_json(outer), (Json{{"title", "y"}, {"depth", 3}}));
  expect_parts(message_of([&] {
                 from_json<Outer>({{"title", "y"}, {"depth", 10}, {"rear", true}}, "f");
               }),
               {"f at /depth", "did you mean \"rare\""});
  expect_parts(message_of([&] { from_json<Outer>({{"title", "y"}}, "f"); }), {"missing key \"depth\""});
  const std::string schema = schema_text<Outer>("Outer");
  expect_parts(schema, {"\"depth\": {", "\"maximum\": 9"});
  EXPECT_EQ(schema.find("middle"), std::string::npos);
}

TEST(Json, NamesTheFieldOfAWrongType) {
  Json json = layout_json();
  json["tensor"] = "four";
  expect_parts(message_of([&] { from_json<Layout>(json, "plan.json", "/layout"); }),
               {"plan.json at /layout/tensor", "\"four\"", "a number"});
}

TEST(Json, RefusesFractionsNegativesAndHugeNumbersForCounts) {
  for (const char* value : {"1.5", "-2", "1e300", "18446744073709551615", "0"}) {
    Json json = layout_json();
    json["tensor"] = Json::parse(value);
    expect_parts(message_of([&] { from_json<Layout>(json, "f"); }), {"/tensor"});
  }
}

TEST(Json, AMisspeltKeyIsOneProblemWithItsSuggestion) {
  Json json = layout_json();
  json.erase("pipeline");
  json["pipelin"] = 2;
  try {
    from_json<Layout>(json, "f");
    FAIL();
  } catch (const UserError& error) {
    ASSERT_EQ(error.problems().size(), 1u) << error.what();
    expect_parts(error.what(), {"unknown key \"pipelin\"", "did you mean \"pipeline\"?"});
  }
}

TEST(Json, AMisspeltEnumNamesTheAllowedAndTheNearest) {
  Json json = layout_json();
  json["recompute"] = "ful";
  expect_parts(message_of([&] { from_json<Layout>(json, "f"); }),
               {"/recompute", "none, selective, full", "did you mean \"full\"?"});
}

TEST(Json, ReportsAllProblemsOfAFileAtOnce) {
  Json json = layout_json();
  json["tensor"] = -1;
  json["data"] = true;
  json.erase("schedule");
  json["extra-thing"] = 1;
  try {
    from_json<Layout>(json, "f");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 4u) << error.what();
  }
}

TEST(Json, TruncatedTextNamesLineAndColumn) {
  expect_parts(message_of([] { parse_json("{\n  \"a\": 1,\n  \"b\"", "cut.json"); }), {"cut.json", "line 3"});
  expect_parts(message_of([] { parse_json("", "empty.json"); }), {"empty.json", "empty"});
}

// Sizes at which time in proportion to their squares would be hours.
TEST(Json, ReadsLongListsAndWideObjects) {
  constexpr int kObjects = 2'000'000, kKeys = 500'000;
  std::string list = "[{}";
  for (int i = 1; i < kObjects; ++i) list += ",{}";
  EXPECT_EQ(parse_json(list + "]", "f").size(), size_t(kObjects));

  std::string wide = "{\"first\":0";
  for (int i = 1; i < kKeys; ++i) wide += fmt::format(",\"{}\":{}", i, i);
  const Json json = parse_json(wide + "}", "f");
  EXPECT_EQ(json.size(), size_t(kKeys));
  EXPECT_EQ(json.begin().key(), "first");  // in the file's order
  EXPECT_EQ(json.rbegin()->get<int>(), kKeys - 1);
  const auto map = from_json<std::map<std::string, double>>(json, "f");
  EXPECT_EQ(map.at("400000"), 400'000.0);
  EXPECT_THROW(from_json<Layout>(json, "f"), UserError);  // all of its keys are unknown
}

TEST(Json, BuildsTheDocumentThatTheLibraryBuilds) {
  for (const char* text :
       {"null", "[]", "{}", "3", R"([1, -2, 18446744073709551615, 0.5, 1e300, true, false, null, "x"])",
        R"({"b": {"z": [], "a": [{"c": [[1], {}]}]}, "a": "\u00e4\n", "": 0})"}) {
    const Json json = parse_json(text, "f");
    EXPECT_EQ(json, Json::parse(text)) << text;
    EXPECT_EQ(json.dump(), Json::parse(text).dump()) << text;
  }
}

TEST(Json, RefusesDeepNestingAndDuplicateKeys) {
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "f"));
  EXPECT_THROW(parse_json(std::string(65, '[') + std::string(65, ']'), "f"), UserError);
  EXPECT_THROW(parse_json(R"([0, {"x": {"b": 1, "a": 2, "b": 1}}])", "f"), UserError);
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": {"a": 1}}])", "f"));
  expect_parts(message_of([] { parse_json(std::string(100000, '['), "deep.json"); }),
               {"deep.json", "64 levels"});
  expect_parts(message_of([] { parse_json(R"({"a": 1, "a": 2})", "twice.json"); }), {"\"a\" stands twice"});
}

TEST(Json, RefusesNumbersBeyondADouble) {
  expect_parts(message_of([] { parse_json("[1e999]", "huge.json"); }),
               {"huge.json", "a number that is too large"});
}

TEST(Json, NamesAreShortAndHoldNoControlCharacters) {
  const auto error_of_name = [](const std::string& name) {
    Json json = layout_json();
    json["schedule"] = name;
    return message_of([&] { from_json<Layout>(json, "plan.json"); });
  };
  for (const char* name : {"a\nb", "a\r", "\x1b[2J", "\x7f", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xae"}) {
    const std::string error = error_of_name(name);
    expect_parts(error, {"plan.json at /schedule", "without control characters"});
    EXPECT_EQ(error.find(name), std::string::npos);
  }
  EXPECT_EQ(error_of_name(std::string(kMostNameBytes, 'x')), "no error");
  expect_parts(error_of_name(std::string(kMostNameBytes + 1, 'x')), {"/schedule", "at most 200 bytes"});
  const Json keys = Json::parse(R"({"a\nb": "x"})");
  EXPECT_THROW((from_json<std::map<std::string, std::string>>(keys, "f")), UserError);
}

TEST(Json, BytesThatAreNoUtf8CanBeWritten) {
  EXPECT_EQ(json_text(Json{{"name", "a\xff"}}), "{\"name\":\"a\xef\xbf\xbd\"}");
}

TEST(Json, BadUtf8AndBareValuesAreErrorsNotCrashes) {
  EXPECT_THROW(parse_json("\"\xff\xfe\"", "f"), UserError);
  EXPECT_THROW(from_json<Layout>(Json(3), "f"), UserError);
  EXPECT_THROW(from_json<Layout>(Json::array(), "f"), UserError);
}

TEST(Json, MissingFileFolderAndOversizeAreUserErrors) {
  const std::string folder = testing::TempDir();
  expect_parts(message_of([] { load_json("/no/such/file.json"); }), {"/no/such/file.json", "cannot be read"});
  expect_parts(message_of([&] { load_json(folder); }), {"is a folder"});
  const std::string file = folder + "/large.json";
  std::ofstream(file) << std::string(2000, ' ');
  expect_parts(message_of([&] { load_json(file, 1000); }), {"larger than"});
}

TEST(Json, AtomicWriteReplacesAndRefusesMissingFolders) {
  const std::string file = testing::TempDir() + "/atomic.json";
  write_file_atomically(file, "one");
  write_file_atomically(file, "two");
  EXPECT_EQ(read_file(file), "two");
  EXPECT_THROW(write_file_atomically("/no/such/folder/x.json", "x"), UserError);
}

TEST(Json, AtomicWriteKeepsPermissionsAndTakesLongNames) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "kept";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::string own = (folder / "own").string(), longest = (folder / std::string(255, 'n')).string();
  write_file_atomically(own, "one");
  ASSERT_EQ(::chmod(own.c_str(), 0600), 0);
  write_file_atomically(own, "two");
  struct stat status {};
  ASSERT_EQ(::stat(own.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
  check_writable(longest, "--output");
  write_file_atomically(longest, "long");
  EXPECT_EQ(read_file(longest), "long");
  EXPECT_THROW(check_writable(folder / std::string(256, 'n'), "--output"), UserError);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
}

// Who else writes in the folder may have planted a link under the name that is written first.
TEST(Json, AtomicWriteFollowsNoLinkThatCouldBeForeseen) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "planted";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::string precious = (folder / "precious").string(), file = (folder / "plan.json").string();
  write_file_atomically(precious, "kept");
  std::filesystem::create_symlink("precious", fmt::format("{}.tmp.{}", file, ::getpid()));
  check_writable(file, "--output");
  write_file_atomically(file, "written");
  EXPECT_EQ(read_file(precious), "kept");
  EXPECT_EQ(read_file(file), "written");
}

// A rename would put a regular file where the pipe was, and as root even where /dev/null is.
TEST(Json, AtomicWriteLeavesPipesAndLinksInPlace) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "in_place";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::string pipe = (folder / "pipe").string(), link = (folder / "link").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_file_atomically(pipe, "through");
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 7);
  ::close(reader);
  EXPECT_STREQ(text, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));

  const std::string file = (folder / "file").string();
  write_file_atomically(file, "before");
  std::filesystem::create_symlink("file", link);
  write_file_atomically(link, "after");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(file), "after");

  // As /dev/stdout leads to an open file that is already deleted.
  const int open_file = ::open((folder / "gone").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(open_file, 0);
  const std::string to_open = (folder / "to_open").string();
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(open_file), to_open);
  std::filesystem::remove(folder / "gone");
  write_file_atomically(to_open, "nameless");
  EXPECT_TRUE(std::filesystem::is_symlink(to_open));
  char nameless[16] = {};
  EXPECT_EQ(::pread(open_file, nameless, sizeof nameless, 0), 8);
  EXPECT_STREQ(nameless, "nameless");
  ::close(open_file);
}

TEST(Json, CheckWritableNamesTheOptionAndLeavesNothing) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "check_writable";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  check_writable(folder / "x.json", "--output");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  expect_parts(message_of([&] { check_writable(folder, "--output"); }), {"--output", "folder"});
  expect_parts(message_of([&] { check_writable(folder / "no" / "x.json", "--output"); }),
               {"--output", "cannot be written"});
  expect_parts(message_of([] { check_writable("/proc/x.json", "--output"); }), {"cannot be written"});
}

}  // namespace
}  // namespace mpt
