// SPDX-License-Identifier: Apache-2.0
#include "core/plan_request.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "core/layout.h"
#include "tests/support/core_plan.h"
#include "tests/support/golden.h"
#include "tests/support/schema.h"

namespace mpt {
namespace {

PlanRequest from_text(const std::string& text) {
  return from_json<PlanRequest>(parse_json(text, "test"), "test");
}

std::string error_of(const std::string& text) {
  try {
    from_text(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

PlanRequest full_request() {
  PlanRequest r;
  r.model.name = "llama3-8b";
  r.global_batch = 64;
  r.sequence = 8192;
  r.precision = Precision::fp8;
  r.framework = "torchtitan";
  r.cluster.value = test::core_plan("1f1b", 2, 1, 4).cluster;
  r.gpus = 8;
  r.memory = "70GiB";
  r.bounds.tensor = {1, 2};
  r.bounds.offload = {Switch::off};
  r.execution = {"graphs=true"};
  r.overlaps = {"none"};
  r.recompute_modules = {"mlp"};
  r.expert_load = 1.5;
  r.dispatch = Dispatch::once;
  r.memory_margin = "5%";
  r.beyond_framework = true;
  r.threads = 2;
  r.time_limit_s = 10.0;
  r.top = 3;
  r.pareto = true;
  r.layout = Layout{};
  return r;
}

TEST(PlanRequest, ComesBackFromItsText) {
  const PlanRequest request = full_request();
  const PlanRequest again = from_text(request_to_text(request));
  EXPECT_EQ(request_to_text(again), request_to_text(request));
  EXPECT_TRUE(again == request);
  EXPECT_EQ(from_text("{}"), PlanRequest{});
}

TEST(PlanRequest, HoldsOnlyWhatWasSaid) {
  PlanRequest request;
  EXPECT_EQ(request_to_text(request), "{}\n");
  request.model.name = "llama3-8b";
  request.bounds.pipeline = {2};
  EXPECT_EQ(request_to_text(request),
            "{\n \"model\": \"llama3-8b\",\n \"bounds\": {\n  \"pp\": [\n   2\n  ]\n }\n}\n");
}

TEST(PlanRequest, EveryProblemIsNamed) {
  const std::string error =
      error_of(R"({"modle": "x", "global_batch": 0, "bounds": {"zero": [4]}, "precision": "bf61"})");
  for (const char* words : {"/modle", "did you mean \"model\"", "/global_batch", "/bounds/zero/0",
                            "/precision", "did you mean \"bf16\""}) {
    EXPECT_NE(error.find(words), std::string::npos) << words << "\n" << error;
  }
  EXPECT_NE(error_of(R"({"model": 3})").find("a name or an object"), std::string::npos);
  EXPECT_NE(error_of(R"({"model": {"name": "x"}})").find("/model"), std::string::npos);
}

TEST(PlanRequest, SchemaIsTheOneInDocs) {
  test::expect_source_file("docs/request.schema.json", schema_text<PlanRequest>("mpt plan request"));
}

// Visitor that looks for a field's description.
struct DocOf {
  std::string wanted, doc;
  template <class T, class M>
  void field(const char* name, M T::*, const char* text, FieldRule) {
    if (name == wanted) doc = text;
  }
};

TEST(PlanRequest, DescriptionsNameEveryValue) {
  DocOf modules{"recompute_modules", ""};
  PlanRequest::describe(modules);
  for (const RecomputeModule& module : recompute_modules())
    EXPECT_NE(modules.doc.find(module.name), std::string::npos) << module.name;
  DocOf precisions{"precision", ""};
  PlanRequest::describe(precisions);
  for (const std::string& name : enum_names<Precision>())
    EXPECT_NE(precisions.doc.find(name), std::string::npos) << name;
}

// The table of docs/requests.md, one row a field.
struct Rows {
  std::string text, prefix;
  template <class T, class M>
  void field(const char* name, M T::*, const char* doc, FieldRule rule) {
    const std::string option = rule.heading == nullptr ? "" : "`" + std::string("--") + dashed(name) + "`";
    text += "| `" + prefix + name + "` | " + option + " | " + escaped(doc) + " |\n";
  }
  static std::string dashed(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
  }
  static std::string escaped(std::string doc) {
    for (size_t at = 0; (at = doc.find('|', at)) != std::string::npos; at += 2) doc.insert(at, "\\");
    return doc;
  }
};

TEST(PlanRequest, DocumentationHasEveryField) {
  Rows request, bounds{"", "bounds."};
  PlanRequest::describe(request);
  SearchBounds::describe(bounds);
  test::expect_part_of_file("docs/requests.md", "| field | option | meaning |\n| --- | --- | --- |\n",
                            request.text + bounds.text);
}

}  // namespace
}  // namespace mpt
