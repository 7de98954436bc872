// Templates that would not terminate, overflow the stack or exhaust memory: each soon fails with an
// error that names its line.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>

#include "hostile_templates.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/chat_template.h"
#include "slow.h"
#include "text_test_util.h"

namespace minisgl {
namespace {

// Bound: one second of processor time in an optimised build on a current processor, so that other
// load does not count. An old processor may take three times as long, a sanitizer build at -O1
// twenty times.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowdown = 3 * 20;
#else
constexpr double kSlowdown = 3;
#endif

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST(HostileTemplateTest, EachIsRefusedWithinASecond) {
  MarkSlow("each template may take a second");
  ChatInput input;
  input.messages = *ParseJson(R"([{"role": "user", "content": "x"}])");
  double most_seconds = 0;
  for (const Hostile& hostile : HostileTemplates()) {
    const double begin = ProcessorSeconds();
    auto chat = ChatTemplate::Parse(hostile.source, "hostile.jinja");
    Status status = chat.status();
    if (chat.ok()) status = (*chat)->Render(input).status();
    EXPECT_EQ(status.code(), StatusCode::kBadInput) << hostile.what;
    EXPECT_TRUE(status.message().starts_with("hostile.jinja:")) << status.message();
    const double seconds = ProcessorSeconds() - begin;
    EXPECT_LT(seconds, 1.0 * kSlowdown) << hostile.what << ": " << status.message();
    most_seconds = std::max(most_seconds, seconds);
  }
  RecordProperty("most_ms", static_cast<int>(most_seconds * 1e3));
}

TEST(HostileTemplateTest, SearchesTakeTimeInStepWithTheText) {
  ChatInput input;
  input.messages = Json(Json::Array{});
  for (const Slow& slow : SlowTemplates()) {
    auto chat = ChatTemplate::Parse(slow.source, "slow.jinja");
    ASSERT_TRUE(chat.ok()) << slow.what << ": " << chat.status().message();
    const double begin = ProcessorSeconds();
    const auto pieces = (*chat)->Render(input);
    EXPECT_TRUE(pieces.ok()) << slow.what << ": " << pieces.status().message();
    // Takes a few hundredths of a second; quadratic time would be minutes.
    EXPECT_LT(ProcessorSeconds() - begin, 1.0 * kSlowdown) << slow.what;
  }
}

TEST(HostileTemplateTest, SearchesFindATextAtEveryPlace) {
  auto chat = ChatTemplate::Parse(
      "{% for i in range(1500) %}{% set a = 'ne' * (i // 2) ~ 'n' * (i % 2) %}"
      "{% if (a ~ 'needle').find('needle') != i or ('needle' ~ a).rfind('needle') != 0"
      " or (a ~ 'needle' ~ a).split('needle') != [a, a] or (a ~ 'needle').count('needle') != 1"
      " or (a ~ 'needle' ~ a).rsplit('needle') != [a, a] or 'needle' in a ~ 'needl' %}"
      "{{ i }} {% endif %}{% endfor %}",
      "t");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  const auto pieces = (*chat)->Render(ChatInput());
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  EXPECT_TRUE(pieces->empty()) << (*pieces)[0].text;
}

// A failed lookup keeps its name for messages; a list of such values must not copy the name.
TEST(HostileTemplateTest, UndefinedValuesOfLongKeysAreSmall) {
  auto chat = ChatTemplate::Parse(
      "{% set k = 'k' * 1000000 %}{% set u = {}[k] %}{{ ([u] * 20000) | length }}", "t");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  ChatInput input;
  EXPECT_TRUE((*chat)->Render(input).ok());
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 512 * 1024) << "KiB";  // 20 GB with copies
}

TEST(HostileTemplateTest, NamesInMessagesAreMadeVisible) {
  const std::string name = "n\x9B\xFF";
  for (const std::string& source :
       {"{% set " + name + ".a = 1 %}",
        "{% macro " + name + "() %}{% endmacro %}{{ " + name + "(1) }}",
        "{% macro m() %}{% endmacro %}{{ m(" + name + "=1) }}", "{{ " + name + ".x }}",
        "{{ 1 | " + name + " }}", "{{ 1 is " + name + " }}", "{% " + name + " %}",
        "{% set x " + name + " %}"}) {
    auto chat = ChatTemplate::Parse(source, "t");
    ChatInput input;
    const Status status = chat.ok() ? (*chat)->Render(input).status() : chat.status();
    ASSERT_FALSE(status.ok()) << source;
    EXPECT_EQ(Visible(status.message(), 1000), status.message());
  }
}

TEST(HostileTemplateTest, NamespacesThatHoldThemselvesAreHarmless) {
  auto chat = ChatTemplate::Parse(
      "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{% set a.l = [a, b] %}"
      "{{ a }}{{ a.l }}{{ a == b }}{% for x in [1] %}{% set a.loop = loop %}{% endfor %}{{ "
      "a.loop.index }}",
      "t");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  ChatInput input;
  EXPECT_TRUE((*chat)->Render(input).ok());
}

TEST(HostileTemplateTest, NestingWithinTheLimitWorks) {
  auto chat =
      ChatTemplate::Parse("{{ " + Repeated("(", 100) + "1" + Repeated(")", 100) + " }}" +
                              Repeated("{% if true %}", 100) + "x" + Repeated("{% endif %}", 100),
                          "t");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  ChatInput input;
  auto pieces = (*chat)->Render(input);
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  EXPECT_EQ((*pieces)[0].text, "1x");
}

TEST(HostileTemplateTest, LongChainsOfOneOperatorAreNoNesting) {
  auto chat = ChatTemplate::Parse(
      "{{ 'a'" + Repeated(" + 'a'", 5000) + " }}{{ 1" + Repeated(" and 1", 5000) + " }}", "t");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  ChatInput input;
  EXPECT_TRUE((*chat)->Render(input).ok());
}

}  // namespace
}  // namespace minisgl
