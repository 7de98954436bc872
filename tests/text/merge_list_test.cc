// Vocabularies that are filled and asked many spellings at a time, and lists of merges.
#include "text/tokenizer_json/merge_list.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace minisgl::text {
namespace {

// More than are prefetched together, and more than the table has room for at first.
constexpr size_t kMany = 3000;

std::vector<std::string> Words(size_t count) {
  std::vector<std::string> words;
  for (size_t i = 0; i < count; ++i) words.push_back("word" + std::to_string(i));
  return words;
}

std::vector<std::string_view> Views(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

TEST(VocabularyTest, ManySpellingsAreAddedAndFoundAsOneByOne) {
  const std::vector<std::string> words = Words(kMany);
  for (const bool reserves : {false, true}) {
    Vocabulary together, apart;
    if (reserves) together.Reserve(kMany + 10);
    ASSERT_TRUE(together.AddAll(Views(words), 7).ok());
    for (size_t i = 0; i < kMany; ++i) {
      ASSERT_TRUE(apart.Add(words[i], static_cast<int64_t>(i) + 7).ok());
    }
    EXPECT_EQ(together.num_tokens(), kMany);
    EXPECT_EQ(together.ids_end(), apart.ids_end());
    EXPECT_FALSE(together.Has(6));
    std::vector<std::string> asked = words;
    for (size_t i = 0; i < kMany; i += 7) asked[i] += "x";  // not there
    std::vector<TokenId> ids(kMany, 12345);
    together.FindAll(Views(asked), ids);
    for (size_t i = 0; i < kMany; ++i) {
      const TokenId wanted = i % 7 == 0 ? -1 : static_cast<TokenId>(i) + 7;
      ASSERT_EQ(ids[i], wanted) << asked[i];
      ASSERT_EQ(together.Find(asked[i]).value_or(-1), wanted) << asked[i];
      ASSERT_EQ(apart.Find(asked[i]).value_or(-1), wanted) << asked[i];
    }
  }
}

TEST(VocabularyTest, ABadSpellingAmongManyIsNamed) {
  for (const size_t place : {size_t{0}, size_t{63}, size_t{64}, size_t{150}}) {
    std::vector<std::string> words = Words(200);
    words[place] = place == 0 ? "" : "word0";
    Vocabulary vocabulary;
    const Status status = vocabulary.AddAll(Views(words), 0);
    EXPECT_FALSE(status.ok());
    const std::string wanted = place == 0 ? "the token with id 0 has no text"
                                          : "\"word0\" has two ids, 0 and " + std::to_string(place);
    EXPECT_EQ(status.message(), wanted);
    EXPECT_EQ(vocabulary.num_tokens(), place);
  }
}

TEST(VocabularyTest, AnEmptyOneFindsNothing) {
  const std::vector<std::string> words = Words(3);
  std::vector<TokenId> ids(3, 5);
  Vocabulary().FindAll(Views(words), ids);
  EXPECT_EQ(ids, std::vector<TokenId>(3, -1));
}

class MergeLines : public MergeList {
 public:
  explicit MergeLines(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  size_t size() const override { return lines_.size(); }
  MergeEntry At(size_t index) const override { return ReadMergeLine(lines_[index]); }

 private:
  std::vector<std::string> lines_;
};

// Token 0 is "a"; token i, of up to 3 letters, is made of a shorter one and a letter.
class MergesTest : public testing::Test {
 protected:
  MergesTest() {
    std::vector<std::string> spellings;
    for (char a = 'a'; a <= 'z'; ++a) spellings.emplace_back(1, a);
    for (size_t length = 2, begin = 0; length <= 3; ++length) {
      const size_t end = spellings.size();
      for (size_t i = begin; i < end; ++i) {
        for (char a = 'a'; a <= 'z'; ++a) {
          lines_.push_back(spellings[i] + " " + a);
          merges_.push_back(
              {static_cast<TokenId>(i), a - 'a', static_cast<TokenId>(spellings.size())});
          spellings.push_back(spellings[i] + a);
        }
      }
      begin = end;
    }
    EXPECT_TRUE(vocabulary_.AddAll(Views(spellings), 0).ok());
  }

  std::string ErrorOf(const std::vector<std::string>& lines) const {
    const auto merges = ResolveMerges(vocabulary_, MergeLines(lines), 0, "merges");
    EXPECT_FALSE(merges.ok());
    return merges.status().message();
  }

  Vocabulary vocabulary_;
  std::vector<std::string> lines_;  // 18,252: two threads resolve them, in parts of 4,096
  std::vector<BpeMerge> merges_;
};

void ExpectEqual(const std::vector<BpeMerge>& found, const std::vector<BpeMerge>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].left, wanted[i].left) << i;
    ASSERT_EQ(found[i].right, wanted[i].right) << i;
    ASSERT_EQ(found[i].result, wanted[i].result) << i;
  }
}

