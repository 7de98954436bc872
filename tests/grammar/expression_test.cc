// Expressions against a matcher that tries every way to divide the text.
#include "minisgl/grammar/expression.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

// An expression as a tree, and its meaning by definition.
struct Tree {
  enum Kind { kByte, kEmpty, kConcat, kOr, kAnd, kNot, kRepeat } kind = kEmpty;
  std::string bytes;
  std::vector<std::unique_ptr<Tree>> parts;
  uint32_t min = 0, max = 0;
};

bool MatchesTree(const Tree& tree, std::string_view text);

bool MatchesRepeat(const Tree& tree, std::string_view text, uint32_t min, uint32_t max) {
  if (text.empty() && (min == 0 || MatchesTree(*tree.parts[0], ""))) return true;
  if (max == 0) return false;
  for (size_t cut = 1; cut <= text.size(); ++cut) {
    if (MatchesTree(*tree.parts[0], text.substr(0, cut)) &&
        MatchesRepeat(tree, text.substr(cut), min == 0 ? 0 : min - 1,
                      max == ExpressionSet::kUnbounded ? max : max - 1)) {
      return true;
    }
  }
  // An empty copy counts, too.
  return min > 0 && MatchesTree(*tree.parts[0], "") && MatchesRepeat(tree, text, 0, max);
}

bool MatchesTree(const Tree& tree, std::string_view text) {
  switch (tree.kind) {
    case Tree::kByte:
      return text.size() == 1 && tree.bytes.find(text[0]) != std::string::npos;
    case Tree::kEmpty:
      return text.empty();
    case Tree::kConcat:
      for (size_t cut = 0; cut <= text.size(); ++cut) {
        if (MatchesTree(*tree.parts[0], text.substr(0, cut)) &&
            MatchesTree(*tree.parts[1], text.substr(cut))) {
          return true;
        }
      }
      return false;
    case Tree::kOr:
      return MatchesTree(*tree.parts[0], text) || MatchesTree(*tree.parts[1], text);
    case Tree::kAnd:
      return MatchesTree(*tree.parts[0], text) && MatchesTree(*tree.parts[1], text);
    case Tree::kNot:
      return !MatchesTree(*tree.parts[0], text);
    case Tree::kRepeat:
      return MatchesRepeat(tree, text, tree.min, tree.max);
  }
  return false;
}

std::unique_ptr<Tree> RandomTree(std::mt19937* random, int depth) {
  auto tree = std::make_unique<Tree>();
  const uint32_t choice = (*random)() % (depth == 0 ? 5 : 16);
  if (choice < 4) {
    tree->kind = Tree::kByte;
    for (const char byte : std::string("abc")) {
      if ((*random)() % 2 == 0) tree->bytes.push_back(byte);
    }
    if (tree->bytes.empty()) tree->bytes = "a";
    return tree;
  }
  if (choice == 4) return tree;
  tree->kind = choice < 9    ? Tree::kConcat
               : choice < 11 ? Tree::kOr
               : choice < 12 ? Tree::kAnd
               : choice < 13 ? Tree::kNot
                             : Tree::kRepeat;
  const bool binary = tree->kind != Tree::kNot && tree->kind != Tree::kRepeat;
  for (int i = 0; i < (binary ? 2 : 1); ++i) tree->parts.push_back(RandomTree(random, depth - 1));
  if (tree->kind == Tree::kRepeat) {
    tree->min = (*random)() % 4;
    const uint32_t more = (*random)() % 4;
    tree->max = more == 3 ? ExpressionSet::kUnbounded : tree->min + more;
  }
  return tree;
}

ExpressionId Compile(const Tree& tree, ExpressionSet* set) {
  std::vector<ExpressionId> parts;
  for (const auto& part : tree.parts) parts.push_back(Compile(*part, set));
  switch (tree.kind) {
    case Tree::kByte: {
      ByteSet bytes;
      for (const char byte : tree.bytes) bytes.Add(static_cast<uint8_t>(byte));
      return set->Bytes(bytes);
    }
    case Tree::kEmpty:
      return set->Empty();
    case Tree::kConcat:
      return set->Concat(parts);
    case Tree::kOr:
      return set->Or(parts);
    case Tree::kAnd:
      return set->And(parts);
    case Tree::kNot:
      return set->Not(parts[0]);
    case Tree::kRepeat:
      return set->Repeat(parts[0], tree.min, tree.max);
  }
  return set->Nothing();
}

