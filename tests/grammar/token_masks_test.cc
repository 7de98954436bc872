// Masks against a brute force: every token on a copy of the matcher.
#include "minisgl/grammar/token_masks.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <random>

#include "json_grammar.h"
#include "long_form.h"
#include "minisgl/text/tokenizer.h"
#include "random_grammar.h"

namespace minisgl {
namespace {

bool HasBit(const std::vector<uint32_t>& mask, size_t id) {
  return (mask[id / 32] >> (id % 32) & 1) != 0;
}

// Pieces of JSON, words, runs of blanks and digits, cut characters; some spelled twice, some
// control tokens without bytes.
std::vector<std::string> MadeUpVocabulary(size_t size) {
  std::mt19937 random(5);
  std::vector<std::string> tokens = {
      "",   "",   "{",    "}",    "\"",    "{\"",  "\":", "\": \"", "\", \"", "],",
      "[[", "]]", "true", "null", "\\u00", "\\\"", "\\",  "0.",     "1e"};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  const std::vector<std::string> parts = {
      "a",    "b", "the", " ", "  ", "\n",  "1", "23", "\xC3\xA9", "\xE2", "\x82",
      "\xAC", "x", "\"",  ",", ":",  "\\n", "]", "}",  "\xF0\x9F", "-",    "e"};
  while (tokens.size() < size) {
    std::string token;
    for (uint32_t i = 0, end = 1 + random() % 8; i < end; ++i) {
      token += parts[random() % (random() % 3 == 0 ? parts.size() : 9)];
    }
    tokens.push_back(token);
  }
  tokens[7] = tokens[8];
  return tokens;
}

void CheckMask(const TokenMasks& masks, const std::vector<std::string>& tokens, TokenId end,
               const Matcher& matcher) {
  std::vector<uint32_t> mask(masks.num_words());
  const bool any = masks.Fill(matcher, mask);
  bool expected_any = false;
  for (size_t id = 0; id < tokens.size(); ++id) {
    Matcher copy = matcher;
    const bool expected = static_cast<TokenId>(id) == end
                              ? matcher.IsAccepting()
                              : !tokens[id].empty() && copy.Accept(tokens[id]);
    expected_any = expected_any || expected;
    ASSERT_EQ(HasBit(mask, id), expected) << "token " << id << " `" << tokens[id] << "`";
  }
  ASSERT_EQ(any, expected_any);
}

// The mask made in the smallest pieces, while the tables are used, and perhaps rebuilt, between
// them.
std::vector<uint32_t> MaskInPieces(const TokenMasks& masks, const Matcher& matcher) {
  MaskWork work(&masks, matcher);
  Matcher other = matcher;
  for (int piece = 0;; ++piece) {
    int64_t work_left = piece % 3 == 0 ? 40 : 1;
    if (work.GoOn(&work_left, piece % 2 == 0)) break;
    if (piece % 16 == 0) other.Accept(std::string(1, static_cast<char>('a' + piece / 16 % 26)));
  }
  return {work.mask().begin(), work.mask().end()};
}

// Random allowed tokens after `begin`, and the mask at each place.
void RandomWalk(const std::shared_ptr<const CompiledGrammar>& grammar,
                const std::vector<std::string>& tokens, int steps, uint32_t seed,
                const std::string& begin = "") {
  const TokenId end = 1;
  const TokenMasks masks(tokens, std::vector<TokenId>{end});
  const TokenMasks in_pieces(tokens, std::vector<TokenId>{end});  // has masks of its own
  std::mt19937 random(seed);
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.Accept(begin));
  for (int step = 0; step < steps; ++step) {
    const std::vector<uint32_t> pieces = MaskInPieces(in_pieces, matcher);
    ASSERT_NO_FATAL_FAILURE(CheckMask(masks, tokens, end, matcher));
    // The mask again, from the cache.
    ASSERT_NO_FATAL_FAILURE(CheckMask(masks, tokens, end, matcher));
    std::vector<uint32_t> mask(masks.num_words());
    const bool any = masks.Fill(matcher, mask);
    ASSERT_EQ(pieces, mask);
    if (!any) break;
    std::vector<size_t> allowed;
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (HasBit(mask, id) && static_cast<TokenId>(id) != end) allowed.push_back(id);
    }
    if (allowed.empty() || random() % 40 == 0) {
      matcher.RollbackTo(random() % (matcher.num_bytes() + 1));
      matcher.Accept(begin.substr(std::min(matcher.num_bytes(), begin.size())));
      continue;
    }
    ASSERT_TRUE(matcher.Accept(tokens[allowed[random() % allowed.size()]]));
  }
}

