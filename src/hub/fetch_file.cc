#include "hub/fetch_file.h"

#include <chrono>
#include <string_view>

#include "hub/http_client.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kLongest{2};

// A body of at most so many bytes.
class BoundedBody final : public HttpSink {
 public:
  BoundedBody(const std::string& url, uint64_t bytes_max) : url_(url), bytes_max_(bytes_max) {}

  Status Begin(const HttpAnswer& answer) override {
    bytes_.clear();
    const auto length = ParseNumber<uint64_t>(answer.Header("content-length"));
    return length && *length > bytes_max_ ? TooLarge() : Status();
  }
  Status Add(std::string_view bytes) override {
    if (bytes.size() > bytes_max_ - bytes_.size()) return TooLarge();
    bytes_ += bytes;
    return Status();
  }
  std::string Take() { return std::move(bytes_); }

 private:
  Status TooLarge() const {
    return BadInput("{}: has more than {} bytes", Visible(url_, 300), bytes_max_);
  }

  const std::string& url_;
  const uint64_t bytes_max_;
  std::string bytes_;
};

bool MayPass(int status) { return status == 429 || status >= 500; }

Result<std::string> FetchOnce(HttpClient* client, const std::string& url, uint64_t bytes_max) {
  BoundedBody body(url, bytes_max);
  MINISGL_ASSIGN_OR_RETURN(const HttpAnswer answer, client->Get(url, 0, &body));
  if (answer.ok()) return body.Take();
  return MakeStatus(MayPass(answer.status) ? StatusCode::kUnavailable : StatusCode::kBadInput,
                    "{}: the server answers with status {}", Visible(url, 300), answer.status);
}

}  // namespace

Result<std::string> FetchFile(const std::string& url, const FetchLimits& limits) {
  const Clock::time_point end = Clock::now() + kLongest;
  HttpClient::Options options;
  options.endpoint = url;
  options.user_agent = "minisgl";
  options.is_public_only = limits.is_public_only;
  options.stops = [&limits, end] {
    return Clock::now() > end || (limits.stops != nullptr && limits.stops());
  };
  auto client = HttpClient::Open(std::move(options));
  if (!client.ok()) return client.status();
  Result<std::string> bytes = FetchOnce(client->get(), url, limits.bytes_max);
  const bool again = bytes.status().code() == StatusCode::kUnavailable && Clock::now() < end &&
                     (limits.stops == nullptr || !limits.stops());
  return again ? FetchOnce(client->get(), url, limits.bytes_max) : bytes;
}

}  // namespace minisgl::hub