std::vector<std::string> AllTexts(size_t length_max) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() == length_max) continue;
    for (const char byte : std::string("abc")) texts.push_back(texts[i] + byte);
  }
  return texts;
}

TEST(Expressions, RandomOnesMatchWhatTheirDefinitionMatches) {
  const std::vector<std::string> texts = AllTexts(4);
  int num_empty = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    ExpressionSet set;
    // Several in one set, so that byte classes are refined after derivatives were taken.
    for (int i = 0; i < 2; ++i) {
      const auto tree = RandomTree(&random, 3);
      const ExpressionId id = Compile(*tree, &set);
      bool any = false;
      for (const std::string& text : texts) {
        const bool expected = MatchesTree(*tree, text);
        any = any || expected;
        ASSERT_EQ(set.Matches(id, text), expected) << "seed " << seed << " text " << text;
      }
      const auto shortest = set.ShortestText(id);
      ASSERT_TRUE(shortest.ok());
      ASSERT_EQ(shortest->has_value(), any || shortest->has_value());
      if (shortest->has_value()) {
        ASSERT_TRUE(set.Matches(id, **shortest));
      }
      const auto empty = set.IsEmptyLanguage(id);
      ASSERT_TRUE(empty.ok());
      ASSERT_EQ(*empty, !shortest->has_value()) << "seed " << seed;
      num_empty += *empty ? 1 : 0;
    }
    ASSERT_TRUE(set.status().ok());
  }
  EXPECT_GT(num_empty, 20);
}

TEST(Expressions, EqualOnesHaveOneId) {
  ExpressionSet e;
  const ExpressionId a = e.Literal("a");
  const ExpressionId b = e.Literal("b");
  EXPECT_EQ(e.Or({a, b}), e.Bytes(ByteSet::Range('a', 'b')));
  EXPECT_EQ(e.Concat({e.Concat({a, b}), a}), e.Literal("aba"));
  EXPECT_EQ(e.Not(e.Not(a)), a);
  EXPECT_EQ(e.And({a, b}), e.Nothing());
  EXPECT_EQ(e.And({a, e.Anything()}), a);
  EXPECT_EQ(e.Or({a, e.Anything()}), e.Anything());
  EXPECT_EQ(e.Or({e.Repeat(a, 0, 4), e.Repeat(a, 3, 9)}), e.Repeat(a, 0, 9));
  EXPECT_EQ(e.Repeat(e.Repeat(a, 0, 10), 0, 10), e.Repeat(a, 0, 100));
  EXPECT_EQ(e.Repeat(e.Repeat(a, 2, 3), 4, 4), e.Repeat(a, 8, 12));
  EXPECT_NE(e.Repeat(e.Repeat(a, 2, 2), 0, 4), e.Repeat(a, 0, 8));
  EXPECT_EQ(e.Repeat(e.Bytes(ByteSet::All()), 0, ExpressionSet::kUnbounded), e.Anything());
}

TEST(Expressions, CodePointsAreWellFormedUtf8) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    std::vector<CodePointRange> ranges;
    for (int i = 0; i < 4; ++i) {
      const uint32_t scale =
          std::array<uint32_t, 4>{0x100, 0x1000, 0x11000, 0x110000}[random() % 4];
      const uint32_t first = random() % scale;
      ranges.push_back({first, first + static_cast<uint32_t>(random() % scale)});
    }
    const CodePointSet points(ranges);
    ExpressionSet e;
    const ExpressionId id = e.CodePoints(points);
    std::vector<uint32_t> samples = {0,      0x7F,   0x80,   0x7FF,   0x800,
                                     0xD7FF, 0xE000, 0xFFFF, 0x10000, kCodePointMax};
    for (const CodePointRange& range : points.ranges()) {
      for (const uint32_t edge : {range.first, range.last}) {
        for (uint32_t delta = 0; delta < 3; ++delta) samples.push_back(edge + delta - 1);
      }
    }
    for (int i = 0; i < 200; ++i) samples.push_back(random() % (kCodePointMax + 1));
    for (const uint32_t sample : samples) {
      if (sample > kCodePointMax || (sample >= 0xD800 && sample <= 0xDFFF)) continue;
      std::string text;
      AppendUtf8(sample, &text);
      ASSERT_EQ(e.Matches(id, text), points.Contains(sample)) << std::hex << sample;
      ASSERT_FALSE(e.Matches(id, text + "x"));
    }
  }
  ExpressionSet e;
  const ExpressionId all = e.CodePoints(CodePointSet::All());
  for (const char* bad : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE0\x80\x80", "\x80",
                          "\xF8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(e.Matches(all, bad));
  }
}