TEST(TokenMasks, OfJsonAreThoseOfBruteForce) {
  const std::vector<std::string> tokens = MadeUpVocabulary(3000);
  RandomWalk(JsonGrammar(), tokens, ShortOrLong(40, 100), 1, R"({"a": ["b", )");
  RandomWalk(JsonGrammar(25), tokens, ShortOrLong(40, 100), 2, R"({"a": "b)");
  RandomWalk(JsonGrammar(3), tokens, ShortOrLong(20, 40), 3, R"([")");
}

TEST(TokenMasks, OfAModelsVocabularyAreThoseOfBruteForce) {
  const auto tokenizer = Tokenizer::Load(MINISGL_SOURCE_DIR "/tests/models/wren");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::vector<std::string> tokens;
  for (TokenId id = 0; id < (*tokenizer)->vocab_size(); ++id) {
    tokens.push_back((*tokenizer)->IsSpecial(id) ? "" : (*tokenizer)->PieceBytes(id));
  }
  RandomWalk(JsonGrammar(), tokens, 25, 5, R"({"a": ["the)");
  RandomWalk(JsonGrammar(12), tokens, 25, 6, R"({"a)");
}

TEST(TokenMasks, OfALargeVocabularyAreThoseOfBruteForce) {
  const std::vector<std::string> tokens = MadeUpVocabulary(128'000);
  RandomWalk(JsonGrammar(), tokens, ShortOrLong(2, 6), 7, R"([{"a": "th)");
  RandomWalk(JsonGrammar(45), tokens, ShortOrLong(2, 6), 8, R"([[], "a)");
}

TEST(TokenMasks, OfASchemaAreThoseOfBruteForce) {
  const std::vector<std::string> tokens = MadeUpVocabulary(3000);
  const auto grammar = CompileGrammar({GrammarKind::kJsonSchema,
                                       R"({
    "type": "object", "required": ["the"],
    "properties": {"the": {"type": "string", "maxLength": 12}, "a": {"type": "integer"},
                   "bthe": {"enum": ["a b", "the", 23]}, "b": {"type": "array", "maxItems": 4}}
  })",
                                       {}});
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  for (uint32_t seed = 0; seed < 4; ++seed)
    RandomWalk(*grammar, tokens, ShortOrLong(15, 40), seed, R"({"the":")");
}

// Where most names lead to one place, and some that begin like a property's to others.
TEST(TokenMasks, OfNamesAreThoseOfBruteForce) {
  std::vector<std::string> tokens = MadeUpVocabulary(1200);
  for (const char* text :
       {"the\"", "the\":",  "the\": \"", "the\": 1", "e\": 1",  "x\": 1",    "th\"",
        "thé\"", "the a\"", "f\"",       "xf\"",     "ff\":",   "x\\\"the",  "x\"",
        "xy\"",  "the\n",   "the\xE2",   "t\\u0009", "the\\\"", "the\\\": 1"}) {
    tokens.emplace_back(text);
  }
  for (const char* behind : {"\":", "\"x", "\n"}) tokens.push_back(std::string(38, 'f') + behind);
  const TokenId end = 1;
  const TokenMasks masks(tokens, std::vector<TokenId>{end});
  for (const char* others :
       {R"("additionalProperties": true)", R"("additionalProperties": {"type": "integer"})",
        R"("additionalProperties": {"type": "integer"}, "propertyNames": {"minLength": 2})",
        R"("patternProperties": {"x$": false})", R"("additionalProperties": false)"}) {
    SCOPED_TRACE(others);
    const std::string schema =
        std::string(R"({"type": "object", "properties": {"the": {"type": "string"}, "f": false,
                        "t": {"type": "null"}, "the a\"b": true, "é": true}, )") +
        others + "}";
    const auto grammar = CompileGrammar({GrammarKind::kJsonSchema, schema, {}});
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    for (const char* begin : {"{\"", "{\"t", "{\"the", "{\"x", "{\"the\\", "{\"\xC3"}) {
      SCOPED_TRACE(begin);
      Matcher matcher(*grammar);
      if (!matcher.Accept(begin)) continue;
      ASSERT_NO_FATAL_FAILURE(CheckMask(masks, tokens, end, matcher));
    }
  }
}

