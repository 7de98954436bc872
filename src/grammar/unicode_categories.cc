#include "grammar/unicode_categories.h"

#include <utf8proc.h>

#include <array>
#include <vector>

namespace minisgl::grammar {

namespace {

struct CategoryName {
  std::string_view name, long_name;
  std::string_view members;  // short names, each followed by a space
};

constexpr std::array kCategories = {
    CategoryName{"L", "Letter", "Lu Ll Lt Lm Lo "},
    CategoryName{"LC", "Cased_Letter", "Lu Ll Lt "},
    CategoryName{"Lu", "Uppercase_Letter", "Lu "},
    CategoryName{"Ll", "Lowercase_Letter", "Ll "},
    CategoryName{"Lt", "Titlecase_Letter", "Lt "},
    CategoryName{"Lm", "Modifier_Letter", "Lm "},
    CategoryName{"Lo", "Other_Letter", "Lo "},
    CategoryName{"M", "Mark", "Mn Mc Me "},
    CategoryName{"Mn", "Nonspacing_Mark", "Mn "},
    CategoryName{"Mc", "Spacing_Mark", "Mc "},
    CategoryName{"Me", "Enclosing_Mark", "Me "},
    CategoryName{"N", "Number", "Nd Nl No "},
    CategoryName{"Nd", "Decimal_Number", "Nd "},
    CategoryName{"Nl", "Letter_Number", "Nl "},
    CategoryName{"No", "Other_Number", "No "},
    CategoryName{"P", "Punctuation", "Pc Pd Ps Pe Pi Pf Po "},
    CategoryName{"Pc", "Connector_Punctuation", "Pc "},
    CategoryName{"Pd", "Dash_Punctuation", "Pd "},
    CategoryName{"Ps", "Open_Punctuation", "Ps "},
    CategoryName{"Pe", "Close_Punctuation", "Pe "},
    CategoryName{"Pi", "Initial_Punctuation", "Pi "},
    CategoryName{"Pf", "Final_Punctuation", "Pf "},
    CategoryName{"Po", "Other_Punctuation", "Po "},
    CategoryName{"S", "Symbol", "Sm Sc Sk So "},
    CategoryName{"Sm", "Math_Symbol", "Sm "},
    CategoryName{"Sc", "Currency_Symbol", "Sc "},
    CategoryName{"Sk", "Modifier_Symbol", "Sk "},
    CategoryName{"So", "Other_Symbol", "So "},
    CategoryName{"Z", "Separator", "Zs Zl Zp "},
    CategoryName{"Zs", "Space_Separator", "Zs "},
    CategoryName{"Zl", "Line_Separator", "Zl "},
    CategoryName{"Zp", "Paragraph_Separator", "Zp "},
    CategoryName{"C", "Other", "Cc Cf Co Cn "},
    CategoryName{"Cc", "Control", "Cc "},
    CategoryName{"Cf", "Format", "Cf "},
    CategoryName{"Co", "Private_Use", "Co "},
    CategoryName{"Cn", "Unassigned", "Cn "},
};

}  // namespace

std::optional<CodePointSet> UnicodeCategory(std::string_view name) {
  if (name == "Any") return CodePointSet::All();
  if (name == "ASCII") return CodePointSet({{0, 0x7F}});
  for (const CategoryName& category : kCategories) {
    if (name != category.name && name != category.long_name) continue;
    std::vector<CodePointRange> ranges;
    for (uint32_t c = 0; c <= kCodePointMax; ++c) {
      const std::string_view own = utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
      if (category.members.find(own) == std::string_view::npos) continue;
      if (!ranges.empty() && ranges.back().last + 1 == c) {
        ranges.back().last = c;
      } else {
        ranges.push_back({c, c});
      }
    }
    return CodePointSet(std::move(ranges));
  }
  return std::nullopt;
}

}  // namespace minisgl::grammar
