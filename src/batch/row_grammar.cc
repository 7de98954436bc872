#include "batch/row_grammar.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "batch/row_text.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/json_schema.h"

namespace minisgl::batch {
namespace {

constexpr std::string_view kCompactField = "disable_any_whitespace";
// Members of structured_outputs that ask for what happens anyway if they are false.
constexpr std::array<std::string_view, 3> kOffByDefault = {
    kCompactField, "disable_additional_properties", "disable_fallback"};

bool FailAt(const std::string& field, const std::string& what, RowDraft* draft) {
  draft->detail_field = field;
  draft->detail = field + " " + what;
  return false;
}

bool FailValue(const std::string& field, const char* must_be, const Json& found, RowDraft* draft) {
  return FailAt(field, fmt::format("must be {} (found {})", must_be, Visible(found.Dump(), 60)),
                draft);
}

// Gives the draft the grammar of `field`, unless it has one.
bool SetGrammar(const std::string& field, GrammarText grammar, RowDraft* draft) {
  if (draft->grammar) {
    return FailAt(field,
                  fmt::format("and {} both say what the answer must be; give one of them",
                              draft->row.grammar_field),
                  draft);
  }
  draft->row.grammar_field = field;
  draft->grammar = std::move(grammar);
  return true;
}

// A schema is an object or a boolean, or the text of one if `or_text`.
bool SetSchema(const std::string& field, const Json& value, bool or_text, RowDraft* draft) {
  GrammarText grammar{GrammarKind::kJsonSchema, "", {}};
  if (value.is_object() || value.is_bool()) {
    if (!SetGrammar(field, std::move(grammar), draft)) return false;
    draft->schema_path = field;
    return true;
  }
  if (!or_text || !value.is_string()) {
    return FailValue(field,
                     or_text ? "a JSON schema: an object, a boolean, or a string that holds one"
                             : "a JSON schema: an object or a boolean",
                     value, draft);
  }
  const Result<Json> schema = ParseJson(value.as_string(), {.memory_max = kRowJsonMemoryMax});
  if (!schema.ok()) {
    return FailAt(field, fmt::format("is a string, but no JSON: {}", schema.status().message()),
                  draft);
  }
  if (!schema->is_object() && !schema->is_bool()) {
    return FailValue(field, "a JSON schema: an object or a boolean", *schema, draft);
  }
  grammar.text = value.as_string();
  return SetGrammar(field, std::move(grammar), draft);
}

bool SetText(GrammarKind kind, const std::string& field, Json* value, RowDraft* draft) {
  if (!value->is_string()) return FailValue(field, "a string", *value, draft);
  return SetGrammar(field, {kind, std::move(value->as_string()), {}}, draft);
}

bool SetChoices(const std::string& field, Json* value, RowDraft* draft) {
  constexpr const char* kExpected = "an array of one string or more";
  if (!value->is_array() || value->as_array().empty()) {
    return FailValue(field, kExpected, *value, draft);
  }
  GrammarText grammar{GrammarKind::kChoice, "", {}};
  for (Json& choice : value->as_array()) {
    if (!choice.is_string()) return FailValue(field, kExpected, choice, draft);
    grammar.choices.push_back(std::move(choice.as_string()));
  }
  return SetGrammar(field, std::move(grammar), draft);
}

bool CheckType(const std::string& field, const char* must_be, const Json& value, bool is_right,
               RowDraft* draft) {
  return value.is_null() || is_right || FailValue(field, must_be, value, draft);
}

// The json_schema of a response_format. `strict` changes nothing: a schema is always enforced.
bool TakeNamedSchema(const std::string& field, const Json& value, RowDraft* draft) {
  if (!value.is_object()) return FailValue(field, "an object with a schema", value, draft);
  for (const auto& [key, member] : value.as_object()) {
    const std::string name = field + "." + Visible(key);
    bool ok = true;
    if (key == "name" || key == "description") {
      ok = CheckType(name, "a string", member, member.is_string(), draft);
    } else if (key == "strict") {
      ok = CheckType(name, "true or false", member, member.is_bool(), draft);
    } else if (key != "schema") {
      draft->unknown.push_back({name, "json_schema"});
    }
    if (!ok) return false;
  }
  const Json* const schema = value.Find("schema");
  if (schema == nullptr || schema->is_null()) return FailAt(field + ".schema", "is missing", draft);
  return SetSchema(field + ".schema", *schema, /*or_text=*/false, draft);
}

// False for a member that is none of those of structured_outputs; else sets *ok.
bool TakeStructuredMember(const std::string& field, const std::string& key, Json* member,
                          RowDraft* draft, bool* ok) {
  const std::string name = field + "." + Visible(key);
  if (key == "json") {
    *ok = SetSchema(name, *member, /*or_text=*/true, draft);
  } else if (key == "regex") {
    *ok = SetText(GrammarKind::kRegularExpression, name, member, draft);
  } else if (key == "grammar") {
    *ok = SetText(GrammarKind::kGbnf, name, member, draft);
  } else if (key == "choice") {
    *ok = SetChoices(name, member, draft);
  } else if (key == "json_object") {
    *ok = CheckType(name, "true or false", *member, member->is_bool(), draft);
    if (*ok && *member == Json(true)) {
      *ok = SetGrammar(name, {GrammarKind::kJsonObject, "", {}}, draft);
    }
  } else {
    return *member == Json(false) &&
           std::find(kOffByDefault.begin(), kOffByDefault.end(), key) != kOffByDefault.end();
  }
  return true;
}

}  // namespace

bool TakeResponseFormat(Json& value, RowDraft* draft) {
  const std::string field = draft->detail_field;
  const Json* const type = value.Find("type");
  const bool is_text = type != nullptr && *type == Json("text");
  const bool is_object = type != nullptr && *type == Json("json_object");
  const bool is_schema = type != nullptr && *type == Json("json_schema");
  if (!is_text && !is_object && !is_schema) {
    if (type == nullptr) return FailAt(field + ".type", "is missing", draft);
    return FailValue(field + ".type", "text, json_object or json_schema", *type, draft);
  }
  for (const auto& [key, member] : value.as_object()) {
    if (key == "type" || member.is_null() || (is_schema && key == "json_schema")) continue;
    draft->unknown.push_back({field + "." + Visible(key), "a response_format of this type"});
  }
  draft->any_text = is_text;
  if (is_object) return SetGrammar(field, {GrammarKind::kJsonObject, "", {}}, draft);
  if (!is_schema) return true;
  const Json* const schema = value.Find("json_schema");
  if (schema == nullptr) return FailAt(field + ".json_schema", "is missing", draft);
  return TakeNamedSchema(field + ".json_schema", *schema, draft);
}

bool TakeStructuredOutputs(Json& value, RowDraft* draft) {
  const std::string field = draft->detail_field;
  const bool had_grammar = draft->grammar.has_value();
  const auto is_given = [&value](std::string_view name) {
    const Json* const member = value.Find(name);
    return member != nullptr && !member->is_null() && *member != Json(false);
  };
  const Json* const compact = value.Find(kCompactField);
  draft->compact_json =
      compact != nullptr && *compact == Json(true) && (is_given("json") || is_given("json_object"));
  for (auto& [key, member] : value.as_object()) {
    if (member.is_null() || (draft->compact_json && key == kCompactField)) continue;
    bool ok = true;
    if (!TakeStructuredMember(field, key, &member, draft, &ok)) {
      draft->unknown.push_back({field + "." + Visible(key), "structured_outputs"});
    }
    if (!ok) return false;
  }
  if (draft->grammar.has_value() != had_grammar || !draft->unknown.empty()) return true;
  return FailAt(
      field, "must have exactly one of json, regex, choice, grammar and json_object (found none)",
      draft);
}

bool TakeGuidedJson(Json& value, RowDraft* draft) {
  return SetSchema(std::string(draft->detail_field), value, /*or_text=*/true, draft);
}

bool TakeGuidedRegex(Json& value, RowDraft* draft) {
  return SetText(GrammarKind::kRegularExpression, std::string(draft->detail_field), &value, draft);
}

bool TakeGuidedChoice(Json& value, RowDraft* draft) {
  return SetChoices(std::string(draft->detail_field), &value, draft);
}

bool TakeGuidedGrammar(Json& value, RowDraft* draft) {
  return SetText(GrammarKind::kGbnf, std::string(draft->detail_field), &value, draft);
}

void FinishGrammar(std::string_view text, RowDraft* draft) {
  if (draft->grammar) {
    if (!draft->schema_path.empty()) {
      const char* const body = IsBatchFormat(draft->row.format) ? "body." : "";
      draft->grammar->text = RawValue(text, body + draft->schema_path);
    }
    if (draft->compact_json) {
      if (draft->grammar->kind == GrammarKind::kJsonObject) {
        draft->grammar = {GrammarKind::kJsonSchema, R"({"type":"object"})", {}};
      }
      draft->grammar->text = CompactJsonSchema(std::move(draft->grammar->text));
    }
    draft->row.grammar =
        load::AnswerGrammar{std::make_shared<const GrammarText>(std::move(*draft->grammar)), ""};
  } else if (draft->any_text) {
    draft->row.grammar = load::AnswerGrammar();
  }
}

}  // namespace minisgl::batch
