// SPDX-License-Identifier: Apache-2.0
#pragma once

// JSON Schemas (draft 2020-12) out of field lists: those in docs/ are kept by tests.

#include <string>

#include "base/json.h"

namespace mpt {

/// Visitor that writes a JSON Schema object from the field list of T.
template <class T>
class SchemaWriter {
 public:
  template <class Member>
  void field(const char* name, Member, const char* doc, FieldRule rule = {}) {
    using M = FieldType<T, Member>;
    Json schema = schema_of<M>(rule);
    schema["description"] = doc;
    properties_[name] = std::move(schema);
    if (rule.required && !is_a<M, std::optional>) required_.push_back(name);
  }

  static Json object() {
    SchemaWriter writer;
    T::describe(writer);
    return Json{{"type", "object"},
                {"additionalProperties", false},
                {"properties", std::move(writer.properties_)},
                {"required", std::move(writer.required_)}};
  }

 private:
  template <class M>
  static Json schema_of(const FieldRule& rule) {
    if constexpr (std::is_same_v<M, bool>) {
      return {{"type", "boolean"}};
    } else if constexpr (std::is_arithmetic_v<M>) {
      Json schema{{"type", std::is_integral_v<M> ? "integer" : "number"}};
      if (std::isfinite(rule.minimum)) schema["minimum"] = rule.minimum;
      if (std::isfinite(rule.maximum)) schema["maximum"] = rule.maximum;
      return schema;
    } else if constexpr (std::is_same_v<M, std::string>) {
      return {{"type", "string"}};
    } else if constexpr (std::is_enum_v<M>) {
      return {{"enum", enum_names<M>()}};
    } else if constexpr (is_a<M, std::optional>) {
      return schema_of<typename M::value_type>(rule);
    } else if constexpr (is_a<M, NameOr>) {
      return {{"oneOf", {Json{{"type", "string"}}, schema_of<decltype(M::value)>(rule)}}};
    } else if constexpr (is_a<M, std::vector>) {
      return {{"type", "array"}, {"items", schema_of<typename M::value_type>(rule)}};
    } else if constexpr (is_a<M, std::map>) {
      return {{"type", "object"}, {"additionalProperties", schema_of<typename M::mapped_type>(rule)}};
    } else {
      return SchemaWriter<M>::object();
    }
  }

  Json properties_ = Json::object();
  Json required_ = Json::array();
};

/// The schema of a described struct, as text.
template <class T>
std::string schema_text(const char* title) {
  Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  schema.update(SchemaWriter<T>::object());
  return schema.dump(2) + "\n";
}

}  // namespace mpt
