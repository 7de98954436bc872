// The only file that knows libcurl. Its functions are looked up in the library when a client is
// opened, so that commands without a network neither need the library nor load it: loading it and
// the thirty libraries below it takes 17 to 35 ms.
#include "hub/http_client.h"

#if MINISGL_HAS_CURL
#include <curl/curl.h>
#include <dlfcn.h>
#include <sys/socket.h>
#endif

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "hub/public_address.h"
#include "minisgl/base/library_function.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl::hub {

std::string HttpAnswer::Header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

#if MINISGL_HAS_CURL

namespace {

constexpr const char* kLibrary = "libcurl.so.4";
constexpr int kRedirectsMax = 10;
constexpr size_t kErrorBodyBytesMax = 4096;
constexpr size_t kHeadersMax = 200;
constexpr long kConnectTimeout_s = 30;
constexpr long kSilence_s = 60;

// The functions of libcurl that are used.
struct Curl {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_setopt) setopt = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  decltype(&curl_easy_getinfo) getinfo = nullptr;
  decltype(&curl_easy_strerror) strerror = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_slist_append) list_append = nullptr;
  decltype(&curl_slist_free_all) list_free = nullptr;
  decltype(&curl_url) url = nullptr;
  decltype(&curl_url_set) url_set = nullptr;
  decltype(&curl_url_get) url_get = nullptr;
  decltype(&curl_url_cleanup) url_cleanup = nullptr;
  decltype(&curl_free) free = nullptr;
};

// The library stays loaded: it registers functions that run when the process ends.
Result<Curl> LoadCurl() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return MakeStatus(StatusCode::kUnavailable,
                      "{} cannot be loaded ({}); install it (Debian: libcurl4 or libcurl4t64)",
                      kLibrary, Visible(reason == nullptr ? "unknown reason" : reason, 400));
  }
  Curl curl;
  const bool has_all = FindFunction(library, "curl_global_init", &curl.global_init) &&
                       FindFunction(library, "curl_easy_init", &curl.easy_init) &&
                       FindFunction(library, "curl_easy_reset", &curl.easy_reset) &&
                       FindFunction(library, "curl_easy_setopt", &curl.setopt) &&
                       FindFunction(library, "curl_easy_perform", &curl.perform) &&
                       FindFunction(library, "curl_easy_getinfo", &curl.getinfo) &&
                       FindFunction(library, "curl_easy_strerror", &curl.strerror) &&
                       FindFunction(library, "curl_easy_cleanup", &curl.easy_cleanup) &&
                       FindFunction(library, "curl_slist_append", &curl.list_append) &&
                       FindFunction(library, "curl_slist_free_all", &curl.list_free) &&
                       FindFunction(library, "curl_url", &curl.url) &&
                       FindFunction(library, "curl_url_set", &curl.url_set) &&
                       FindFunction(library, "curl_url_get", &curl.url_get) &&
                       FindFunction(library, "curl_url_cleanup", &curl.url_cleanup) &&
                       FindFunction(library, "curl_free", &curl.free);
  if (!has_all || curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return MakeStatus(StatusCode::kUnavailable,
                      "{} cannot be used: it is older than 7.85 or cannot be initialised; install "
                      "a newer one",
                      kLibrary);
  }
  return curl;
}

// The parts of URLs that are equal if both name one server.
struct Origin {
  std::string scheme, host, port;
  bool operator==(const Origin&) const = default;
};

// One request, of which libcurl calls the functions below.
struct Transfer {
  const Curl* curl = nullptr;
  CURL* handle = nullptr;
  const std::function<bool()>* stops = nullptr;
  HttpSink* sink = nullptr;
  HttpAnswer answer;
  Status failure;       // of the sink
  std::string refused;  // an address that is not public
  bool has_begun = false;

  bool Begin() {
    if (has_begun || sink == nullptr) return true;
    has_begun = true;
    failure = sink->Begin(answer);
    return failure.ok();
  }
};

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

size_t OnHeader(char* data, size_t size, size_t count, void* context) {
  auto* const transfer = static_cast<Transfer*>(context);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {  // of this answer, or of one that came before it
    transfer->answer.headers.clear();
    const size_t space = std::min(line.find(' '), line.size() - 1);
    transfer->answer.status = ParseNumber<int>(line.substr(space + 1, 3)).value_or(0);
  }
  const size_t colon = line.find(':');
  if (colon != std::string_view::npos && transfer->answer.headers.size() < kHeadersMax) {
    std::string name(Trimmed(line.substr(0, colon)));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    transfer->answer.headers[name] = Trimmed(line.substr(colon + 1));
  }
  return size * count;
}

