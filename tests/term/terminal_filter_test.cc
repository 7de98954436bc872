// TerminalFilter with payloads of real attacks, split at every position.
#include "term/terminal_filter.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/utf8.h"

namespace minisgl::term {
namespace {

using namespace std::string_literals;  // for payloads with NUL bytes

struct Payload {
  std::string text;
  std::string shown;
};

// Every payload is between "a" and "z", unless it swallows the rest.
const std::vector<Payload>& Payloads() {
  static const std::vector<Payload> kPayloads = {
      // Plain text is unchanged.
      {"hello", "hello"},
      {"", ""},
      {"two\nlines\tand a tab", "two\nlines\tand a tab"},
      {"caf\u00e9 \u65e5\u672c\u8a9e \U0001F600", "caf\u00e9 \u65e5\u672c\u8a9e \U0001F600"},
      {"no-break\u00a0space", "no-break\u00a0space"},
      {"[31m without its escape", "[31m without its escape"},
      // C0 and DEL.
      {"a\rz", "az"},
      {"a\r\nz", "a\nz"},
      {"a\a\b\v\f z", "a z"},
      {"a\0z"s, "az"},
      {"a\x01\x02\x03\x04\x05\x06\x0e\x0fz", "az"},
      {"a\x10\x11\x12\x13\x14\x15\x16\x17\x19\x1c\x1d\x1e\x1fz", "az"},
      {"a\x7fz", "az"},
      {"good\b\b\b\bevil", "goodevil"},
      // CSI.
      {"a\x1b[2Jz", "az"},
      {"a\x1b[1;31mred\x1b[0mz", "aredz"},
      {"a\x1b[?25lz", "az"},
      {"a\x1b[?1049hz", "az"},
      {"a\x1b[6nz", "az"},
      {"a\x1b[!pz", "az"},
      {"a\x1b[38;2;1;2;3mz", "az"},
      {"a\x1b[20 qz", "az"},
      {"a\x1b[12\n3mz", "a\nz"},
      {"a\x1b[12\x18"
       "3z",
       "a3z"},
      {"a\x1b[12\x1b[3mz", "az"},
      {"a\x1b[12\u00e9z", "a\u00e9z"},
      {"a\u009b31mz", "az"},
      {"a\x9b"
       "31mz",
       "az"},
      {"a\x1b[", "a"},
      {"a\x1b[12;", "a"},
      // OSC.
      {"a\x1b]0;title\az", "az"},
      {"a\x1b]0;title\x1b\\z", "az"},
      {"a\x1b]52;c;ZXZpbA==\az", "az"},
      {"a\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\z", "alinkz"},
      {"a\x1b]0;t\u009cz", "az"},
      {"a\x1b]0;t\x9cz", "az"},
      {"a\u009d0;title\az", "az"},
      {"a\x9d"
       "0;title\az",
       "az"},
      {"a\x1b]0;never ends", "a"},
      {"a\x1b]52;c;ZXZpbA==\nnext\tline \u00e9", "a\nnext\tline \u00e9"},
      {"a\u009d0;t\u00e9\r\nnext", "a\nnext"},
      {"a\x1b]52;c;ZXZp\nbA==\x1b\\z", "a\nbA==z"},
      {"a\x1b]0;t\n\x1b]0;u\nz", "a\n\nz"},
      {"a\x1b]0;\u271c\u279c\az", "az"},
      {"a\x1b]0;t\x1b[31mz", "az"},
      {"a\x1b]0;t\x1az", "az"},
      {"a\x1b]Pnrrggbb", "a"},
      // DCS, SOS, PM, APC, screen's title.
      {"a\x1bP1$r0m\x1b\\z", "az"},
      {"a\x1bPq#0;2;0;0;0\abel is data\x1b\\z", "az"},
      {"a\u0090q\u009cz", "az"},
      {"a\x90q\x9cz", "az"},
      {"a\x1bXsos\x1b\\z", "az"},
      {"a\x1b^pm\x1b\\z", "az"},
      {"a\x1b_Gapc\x1b\\z", "az"},
      {"a\u0098s\u009cz\u009es\u009cz\u009fs\u009cz", "azzz"},
      {"a\x1bktitle\x1b\\z", "az"},
      {"a\x1bP never ends", "a"},
      {"a\x1bPq\nz", "a\nz"},
      {"a\x1bktitle\nz", "a\nz"},
      // Bidirectional controls; their neighbours stay.
      {"a\u202a\u202b\u202c\u202d\u202ez", "az"},
      {"a\u2066\u2067\u2068\u2069z", "az"},
      {"a\u200c\u200d\u202f\u2065\u2070z", "a\u200c\u200d\u202f\u2065\u2070z"},
      {"a\u061c\u200e\u200f\u2028\u2029\u206a\u206f\ufeff\ufff9\ufffbz", "az"},
      {"a\U000e0001\U000e0061\U000e007fz", "az"},
      {"a\U000e0080\U000dffffz", "a\U000e0080\U000dffffz"},
      {"a\x1b[1\u202ez", "az"},
      // Other escapes and C1 controls.
      {"a\x1b"
       "cz",
       "az"},
      {"a\x1b(0z", "az"},
      {"a\x1b#8z", "az"},
      {"a\x1b%Gz", "az"},
      {"a\x1bM\x1b"
       "7\x1b"
       "8\x1b=\x1b>z",
       "az"},
      {"a\x1b\x1b\x1b[Hz", "az"},
      {"a\x1b\nz", "a\n"},
      {"a\x1b\u00e9z", "a\u00e9z"},
      {"a\u0085\u0084\u008dz", "az"},
      {"a\x85z", "az"},
      {"a\x1b", "a"},
      // Ill-formed UTF-8.
      {"a\xff\xfez", "a\uFFFD\uFFFDz"},
      {"a\xe2\x82z", "a\uFFFDz"},
      {"a\xe2\x9b", "a\uFFFD"},
      {"a\xc3\x1b[31mz", "a\uFFFDz"},
      {"a\xf0\x9f\x98", "a\uFFFD"},
      {"a\xed\xa0\xbdz", "a\uFFFD\uFFFD\uFFFDz"},
      {"a\xc0\xaez", "a\uFFFD\uFFFDz"},
  };
  return kPayloads;
}

bool Harmless(std::string_view text) {
  if (!IsValidUtf8(text)) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) return false;
    if (byte == 0xC2 && static_cast<uint8_t>(text[i + 1]) < 0xA0) return false;
  }
  return true;
}

