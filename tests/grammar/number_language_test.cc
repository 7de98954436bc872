// Ranges of numbers as automata, beside the same numbers as expressions.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/json_schema/number_language.h"

namespace minisgl::grammar {
namespace {

Decimal Number(std::string_view text) {
  Decimal number;
  EXPECT_TRUE(ParseDecimal(text, &number)) << text;
  return number;
}

struct Bounds {
  std::string_view min, max;  // "": none
  bool open_min = false, open_max = false;
};

ExpressionId Between(NumberLanguage* numbers, ExpressionId kind, const Bounds& bounds) {
  if (!bounds.min.empty()) {
    const Decimal min = Number(bounds.min);
    kind = numbers->Both(kind, bounds.open_min ? numbers->MoreThan(min) : numbers->AtLeast(min));
  }
  if (!bounds.max.empty()) {
    const Decimal max = Number(bounds.max);
    kind = numbers->Both(kind, bounds.open_max ? numbers->LessThan(max) : numbers->AtMost(max));
  }
  return kind;
}

bool IsWithin(const Decimal& number, const Bounds& bounds) {
  const int to_min = bounds.min.empty() ? 1 : CompareDecimals(number, Number(bounds.min));
  const int to_max = bounds.max.empty() ? -1 : CompareDecimals(number, Number(bounds.max));
  return to_min >= (bounds.open_min ? 1 : 0) && to_max <= (bounds.open_max ? -1 : 0);
}

// Spellings about the bounds of the cases, and some that are none.
std::vector<std::string> Spellings() {
  std::vector<std::string> texts;
  for (const char* sign : {"", "-"}) {
    for (const char* whole :
         {"0", "1", "3", "4", "5", "6", "7", "15", "16", "99", "100", "120", "1000"}) {
      for (const char* fraction : {"", ".", ".0", ".05", ".050", ".031", ".25", ".2500", ".5",
                                   ".9999", ".00000000000000000001"}) {
        for (const char* exponent : {"", "e", "e0", "E-0", "e1", "e+2", "e-2", "e-3", "e-007",
                                     "e-9", "e39", "e40", "e70", "e306", "e307", "e308", "e-307"}) {
          texts.push_back(std::string(sign) + whole + fraction + exponent);
        }
      }
    }
  }
  texts.push_back("1" + std::string(40, '0'));
  texts.push_back("25" + std::string(62, '0'));
  texts.push_back("1" + std::string(64, '0'));
  return texts;
}

class RangeTest : public testing::TestWithParam<Bounds> {};

TEST_P(RangeTest, HasTheNumbersBetweenItsBounds) {
  const std::vector<std::string> texts = Spellings();
  for (const bool exponents : {true, false}) {
    ExpressionSet set;
    NumberLanguage numbers(set, exponents);
    const ExpressionId all = set.Automaton(AutomatonOf({.exponents = exponents}));
    const ExpressionId any = Between(&numbers, numbers.All(), GetParam());
    const ExpressionId integers = Between(&numbers, numbers.Integers(), GetParam());
    const ExpressionId spelled = Between(&numbers, numbers.IntegerSpellings(), GetParam());
    const std::array terminals = {any == numbers.All() ? all : numbers.Terminal(any),
                                  numbers.Terminal(integers), numbers.Terminal(spelled)};
    for (const std::string& text : texts) {
      Decimal number;
      const bool is_in =
          set.Matches(all, text) && ParseDecimal(text, &number) && IsWithin(number, GetParam());
      const bool is_whole = is_in && number.is_integer();
      const bool is_plain =
          is_whole && text.find_first_of(".eE") == std::string::npos && text != "-0";
      const bool is_long = GetParam().min == "1e306";  // no plain spelling is so long
      ASSERT_EQ(set.Matches(integers, text), is_whole) << text;
      ASSERT_EQ(set.Matches(terminals[0], text), is_in) << text;
      ASSERT_EQ(set.Matches(terminals[1], text), is_long ? is_whole : is_plain) << text;
      ASSERT_EQ(set.Matches(terminals[2], text), is_plain) << text;
    }
  }
}

// The expressions have the texts of the automata.
TEST(NumberLanguageTest, AutomataAreTheExpressions) {
  for (const bool exponents : {true, false}) {
    ExpressionSet set;
    NumberLanguage numbers(set, exponents);
    const Bounds bounds{"-0.31", "15", true};
    const ExpressionId all = numbers.All(), integers = numbers.Integers();
    const ExpressionId all_automaton = set.Automaton(AutomatonOf({.exponents = exponents}));
    const ExpressionId range = Between(&numbers, all, bounds);
    EXPECT_NE(numbers.Terminal(range), range);
    const ExpressionId whole = Between(&numbers, numbers.IntegerSpellings(), bounds);
    const ExpressionId plain = set.Difference(whole, set.Literal("-0"));
    for (const auto& [a, b] : {std::pair(all, all_automaton),
                               {range, numbers.Terminal(range)},
                               {plain, numbers.Terminal(whole)},
                               {plain, numbers.Terminal(Between(&numbers, integers, bounds))}}) {
      for (const ExpressionId rest : {set.Difference(a, b), set.Difference(b, a)}) {
        const auto is_empty = set.IsEmptyLanguage(rest);
        ASSERT_TRUE(is_empty.ok()) << is_empty.status().message();
        EXPECT_TRUE(*is_empty) << exponents;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bounds, RangeTest,
                         testing::Values(Bounds{"", ""}, Bounds{"0", ""}, Bounds{"", "0"},
                                         Bounds{"0", "", true}, Bounds{"", "0", false, true},
                                         Bounds{"4", "15"}, Bounds{"-4", "15", true, true},
                                         Bounds{"-15.25", "-0.031"}, Bounds{"0.05", "0.5", true},
                                         Bounds{"99", "1e3"}, Bounds{"1e-9", "120", true, true},
                                         Bounds{"-1e40", "2.5e70"}, Bounds{"7", "7"},
                                         Bounds{"7", "6"}, Bounds{"1e306", ""}, Bounds{"0", "0"}));

TEST(NumberLanguageTest, AnyNumberHasEverySpelling) {
  ExpressionSet set;
  NumberLanguage numbers(set, true);
  const ExpressionId any = numbers.Terminal(numbers.All());
  for (const char* text : {"0", "-0", "-0.0E+00", "12345.678e-999999", "1E5", "10e7", "0e0"}) {
    EXPECT_TRUE(set.Matches(any, text)) << text;
  }
  for (const char* text :
       {"", "-", "01", "1.", ".5", "1e", "1e+", "+1", "1.e5", "1e1234567", "1-"}) {
    EXPECT_FALSE(set.Matches(any, text)) << text;
  }
  const std::string digits(400, '7');
  EXPECT_TRUE(set.Matches(any, digits + "." + digits));
  EXPECT_FALSE(set.Matches(any, digits + "7"));
  EXPECT_FALSE(set.Matches(any, "0." + digits + "7"));
}

// Ranges beyond the limit of states stay expressions, and cost no more.
TEST(NumberLanguageTest, ManyRangesStayExpressions) {
  ExpressionSet set;
  NumberLanguage numbers(set, true);
  int num_automata = 0;
  for (int i = 1; i <= 2000; ++i) {
    const ExpressionId range = numbers.AtLeast(Number(std::to_string(i)));
    if (numbers.Terminal(range) != range) ++num_automata;
  }
  EXPECT_GT(num_automata, 50);
  EXPECT_LT(num_automata, 1000);
  EXPECT_TRUE(set.status().ok());
}

}  // namespace
}  // namespace minisgl::grammar