size_t OnBody(char* data, size_t size, size_t count, void* context) {
  auto* const transfer = static_cast<Transfer*>(context);
  const std::string_view bytes(data, size * count);
  if (!transfer->answer.ok()) {
    std::string& body = transfer->answer.error_body;
    body += bytes.substr(0, kErrorBodyBytesMax - std::min(body.size(), kErrorBodyBytesMax));
    return bytes.size();
  }
  if (!transfer->Begin()) return 0;
  if (transfer->sink != nullptr) transfer->failure = transfer->sink->Add(bytes);
  return transfer->failure.ok() ? bytes.size() : 0;
}

int OnProgress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto* const transfer = static_cast<const Transfer*>(context);
  return (*transfer->stops)() ? 1 : 0;
}

// Opens a socket for an address that is public, whichever name it was found by.
curl_socket_t OpenPublicSocket(void* context, curlsocktype, curl_sockaddr* address) {
  if (!IsPublicAddress(address->addr)) {
    static_cast<Transfer*>(context)->refused = AddressText(address->addr);
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

class CurlClient final : public HttpClient {
 public:
  CurlClient(const Curl& curl, Options options)
      : curl_(curl), options_(std::move(options)), handle_(curl_.easy_init()) {}
  ~CurlClient() override {
    if (handle_ != nullptr) curl_.easy_cleanup(handle_);
  }
  Status Prepare();

  Result<HttpAnswer> Get(const std::string& url, uint64_t first_byte, HttpSink* sink) override {
    return Follow(url, first_byte, sink, false);
  }
  Result<HttpAnswer> Head(const std::string& url) override { return Follow(url, 0, nullptr, true); }

 private:
  std::optional<Origin> OriginOf(const std::string& url) const;
  Result<HttpAnswer> Follow(std::string url, uint64_t first_byte, HttpSink* sink, bool is_head);
  Result<HttpAnswer> Once(const std::string& url, uint64_t first_byte, HttpSink* sink, bool is_head,
                          bool with_token, std::string* redirect);

  const Curl curl_;
  const Options options_;
  CURL* const handle_;
  Origin endpoint_;
};

std::optional<Origin> CurlClient::OriginOf(const std::string& url) const {
  CURLU* const parsed = curl_.url();
  if (parsed == nullptr) return std::nullopt;
  Origin origin;
  bool is_url = curl_.url_set(parsed, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK;
  const auto get = [&](CURLUPart part, std::string* value) {
    char* text = nullptr;
    is_url = is_url && curl_.url_get(parsed, part, &text, CURLU_DEFAULT_PORT) == CURLUE_OK;
    if (text == nullptr) return;
    for (const char* c = text; *c != '\0'; ++c) {
      value->push_back(*c >= 'A' && *c <= 'Z' ? static_cast<char>(*c - 'A' + 'a') : *c);
    }
    curl_.free(text);
  };
  get(CURLUPART_SCHEME, &origin.scheme);
  get(CURLUPART_HOST, &origin.host);
  get(CURLUPART_PORT, &origin.port);
  curl_.url_cleanup(parsed);
  if (!is_url || (origin.scheme != "http" && origin.scheme != "https")) return std::nullopt;
  return origin;
}

Status CurlClient::Prepare() {
  if (handle_ == nullptr) return MakeStatus(StatusCode::kOutOfMemory, "out of memory");
  const std::optional<Origin> origin = OriginOf(options_.endpoint);
  if (!origin) {
    return UsageError("HF_ENDPOINT: is not an http:// or https:// URL (found {})",
                      Visible(options_.endpoint, 200));
  }
  endpoint_ = *origin;
  const bool is_printable = std::all_of(options_.token.begin(), options_.token.end(),
                                        [](char c) { return c > ' ' && c < 0x7f; });
  if (!is_printable) {
    return UsageError("HF_TOKEN: has a character that no token has (a space, a line break, ...)");
  }
  return Status();
}

Result<HttpAnswer> CurlClient::Once(const std::string& url, uint64_t first_byte, HttpSink* sink,
                                    bool is_head, bool with_token, std::string* redirect) {
  Transfer transfer{.curl = &curl_, .handle = handle_, .stops = &options_.stops, .sink = sink};
  std::array<char, CURL_ERROR_SIZE> error{};
  curl_.easy_reset(handle_);
  const auto set = [&](CURLoption option, auto value) { curl_.setopt(handle_, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, kConnectTimeout_s);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kSilence_s);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_USERAGENT, options_.user_agent.c_str());
  set(CURLOPT_ERRORBUFFER, error.data());
  set(CURLOPT_HEADERFUNCTION, OnHeader);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, OnBody);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, OnProgress);
  set(CURLOPT_XFERINFODATA, &transfer);
  if (options_.is_public_only) {
    set(CURLOPT_PROXY, "");
    set(CURLOPT_OPENSOCKETFUNCTION, OpenPublicSocket);
    set(CURLOPT_OPENSOCKETDATA, &transfer);
  }
  if (is_head) set(CURLOPT_NOBODY, 1L);
  const std::string range = fmt::format("{}-", first_byte);
  if (first_byte > 0) set(CURLOPT_RANGE, range.c_str());
  // Compressed contents would have other bytes, and other ranges.
  curl_slist* headers = curl_.list_append(nullptr, "Accept-Encoding: identity");
  if (with_token) {
    const std::string line = "Authorization: Bearer " + options_.token;
    headers = curl_.list_append(headers, line.c_str());
  }
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_HEADEROPT, long{CURLHEADER_SEPARATE});  // a proxy gets none of these
  const CURLcode code = curl_.perform(handle_);
  curl_.list_free(headers);
  if (code == CURLE_OK && transfer.answer.ok()) transfer.Begin();
  if (!transfer.failure.ok()) return transfer.failure;
  if (code != CURLE_OK && !transfer.refused.empty()) {
    return BadInput("{}: leads to {}, which is no public address", Visible(url, 300),
                    transfer.refused);
  }
  if (code != CURLE_OK) {
    return MakeStatus(StatusCode::kUnavailable, "{}: {}", Visible(url, 300),
                      Visible(error[0] != '\0' ? error.data() : curl_.strerror(code), 300));
  }
  const char* next = nullptr;
  curl_.getinfo(handle_, CURLINFO_REDIRECT_URL, &next);
  *redirect = next == nullptr ? "" : next;
  return std::move(transfer.answer);
}