TEST(TerminalFilterTest, ShowsOnlyWhatIsHarmless) {
  ASSERT_GE(Payloads().size(), 60u);
  for (const Payload& payload : Payloads()) {
    EXPECT_EQ(FilterForTerminal(payload.text), payload.shown) << Visible(payload.text);
  }
}

TEST(TerminalFilterTest, EverySplitGivesTheSameText) {
  for (const Payload& payload : Payloads()) {
    const std::string_view text = payload.text;
    for (size_t first = 0; first <= text.size(); ++first) {
      for (size_t second = first; second <= text.size(); ++second) {
        TerminalFilter filter;
        std::string shown = filter.Push(text.substr(0, first));
        shown += filter.Push(text.substr(first, second - first));
        shown += filter.Push(text.substr(second));
        shown += filter.Finish();
        ASSERT_EQ(shown, payload.shown) << Visible(text) << " cut at " << first << ", " << second;
      }
    }
  }
}

TEST(TerminalFilterTest, EveryPushIsHarmlessByItself) {
  for (const Payload& payload : Payloads()) {
    TerminalFilter filter;
    for (const char byte : payload.text) {
      const std::string shown = filter.Push(std::string_view(&byte, 1));
      ASSERT_TRUE(Harmless(shown)) << Visible(payload.text) << " shows " << Visible(shown);
    }
    ASSERT_TRUE(Harmless(filter.Finish()));
  }
}

TEST(TerminalFilterTest, AllPairsOfBytesAfterAnEscapeAreHarmless) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {'\x1b', static_cast<char>(first), static_cast<char>(second), 'x'};
      ASSERT_TRUE(Harmless(FilterForTerminal(text))) << Visible(text);
      ASSERT_TRUE(Harmless(FilterForTerminal(text.substr(1)))) << Visible(text);
    }
  }
}

TEST(TerminalFilterTest, AnUnfinishedSequenceDoesNotReachIntoTheNextText) {
  TerminalFilter filter;
  EXPECT_EQ(filter.Push("a\x1b]0;never ends") + filter.Finish(), "a");
  EXPECT_EQ(filter.Push("next answer") + filter.Finish(), "next answer");
}

}  // namespace
}  // namespace minisgl::term