// Grammars with the same terminal before different ones: what tokens within it is found once, what
// those behind its end may be is found for each.
TEST(TokenMasks, OfGrammarsWithEqualTerminalsAreThoseOfBruteForce) {
  std::vector<std::string> tokens = {"",    "",     "a", "abc", "abcd", "abcde", "abq",
                                     "abx", "abxx", "q", "x",   "xx",   "Q"};
  const TokenId end = 1;
  const TokenMasks masks(tokens, std::vector<TokenId>{end});
  for (const uint32_t max : {2u, 4u, 2u}) {
    for (const char* behind : {"Q", "q", "xx", "x", "q"}) {
      GrammarBuilder builder;
      ExpressionSet& e = builder.expressions();
      const Symbol word = builder.Terminal(e.Repeat(e.Bytes(ByteSet::Range('a', 'w')), 1, max));
      const Symbol start = builder.Sequence({word, builder.Literal(behind)});
      const auto grammar = CompiledGrammar::Build(std::move(builder), start);
      ASSERT_TRUE(grammar.ok());
      for (const char* begin : {"", "a", "ab"}) {
        Matcher matcher(*grammar);
        ASSERT_TRUE(matcher.Accept(begin));
        ASSERT_NO_FATAL_FAILURE(CheckMask(masks, tokens, end, matcher)) << begin << " " << behind;
      }
    }
  }
}

// The mask of a format's place is found once for two schemas.
TEST(TokenMasks, OfAFormatInTwoSchemasAreThoseOfBruteForce) {
  std::vector<std::string> tokens = MadeUpVocabulary(800);
  for (const char* text : {"https", "://", "ab.the", "the@b", "a@", "2024", "-01", "the/", "?a="})
    tokens.emplace_back(text);
  const TokenId end = 1;
  const TokenMasks masks(tokens, std::vector<TokenId>{end});
  for (const char* key : {"a", "b"}) {
    for (const char* format : {"uri", "email", "date-time"}) {
      const std::string schema = fmt::format(
          R"({{"type": "object", "properties": {{"{}": {{"type": "string", "format": "{}"}}}}}})",
          key, format);
      const auto grammar = CompileGrammar({GrammarKind::kJsonSchema, schema, {}});
      ASSERT_TRUE(grammar.ok()) << grammar.status().message();
      Matcher matcher(*grammar);
      ASSERT_TRUE(matcher.Accept(fmt::format("{{\"{}\": \"", key)));
      ASSERT_NO_FATAL_FAILURE(CheckMask(masks, tokens, end, matcher)) << format;
    }
  }
}

