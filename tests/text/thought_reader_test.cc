// The parts of answers: tags that are control tokens, messages in channels, names of channels, tags
// around answers, and closing tags that nothing opened.
#include "minisgl/text/thought_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl {
namespace {

// In the cases `~` stands for kControlMark.
std::string Marked(std::string_view text) {
  std::string marked(text);
  std::replace(marked.begin(), marked.end(), '~', kControlMark);
  return marked;
}

struct Form {
  ThoughtTags tags;
  bool starts_inside = false, is_closed = false;
};

Form Control(bool starts_inside = false) {
  return {{Marked("~[T]"), Marked("~[/T]"), "", "", "", "", false}, starts_inside};
}

Form Named(bool starts_inside = false) {
  return {{Marked("~<|c>"), Marked("~<c|>"), "", "thought", "", "", false}, starts_inside};
}

Form Wrapped() { return {{"<t>", "</t>", "<r>", "", "<r>", "</r>", false}}; }

Form Channels(bool starts_inside = false) {
  Form form{{"", "", "", "", "", "", true}, starts_inside};
  return form;
}

struct ReadCase {
  Form form;
  std::string answer, reasoning, text;
};

const std::string kC = "~<|channel|>", kM = "~<|message|>", kE = "~<|end|>", kS = "~<|start|>",
                  kK = "~<|constrain|>";
const std::string kSays = kS + "assistant" + kC;

std::vector<ReadCase> ReadCases() {
  return {
      {Control(), "~[T]why~[/T]so", "why", "so"},
      {Control(), " ~[T]\nwhy\n~[/T]\n\nso", "why", "so"},
      {Control(), "[T]why[/T]so", "", "[T]why[/T]so"},
      {Control(), "~[T]why [/T] is~[/T]so", "why [/T] is", "so"},
      {Control(), "~[T]a~[/T]b~[T] c~[/T]d", "a\n\nc", "bd"},
      {Control(), "~[T]a~[/T]b~[/T]c", "a", "bc"},
      {Control(true), "why~[/T]so", "why", "so"},
      {Control(true), "~[T]why~[/T]so", "why", "so"},
      {Named(), "~<|c>thought\nTwo.\n~<c|>Four.", "Two.", "Four."},
      {Named(), "~<|c>thought\n~<c|>Four.", "", "Four."},
      {Named(), "~<|c>thoughts~<c|>Four.", "s", "Four."},
      {Named(), "~<|c>think~<c|>Four.", "think", "Four."},
      {Named(), "~<|c>thou", "thou", ""},
      {Named(true), "thought\nTwo.~<c|>Four.", "Two.", "Four."},
      {Named(true), "\nTwo.~<c|>Four.", "Two.", "Four."},
      {Named(), "One.~<|c>thought\nTwo.~<c|>Four.", "Two.", "One.Four."},
      {Named(), "~<|c>thought\n~<c|>~<|c>thought\nTwo.~<c|>Four.", "Two.", "Four."},
      {Wrapped(), "<t>why</t>\n<r>\nso\n</r>\n", "why", "so"},
      {Wrapped(), "<t>why</t>so </r> it", "why", "so </r> it"},
      {Wrapped(), "<r>so</r>", "", "so"},
      {Wrapped(), "<t></t><r>a </r b</r>", "", "a </r b"},
      {Wrapped(), "<t>why</t><r>cut \n</", "why", "cut \n</"},
      {Channels(), kC + "final" + kM + "so", "", "so"},
      {Channels(), kC + "final " + kK + "json" + kM + "{}", "", "{}"},
      {Channels(), kC + "final" + kK + "json" + kM + "\n{}", "", "{}"},
      {Channels(), kC + "analysis" + kM + "why" + kE + kSays + "final" + kM + "so", "why", "so"},
      {Channels(), kC + "analysis" + kM + "why" + kSays + "final" + kM + "so", "why", "so"},
      {Channels(), kC + "analysis" + kM + "why" + kC + "final" + kM + "so", "why", "so"},
      {Channels(),
       kC + "analysis" + kM + "why" + kE + kSays + "commentary" + kM + "I look." + kE + kSays +
           "final" + kM + "so",
       "why\n\nI look.", "so"},
      {Channels(), kC + "finally" + kM + "why" + kE + kSays + "final" + kM + "so", "why", "so"},
      {Channels(),
       kC + "analysis" + kM + "<|start|>assistant<|channel|>final<|message|>" + kE + kSays +
           "final" + kM + "so",
       "<|start|>assistant<|channel|>final<|message|>", "so"},
      {Channels(), kC + "commentary to=f " + kK + "json" + kM + "{}", "",
       "<|channel|>commentary to=f <|constrain|>json<|message|>{}"},
      {Channels(), kC + "analysis" + kM + "why" + kE + kSays + "commentary to=f" + kM + "{}", "why",
       "<|channel|>commentary to=f<|message|>{}"},
      {Channels(), " to=f" + kC + "commentary" + kM + "{}", "",
       " to=f<|channel|>commentary<|message|>{}"},
      {Channels(), "to be", "", "to be"},
      {Channels(), " \nso", "", " \nso"},
      {Channels(), kM + "so", "", "so"},
      {Channels(), kC + "analysis" + kM + "why" + kE, "why", ""},
      {Channels(), kC + "analysis" + kM + "why" + kE + kSays + "fin", "why", ""},
      {Channels(), kC + "analysis" + kM + "why" + kE + "\nso", "why", "\nso"},
      {Channels(true), "why" + kE + kSays + "final" + kM + "so", "why", "so"},
      {Channels(true), kE + kSays + "final" + kM + "so", "", "so"},
  };
}

// The pieces of an answer that comes in these parts.
ReasoningPiece ReadInParts(const Form& form, const std::vector<std::string>& parts) {
  ThoughtReader reader(form.tags, form.starts_inside, form.is_closed);
  PieceMaker maker;
  ReasoningPiece whole;
  const auto take = [&](const std::vector<AnswerPart>& decided) {
    for (const AnswerPart& part : decided) {
      const ReasoningPiece piece = maker.Push(part.text, {{part.kind, part.text.size()}});
      whole.reasoning += piece.reasoning;
      whole.text += piece.text;
    }
  };
  for (const std::string& part : parts) take(reader.Push(part));
  take(reader.Finish());
  return whole;
}

// A control token comes whole, other bytes one by one.
std::vector<std::string> SmallestParts(const std::string& marked) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < marked.size();) {
    size_t size = 1;
    if (marked[at] == kControlMark) size = marked.find_first_of(">]", at) + 1 - at;
    parts.push_back(marked.substr(at, size));
    at += size;
  }
  return parts;
}

