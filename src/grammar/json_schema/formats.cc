#include "grammar/json_schema/formats.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

namespace minisgl::grammar {
namespace {

// Expressions by what RFC 3339, 3986, 3987, 5321 and 6570 call them.
const std::string kDate =
    R"((?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|)"
    R"(02-(?:0[1-9]|1\d|2[0-8]))|)"
    R"((?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29))";
const std::string kTime =
    R"((?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[zZ]|[+\-](?:[01]\d|2[0-3]):[0-5]\d)|)"
    R"(23:59:60(?:\.\d+)?(?:[zZ]|[+\-]00:00)))";
// Each larger unit is followed by the next smaller one only.
const std::string kDuration =
    R"(P(?:\d+W|(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)(?:T(?:\d+H(?:\d+M(?:\d+S)?)?|)"
    R"(\d+M(?:\d+S)?|\d+S))?|T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)))";
const std::string kOctet = R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
const std::string kIpv4 = fmt::format(R"((?:{0}\.){{3}}{0})", kOctet);
const std::string kGroup = "[0-9a-fA-F]{1,4}";

std::string MakeIpv6() {
  const std::string tail = fmt::format("(?:{0}:{0}|{1})", kGroup, kIpv4);
  std::string out = fmt::format("(?:(?:{}:){{6}}{}", kGroup, tail);
  // `before` groups at most, `::`, and exactly `after` more, the last two of which may be an IPv4
  // address.
  for (int before = 0; before <= 7; ++before) {
    const int after = 7 - before;
    std::string left;
    if (before > 0) left = fmt::format("(?:(?:{0}:){{0,{1}}}{0})?", kGroup, before - 1);
    std::string right;
    if (after >= 2) {
      right = fmt::format("(?:{}:){{{}}}{}", kGroup, after - 2, tail);
    } else if (after == 1) {
      right = kGroup;
    }
    out += fmt::format("|{}::{}", left, right);
  }
  return out + ")";
}
const std::string kIpv6 = MakeIpv6();

const std::string kLabel =
    "(?:[a-zA-Z0-9](?:[a-zA-Z0-9\\-]?[a-zA-Z0-9])?|[a-zA-Z0-9][a-zA-Z0-9\\-]{2}[a-zA-Z0-9]|"
    "[a-zA-Z0-9][a-zA-Z0-9\\-](?:[a-zA-Z0-9][a-zA-Z0-9\\-]|-[a-zA-Z0-9])[a-zA-Z0-9\\-]{0,58}"
    "[a-zA-Z0-9])";
const std::string kHostname = fmt::format(R"({0}(?:\.{0})*)", kLabel);
const std::string kHostnameLength = R"([\s\S]{1,253})";
const std::string kUuid =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";

std::string MakeEmail(std::string_view more) {
  const std::string letter = fmt::format("[a-zA-Z0-9!#$%&'*+\\-/=?^_`{{|}}~{}]", more);
  const std::string quoted = fmt::format(R"("(?:[ !#-\[\]-~{}]|\\[ -~])*")", more);
  return fmt::format(R"((?:{0}+(?:\.{0}+)*|{1})@(?:{2}|\[{3}\]|\[IPv6:{4}\]))", letter, quoted,
                     kHostname, kIpv4, kIpv6);
}
const std::string kEmailLength = R"([\s\S]{1,64}@[^@]{1,255})";

constexpr std::string_view kUcs =
    R"(\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF\u{10000}-\u{1FFFD}\u{20000}-\u{2FFFD})"
    R"(\u{30000}-\u{3FFFD}\u{40000}-\u{4FFFD}\u{50000}-\u{5FFFD}\u{60000}-\u{6FFFD})"
    R"(\u{70000}-\u{7FFFD}\u{80000}-\u{8FFFD}\u{90000}-\u{9FFFD}\u{A0000}-\u{AFFFD})"
    R"(\u{B0000}-\u{BFFFD}\u{C0000}-\u{CFFFD}\u{D0000}-\u{DFFFD}\u{E1000}-\u{EFFFD})";
constexpr std::string_view kPrivate = R"(\uE000-\uF8FF\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD})";

struct UriExpressions {
  std::string uri;
  std::string reference;
};

// `more`: characters besides ASCII; `more_in_query`: characters in queries alone.
UriExpressions MakeUri(std::string_view more, std::string_view more_in_query) {
  constexpr std::string_view kPercent = "%[0-9a-fA-F]{2}";
  const std::string name = fmt::format("a-zA-Z0-9\\-._~!$&'()*+,;={}", more);
  const std::string p = fmt::format("(?:[{}:@]|{})", name, kPercent);
  const std::string no_colon = fmt::format("(?:[{}@]|{})", name, kPercent);
  const std::string host =
      fmt::format(R"((?:\[(?:{}|[vV][0-9a-fA-F]+\.[a-zA-Z0-9\-._~!$&'()*+,;=:]+)\]|(?:[{}]|{})*))",
                  kIpv6, name, kPercent);
  const std::string authority =
      fmt::format("(?:(?:[{0}:]|{1})*@)?{2}(?::\\d*)?", name, kPercent, host);
  const std::string segments = fmt::format("(?:/{}*)*", p);
  const std::string with_authority = fmt::format("//{}{}", authority, segments);
  const std::string absolute = fmt::format("/(?:{}+{})?", p, segments);
  const std::string rootless = fmt::format("{}+{}", p, segments);
  const std::string no_scheme = fmt::format("{}+{}", no_colon, segments);
  const std::string tail = fmt::format("(?:\\?(?:[{0}:@/?{1}]|{2})*)?(?:#(?:[{0}:@/?]|{2})*)?",
                                       name, more_in_query, kPercent);
  UriExpressions out;
  out.uri = fmt::format("[a-zA-Z][a-zA-Z0-9+\\-.]*:(?:{}|{}|{}|){}", with_authority, absolute,
                        rootless, tail);
  out.reference =
      fmt::format("(?:{}|(?:{}|{}|{}|){})", out.uri, with_authority, absolute, no_scheme, tail);
  return out;
}

std::string MakeUriTemplate() {
  constexpr std::string_view kPercent = "%[0-9a-fA-F]{2}";
  const std::string literal =
      fmt::format(R"((?:[\x21\x23\x24\x26-\x3B\x3D\x3F-\x5B\x5D\x5F\x61-\x7A\x7E{}{}]|{}))", kUcs,
                  kPrivate, kPercent);
  const std::string letter = fmt::format("(?:[a-zA-Z0-9_]|{})", kPercent);
  const std::string variable = fmt::format(R"({0}(?:\.?{0})*(?::[1-9]\d{{0,3}}|\*)?)", letter);
  return fmt::format(R"((?:{0}|\{{[+#./;?&=,!@|]?{1}(?:,{1})*\}})*)", literal, variable);
}

// Regular expressions of ECMA-262, with groups nested up to a depth: those without backreferences,
// names, lookbehind, and with ranges within digits or one case of ASCII letters.
std::string MakeRegex() {
  std::string ranges;
  for (const auto& [first, last] : {std::pair{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}) {
    for (char c = first; c <= last; ++c) ranges += fmt::format("{0}-[{0}-{1}]|", c, last);
  }
  std::string counts = R"(\d{1,3},?|0,\d{1,3}|[1-9],[1-9]\d{1,2})";
  for (char c = '1'; c <= '9'; ++c) counts += fmt::format("|{0},[{0}-9]", c);
  const std::string quantifier = fmt::format(R"((?:(?:[*+?]|\{{(?:{})\}})\??)?)", counts);
  const std::string escape =
      R"(\\(?:[dDwWsStnrfv^$\\.*+?()\[\]{}|/]|x[0-9a-fA-F]{2}|u[0-9a-cA-C][0-9a-fA-F]{3}))";
  const std::string set =
      fmt::format(R"(\[\^?(?:-|{}{}|\\[b\-]|[^\]\\\-\[^])(?:{}{}|\\[b\-]|[^\]\\\-\[^])*-?\])",
                  ranges, escape, ranges, escape);
  const std::string simple = fmt::format(R"([^\^$\\.*+?()\[\]{{}}|]|\.|{}|{})", escape, set);
  std::string inside = fmt::format(R"((?:(?:{}){}|[\^$|]|\\[bB])*)", simple, quantifier);
  const std::string ahead = fmt::format(R"(\(\?[=!]{}\))", inside);
  for (int depth = 0; depth < 4; ++depth) {
    inside = fmt::format(R"((?:(?:{}|\((?:\?:)?{}\)){}|[\^$|]|\\[bB]|{})*)", simple, inside,
                         quantifier, ahead);
  }
  return inside;
}

const std::string kPointer = "(?:/(?:[^~/]|~[01])*)*";

std::vector<StandardFormat> MakeFormats() {
  const UriExpressions uri = MakeUri("", ""), iri = MakeUri(kUcs, kPrivate);
  return {
      {"date-time", kDate + "[tT]" + kTime, ""},
      {"date", kDate, ""},
      {"time", kTime, ""},
      {"duration", kDuration, ""},
      {"email", MakeEmail(""), kEmailLength},
      {"idn-email", MakeEmail(R"(\u{80}-\u{10FFFF})"), kEmailLength},
      {"hostname", kHostname, kHostnameLength},
      {"idn-hostname", kHostname, kHostnameLength},
      {"ipv4", kIpv4, ""},
      {"ipv6", kIpv6, ""},
      {"uuid", kUuid, ""},
      {"uri", uri.uri, ""},
      {"uri-reference", uri.reference, ""},
      {"iri", iri.uri, ""},
      {"iri-reference", iri.reference, ""},
      {"uri-template", MakeUriTemplate(), ""},
      {"json-pointer", kPointer, ""},
      {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|" + kPointer + ")", ""},
      {"regex", MakeRegex(), ""},
  };
}

}  // namespace

const StandardFormat* FindFormat(std::string_view name) {
  static const std::vector<StandardFormat> formats = MakeFormats();
  for (const StandardFormat& format : formats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

}  // namespace minisgl::grammar
