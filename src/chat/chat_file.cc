#include "chat/chat_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "minisgl/base/base64.h"
#include "minisgl/base/byte_order_mark.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/vision/picture.h"

namespace minisgl::chat {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;
constexpr mode_t kSavedMode = 0600;  // of a new file: private, like the history
// Limit on the JSON values of a line or of the whole file. It is far above any conversation and
// bounds the memory of parsing, because a value of two bytes takes forty in memory.
constexpr uint64_t kValuesMax = uint64_t{1} << 20;
// The same name as in the rows of `run`.
constexpr const char* kReasoningField = "reasoning";
constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};

// Takes a picture out of `part`, which becomes {"type": "image"}.
Status ReadPicture(Json* part, const PictureTaker& take, SessionMessage* message) {
  std::vector<std::string> ignored;
  MINISGL_ASSIGN_OR_RETURN(const batch::RowImage image, batch::TakeImagePart(part, &ignored));
  if (!take) return Status();
  MINISGL_ASSIGN_OR_RETURN(ConversationImage taken, take(image));
  message->images.push_back(std::move(taken));
  return Status();
}

// Keeps the parts of a message in which a picture stands after a text.
void KeepOrder(Json::Array parts, SessionMessage* message) {
  const auto is_picture = [](const Json& part) { return batch::IsImagePart(part); };
  const auto first_text = std::find_if_not(parts.begin(), parts.end(), is_picture);
  if (message->images.empty() || std::none_of(first_text, parts.end(), is_picture)) return;
  message->given.Set("role", message->role).Set("content", Json(std::move(parts)));
}

// Reads a string, or an array of parts that are text, pictures or an answer's reasoning.
Status ReadContent(const Json& content, const PictureTaker& take, SessionMessage* message) {
  if (content.is_string()) {
    message->content = content.as_string();
    return Status();
  }
  if (!content.is_array()) {
    return BadInput("content is {}, but must be a string or an array of parts", content.TypeName());
  }
  Json::Array parts = content.as_array();
  for (Json& part : parts) {
    if (batch::IsImagePart(part)) {
      MINISGL_RETURN_IF_ERROR(ReadPicture(&part, take, message));
      continue;
    }
    const Json* type = part.Find("type");
    const std::string kind = type != nullptr && type->is_string() ? type->as_string() : "";
    const bool is_reasoning = kind == "thinking" && message->role == "assistant";
    const Json* words = part.Find(is_reasoning ? "thinking" : "text");
    if ((kind != "text" && !is_reasoning) || words == nullptr || !words->is_string()) {
      return BadInput("a part of content is no text and no picture (found {})",
                      Visible(part.Dump(), 60));
    }
    (is_reasoning ? message->reasoning : message->content) += words->as_string();
  }
  KeepOrder(std::move(parts), message);
  return Status();
}

// Takes the first of the possible names that is present and not null.
Status ReadReasoning(const Json& json, SessionMessage* message) {
  if (message->role != "assistant") return Status();
  for (const char* name : {kReasoningField, "reasoning_content", "thinking"}) {
    const Json* reasoning = json.Find(name);
    if (reasoning == nullptr || reasoning->is_null()) continue;
    if (!reasoning->is_string()) {
      return BadInput("{} is {}, but must be a string", name, reasoning->TypeName());
    }
    message->reasoning = reasoning->as_string();
    return Status();
  }
  return Status();
}

// True for an answer with calls of tools.
bool HasCalls(const Json& message) {
  const Json* const role = message.Find("role");
  const Json* const calls = message.Find("tool_calls");
  return role != nullptr && *role == Json("assistant") && calls != nullptr && calls->is_array() &&
         !calls->as_array().empty();
}

Status AddMessage(const Json& json, const PictureTaker& take,
                  std::vector<SessionMessage>* messages) {
  const Json* role = json.Find("role");
  const Json* content = json.Find("content");
  if (role == nullptr || !role->is_string() || content == nullptr) {
    return BadInput("not a message; write {{\"role\": \"...\", \"content\": \"...\"}}");
  }
  if (std::find(kRoles.begin(), kRoles.end(), role->as_string()) == kRoles.end()) {
    return BadInput("the role {} is not known; use system, user or assistant",
                    Visible(role->as_string()));
  }
  SessionMessage message = {role->as_string(), "", {}};
  const bool has_calls = HasCalls(json);
  if (!has_calls || !content->is_null()) {
    MINISGL_RETURN_IF_ERROR(ReadContent(*content, take, &message));
  }
  MINISGL_RETURN_IF_ERROR(ReadReasoning(json, &message));
  if (has_calls || message.role == "tool") message.given = json;
  messages->push_back(std::move(message));
  return Status();
}

Status AddAll(const Json& list, const PictureTaker& take, std::vector<SessionMessage>* messages) {
  for (const Json& message : list.as_array()) {
    MINISGL_RETURN_IF_ERROR(AddMessage(message, take, messages));
  }
  return Status();
}

