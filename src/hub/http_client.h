// GET and HEAD over HTTP and HTTPS, with libcurl, which is loaded when a client is opened.
//
// - Redirects are followed here: the token goes to the endpoint's scheme, host and port alone, and
//   to no address after a redirect has led elsewhere. HTTPS is not left for HTTP.
// - Proxies are libcurl's: http_proxy, https_proxy, all_proxy, no_proxy; none if is_public_only.
// - An answer without a byte for a minute is a failure.
// - Used by one thread. Connections are used again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::hub {

struct HttpAnswer {
  int status = 0;                                           // 200, 404, ...
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case
  // The first kilobytes of an answer that is neither 200 nor 206.
  std::string error_body;

  bool ok() const { return status == 200 || status == 206; }
  // The value of header `name`, "" if it is not there.
  std::string Header(std::string_view name) const;
};

// Receives the body of an answer that is ok(). An error of either function ends the transfer.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  // Called before the first byte, also of an empty body.
  virtual Status Begin(const HttpAnswer& answer) = 0;
  virtual Status Add(std::string_view bytes) = 0;
};

class HttpClient {
 public:
  struct Options {
    std::string endpoint;  // "https://host", "http://host:port/path"
    std::string token;     // "": none
    std::string user_agent;
    std::function<bool()> stops;  // called several times a second; true ends a transfer
    // Connects to public addresses alone (public_address.h), and uses no proxy: kBadInput for
    // others.
    bool is_public_only = false;
  };
  // kUnavailable if the program was built without libcurl, or the library is not installed. kUsage
  // for an endpoint that is no URL, and for a token that no header can hold.
  static Result<std::unique_ptr<HttpClient>> Open(Options options);
  virtual ~HttpClient() = default;

  // The answer to a GET of `url`, from byte `first_byte` on, after redirects. kUnavailable if there
  // is no whole answer (a later try may get one) or `stops` ended it; an error of `sink`; kBadInput
  // for a redirect that is not followed.
  virtual Result<HttpAnswer> Get(const std::string& url, uint64_t first_byte, HttpSink* sink) = 0;
  // The answer to a HEAD. Redirects that leave the endpoint's host are not followed, since they
  // lead to the contents: that answer is returned.
  virtual Result<HttpAnswer> Head(const std::string& url) = 0;
};

}  // namespace minisgl::hub
