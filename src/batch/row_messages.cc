#include "batch/row_messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "batch/row_images.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

// Fields of a message besides role and content: those that templates know, and those that services
// put into answers, which come back when the conversation continues.
constexpr std::array<std::string_view, 6> kTemplateKeys = {
    "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking"};
constexpr std::array<std::string_view, 4> kAnswerKeys = {"refusal", "audio", "function_call",
                                                         "annotations"};

bool FailMessage(RowDraft* draft, size_t index, std::string_view key, const std::string& what) {
  draft->detail_field =
      fmt::format("messages[{}]{}{}", index, key.empty() ? "" : ".", Visible(key));
  draft->detail = fmt::format("{} {}", draft->detail_field, what);
  return false;
}

// True for a part of a text, which then has no other members: a template may take any member for an
// image.
bool TakeTextPart(Json* part) {
  const Json* const type = part->Find("type");
  Json* const part_text = part->Find("text");
  const bool is_text = type != nullptr && (*type == Json("text") || *type == Json("input_text"));
  if (!is_text || part_text == nullptr || !part_text->is_string()) return false;
  if (part->as_object().size() == 2 && *type == Json("text")) return true;
  Json text = std::move(*part_text);
  *part = Json(Json::Object());
  part->Set("type", "text").Set("text", std::move(text));
  return true;
}

// Takes a picture out of part `number` of a content.
bool TakePicture(Json* part, size_t index, size_t number, RowDraft* draft) {
  const std::string place = fmt::format("content[{}]", number);
  const std::string field = fmt::format("messages[{}].{}", index, place);
  std::vector<std::string> unknown;
  Result<RowImage> image = TakeImagePart(part, &unknown);
  if (!image.ok()) {
    draft->detail_field = field;
    draft->detail = fmt::format("{}: {}", field, image.status().message());
    return false;
  }
  if (draft->row.images.size() == kRowImagesMax) {
    return FailMessage(draft, index, place,
                       fmt::format("is one picture too many: a row may have {}", kRowImagesMax));
  }
  for (const std::string& member : unknown) {
    draft->unknown.push_back({fmt::format("{}.{}", field, member), "a picture"});
  }
  image->message = index;
  image->field = field;
  draft->row.images.push_back(std::move(image).value());
  return true;
}

// Checks a content: a string, null or an array of parts that are texts or pictures.
bool CheckContent(Json* content, size_t index, RowDraft* draft) {
  if (content->is_string() || content->is_null()) return true;
  if (!content->is_array()) {
    return FailMessage(
        draft, index, "content",
        fmt::format("must be a string or an array of text and image parts (found {})",
                    content->TypeName()));
  }
  Json::Array& parts = content->as_array();
  for (size_t number = 0; number < parts.size(); ++number) {
    Json& part = parts[number];
    if (TakeTextPart(&part)) continue;
    if (IsImagePart(part)) {
      if (!TakePicture(&part, index, number, draft)) return false;
      continue;
    }
    const Json* const type = part.Find("type");
    const bool is_other = type != nullptr && type->is_string() && *type != Json("text");
    return FailMessage(
        draft, index, "content",
        fmt::format("may hold only parts of type text and image_url (found {})",
                    is_other ? fmt::format("a part of type {}", Visible(type->as_string(), 60))
                             : Visible(part.Dump(), 60)));
  }
  return true;
}

enum class MemberUse : uint8_t { kKeep, kDrop, kFail };

MemberUse CheckMember(const std::string& key, Json* value, size_t index, RowDraft* draft) {
  const auto has = [&key](const auto& keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  const auto fail = [&](const char* must_be) {
    FailMessage(draft, index, key,
                fmt::format("must be {} (found {})", must_be, Visible(value->Dump(), 60)));
    return MemberUse::kFail;
  };
  if (key == "role") {
    const bool is_role = value->is_string() && !value->as_string().empty();
    return is_role ? MemberUse::kKeep : fail("a string");
  }
  if (key == "content") {
    return CheckContent(value, index, draft) ? MemberUse::kKeep : MemberUse::kFail;
  }
  // Answers of services say so that they have no calls; templates ask whether the member is there.
  const bool is_empty_list = value->is_array() && value->as_array().empty();
  if (key == "tool_calls" && is_empty_list) return MemberUse::kDrop;
  if (has(kTemplateKeys)) return MemberUse::kKeep;
  if (has(kAnswerKeys)) {
    return value->is_null() || is_empty_list ? MemberUse::kDrop : fail("null");
  }
  if (value->is_null()) return MemberUse::kDrop;  // not given
  draft->unknown.push_back({fmt::format("messages[{}].{}", index, Visible(key)), "a message"});
  return MemberUse::kDrop;
}

// Checks a message in place, and drops the members that templates are not given.
bool CheckMessage(Json* message, size_t index, RowDraft* draft) {
  if (!message->is_object()) {
    return FailMessage(draft, index, "",
                       fmt::format("must be an object (found {})", message->TypeName()));
  }
  Json::Object& members = message->as_object();
  const bool has_calls = message->Find("tool_calls") != nullptr;
  size_t num_kept = 0;
  for (Json::Member& member : members) {
    const MemberUse use = CheckMember(member.first, &member.second, index, draft);
    if (use == MemberUse::kFail) return false;
    if (use == MemberUse::kDrop) continue;
    if (&members[num_kept] != &member) members[num_kept] = std::move(member);
    ++num_kept;
  }
  members.resize(num_kept);
  if (message->Find("role") == nullptr) return FailMessage(draft, index, "role", "is missing");
  // A null content counts as missing if the message has no other members besides the role.
  const Json* const content = message->Find("content");
  const bool has_content = content != nullptr && (!content->is_null() || members.size() > 2);
  if (!has_content && !has_calls) {
    return FailMessage(draft, index, "content", "is missing");
  }
  return true;
}

}  // namespace

bool TakeMessages(Json& value, RowDraft* draft) {
  Json::Array& messages = value.as_array();
  if (messages.empty()) return false;
  draft->row.images.clear();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!CheckMessage(&messages[i], i, draft)) return false;
  }
  draft->row.kind = PromptKind::kMessages;
  draft->row.messages = std::move(value);
  return true;
}

}  // namespace minisgl::batch
