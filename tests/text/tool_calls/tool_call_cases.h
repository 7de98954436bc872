// Reads answers with calls whole and in pieces, and compares.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl {

inline void Append(ToolCallPiece piece, ToolCallPiece* whole) {
  whole->reasoning += piece.reasoning;
  whole->content += piece.content;
  whole->calls.insert(whole->calls.end(), piece.calls.begin(), piece.calls.end());
}

// Reads `text` without parts, `size` bytes at a time.
inline ToolCallPiece ReadInPieces(ToolDialect dialect, const Json& tools, std::string_view text,
                                  size_t size) {
  ToolCallReader reader(dialect, tools);
  ToolCallPiece whole;
  for (size_t at = 0; at < text.size(); at += size) {
    Append(reader.Push(text.substr(at, size), {}), &whole);
  }
  Append(reader.Finish(), &whole);
  return whole;
}

inline std::string Shown(const ToolCallPiece& piece) {
  std::string shown = "content: " + piece.content + "\n";
  if (!piece.reasoning.empty()) shown += "reasoning: " + piece.reasoning + "\n";
  for (const ToolCall& call : piece.calls) {
    shown += "call: " + call.name + " " + call.arguments;
    if (!call.id.empty()) shown += " id " + call.id;
    shown += "\n";
  }
  return shown;
}

struct ToolCallCase {
  std::string text;
  std::string content;
  std::vector<ToolCall> calls;
};

// Each case, whole, byte by byte and in pieces of 7.
inline void ExpectCalls(ToolDialect dialect, const Json& tools,
                        const std::vector<ToolCallCase>& cases) {
  for (const ToolCallCase& one : cases) {
    const std::string expected = Shown({"", one.content, one.calls});
    EXPECT_EQ(Shown(ReadToolCalls(dialect, tools, one.text, {})), expected) << one.text;
    for (const size_t size : {1, 7}) {
      EXPECT_EQ(Shown(ReadInPieces(dialect, tools, one.text, size)), expected)
          << one.text << "\nin pieces of " << size;
    }
  }
}

// Time is linear: ten times the text takes about ten times the steps, given at once and in pieces.
inline void ExpectLinear(ToolDialect dialect, std::string_view begin, std::string_view unit) {
  const auto steps = [&](size_t bytes, size_t piece) {
    std::string text(begin);
    while (text.size() < bytes) text += unit;
    ToolCallReader reader(dialect, Json());
    for (size_t at = 0; at < text.size(); at += piece) {
      reader.Push(std::string_view(text).substr(at, piece), {});
    }
    reader.Finish();
    return reader.num_steps();
  };
  constexpr size_t kSmall = 10'000, kLarge = 100'000;
  for (const size_t piece : {kLarge * 2, size_t{50}}) {
    const uint64_t small = steps(kSmall, piece), large = steps(kLarge, piece);
    EXPECT_LT(large, 14 * small + kLarge) << unit;
    EXPECT_LT(large, 100 * kLarge) << unit;
  }
}

// The schema of a function that has one parameter of each of these types.
inline Json ToolWithTypes(std::string_view name,
                          const std::vector<std::pair<std::string, Json>>& types) {
  Json properties(Json::Object{}), parameters, function, tool;
  for (const auto& [key, type] : types) {
    Json schema;
    schema.Set("type", type);
    properties.Set(key, std::move(schema));
  }
  parameters.Set("type", "object").Set("properties", std::move(properties));
  function.Set("name", name).Set("parameters", std::move(parameters));
  tool.Set("type", "function").Set("function", std::move(function));
  return tool;
}

}  // namespace minisgl