// Strings and classes of which masks are made without a walk, at their limits: tokens of many
// characters, of more than the limit, and with escapes, ends and cut characters behind them.
TEST(TokenMasks, OfRepetitionsAreThoseOfBruteForce) {
  std::vector<std::string> tokens = MadeUpVocabulary(1200);
  for (const size_t count : {9, 31, 32, 33, 40, 41, 60}) {
    for (const char* end : {"", "\"", "\",", "\\n", "\\u0", "\xE2", "\xE2\x80\xA8", "\n", ".x@a"}) {
      tokens.push_back(std::string(count, 'a') + end);
      tokens.push_back("\xC3\xA9" + std::string(count - 1, 'b') + end);
    }
  }
  for (const char* text : {"a-b", "a.b", "ab_", "é/a", "\xE2\x80\xA8", "\xE2\x80\xA9", "x\xE2\x80",
                           "a@b.", "AB1", "b c", "0f", "\\u000A", "\\\\", "/a/b"}) {
    tokens.emplace_back(text);
  }
  const std::vector<const char*> schemas = {
      R"({"maxLength": 5})",
      R"({"maxLength": 40})",
      R"({"maxLength": 300})",
      R"({"minLength": 1})",
      R"({"minLength": 3, "maxLength": 90})",
      R"({"minLength": 1, "maxLength": 33})",
      R"({"pattern": "^[a-z0-9_.-]*$"})",
      R"({"pattern": "^.{2,50}$"})",
      R"({"pattern": "^[^/]+/.*$"})",
      R"({"pattern": "^[ab]{4}-[a-f]{3,}$"})",
      R"({"pattern": "^[a-z ]+$", "maxLength": 20})",
      R"({"pattern": "a", "not": {"enum": ["aa", "ba"]}})",
      R"({"format": "email"})",
      R"({"format": "uri"})",
  };
  uint32_t seed = 20;
  for (const char* schema : schemas) {
    SCOPED_TRACE(schema);
    const std::string text = schema;
    const auto grammar =
        CompileGrammar({GrammarKind::kJsonSchema, R"({"type": "string", )" + text.substr(1), {}});
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    RandomWalk(*grammar, tokens, 12, seed++, "\"");
    RandomWalk(*grammar, tokens, 12, seed++);
  }
}

// Repetitions with any number of them left: fewer than the longest token has bytes, as many, more.
TEST(TokenMasks, OfCountsNearTheLongestTokenAreThoseOfBruteForce) {
  std::vector<std::string> tokens = {"",     "",   "\"", "\",", ".", "é",
                                     "\xC3", "ab", "ba", "b",   "-", "1"};
  for (size_t count = 1; count <= 12; ++count) {
    tokens.push_back(std::string(count, 'a'));
    tokens.push_back(std::string(count, 'a') + "b");
    tokens.push_back(std::string(count, 'a') + "\"");
    tokens.push_back(std::string(count, 'a') + ".");
  }
  const TokenId end = 1;
  const auto check = [&](const GrammarText& text, const std::string& begin,
                         const std::string& repeated) {
    SCOPED_TRACE(text.text);
    const auto grammar = CompileGrammar(text);
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    // One vocabulary for all places, so that each may take the mask of another.
    const TokenMasks masks(tokens, std::vector<TokenId>{end});
    Matcher matcher(*grammar);
    ASSERT_TRUE(matcher.Accept(begin));
    int num_places = 0;
    do {
      SCOPED_TRACE(num_places++);
      ASSERT_NO_FATAL_FAILURE(CheckMask(masks, tokens, end, matcher));
    } while (num_places < 60 && matcher.Accept(repeated));
    EXPECT_GT(num_places, 20);
  };
  for (const char* schema : {R"({"type": "string", "maxLength": 40})",
                             R"({"type": "string", "minLength": 35, "maxLength": 40})",
                             R"({"type": "string", "minLength": 40, "maxLength": 40})"}) {
    check({GrammarKind::kJsonSchema, schema, {}}, "\"", "a");
  }
  for (const char* expression :
       {"a{0,40}", "[ab]{3,40}\\.", "-?a{40}b*", "(a|ab){0,40}a{0,3}-", "(a*b?){0,30}\\."}) {
    check({GrammarKind::kRegularExpression, expression, {}}, "", "a");
  }
  check({GrammarKind::kRegularExpression, "(ab|ba|a.){0,30}(a|1)", {}}, "", "ab");
  check({GrammarKind::kRegularExpression, "(ab|ba|a.){0,30}(a|1)", {}}, "a", "ba");
  check({GrammarKind::kGbnf, "root ::= \"a\"{0,40} (\".\" | \"b\"{2,40})", {}}, "", "a");
}

