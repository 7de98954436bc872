#include "batch/row_preparer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "minisgl/vision/image_content.h"

namespace minisgl::batch {
namespace {

constexpr size_t kPictureShare = 16;
// A row is prepared only while the finished ones weigh less.
constexpr size_t kDoneWeightMax = size_t{16} << 20;

// Returns a copy of `row` without what only its prompt needs, which may be large.
Row WithoutPrompt(Row* row) {
  Row heavy;
  const auto exchange = [&] {
    std::swap(row->prompt, heavy.prompt);
    std::swap(row->scored_text, heavy.scored_text);
    std::swap(row->texts, heavy.texts);
    std::swap(row->messages, heavy.messages);
    std::swap(row->images, heavy.images);
    std::swap(row->tools, heavy.tools);
    std::swap(row->documents, heavy.documents);
    std::swap(row->template_kwargs, heavy.template_kwargs);
    std::swap(row->prompt_token_ids, heavy.prompt_token_ids);
    std::swap(row->logit_bias, heavy.logit_bias);
    std::swap(row->bad_words, heavy.bad_words);
    std::swap(row->allowed_token_ids, heavy.allowed_token_ids);
  };
  exchange();
  Row light = *row;
  exchange();
  return light;
}

}  // namespace

void DropPrompt(Row* row) {
  if (row->may_go_on()) return;
  row->prompt = row->scored_text = std::string();
  row->texts = {};
  row->queries = {};
  row->second_texts = {};
  row->messages = row->tools = row->documents = row->template_kwargs = Json();
  row->images = {};
  row->prompt_token_ids = std::vector<TokenId>();
  row->logit_bias = {};
  row->bad_words = {};
  row->allowed_token_ids = {};
}

size_t WeightOfPictures(const std::vector<Prompt>& prompts) {
  if (prompts.empty() || prompts.front().extras == nullptr) return 0;  // all answers share one
  std::set<const EncoderContent*> known;
  size_t weight = 0;
  for (const EncoderInput& input : prompts.front().extras->inputs) {
    const auto* const content = dynamic_cast<const ImageContent*>(input.content.get());
    if (content == nullptr || !known.insert(content).second) continue;
    const auto num_holders = static_cast<size_t>(std::max<long>(input.content.use_count(), 1));
    weight += content->image.values.size() * sizeof(float) / kPictureShare / num_holders;
  }
  return weight;
}

RowPreparer::~RowPreparer() {
  Cancel();
  if (thread_.joinable()) thread_.join();
}

void RowPreparer::Add(ReadyRow row) {
  auto job = std::make_shared<Job>();
  job->without_prompt = WithoutPrompt(&row.row);
  num_answers_ += row.row.n;
  bytes_ += row.bytes;
  job->ready = std::move(row);
  jobs_.push_back(job);
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(job));
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
}

std::optional<RowPreparer::Prepared> RowPreparer::Take(std::chrono::milliseconds wait) {
  if (jobs_.empty()) return std::nullopt;
  const std::shared_ptr<Job> job = jobs_.front();
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, wait, [&] { return job->is_done; })) return std::nullopt;
    done_weight_ -= job->weight;
  }
  if (job->weight > 0) changed_.notify_all();
  jobs_.pop_front();
  num_answers_ -= job->without_prompt.n;
  bytes_ -= job->ready.bytes;
  job->ready.bytes += job->weight;
  if (job->thrown) std::rethrow_exception(job->thrown);
  return Prepared{std::move(job->ready), std::move(job->error)};
}

bool RowPreparer::Has(const Json& id) const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [&id](const auto& job) { return job->without_prompt.id == id; });
}

std::vector<Row> RowPreparer::Cancel() {
  cancelled_ = true;
  {
    const std::lock_guard lock(mutex_);
    waiting_.clear();
  }
  changed_.notify_all();
  std::vector<Row> rows;
  for (const auto& job : jobs_) rows.push_back(std::move(job->without_prompt));
  jobs_.clear();
  num_answers_ = 0;
  bytes_ = 0;
  return rows;
}

void RowPreparer::Work() {
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] {
        return cancelled_ || (!waiting_.empty() && done_weight_ < kDoneWeightMax);
      });
      if (waiting_.empty()) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    try {
      ReadyRow& ready = job->ready;
      job->error = prompts_.Build(&ready.row, &ready.prompts, &cancelled_, ready.said.get());
      DropPrompt(&ready.row);
      job->weight = WeightOfPictures(ready.prompts);
    } catch (...) {
      job->thrown = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      job->is_done = true;
      done_weight_ += job->weight;
    }
    changed_.notify_all();
  }
}

}  // namespace minisgl::batch
