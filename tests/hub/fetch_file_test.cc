// Files of the network, from a server on the loopback, which is no public address.
#include "hub/fetch_file.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

namespace minisgl::hub {
namespace {

// Answers each connection with the text of its path, then closes it.
class LocalServer {
 public:
  using Answers = std::map<std::string, std::string>;  // by path
  explicit LocalServer(Answers answers) : answers_(std::move(answers)) {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    socklen_t length = sizeof(address);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~LocalServer() {
    shutdown(socket_, SHUT_RDWR);  // ends the wait of the thread
    thread_.join();
    close(socket_);
  }

  std::string Url(const std::string& path) const {
    return fmt::format("http://127.0.0.1:{}{}", port_, path);
  }
  int num_requests() const { return num_requests_; }

 private:
  void Serve() {
    for (;;) {
      const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      std::string request;
      char byte = 0;
      while (!request.ends_with("\r\n\r\n") && read(connection, &byte, 1) == 1) request += byte;
      ++num_requests_;
      const size_t begin = request.find(' ') + 1;
      const auto found = answers_.find(request.substr(begin, request.find(' ', begin) - begin));
      const std::string answer =
          found == answers_.end() ? "HTTP/1.1 404 Not Found\r\n\r\n" : found->second;
      for (size_t done = 0; done < answer.size();) {
        const ssize_t count =
            send(connection, answer.data() + done, answer.size() - done, MSG_NOSIGNAL);
        if (count <= 0) break;
        done += static_cast<size_t>(count);
      }
      close(connection);
    }
  }

  const Answers answers_;
  int socket_ = -1, port_ = 0;
  std::atomic<int> num_requests_ = 0;
  std::thread thread_;
};

class FetchFileTest : public testing::Test {
 protected:
  void SetUp() override {
    // A proxy of the environment would be asked in the server's place.
    for (const char* name : {"http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"}) unsetenv(name);
    if (Fetch("http://127.0.0.1:1/").code() == StatusCode::kUnavailable &&
        last_.find("libcurl") != std::string::npos) {
      GTEST_SKIP() << last_;
    }
  }

  Status Fetch(const std::string& url, uint64_t bytes_max = 100, bool is_public_only = false) {
    const auto bytes = FetchFile(url, {.bytes_max = bytes_max, .is_public_only = is_public_only});
    last_ = bytes.ok() ? *bytes : bytes.status().message();
    return bytes.status();
  }

  std::string last_;  // the bytes, or the message
};

TEST_F(FetchFileTest, BytesAreFetchedWithinTheirBound) {
  LocalServer server({{"/a", "HTTP/1.1 200 OK\r\n\r\npicture"},
                      {"/told", "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\nx"},
                      {"/busy", "HTTP/1.1 503 Busy\r\n\r\n"}});
  ASSERT_TRUE(Fetch(server.Url("/a")).ok()) << last_;
  EXPECT_EQ(last_, "picture");
  EXPECT_EQ(Fetch(server.Url("/a"), 6).code(), StatusCode::kBadInput);
  EXPECT_EQ(last_, server.Url("/a") + ": has more than 6 bytes");
  EXPECT_EQ(Fetch(server.Url("/told")).code(), StatusCode::kBadInput);
  EXPECT_EQ(Fetch(server.Url("/none")).code(), StatusCode::kBadInput);
  EXPECT_EQ(last_, server.Url("/none") + ": the server answers with status 404");
  const int before = server.num_requests();
  EXPECT_EQ(Fetch(server.Url("/busy")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(server.num_requests(), before + 2) << "it is tried once more";
}

TEST_F(FetchFileTest, AddressesThatAreNotPublicAreRefused) {
  LocalServer server(LocalServer::Answers{{"/a", "HTTP/1.1 200 OK\r\n\r\nsecret"}});
  EXPECT_EQ(Fetch(server.Url("/a"), 100, /*is_public_only=*/true).code(), StatusCode::kBadInput);
  EXPECT_EQ(last_, server.Url("/a") + ": leads to 127.0.0.1, which is no public address");
  EXPECT_EQ(server.num_requests(), 0);
  // A proxy would reach it in the program's place.
  setenv("http_proxy", server.Url("").c_str(), 1);
  EXPECT_FALSE(Fetch("http://127.0.0.1:1/a", 100, /*is_public_only=*/true).ok());
  EXPECT_EQ(server.num_requests(), 0);
  unsetenv("http_proxy");
}

TEST_F(FetchFileTest, ASignalEndsATransfer) {
  LocalServer server(LocalServer::Answers{{"/a", "HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n"}});
  const auto bytes = FetchFile(
      server.Url("/a"), {.bytes_max = 100, .is_public_only = false, .stops = [] { return true; }});
  EXPECT_EQ(bytes.status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace minisgl::hub