TEST_F(MergesTest, ListsOfAnyLengthAreResolvedInOrder) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{64}, size_t{65}, lines_.size()}) {
    const MergeLines list({lines_.begin(), lines_.begin() + static_cast<int64_t>(count)});
    const auto merges = ResolveMerges(vocabulary_, list, 0, "merges");
    ASSERT_TRUE(merges.ok()) << merges.status().message();
    ExpectEqual(*merges, {merges_.begin(), merges_.begin() + static_cast<int64_t>(count)});
  }
}

TEST_F(MergesTest, TheFirstLineOfAFileIsSkipped) {
  std::vector<std::string> lines = {"#version: 0.2"};
  lines.insert(lines.end(), lines_.begin(), lines_.begin() + 100);
  const auto merges = ResolveMerges(vocabulary_, MergeLines(lines), 0, "merges");
  ASSERT_TRUE(merges.ok());
  ExpectEqual(*merges, {merges_.begin(), merges_.begin() + 100});
}

// In any part of a long list, at a part's borders and in the middle of a group.
TEST_F(MergesTest, TheFirstBadEntryIsNamedByItsIndex) {
  const size_t last = lines_.size() - 1;
  for (const size_t index :
       {size_t{0}, size_t{70}, size_t{4095}, size_t{4096}, size_t{9000}, last}) {
    const std::string name = "merges[" + std::to_string(index) + "]";
    auto lines = lines_;
    lines[index] = "abc";
    EXPECT_EQ(ErrorOf(lines), name + " is not a pair; it must be two tokens");
    lines[index] = "a !";
    EXPECT_EQ(ErrorOf(lines), name + " has \"!\", which model.vocab does not have");
    lines[index] = "abc d";
    EXPECT_EQ(ErrorOf(lines), name + " makes \"abcd\", which model.vocab does not have");
    // A later one, of whichever kind, is not told.
    if (index < last) lines[index + 1] = lines[last] = "abc";
    EXPECT_EQ(ErrorOf(lines), name + " makes \"abcd\", which model.vocab does not have");
  }
}

TEST_F(MergesTest, ThePrefixOfTheRightSpellingIsLeftOut) {
  Vocabulary vocabulary;
  const std::vector<std::string> spellings = {"a", "##b", "ab", "#"};
  ASSERT_TRUE(vocabulary.AddAll(Views(spellings), 0).ok());
  const auto merges = ResolveMerges(vocabulary, MergeLines({"a ##b"}), 2, "merges");
  ASSERT_TRUE(merges.ok()) << merges.status().message();
  ExpectEqual(*merges, {{0, 1, 2}});
  const auto shorter = ResolveMerges(vocabulary, MergeLines({"a ##b", "a #"}), 2, "merges");
  ASSERT_FALSE(shorter.ok());
  EXPECT_EQ(shorter.status().message(),
            "merges[1] has \"#\", which is shorter than continuing_subword_prefix");
}

}  // namespace
}  // namespace minisgl::text
