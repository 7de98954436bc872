// The model of a chat: what it is, and how another takes its place.
//
// The old model is freed before the weights of the new one are read, since there may be no memory
// for both. What can be wrong with the new one's small files is found before that.
#include <algorithm>
#include <iterator>
#include <utility>

#include "chat/chat.h"
#include "chat/chat_settings.h"
#include "load/prefix_cache.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {
namespace {

// Values and files of pictures that are kept for later turns.
constexpr uint64_t kPreparedBytesMax = uint64_t{256} << 20;

// Whether reasoning is switched on or off is left to a template without a switch for it.
Result<TextModel> LoadOtherText(load::ModelOptions* options) {
  Result<TextModel> text = load::LoadTextModel(*options);
  if (text.ok() || options->think == load::Thinking::kAuto) return text;
  options->think = load::Thinking::kAuto;
  return load::LoadTextModel(*options);
}

}  // namespace

void Chat::Model(const std::string& arguments) {
  if (arguments.empty()) return ShowModel();
  if (batch_ && !batch_->ended()) {
    return Say("A batch is running; /batch stop ends it, /batch wait waits for its end.");
  }
  ReportBatchEnd();
  Keep();
  const Status status = SwitchModel(ExpandHome(Trimmed(arguments)));
  if (status.ok()) {
    return Note(fmt::format("{} on {}, {} tokens of context; the conversation goes on.",
                            Visible(model_.text.dir, 400), model_.device, ContextLimit()));
  }
  failed_ = true;
  SayFailure(status);
  if (model_status_.ok()) {
    Note(fmt::format("(the model is still {})", Visible(model_.text.dir, 400)));
  } else {
    Say("minisgl: the old model cannot be loaded again: " + Visible(model_status_.message(), 4000));
  }
}

void Chat::ShowModel() const {
  const ModelConfig& config = model_.facts.config;
  Say(fmt::format("  {}: {}, {} layers, width {}, {} weights, on {}", Visible(model_.text.dir, 400),
                  config.architecture, config.num_layers, config.hidden_size,
                  model_.facts.engine.plan.weight_format.Name(), model_.device));
}

void Chat::Think(const std::string& arguments) {
  const std::string value = Trimmed(arguments);
  if (value.empty()) return ShowThinking();
  Status status;
  const auto choice =
      std::find_if(std::begin(load::kThinkingChoices), std::end(load::kThinkingChoices),
                   [&value](const auto& known) { return value == known.name; });
  if (choice != std::end(load::kThinkingChoices)) {
    status = SwitchThinking(choice->value);
  } else if (SetParameter("think_budget", value, &settings_).ok()) {
    set_.emplace_back("think_budget", value);
  } else {
    status = UsageError("/think takes on, off, auto, a number of tokens or none (found \"{}\")",
                        Visible(value));
  }
  if (status.ok()) return ShowThinking();
  SayFailure(status);
  failed_ = true;
}

void Chat::ShowThinking() const {
  if (session_->reasoning_tags().none()) {
    return Note("The model's chat template marks no reasoning.");
  }
  if (settings_.thought_budget == 0) {
    return Note("Reasoning is closed at once (a budget of 0 tokens).");
  }
  std::string text = fmt::format("Reasoning is {}",
                                 load::ChoiceName(load::kThinkingChoices, model_options_.think));
  if (settings_.thought_budget > 0) {
    text += fmt::format(", at most {} token{}", settings_.thought_budget,
                        settings_.thought_budget == 1 ? "" : "s");
  }
  Note(text + ".");
}

// Without a switch of the template, off is a budget of 0. What is switched on is not closed at
// once.
Status Chat::SwitchThinking(load::Thinking think) {
  if (batch_ && !batch_->ended()) {
    return UsageError("a batch is running with this setting; /batch stop ends it");
  }
  load::ModelOptions options = model_options_;
  options.think = think;
  const bool closed = settings_.thought_budget == 0;
  const Status status = load::SetTemplateArgs(options, &model_.text);
  const bool closes = !status.ok() && think == load::Thinking::kOff;
  if (status.ok()) {
    model_options_ = std::move(options);
  } else if (session_->reasoning_tags().none() || (!closes && !closed)) {
    return status;
  }
  if (closes || closed) {
    settings_.thought_budget = closes ? 0 : -1;
    set_.emplace_back("think_budget", closes ? "0" : "none");
  }
  return Status();
}

Status Chat::SwitchModel(const std::string& name) {
  load::ModelOptions options = model_options_;
  options.model = name;
  // They were chosen for the old model.
  options.projector.clear();
  options.chat_template.clear();
  options.template_content.reset();
  options.adapters.clear();
  options.default_adapter.clear();
  options.merge_adapter.clear();
  MINISGL_ASSIGN_OR_RETURN(TextModel text, LoadOtherText(&options));
  MINISGL_RETURN_IF_ERROR(load::CheckGivesAnswers(text));
  MINISGL_RETURN_IF_ERROR(load::CheckHasTemplate(text));
  MINISGL_RETURN_IF_ERROR(load::CheckModelFiles(text));
  const ReasoningTags tags = session_->reasoning_tags();
  TextModel old = FreeModel();
  const Status status = StartModel(std::move(text));
  if (status.ok()) {
    model_options_ = std::move(options);
    ForgetModel(tags);
  } else {
    model_status_ = StartModel(std::move(old));
  }
  return status;
}

TextModel Chat::FreeModel() {
  held_ = std::move(session_->messages());
  session_.reset();
  branches_.CloseSessions();
  batch_.reset();
  load::FinishPrefixCache(model_.runtime.get(), kSaveGrace);
  model_.runtime.reset();
  model_.kernel_report.reset();
  return std::move(model_.text);
}

Status Chat::StartModel(TextModel text) {
  MINISGL_ASSIGN_OR_RETURN(model_,
                           load::LoadModel(std::move(text), options_.engine, reports_.Sinks()));
  BeginWithModel();
  session_->messages() = std::move(held_);
  branches_.OpenSessions(model_.runtime.get());
  return Status();
}

void Chat::BeginWithModel() {
  adapter_ = model_.text.adapters == nullptr ? "" : model_.text.adapters->default_name;
  prepared_ = std::make_unique<PreparedPictures>(kPreparedBytesMax);
  session_.emplace(model_.text.tokenizer.get(), model_.text.chat_template.get());
  BeginTools();
  settings_ = MakeChatSettings(options_.sampling, model_.facts.generation, drawn_seed_);
  // All were taken before.
  for (const auto& [name, value] : set_) {
    if (const Status status = SetParameter(name, value, &settings_); !status.ok()) {
      SayFailure(status);
    }
  }
}

void Chat::ForgetModel(const ReasoningTags& tags) {
  const auto forget = [&](SessionMessage* message) {
    message->answer_ids.clear();
    if (message->role != "assistant" || !message->reasoning.empty()) return;
    const ReasoningPiece parts = SplitReasoning(tags, message->content);
    if (parts.reasoning.empty()) return;
    message->content = Trimmed(parts.text);
    message->reasoning = Trimmed(parts.reasoning);
  };
  const auto forget_all = [&](std::vector<SessionMessage>* messages) {
    for (SessionMessage& message : *messages) forget(&message);
  };
  forget_all(&session_->messages());
  forget_all(&dropped_);
  branches_.ForEach([&](ChatBranch* branch) {
    forget_all(&branch->turns.messages);
    forget_all(&branch->turns.dropped);
  });
  alternatives_.ForEach(forget);
}

}  // namespace minisgl::chat