Result<HttpAnswer> CurlClient::Follow(std::string url, uint64_t first_byte, HttpSink* sink,
                                      bool is_head) {
  bool is_at_endpoint = true;
  for (int count = 0; count <= kRedirectsMax; ++count) {
    const std::optional<Origin> origin = OriginOf(url);
    if (!origin) {
      return BadInput("{}: a redirect leads to {}, which is no http:// or https:// URL",
                      Visible(options_.endpoint, 200), Visible(url, 300));
    }
    is_at_endpoint = is_at_endpoint && *origin == endpoint_;
    if (endpoint_.scheme == "https" && origin->scheme != "https") {
      return BadInput("{}: a redirect leads from https to {}; it is not followed",
                      Visible(options_.endpoint, 200), Visible(url, 300));
    }
    std::string redirect;
    MINISGL_ASSIGN_OR_RETURN(
        HttpAnswer answer,
        Once(url, first_byte, sink, is_head, is_at_endpoint && !options_.token.empty(), &redirect));
    const bool leaves = !redirect.empty() && OriginOf(redirect) != endpoint_;
    if (redirect.empty() || (is_head && leaves)) return answer;
    url = std::move(redirect);
  }
  return BadInput("{}: more than {} redirects", Visible(options_.endpoint, 200), kRedirectsMax);
}

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::Open(Options options) {
  MINISGL_ASSIGN_OR_RETURN(const Curl curl, LoadCurl());
  auto client = std::make_unique<CurlClient>(curl, std::move(options));
  MINISGL_RETURN_IF_ERROR(client->Prepare());
  return std::unique_ptr<HttpClient>(std::move(client));
}

#else

Result<std::unique_ptr<HttpClient>> HttpClient::Open(Options) {
  return MakeStatus(StatusCode::kUnavailable,
                    "this program was built without libcurl and cannot download; build it with "
                    "libcurl's headers (Debian: libcurl4-openssl-dev)");
}

#endif

}  // namespace minisgl::hub
