// Conversion of values to text: Python's str, repr and json.dumps.
#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "text/jinja/bounds.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/value.h"

namespace minisgl::text::jinja {
namespace {

void CheckSize(const Text& out) {
  if (out.size() > TextBytesMax()) Fail("a text is longer than {} MiB", TextBytesMax() >> 20);
}

void AppendReprText(const Text& text, Text* out) {
  const std::string_view bytes = text.bytes();
  const bool has_single = bytes.find('\'') != std::string_view::npos;
  const char quote = has_single && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  out->Append(std::string_view(&quote, 1));
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    while (begin < run.end) {
      CheckSize(*out);
      size_t length = 0;
      const char32_t c = FirstCodePoint(bytes.substr(begin, run.end - begin), &length);
      const std::string_view same = bytes.substr(begin, length);
      begin += length;
      if (c == '\n') {
        out->Append("\\n", run.trusted);
      } else if (c == '\r') {
        out->Append("\\r", run.trusted);
      } else if (c == '\t') {
        out->Append("\\t", run.trusted);
      } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
        out->Append("\\", run.trusted);
        out->Append(same, run.trusted);
      } else if (IsPrintable(c)) {
        out->Append(same, run.trusted);
      } else if (c < 0x100) {
        out->Append(fmt::format("\\x{:02x}", static_cast<uint32_t>(c)), run.trusted);
      } else {
        const auto code = static_cast<uint32_t>(c);
        out->Append(
            code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code),
            run.trusted);
      }
    }
  }
  out->Append(std::string_view(&quote, 1));
}

void Repr(const Value& value, Text* out);

void ReprMembers(const std::vector<Value>& items, Text* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ");
    Repr(items[i], out);
  }
}

void ReprList(const Value& value, Text* out) {
  const List& list = value.list();
  if (list.kind == ListKind::kGenerator) {
    out->Append("<generator object>");
  } else if (value.is_tuple()) {
    out->Append("(");
    ReprMembers(list.items, out);
    out->Append(list.items.size() == 1 ? ",)" : ")");
  } else {
    if (list.kind != ListKind::kList) out->Append(std::string(value.TypeName()) + "(");
    out->Append("[");
    ReprMembers(list.items, out);
    out->Append(list.kind != ListKind::kList ? "])" : "]");
  }
}

void Repr(const Value& value, Text* out) {
  CheckSize(*out);
  if (value.is_text()) {
    if (value.text().is_markup()) out->Append("Markup(");
    AppendReprText(value.text(), out);
    if (value.text().is_markup()) out->Append(")");
  } else if (value.is_list()) {
    ReprList(value, out);
  } else if (value.is_dict()) {
    out->Append("{");
    bool first = true;
    for (const auto& [key, member] : value.dict().members) {
      if (!first) out->Append(", ");
      first = false;
      Repr(key, out);
      out->Append(": ");
      Repr(member, out);
    }
    out->Append("}");
  } else if (value.is_undefined()) {
    out->Append(value.is_null_content() ? "None" : "Undefined");
  } else if (value.is_namespace()) {
    out->Append("<Namespace>");
  } else if (value.is_loop()) {
    out->Append("<LoopContext>");
  } else if (value.is_callable()) {
    out->Append(fmt::format("<function {}>", value.callable()->name));
  } else {
    AppendStr(value, out);
  }
}

std::optional<std::string> JsonEscape(char32_t c, bool ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  const auto unit = static_cast<uint32_t>(c);
  if (unit < 0x20 || (ascii && unit > 0x7E && unit < 0x10000))
    return fmt::format("\\u{:04x}", unit);
  if (ascii && unit >= 0x10000) {
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((unit - 0x10000) >> 10),
                       0xDC00 + (unit & 0x3FF));
  }
  return std::nullopt;
}

void JsonText(const Text& text, bool ascii, Text* out) {
  out->Append("\"");
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    while (begin < run.end) {
      CheckSize(*out);
      size_t length = 0;
      const char32_t c = FirstCodePoint(bytes.substr(begin, run.end - begin), &length);
      if (const auto escape = JsonEscape(c, ascii)) {
        out->Append(*escape, run.trusted);
      } else {
        out->Append(bytes.substr(begin, length), run.trusted);
      }
      begin += length;
    }
  }
  out->Append("\"");
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Text* out) : style_(style), out_(out) {}

  void Write(const Value& value, int depth) {
    CheckSize(*out_);
    if (value.is_text()) {
      JsonText(value.text(), style_.ascii, out_);
    } else if (value.is_none() || value.is_null_content()) {
      out_->Append("null");
    } else if (value.is_bool()) {
      out_->Append(value.as_int() != 0 ? "true" : "false");
    } else if (value.is_double() && !std::isfinite(value.as_double())) {
      const double number = value.as_double();
      out_->Append(std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
    } else if (value.is_number()) {
      AppendStr(value, out_);
    } else if (value.is_sequence()) {
      WriteList(value.list(), depth);
    } else if (value.is_dict()) {
      WriteDict(value.dict(), depth);
    } else {
      Fail("{} cannot be written as JSON", value.TypeName());
    }
  }

 private:
  void WriteList(const List& list, int depth) {
    out_->Append("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      Separate(i == 0, depth + 1);
      Write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) NewLine(depth);
    out_->Append("]");
  }

  void WriteDict(const Dict& dict, int depth) {
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.members) members.push_back(&member);
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(),
                       [](const auto* a, const auto* b) { return Less(a->first, b->first); });
    }
    out_->Append("{");
    for (size_t i = 0; i < members.size(); ++i) {
      Separate(i == 0, depth + 1);
      WriteKey(members[i]->first, depth + 1);
      out_->Append(style_.key_separator);
      Write(members[i]->second, depth + 1);
    }
    if (!members.empty()) NewLine(depth);
    out_->Append("}");
  }

  // Writes a key; if it is not a string, its text in quotes.
  void WriteKey(const Value& key, int depth) {
    if (key.is_text()) {
      JsonText(key.text(), style_.ascii, out_);
    } else {
      out_->Append("\"");
      Write(key, depth);
      out_->Append("\"");
    }
  }

  void Separate(bool is_first, int depth) {
    if (!is_first) out_->Append(style_.item_separator);
    NewLine(depth);
  }

  void NewLine(int depth) {
    if (style_.indent < 0) return;
    out_->Append("\n");
    for (int i = 0; i < style_.indent * depth; ++i) out_->Append(style_.margin);
  }

  JsonStyle style_;
  Text* out_;
};

}  // namespace

bool IsPrintable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

std::string DoubleText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void AppendStr(const Value& value, Text* out) {
  if (value.is_text()) {
    out->Append(value.text());
  } else if (value.is_none()) {
    out->Append("None");
  } else if (value.is_bool()) {
    out->Append(value.as_int() != 0 ? "True" : "False");
  } else if (value.is_int()) {
    out->Append(fmt::format("{}", value.as_int()));
  } else if (value.is_big()) {
    out->Append(value.as_big().Digits());
  } else if (value.is_double()) {
    out->Append(DoubleText(value.as_double()));
  } else if (!value.is_undefined()) {
    Repr(value, out);
  }
}

void AppendRepr(const Value& value, Text* out) { Repr(value, out); }

void AppendJson(const Value& value, const JsonStyle& style, Text* out) {
  JsonWriter(style, out).Write(value, 0);
}

}  // namespace minisgl::text::jinja
