// Encodes 1 MiB of one class of character with each kind of tokenizer, in bounded time and on a
// small stack, so that nothing recurses with the length of the input.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "minisgl/base/utf8.h"
#include "processor_seconds.h"
#include "slow.h"
#include "text_test_util.h"

namespace minisgl {
namespace {

// A release build takes less than one second for each, alone on its core. A sanitizer build is ten
// times slower, and shorter texts are enough for its findings.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kTextBytes = size_t{128} << 10;
constexpr double kSecondsMax = 30.0;
// The stack frames of a sanitizer build are several times as large.
constexpr size_t kStackBytes = size_t{2} << 20;
#else
constexpr size_t kTextBytes = size_t{1} << 20;
constexpr double kSecondsMax = 3.0;
constexpr size_t kStackBytes = size_t{256} << 10;
#endif

struct CharacterClass {
  const char *name, *unit;
};
constexpr CharacterClass kClasses[] = {{"spaces", " "},       {"letters", "a"},
                                       {"capitals", "A"},     {"digits", "7"},
                                       {"line breaks", "\n"}, {"tabs", "\t"},
                                       {"punctuation", "-"},  {"Chinese", "中"},
                                       {"emoji", "😀"},        {"zero-width joiners", "\u200D"},
                                       {"Cyrillic", "ж"},     {"combining marks", "\u0301\u0323"}};

void RunOnSmallStack(std::function<void()> work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

class LongTextTest : public testing::TestWithParam<std::string> {};

TEST_P(LongTextTest, EveryClassTakesLittleTimeAndStack) {
  MarkSlow("long texts of every class");
  const auto tokenizer = LoadTokenizer(MINISGL_SOURCE_DIR "/tests/" + GetParam());
  ASSERT_NE(tokenizer, nullptr);
  for (const CharacterClass& one : kClasses) {
    SCOPED_TRACE(one.name);
    std::string text;
    while (text.size() < kTextBytes) text += one.unit;
    double seconds = 0;
    bool encoded = false;
    RunOnSmallStack([&] {
      const double begin = ProcessorSeconds();
      const auto ids = tokenizer->EncodeText(text);
      seconds = ProcessorSeconds() - begin;
      encoded = ids.ok();
      // Decode too, because a decoder may hold back undecided text. (Text that a small vocabulary
      // cannot spell has no ids.)
      if (encoded) encoded = tokenizer->Decode(*ids, /*keep_special=*/true).empty() == ids->empty();
    });
    EXPECT_TRUE(encoded);
    EXPECT_LT(seconds, kSecondsMax);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LongTextTest,
                         testing::Values("models/wren", "text/tokenizers/qwen2",
                                         "text/tokenizers/gemma"),
                         [](const auto& test) {
                           return test.param.substr(test.param.rfind('/') + 1);
                         });

}  // namespace
}  // namespace minisgl
