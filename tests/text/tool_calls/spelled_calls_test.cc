// Whole answers with reasoning, of which tags and marks are spelled; and channels.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "minisgl/text/thought_reader.h"
#include "tool_call_cases.h"

namespace minisgl::spelled_calls {
namespace {

void ExpectSpelled(ToolDialect dialect, const std::string& text, const ToolCallPiece& expected) {
  EXPECT_EQ(Shown(ReadSpelledToolCalls(dialect, Json(), text)), Shown(expected)) << text;
}

const std::string kCall = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
const std::vector<ToolCall> kCalls = {{"f", "{\"a\": 1}", ""}};

TEST(SpelledCallsTest, ReasoningHoldsNoCalls) {
  const auto hermes = ToolDialect::kHermes;
  ExpectSpelled(hermes, "<think>\nI call " + kCall + "\n</think>\n\nOr not.",
                {"I call " + kCall, "Or not.", {}});
  ExpectSpelled(hermes, "<think>\nWhy.\n</think>\n\nSo:\n" + kCall, {"Why.", "So:", kCalls});
  ExpectSpelled(hermes, "<think></think>" + kCall, {"", "", kCalls});
  ExpectSpelled(hermes, "<think>\nI call " + kCall, {"I call " + kCall, "", {}});
  // The prompt has opened the thought.
  ExpectSpelled(hermes, "Why. " + kCall + "\n</think>\n\n" + kCall, {"Why. " + kCall, "", kCalls});
  ExpectSpelled(hermes, "Use <tool_call> tags.\n</think>\nA", {"Use <tool_call> tags.", "A", {}});
  // A tag in an argument ends no thought.
  ExpectSpelled(hermes,
                "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"</think>\"}}</tool_call>",
                {"", "", {{"f", "{\"s\": \"</think>\"}", ""}}});
  ExpectSpelled(hermes, "A <think>x</think>", {"", "A <think>x</think>", {}});
}

TEST(SpelledCallsTest, EachDialectHasItsTags) {
  ExpectSpelled(ToolDialect::kMistral, "[THINK]Why.[/THINK]So[TOOL_CALLS]f[ARGS]{\"a\": 1}",
                {"Why.", "So", kCalls});
  ExpectSpelled(ToolDialect::kGemma4,
                "<|channel>thought\nWhy.\n<channel|><|tool_call>call:f{a:1}<tool_call|>",
                {"Why.", "", kCalls});
  ExpectSpelled(ToolDialect::kGemma4,
                "<|channel>thought\nA<channel|><|tool_call>call:f{a:1}<tool_call|>"
                "<|channel>thought\nB<channel|>So <|tool_call>call:g{s:<|\"|><|channel>x<channel|>"
                "<|\"|>}<tool_call|>",
                {"A\n\nB", "So", {kCalls[0], {"g", "{\"s\": \"<|channel>x<channel|>\"}", ""}}});
  ExpectSpelled(ToolDialect::kGemma4, "<|channel>thought\n<channel|>So", {"", "So", {}});
  ExpectSpelled(ToolDialect::kGranite, "<think>Why.</think><response>So</response>",
                {"Why.", "So", {}});
  ExpectSpelled(ToolDialect::kGranite, "Here is my thought process: Why.\nHere is my response: So",
                {"Why.", "So", {}});
  ExpectSpelled(ToolDialect::kPythonic, "<think>Why [f(a=1)]</think>\n[f(a=1)]",
                {"Why [f(a=1)]", "", kCalls});
}

const std::string kS = "<|start|>assistant", kC = "<|channel|>", kM = "<|message|>";
const std::string kE = "<|end|>", kK = " <|constrain|>json";

TEST(HarmonyTest, MessagesWithARecipientAreCalls) {
  const auto harmony = ToolDialect::kHarmony;
  const std::string thought = kC + "analysis" + kM + "Why." + kE;
  const std::string call = kC + "commentary to=functions.f" + kK + kM + "{\"a\": 1}<|call|>";
  ExpectSpelled(harmony, thought + kS + call, {"Why.", "", kCalls});
  ExpectSpelled(harmony, call, {"", "", kCalls});
  ExpectSpelled(harmony,
                thought + kS + " to=functions.f" + kC + "commentary" + kK + kM + "{\"a\": 1}",
                {"Why.", "", kCalls});
  ExpectSpelled(harmony, " to=functions.f" + kC + "commentary" + kM + "{\"a\": 1}<|call|>",
                {"", "", kCalls});
  ExpectSpelled(harmony, kC + "analysis to=functions.f" + kM + " {\"a\": 1} <|call|>",
                {"", "", kCalls});
  ExpectSpelled(harmony, call + kS + call, {"", "", {kCalls[0], kCalls[0]}});
  ExpectSpelled(harmony, kC + "commentary to=python code" + kM + "print(1)<|call|>",
                {"", "", {{"python", "print(1)", ""}}});
  ExpectSpelled(harmony, kC + "commentary to=functions.f" + kM + "<|call|>",
                {"", "", {{"f", "{}", ""}}});
}

TEST(HarmonyTest, ChannelsAreContentOrReasoning) {
  const auto harmony = ToolDialect::kHarmony;
  const std::string thought = kC + "analysis" + kM + "Why." + kE;
  const std::string final = kC + "final" + kM + "So.";
  ExpectSpelled(harmony, "So.", {"", "So.", {}});
  ExpectSpelled(harmony, thought + kS + final, {"Why.", "So.", {}});
  ExpectSpelled(harmony, final + "<|return|>", {"", "So.", {}});
  ExpectSpelled(harmony, thought + kS + thought + kS + final, {"Why.\n\nWhy.", "So.", {}});
  const std::string call = kC + "commentary to=functions.f" + kM + "{\"a\": 1}<|call|>";
  ExpectSpelled(harmony, thought + kS + kC + "commentary" + kM + "I look.\n" + kE + kS + call,
                {"Why.", "I look.", kCalls});
  ExpectSpelled(harmony, kC + "commentary" + kM + "I look." + kE + kS + call + kS + final,
                {"", "I look.\nSo.", kCalls});
  ExpectSpelled(harmony, kC + "analysis" + kM + "I write to=functions.f {}",
                {"I write to=functions.f {}", "", {}});
  ExpectSpelled(harmony, final + " to=functions.f{}", {"", "So. to=functions.f{}", {}});
}

TEST(HarmonyTest, BrokenArgumentsAreGiven) {
  const auto harmony = ToolDialect::kHarmony;
  for (const std::string& arguments :
       {std::string("{\"a\": 1"), std::string("{\"a\": x}"), std::string("Oslo")}) {
    ExpectSpelled(harmony, kC + "commentary to=functions.f" + kM + arguments,
                  {"", "", {{"f", arguments, ""}}});
    ExpectSpelled(harmony, kC + "commentary to=functions.f" + kM + arguments + "<|call|>",
                  {"", "", {{"f", arguments, ""}}});
  }
  const std::string marks = "{\"s\": \"<|call|><|end|><|start|>assistant<|channel|>\"}";
  ExpectSpelled(harmony, kC + "commentary to=functions.f" + kK + kM + marks + "<|call|>",
                {"", "", {{"f", marks, ""}}});
}

// The parts as the runtime says them, in pieces of any size.
TEST(HarmonyTest, PiecesMakeNoDifference) {
  const std::string marked =
      "\xFF" + kC + "analysis\xFF" + kM + "Why.\xFF" + kE + "\xFF" + kS + "\xFF" + kC +
      "commentary\xFF" + kM + "I look.\xFF" + kE + "\xFF" + kS + "\xFF" + kC +
      "commentary to=functions.f \xFF<|constrain|>json\xFF" + kM + "{\"a\": 1}\xFF<|call|>\xFF" +
      kS + "\xFF" + kC + "final\xFF" + kM + "So.";
  ThoughtTags tags;
  tags.in_channels = true;
  ThoughtReader thoughts(tags, false, false);
  std::vector<AnswerPart> parts = thoughts.Push(marked);
  for (AnswerPart& part : thoughts.Finish()) parts.push_back(std::move(part));
  const ToolCallPiece expected{"Why.", "I look.\nSo.", kCalls};
  for (const size_t size : {1000, 7, 1}) {
    ToolCallReader reader(ToolDialect::kHarmony, Json());
    ToolCallPiece whole;
    for (const AnswerPart& part : parts) {
      for (size_t at = 0; at < part.text.size(); at += size) {
        const std::string piece = part.text.substr(at, size);
        Append(reader.Push(piece, {{part.kind, piece.size()}}), &whole);
      }
    }
    Append(reader.Finish(), &whole);
    EXPECT_EQ(Shown(whole), Shown(expected)) << size;
  }
}

TEST(ToolCallReaderTest, PartsThatAreNoTextHoldNoCalls) {
  const std::string thought = "<think>" + kCall + "</think>\n";
  const TextParts parts = {{PartKind::kTag, 7},
                           {PartKind::kThought, kCall.size()},
                           {PartKind::kTag, 8},
                           {PartKind::kSpace, 1},
                           {PartKind::kText, kCall.size()}};
  EXPECT_EQ(Shown(ReadToolCalls(ToolDialect::kHermes, Json(), thought + kCall, parts)),
            Shown({kCall, "", kCalls}));
  const TextParts bare = {{PartKind::kText, kCall.size()}, {PartKind::kBareClose, 8}};
  EXPECT_EQ(Shown(ReadToolCalls(ToolDialect::kHermes, Json(), kCall + "</think>A", bare)),
            Shown({kCall, "A", {}}));
}

TEST(ToolDialectTest, NamesAreFound) {
  for (const ToolDialectName& entry : ToolDialectNames()) {
    EXPECT_EQ(FindToolDialect(entry.name), entry.dialect);
    EXPECT_EQ(NameOf(entry.dialect), entry.name);
  }
  EXPECT_EQ(ToolDialectNames().size(), 15u);
  EXPECT_EQ(FindToolDialect("Hermes"), std::nullopt);
  EXPECT_EQ(FindToolDialect("none"), std::nullopt);
  EXPECT_EQ(NameOf(ToolDialect::kNone), "none");
  EXPECT_TRUE(ListToolDialects().starts_with("hermes, qwen3_coder, "));
  EXPECT_TRUE(ListToolDialects().ends_with("kimi_k2 and minimax_m2"));
}

TEST(ToolDialectTest, WithoutADialectAllIsContent) {
  EXPECT_EQ(Shown(ReadToolCalls(ToolDialect::kNone, Json(), "A " + kCall, {})),
            Shown({"", "A " + kCall, {}}));
}

}  // namespace
}  // namespace minisgl::spelled_calls