TEST(ThoughtReaderTest, DividesAnswersHoweverTheyCome) {
  for (const ReadCase& c : ReadCases()) {
    const std::string marked = Marked(c.answer);
    const std::vector<std::string> parts = SmallestParts(marked);
    for (size_t cut = 0; cut <= parts.size(); ++cut) {
      std::string head, tail;
      for (size_t i = 0; i < parts.size(); ++i) (i < cut ? head : tail) += parts[i];
      const ReasoningPiece piece = ReadInParts(c.form, {head, tail});
      ASSERT_EQ(piece.reasoning, c.reasoning) << c.answer << " cut at " << cut;
      ASSERT_EQ(piece.text, c.text) << c.answer << " cut at " << cut;
    }
    const ReasoningPiece piece = ReadInParts(c.form, parts);
    EXPECT_EQ(piece.reasoning, c.reasoning) << c.answer;
    EXPECT_EQ(piece.text, c.text) << c.answer;
  }
}

// All parts together are the text of the tokens.
TEST(ThoughtReaderTest, LosesNothing) {
  for (const ReadCase& c : ReadCases()) {
    ThoughtReader reader(c.form.tags, c.form.starts_inside, c.form.is_closed);
    std::string all, plain = c.answer;
    std::erase(plain, '~');
    for (const AnswerPart& part : reader.Push(Marked(c.answer))) all += part.text;
    for (const AnswerPart& part : reader.Finish()) all += part.text;
    EXPECT_EQ(all, plain);
  }
}

struct BareCase {
  Form form;
  std::string before, reasoning, text;
};

// The token of the closing tag makes reasoning of all before it, unless a tag was opened or closed.
TEST(ThoughtReaderTest, ABareClosingTokenEndsAThought) {
  const Form words{{"<t>", "</t>", "", "", "", "", false}};
  Form closed = words, inside = words;
  closed.is_closed = true;
  inside.starts_inside = true;
  for (const BareCase& c :
       {BareCase{words, "why\n", "why", "so"}, BareCase{words, "", "", "so"},
        BareCase{words, " \n", "", "so"}, BareCase{words, " <", "<", "so"},
        BareCase{inside, "why", "why", "so"}, BareCase{words, "<t>why", "why", "so"},
        BareCase{words, "<t>a</t>b", "a", "b</t>\n\nso"},
        BareCase{closed, "why", "", "why</t>\n\nso"}}) {
    ThoughtReader reader(c.form.tags, c.form.starts_inside, c.form.is_closed);
    std::string text;
    TextParts parts;
    const auto take = [&](const std::vector<AnswerPart>& decided) {
      for (const AnswerPart& part : decided) {
        text += part.text;
        AddPart(part.kind, part.text.size(), &parts);
      }
    };
    take(reader.Push(c.before));
    take(reader.PushClose("</t>"));
    take(reader.Push("\n\nso"));
    take(reader.Finish());
    const ReasoningPiece piece = SplitParts(text, parts);
    EXPECT_EQ(piece.reasoning, c.reasoning) << c.before;
    EXPECT_EQ(piece.text, c.text) << c.before;
  }
}

TEST(AnswerPartsTest, TheRestBehindSomeBytes) {
  const TextParts parts = {{PartKind::kTag, 2}, {PartKind::kThought, 3}, {PartKind::kText, 1}};
  EXPECT_EQ(PartsFrom(parts, 0), parts);
  EXPECT_EQ(PartsFrom(parts, 2), (TextParts{{PartKind::kThought, 3}, {PartKind::kText, 1}}));
  EXPECT_EQ(PartsFrom(parts, 4), (TextParts{{PartKind::kThought, 1}, {PartKind::kText, 1}}));
  EXPECT_EQ(PartsFrom(parts, 9), TextParts());
}

}  // namespace
}  // namespace minisgl