TEST(TokenMasks, APlaceWithManyCharactersLeftHasTheMaskOfTheOneBefore) {
  const std::vector<std::string> tokens = MadeUpVocabulary(500);
  const TokenMasks masks(tokens, std::vector<TokenId>{1});
  std::vector<uint32_t> first(masks.num_words()), mask(masks.num_words());
  for (const char* length : {R"("maxLength": 300)", R"("minLength": 290, "maxLength": 300)"}) {
    const auto grammar = CompileGrammar(
        {GrammarKind::kJsonSchema, std::string(R"({"type": "string", )") + length + "}", {}});
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    Matcher matcher(*grammar);
    ASSERT_TRUE(matcher.Accept("\"a"));
    ASSERT_TRUE(masks.Fill(matcher, first));
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(matcher.Accept("é"));
      ASSERT_TRUE(masks.FillKnown(matcher, mask)) << i;
      ASSERT_EQ(mask, first);
    }
  }
}

// Blanks of every kind between values, and where more blanks may follow a terminal's.
TEST(TokenMasks, OfBlanksAreThoseOfBruteForce) {
  std::vector<std::string> tokens = {"", "", "a", "1", "{", "\"", "},", " \"a", "\n}", "  1", " a"};
  constexpr std::string_view kBlanks = " \t\n\r";
  for (size_t i = 0; i < 4 * 4 * 4 * 4 * 4; ++i) {  // up to four
    std::string blanks;
    for (size_t rest = i; rest > 0; rest /= 5) {
      if (rest % 5 != 0) blanks.push_back(kBlanks[rest % 5 - 1]);
    }
    if (!blanks.empty()) tokens.push_back(blanks);
  }
  for (const size_t count : {7, 8, 9, 23, 24, 25}) {
    for (const char* before : {"", "\n", " \n\n", "\r\n"}) {
      tokens.push_back(before + std::string(count, ' '));
    }
  }
  const TokenId end = 1;
  const TokenMasks masks(tokens, std::vector<TokenId>{end});
  const auto check = [&](const GrammarText& text, const char* begin) {
    SCOPED_TRACE(text.text + " after " + begin);
    const auto grammar = CompileGrammar(text);
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    Matcher matcher(*grammar);
    ASSERT_TRUE(matcher.Accept(begin));
    CheckMask(masks, tokens, end, matcher);
  };
  for (const char* begin : {"{", "{ ", "{\"a\"", "{\"a\":", "{\"a\":\n", "{\"a\":1", "{\"a\":[1",
                            "{\"a\":[1, ", "{\"a\":{}", "{\"a\":\"", "{\"a\": 1,       "}) {
    check({GrammarKind::kJsonObject, "", {}}, begin);
  }
  for (const char* begin : {"", "a", "a ", "a  ", "a \n"}) {
    check({GrammarKind::kGbnf, "root ::= \"a\" [ ]{0,3} [ \\n]{0,9} \"1\"", {}}, begin);
    check({GrammarKind::kGbnf, "root ::= \"a\" ws (root | \"\\n \"*)\nws ::= [ \\n]{0,3}", {}},
          begin);
    check({GrammarKind::kRegularExpression, "a[ \\n]{0,4}( \\n)*1", {}}, begin);
  }
}

TEST(TokenMasks, OfNumbersAreThoseOfBruteForce) {
  std::vector<std::string> tokens = {"", "", ",", "]", ".0", "1e", "-0", "e+", "00", "]]", "1, "};
  for (int i = 0; i < 1000; i += 7) tokens.push_back(std::to_string(i));
  for (const char byte : std::string_view("0123456789+-.eE, ]")) tokens.emplace_back(1, byte);
  uint32_t seed = 50;
  for (const char* items :
       {R"({"minimum": 4, "maximum": 15})", R"({"type": "integer"})", R"({"type": "number"})",
        R"({"type": "integer", "exclusiveMinimum": -3.5, "maximum": 1200})",
        R"({"multipleOf": 5, "minimum": 17})",
        R"({"not": {"type": "integer"}, "maximum": 1e-3})"}) {
    SCOPED_TRACE(items);
    const std::string schema = fmt::format(R"({{"type": "array", "items": {}}})", items);
    const auto grammar = CompileGrammar({GrammarKind::kJsonSchema, schema, {}});
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    RandomWalk(*grammar, tokens, 12, seed++, "[");
  }
}

