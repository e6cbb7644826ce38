// SPDX-License-Identifier: Apache-2.0
#include "core/json.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/layout.h"
#include "core/model_spec.h"

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
  model.layers = model.hidden = model.vocab = model.max_positions = model.heads = model.kv_heads = 8;
  model.head_dim = model.ffn_hidden = 8;
  model.sliding_window = 128;
  model.latent = LatentAttention{1, 2, 3, 4, 5};
  model.moe = MixtureOfExperts{8, 2, 16, 0, false, false, 1, 2};
  EXPECT_EQ(from_json<ModelSpec>(to_json(model), "f"), model);
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

TEST(Json, RefusesDeepNestingAndDuplicateKeys) {
  expect_parts(message_of([] { parse_json(std::string(100000, '['), "deep.json"); }),
               {"deep.json", "64 levels"});
  expect_parts(message_of([] { parse_json(R"({"a": 1, "a": 2})", "twice.json"); }), {"\"a\" stands twice"});
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