Status AddLine(std::string_view line, const PictureTaker& take,
               std::vector<SessionMessage>* messages) {
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJson(line, {.values_max = kValuesMax}));
  const Json* list = json.Find("messages");
  if (list == nullptr) return AddMessage(json, take, messages);
  if (!list->is_array()) return BadInput("messages is {}, but must be an array", list->TypeName());
  if (!messages->empty()) {
    return BadInput("a second conversation; keep one in a file to load it");
  }
  return AddAll(*list, take, messages);
}

// Parses one value over several lines, as other programs write it: an array of messages, or an
// object with such an array. Returns nullopt if the text is not such a value.
std::optional<Status> AddDocument(std::string_view text, const PictureTaker& take,
                                  std::vector<SessionMessage>* messages) {
  const Result<Json> json = ParseJson(text, {.values_max = kValuesMax});
  if (!json.ok()) return std::nullopt;
  const Json* list = json->is_array() ? &*json : json->Find("messages");
  if (list == nullptr || !list->is_array()) return std::nullopt;
  return AddAll(*list, take, messages);
}

// Writes to a device or a pipe, which cannot be replaced.
Status WriteInPlace(const std::string& path, std::string_view text) {
  MINISGL_ASSIGN_OR_RETURN(const OpenedFile file, OpenToWrite(path, 0, kSavedMode));
  const bool written = WriteAll(file.fd, text);
  const int write_errno = errno;
  if (close(file.fd) == 0 && written) return Status();
  return MakeStatus(StatusCode::kIoError, "{}: cannot be written ({})", Visible(path, 400),
                    std::strerror(written ? errno : write_errno));
}

// A file: URL of an absolute path, in which other characters than those of names are escaped.
std::string FileUrl(const std::string& path) {
  std::string url = "file://";
  for (const char c : path) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                          std::string_view("/._-~").find(c) != std::string_view::npos;
    url += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<uint8_t>(c));
  }
  return url;
}

Json PartOf(const ConversationImage& image) {
  std::string url = FileUrl(image.name);
  if (!image.name.starts_with('/')) {
    const auto header = ReadPictureHeader(*image.bytes, image.limits);
    std::string kind = header.ok() ? PictureKindName(header->kind) : "png";
    for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    url = fmt::format("data:image/{};base64,{}", kind, EncodeBase64(*image.bytes));
  }
  return Json(Json::Object{{"type", "image_url"}, {"image_url", Json(Json::Object{{"url", url}})}});
}

// The content of a message with pictures.
Json PartsOfContent(const SessionMessage& message) {
  const Json text = Json(Json::Object{{"type", "text"}, {"text", message.content}});
  Json::Array parts;
  const Json* const given = message.given.Find("content");
  if (given == nullptr || !given->is_array()) {
    for (const ConversationImage& image : message.images) parts.push_back(PartOf(image));
    if (!message.content.empty()) parts.push_back(text);
    return Json(std::move(parts));
  }
  auto next = message.images.begin();
  for (const Json& part : given->as_array()) {
    const bool is_picture = batch::IsImagePart(part) && next != message.images.end();
    parts.push_back(is_picture ? PartOf(*next++) : part);
  }
  return Json(std::move(parts));
}

}  // namespace

Result<std::vector<SessionMessage>> LoadConversation(const std::string& path,
                                                     const PictureTaker& take) {
  MINISGL_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kFileBytesMax));
  DropByteOrderMark(&text);
  std::vector<SessionMessage> messages;
  std::string_view rest = text;
  if (const auto status = AddDocument(rest, take, &messages)) {
    if (!status->ok()) return status->WithPrefix(Visible(path, 400));
    rest = {};
  }
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Status status = AddLine(line, take, &messages);
    if (!status.ok()) return status.WithPrefix(fmt::format("{}:{}", Visible(path, 400), number));
  }
  if (messages.empty()) {
    return BadInput("{}: holds no messages; it needs a line for each", Visible(path, 400));
  }
  return messages;
}

std::string ConversationText(const std::vector<SessionMessage>& messages) {
  std::string text;
  for (const SessionMessage& message : messages) {
    if (HasCalls(message.given) || (message.role == "tool" && !message.given.is_null())) {
      text += message.given.Dump() + '\n';
      continue;
    }
    Json line;
    line.Set("role", message.role);
    line.Set("content", message.images.empty() ? Json(message.content) : PartsOfContent(message));
    if (!message.reasoning.empty()) line.Set(kReasoningField, message.reasoning);
    text += line.Dump() + '\n';
  }
  return text;
}

Status SaveConversation(const std::string& path, const std::vector<SessionMessage>& messages,
                        bool overwrite) {
  if (path == "-") return UsageError("standard output is the conversation; name a file");
  const std::string text = ConversationText(messages);
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) return WriteInPlace(path, text);
  if (exists && info.st_size > 0 && !overwrite) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "{}: exists and is not empty; choose another name, or /save -f FILE",
                      Visible(path, 400));
  }
  return ReplaceFile(path, text, kSavedMode);
}

}  // namespace minisgl::chat