TEST(TokenMasks, TablesAndMasksThatAreDroppedChangeNothing) {
  GrammarLimits small;
  small.table_bytes_max = 1;
  small.mask_cache_bytes_max = 2000;
  RandomWalk(JsonGrammar(25, small), MadeUpVocabulary(1000), ShortOrLong(20, 60), 4, R"({"a": ")");
}

TEST(TokenMasks, OfRandomGrammarsAreThoseOfBruteForce) {
  std::vector<std::string> tokens = {"", ""};
  std::mt19937 random(9);
  for (int i = 0; i < 200; ++i) {
    std::string token;
    for (uint32_t j = 0, end = 1 + random() % 4; j < end; ++j) token.push_back("abc"[random() % 3]);
    tokens.push_back(token);
  }
  for (uint32_t seed = 0; seed < 60; ++seed) {
    GrammarBuilder builder;
    const Symbol start = RandomGrammar(seed).Build(&builder);
    const auto grammar = CompiledGrammar::Build(std::move(builder), start);
    if (grammar.ok()) RandomWalk(*grammar, tokens, 15, seed);
  }
}

void CheckAndAndNot(const GrammarLimits& limits, uint32_t walks, int steps) {
  const std::vector<std::string> tokens = MadeUpVocabulary(1500);
  GrammarBuilder builder(limits);
  ExpressionSet& e = builder.expressions();
  const ExpressionId character =
      e.CodePoints(CodePointSet({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kCodePointMax}}));
  const ExpressionId any = e.Repeat(character, 0, ExpressionSet::kUnbounded);
  const ExpressionId has_the = e.Concat({any, e.Literal("the"), any});
  const ExpressionId text = e.And({e.Repeat(character, 5, 40), has_the, e.Not(e.Literal("the a"))});
  const Symbol start = builder.Terminal(e.Concat({e.Literal("\""), text, e.Literal("\"")}));
  const auto grammar = CompiledGrammar::Build(std::move(builder), start);
  ASSERT_TRUE(grammar.ok());
  for (uint32_t seed = 0; seed < walks; ++seed) RandomWalk(*grammar, tokens, steps, seed);
}

TEST(TokenMasks, OfExpressionsWithAndAndNot) {
  CheckAndAndNot({}, ShortOrLong(2u, 4u), ShortOrLong(10, 20));
  GrammarLimits small;
  small.table_bytes_max = 100'000;
  CheckAndAndNot(small, ShortOrLong(1u, 4u), 5);
}

TEST(TokenMasks, ControlTokensAndTheEnd) {
  const std::vector<std::string> tokens = {"a", "b", "", "a", "b"};
  const TokenMasks masks(tokens, std::vector<TokenId>{4, 900, -1});
  GrammarBuilder builder;
  const Symbol start =
      builder.Sequence({builder.Literal("a"), builder.Optional(builder.Literal("b"))});
  Matcher matcher(*CompiledGrammar::Build(std::move(builder), start));
  std::vector<uint32_t> mask(3, 77);
  EXPECT_TRUE(masks.Fill(matcher, mask));
  EXPECT_EQ(mask, (std::vector<uint32_t>{0b01001, 0, 0}));
  ASSERT_TRUE(matcher.Accept("a"));
  EXPECT_TRUE(masks.Fill(matcher, mask));
  EXPECT_EQ(mask[0], 0b10010u);
  ASSERT_TRUE(matcher.Accept("b"));
  EXPECT_TRUE(masks.Fill(matcher, mask));
  EXPECT_EQ(mask[0], 0b10000u);
}

TEST(TokenMasks, AVocabularyThatCannotGoOnIsSaid) {
  const TokenMasks masks(std::vector<std::string>{"x", ""}, std::vector<TokenId>{1});
  GrammarBuilder builder;
  const Symbol start = builder.Literal("a");
  const Matcher matcher(*CompiledGrammar::Build(std::move(builder), start));
  std::vector<uint32_t> mask(1);
  EXPECT_FALSE(masks.Fill(matcher, mask));
}

}  // namespace
}  // namespace minisgl