TEST(Expressions, ManyStringsAreOneTrie) {
  std::mt19937 random(3);
  std::vector<std::string> texts = {"", "a", "ab", "abc"};
  for (int i = 0; i < 50'000; ++i) texts.push_back("row-" + std::to_string(random()));
  ExpressionSet e;
  const ExpressionId id = e.Strings(texts);
  ASSERT_TRUE(e.status().ok());
  EXPECT_LT(e.memory_bytes(), 100u << 20);
  for (size_t i = 0; i < texts.size(); i += 97) EXPECT_TRUE(e.Matches(id, texts[i]));
  for (const char* text : {"b", "abcd", "row-", "row-x"}) EXPECT_FALSE(e.Matches(id, text));
}

TEST(Expressions, ContainmentAndDisjointnessAreDecided) {
  ExpressionSet e;
  const ExpressionId digit = e.Bytes(ByteSet::Range('0', '9'));
  const ExpressionId number = e.Repeat(digit, 1, ExpressionSet::kUnbounded);
  const ExpressionId byte_number = e.Repeat(digit, 1, 3);
  EXPECT_TRUE(*e.IsContained(byte_number, number));
  EXPECT_FALSE(*e.IsContained(number, byte_number));
  EXPECT_TRUE(*e.AreDisjoint(number, e.Literal("x1")));
  EXPECT_FALSE(*e.AreDisjoint(number, e.Strings({"x", "12"})));
  EXPECT_EQ(**e.ShortestText(e.Difference(number, e.Repeat(digit, 0, 2))), "000");
}

TEST(Expressions, LimitsAreErrorsThatStay) {
  ExpressionLimits limits;
  limits.nodes_max = 1000;
  ExpressionSet e(limits);
  e.Literal(std::string(2000, 'x'));
  EXPECT_FALSE(e.status().ok());
  EXPECT_FALSE(e.IsEmptyLanguage(e.Nothing()).ok());

  ExpressionSet deep;
  ExpressionId id = deep.Literal("a");
  for (int i = 0; i < 600; ++i) id = deep.Not(deep.Concat({id, deep.Literal("b")}));
  EXPECT_NE(deep.status().message().find("levels of nesting"), std::string::npos);

  // (a|b)*a(a|b){40} and (a|b)*b(a|b){40} have nothing in common, which 2^40 states would tell.
  ExpressionSet wide;
  const ExpressionId ab = wide.Bytes(ByteSet::Range('a', 'b'));
  const ExpressionId any = wide.Repeat(ab, 0, ExpressionSet::kUnbounded);
  const auto side = [&](const char* letter) {
    return wide.Concat({any, wide.Literal(letter), wide.Repeat(ab, 40, 40)});
  };
  EXPECT_FALSE(wide.AreDisjoint(side("a"), side("b"), 2000).ok());
}

// The multiples of `divisor` in decimal: state r is the remainder so far.
std::shared_ptr<ByteAutomaton> MultiplesOf(uint32_t divisor) {
  auto multiples = std::make_shared<ByteAutomaton>();
  multiples->num_classes = 11;
  multiples->class_of_byte.fill(10);
  for (size_t digit = 0; digit < 10; ++digit) {
    multiples->class_of_byte['0' + digit] = static_cast<uint8_t>(digit);
  }
  for (uint32_t remainder = 0; remainder < divisor; ++remainder) {
    multiples->accepting.push_back(remainder == 0);
    for (uint32_t digit = 0; digit < 10; ++digit) {
      multiples->next.push_back((remainder * 10 + digit) % divisor);
    }
    multiples->next.push_back(ByteAutomaton::kNoState);
  }
  return multiples;
}

TEST(Expressions, AutomataAreExpressions) {
  ExpressionSet e;
  const ExpressionId of77 = e.Automaton(MultiplesOf(77));
  const ExpressionId three = e.Repeat(e.Bytes(ByteSet::Range('0', '9')), 3, 3);
  const ExpressionId both = e.And({e.Concat({e.Literal("1"), of77}), three});
  for (int number = 0; number < 1200; ++number) {
    const std::string text = std::to_string(number);
    EXPECT_EQ(e.Matches(of77, text), number % 77 == 0) << text;
    EXPECT_EQ(e.Matches(e.Not(of77), text), number % 77 != 0) << text;
    EXPECT_EQ(e.Matches(both, text), number == 100 || number == 177) << text;
  }
  EXPECT_FALSE(e.Matches(of77, "7x7"));
  EXPECT_TRUE(*e.IsEmptyLanguage(e.And({of77, e.Literal("78")})));
  EXPECT_FALSE(*e.IsEmptyLanguage(e.And({of77, e.Literal("154")})));
}

TEST(Expressions, StatesWithoutAnEndAreNothing) {
  // a, then one of "x" or a loop of b that never ends.
  auto trap = std::make_shared<ByteAutomaton>();
  trap->num_classes = 4;
  for (uint8_t letter : {0, 1, 2}) trap->class_of_byte["abx"[letter]] = letter;
  trap->class_of_byte['y'] = 3;
  const uint32_t none = ByteAutomaton::kNoState;
  trap->next = {1, none, none, none, none, 2, 3, none, none, 2, none, none, none, none, none, none};
  trap->accepting = {false, false, false, true};
  ExpressionSet e;
  const ExpressionId id = e.Automaton(trap);
  EXPECT_TRUE(e.Matches(id, "ax"));
  EXPECT_EQ(e.Derivative(e.Derivative(id, 'a'), 'b'), e.Nothing());
  trap = std::make_shared<ByteAutomaton>(*trap);
  trap->accepting[3] = false;
  EXPECT_EQ(e.Automaton(trap), e.Nothing());
}

// The search goes where the nearest end may be: the states between would be thousands.
TEST(Expressions, MultiplesWithinALengthAreFoundSoon) {
  ExpressionSet e;
  const ExpressionId digit = e.Bytes(ByteSet::Range('0', '9'));
  const ExpressionId number = e.And({e.Repeat(digit, 1, 64), e.Automaton(MultiplesOf(9973))});
  const ExpressionId part = e.Derivative(e.Derivative(number, '7'), '1');
  const auto empty = e.IsEmptyLanguage(part, 100);
  ASSERT_TRUE(empty.ok()) << empty.status().message();
  EXPECT_FALSE(*empty);
  EXPECT_LT(e.size(), 1000u);
  // Multiples of 9973 that begin with 71 have four digits or more.
  const ExpressionId three = e.And({part, e.Repeat(digit, 1, 1)});
  EXPECT_TRUE(*e.IsEmptyLanguage(three, 100));
}

// Letters at given distances: which of them are under way makes 2^12 states and more of each.
TEST(Expressions, TextsThatMeetSeveralConditionsAreFoundSoon) {
  ExpressionSet e;
  const ExpressionId letter = e.Bytes(ByteSet::Range('a', 'z'));
  const ExpressionId any = e.Repeat(letter, 0, ExpressionSet::kUnbounded);
  const auto apart = [&](const char* first, uint32_t count, const char* second) {
    return e.Concat(
        {any, e.Literal(first), e.Repeat(letter, count, count), e.Literal(second), any});
  };
  for (const ExpressionId both : {e.And({apart("a", 10, "b"), apart("c", 11, "d")}),
                                  e.And({apart("a", 10, "b"), apart("b", 11, "a"),
                                         e.Not(apart("x", 12, "y")), apart("x", 14, "y")})}) {
    const auto empty = e.IsEmptyLanguage(both, 2000);
    ASSERT_TRUE(empty.ok()) << empty.status().message();
    EXPECT_FALSE(*empty);
  }
}

TEST(Expressions, CountsAreNotUnrolled) {
  ExpressionSet e;
  const ExpressionId letter = e.Bytes(ByteSet::Range('a', 'z'));
  const ExpressionId word = e.Repeat(letter, 10'000, 100'000);
  const size_t before = e.size();
  EXPECT_LT(before, 10u);
  EXPECT_TRUE(e.Matches(word, std::string(10'000, 'q')));
  EXPECT_FALSE(e.Matches(word, std::string(9'999, 'q')));
}

}  // namespace
}  // namespace minisgl
