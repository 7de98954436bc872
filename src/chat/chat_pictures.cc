// Pictures of a chat: those that wait for the next message, and those of loaded conversations.
#include <memory>
#include <utility>

#include "chat/chat.h"
#include "chat/chat_completion.h"
#include "minisgl/base/utf8.h"
#include "minisgl/vision/image_layout.h"
#include "minisgl/vision/image_rules.h"

namespace minisgl::chat {
namespace {

Status CheckReadsPictures(const TextModel& text) {
  if (text.images) return Status();
  if (!text.images_status.ok()) return text.images_status;
  return MakeStatus(StatusCode::kUnavailable, "the model reads no images");
}

}  // namespace

Result<ConversationImage> Chat::ReadPicture(const std::string& path) const {
  MINISGL_RETURN_IF_ERROR(CheckReadsPictures(model_.text));
  return image_reader_.Take(batch::ImageOfUser(ExpandHome(path)), model_.text);
}

int64_t Chat::TokensOf(const ConversationImage& image) const {
  if (!model_.text.images || image.bytes == nullptr) return 0;
  const auto rules = WithTokenBounds(model_.text.images->rules, image.tokens_min, image.tokens_max);
  if (!rules.ok()) return 0;
  const auto layout = LayOutImageFile(*rules, *image.bytes, image.limits);
  return layout.ok() ? layout->num_tokens : 0;
}

bool Chat::AttachPicture(const std::string& path) {
  Result<ConversationImage> image = ReadPicture(path);
  if (!image.ok()) {
    SayFailure(image.status());
    return false;
  }
  Note(fmt::format("{} is shown with the next message ({} tokens).", Visible(path, 400),
                   TokensOf(*image)));
  waiting_images_.push_back(std::move(image).value());
  return true;
}

void Chat::Image(const std::string& arguments) {
  if (arguments.empty()) return Say("/image needs the name of a file");
  if (arguments == "\"\"") {
    waiting_images_.clear();
    return Note("No picture is shown with the next message.");
  }
  failed_ = !AttachPicture(arguments) || failed_;
}

PictureTaker Chat::TakerOf(const std::string& folder) const {
  const auto reader = std::make_shared<batch::ImageReader>(options_.image_options, folder);
  return [this, reader](const batch::RowImage& image) -> Result<ConversationImage> {
    MINISGL_RETURN_IF_ERROR(CheckReadsPictures(model_.text));
    return reader->Take(image, model_.text);
  };
}

}  // namespace minisgl::chat
