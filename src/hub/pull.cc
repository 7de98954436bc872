// See pull.h.
#include "hub/pull.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "hub/blob_hash.h"
#include "hub/http_client.h"
#include "hub/repository_files.h"
#include "hub/repository_folder.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl::hub {
namespace {

constexpr const char* kDefaultEndpoint = "https://huggingface.co";
constexpr size_t kListBytesMax = size_t{64} << 20;
constexpr uint64_t kIndexBytesMax = uint64_t{256} << 20;
// A transfer that ends early is continued. It counts as a failure unless it brought this much.
constexpr uint64_t kProgressBytes = uint64_t{1} << 20;
constexpr int kFailuresMax = 5, kListFailuresMax = 3;
// Before the second try; three times as long before each later one: 6 s in all.
constexpr auto kFirstDelay = std::chrono::milliseconds(150);
constexpr auto kStopInterval = std::chrono::milliseconds(50);
// Hashing so much takes a second, or a few.
constexpr uint64_t kLargePartBytes = uint64_t{1} << 30;

// Percent-encodes all but the characters that stand for themselves in a path.
std::string UrlPath(std::string_view text, bool keeps_slashes) {
  std::string url;
  for (const char c : text) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') ||
                          std::string_view("-_.~").find(c) != std::string_view::npos;
    if (is_plain || (c == '/' && keeps_slashes)) {
      url += c;
    } else {
      url += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return url;
}

// Keeps a body in memory.
class TextSink final : public HttpSink {
 public:
  Status Begin(const HttpAnswer&) override {
    text_.clear();
    return Status();
  }
  Status Add(std::string_view bytes) override {
    if (bytes.size() > kListBytesMax - text_.size()) {
      return BadInput("the hub's list of files: is longer than {} bytes", kListBytesMax);
    }
    text_ += bytes;
    return Status();
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Appends a body to a blob's part.
class BlobSink final : public HttpSink {
 public:
  BlobSink(const RepositoryFile& file, PartialBlob* partial, std::optional<BlobHash>* hash,
           std::function<void(uint64_t)> shows)
      : file_(file), partial_(partial), hash_(hash), shows_(std::move(shows)) {}

  Status Begin(const HttpAnswer& answer) override {
    const uint64_t have = partial_->num_bytes();
    // "bytes 100-199/200"
    const std::string range = answer.Header("content-range");
    const bool continues =
        answer.status == 206 && range.starts_with(fmt::format("bytes {}-", have)) &&
        (range.ends_with("/*") || range.ends_with(fmt::format("/{}", file_.num_bytes)));
    if (answer.status == 206 && !continues && have > 0) {
      return BadInput("{}: the server sent another part than was asked for (found {})",
                      Visible(file_.name, 200), Visible(range, 100));
    }
    if (answer.status != 200 || have == 0) return Status();
    hash_->emplace(file_.hash, file_.num_bytes);  // the server sends all of it
    return partial_->Clear();
  }
  Status Add(std::string_view bytes) override {
    if (bytes.size() > file_.num_bytes - partial_->num_bytes()) {
      return BadInput("{}: the server sent more than the {} bytes of the hub's list",
                      Visible(file_.name, 200), file_.num_bytes);
    }
    MINISGL_RETURN_IF_ERROR(partial_->Append(bytes));
    (*hash_)->Add(bytes);
    shows_(partial_->num_bytes());
    return Status();
  }

 private:
  const RepositoryFile& file_;
  PartialBlob* const partial_;
  std::optional<BlobHash>* const hash_;
  const std::function<void(uint64_t)> shows_;
};

class Puller {
 public:
  Puller(PullOptions options, const PullHooks& hooks, RepositoryName repository,
         std::unique_ptr<HttpClient> client)
      : options_(std::move(options)),
        hooks_(hooks),
        repository_(std::move(repository)),
        client_(std::move(client)) {}

  Result<PulledModel> Run();

 private:
  Result<RepositoryList> List();
  Status CompleteFromHeaders(RepositoryFile* file);
  Status KeepShardsOfIndex(std::vector<RepositoryFile>* files);
  Status CheckRoom(const std::vector<RepositoryFile>& files);
  Status Download(const RepositoryFile& file);
  Status HashPart(const RepositoryFile& file, const PartialBlob& partial, BlobHash* hash) const;
  Status Receive(const RepositoryFile& file, PartialBlob* partial, std::optional<BlobHash>* hash);
  Status Wait(std::chrono::milliseconds delay) const;
  Status StoppedOrOk() const;
  Status Refused(const HttpAnswer& answer, const std::string& what) const;
  std::string FileUrl(const RepositoryFile& file) const;

  const PullOptions options_;
  const PullHooks& hooks_;
  const RepositoryName repository_;
  const std::unique_ptr<HttpClient> client_;
  std::unique_ptr<RepositoryFolder> folder_;
  std::string commit_;
  uint64_t done_bytes_ = 0, total_bytes_ = 0, downloaded_bytes_ = 0;
};

// True for an answer after which a later try may succeed.
bool IsTemporary(const HttpAnswer& answer) {
  return answer.status == 408 || answer.status == 429 || answer.status >= 500;
}

// The error of an answer that is not ok().
Status Puller::Refused(const HttpAnswer& answer, const std::string& what) const {
  const std::string code = answer.Header("x-error-code");
  std::string words = answer.Header("x-error-message");
  words = words.empty() ? "" : fmt::format("; the hub says: {}", Visible(words, 300));
  const std::string path = repository_.Path();
  if (code == "GatedRepo") {
    return MakeStatus(
        StatusCode::kUnavailable,
        "{}: access to it must be granted: accept its terms at {}/{}, and set HF_TOKEN to a "
        "token of that account ({}){}",
        path, options_.endpoint, path,
        options_.token.empty() ? "HF_TOKEN is not set" : "HF_TOKEN is set", words);
  }
  if (code == "RevisionNotFound") {
    return MakeStatus(StatusCode::kNoInput, "{}: has no revision {}{}", path,
                      Visible(repository_.revision, 200), words);
  }
  if (code == "EntryNotFound") {
    return MakeStatus(StatusCode::kNoInput, "{}: has no {}{}", path, Visible(what, 200), words);
  }
  if (answer.status == 401 || answer.status == 403 || answer.status == 404) {
    return MakeStatus(
        answer.status == 404 ? StatusCode::kNoInput : StatusCode::kUnavailable,
        "{}: {} has no such model, or it is private (status {}, {}); check the name{}{}", path,
        options_.endpoint, answer.status,
        options_.token.empty() ? "HF_TOKEN is not set" : "HF_TOKEN is set",
        options_.token.empty() ? " or set HF_TOKEN" : " and the token", words);
  }
  return MakeStatus(StatusCode::kUnavailable, "{}: {} answered with status {} to {}{}", path,
                    options_.endpoint, answer.status, Visible(what, 200), words);
}

Status Puller::Wait(std::chrono::milliseconds delay) const {
  const auto end = std::chrono::steady_clock::now() + delay;
  while (std::chrono::steady_clock::now() < end && !hooks_.stops()) {
    std::this_thread::sleep_for(kStopInterval);
  }
  return StoppedOrOk();
}

Status Puller::StoppedOrOk() const {
  return hooks_.stops() ? MakeStatus(StatusCode::kUnavailable, "stopped") : Status();
}

std::string Puller::FileUrl(const RepositoryFile& file) const {
  return fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, repository_.Path(), commit_,
                     UrlPath(file.name, true));
}

Result<RepositoryList> Puller::List() {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", options_.endpoint,
                                      repository_.Path(), UrlPath(repository_.revision, false));
  auto delay = kFirstDelay;
  for (int failures = 1;; ++failures, delay *= 3) {
    TextSink sink;
    const Result<HttpAnswer> answer = client_->Get(url, 0, &sink);
    if (answer.ok() && answer->ok()) return ParseRepositoryList(sink.text());
    const bool is_temporary =
        answer.ok() ? IsTemporary(*answer) : answer.status().code() == StatusCode::kUnavailable;
    if (!is_temporary || failures == kListFailuresMax || hooks_.stops()) {
      if (answer.ok()) return Refused(*answer, "the request for the list of files");
      if (!is_temporary) return answer.status();
      return MakeStatus(
          answer.status().code(),
          "{}; check the network, the proxy (https_proxy, http_proxy) and HF_ENDPOINT",
          answer.status().message());
    }
    MINISGL_RETURN_IF_ERROR(Wait(delay));
  }
}

// Sets the hash and the size of a file that the list has without them.
Status Puller::CompleteFromHeaders(RepositoryFile* file) {
  if (!file->hash.empty()) return Status();
  MINISGL_ASSIGN_OR_RETURN(const HttpAnswer answer, client_->Head(FileUrl(*file)));
  if (answer.status >= 400) return Refused(answer, file->name);
  std::string hash = answer.Header("x-linked-etag"), size = answer.Header("x-linked-size");
  if (hash.empty()) hash = answer.Header("etag");
  if (size.empty()) size = answer.Header("content-length");
  if (hash.starts_with("W/")) hash.erase(0, 2);
  std::erase(hash, '"');
  const std::optional<int64_t> num_bytes = ParseNumber<int64_t>(size);
  if (!IsBlobHash(hash) || !num_bytes || *num_bytes < 0) {
    return BadInput("{}: the hub names no hash and size to check it by (found {} and {})",
                    Visible(file->name, 200), Visible(hash, 100), Visible(size, 40));
  }
  if (const std::string commit = answer.Header("x-repo-commit"); commit != commit_) {
    return BadInput("{}: commit {} is needed (found X-Repo-Commit {})", Visible(file->name, 200),
                    commit_, Visible(commit, 80));
  }
  file->hash = hash;
  file->num_bytes = static_cast<uint64_t>(*num_bytes);
  return Status();
}

Status Puller::CheckRoom(const std::vector<RepositoryFile>& files) {
  std::set<std::string> hashes;
  uint64_t needed = 0;
  for (const RepositoryFile& file : files) {
    if (!hashes.insert(file.hash).second) continue;
    const uint64_t partial = folder_->PartialBytes(file);
    const uint64_t missing = folder_->HasBlob(file) ? 0 : file.num_bytes - partial;
    const std::optional<uint64_t> sum = CheckedAdd(needed, missing);
    const std::optional<uint64_t> total = CheckedAdd(total_bytes_, file.num_bytes);
    if (!sum || !total) return BadInput("the hub's list of files: sizes exceed 64 bits");
    needed = *sum, total_bytes_ = *total;
  }
  MINISGL_ASSIGN_OR_RETURN(const uint64_t room, folder_->FreeBytes());
  if (needed <= room) return Status();
  return MakeStatus(StatusCode::kCannotCreate,
                    "{}: {} bytes are missing, and the disk has room for {}; free some space, or "
                    "choose another disk by HF_HUB_CACHE",
                    Visible(folder_->SnapshotPath(commit_), 400), needed, room);
}

// Adds the bytes of `file` that arrived before.
Status Puller::HashPart(const RepositoryFile& file, const PartialBlob& partial,
                        BlobHash* hash) const {
  if (partial.num_bytes() >= kLargePartBytes) {
    Log(LogLevel::kInfo,
        fmt::format("{}: checking the {:.1f} GiB that are there", Visible(file.name, 200),
                    static_cast<double>(partial.num_bytes()) / (1 << 30)));
  }
  return partial.ReadAll([&](std::string_view bytes) {
    hash->Add(bytes);
    return StoppedOrOk();
  });
}

// Receives the rest of `file`, in as many transfers as that takes.
Status Puller::Receive(const RepositoryFile& file, PartialBlob* partial,
                       std::optional<BlobHash>* hash) {
  auto delay = kFirstDelay;
  const uint64_t before = done_bytes_;
  BlobSink sink(file, partial, hash, [&](uint64_t bytes) {
    hooks_.shows({file.name, before + bytes, total_bytes_});
  });
  for (int failures = 0; partial->num_bytes() < file.num_bytes;) {
    const uint64_t begin = partial->num_bytes();
    const Result<HttpAnswer> answer = client_->Get(FileUrl(file), begin, &sink);
    const uint64_t end = partial->num_bytes();
    downloaded_bytes_ += end > begin ? end - begin : end;
    if (end == file.num_bytes) break;
    Status failure = answer.status();
    bool is_temporary = failure.code() == StatusCode::kUnavailable;
    if (answer.ok() && answer->status == 416 && begin > 0) {  // the server has fewer bytes
      MINISGL_RETURN_IF_ERROR(partial->Clear());
      hash->emplace(file.hash, file.num_bytes);
      is_temporary = true;
    } else if (answer.ok() && !answer->ok()) {
      failure = Refused(*answer, file.name);
      is_temporary = IsTemporary(*answer);
    } else if (answer.ok()) {
      failure = MakeStatus(StatusCode::kUnavailable, "{}: {} of {} bytes arrived",
                           Visible(file.name, 200), end, file.num_bytes);
      is_temporary = true;
    }
    failures = end >= begin + kProgressBytes ? 0 : failures + 1;
    if (!is_temporary || failures == kFailuresMax || hooks_.stops()) return failure;
    Log(LogLevel::kVerbose, failure.message() + "; continuing");
    if (failures == 0) delay = kFirstDelay;
    MINISGL_RETURN_IF_ERROR(Wait(delay));
    delay *= 3;
  }
  return Status();
}

Status Puller::Download(const RepositoryFile& file) {
  if (!folder_->HasBlob(file)) {
    MINISGL_ASSIGN_OR_RETURN(PartialBlob partial, folder_->OpenPartial(file));
    // Another process may have made it while this one waited for the lock.
    for (int tries = 0; !folder_->HasBlob(file); ++tries) {
      if (partial.num_bytes() > file.num_bytes) MINISGL_RETURN_IF_ERROR(partial.Clear());
      std::optional<BlobHash> hash(std::in_place, file.hash, file.num_bytes);
      MINISGL_RETURN_IF_ERROR(HashPart(file, partial, &*hash));
      MINISGL_RETURN_IF_ERROR(Receive(file, &partial, &hash));
      const std::string found = hash->FinishHex();
      if (found == file.hash) {
        MINISGL_RETURN_IF_ERROR(folder_->Keep(file, std::move(partial)));
        break;
      }
      MINISGL_RETURN_IF_ERROR(partial.Clear());
      if (tries > 0) {
        return MakeStatus(StatusCode::kIoError,
                          "{}: the bytes that arrived are not those that the hub names: their hash "
                          "is {}, not {}; they were removed; try again later",
                          Visible(file.name, 200), found, file.hash);
      }
      Log(LogLevel::kWarning, fmt::format("{}: the bytes that arrived are damaged; downloading it "
                                          "once more",
                                          Visible(file.name, 200)));
    }
  }
  done_bytes_ += file.num_bytes;
  hooks_.shows({file.name, done_bytes_, total_bytes_});
  return folder_->Link(commit_, file);
}

// Downloads the index, if there is one, and removes the weights that it does not name.
Status Puller::KeepShardsOfIndex(std::vector<RepositoryFile>* files) {
  const auto index = std::find_if(files->begin(), files->end(), [](const RepositoryFile& file) {
    return file.name == weights::kShardIndexName;
  });
  if (index == files->end()) return Status();
  const RepositoryFile file = *index;
  if (file.num_bytes > kIndexBytesMax) {
    return BadInput("{}: has {} bytes (at most {})", file.name, file.num_bytes, kIndexBytesMax);
  }
  MINISGL_RETURN_IF_ERROR(Download(file));
  done_bytes_ = 0;  // it is counted with the others
  MINISGL_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(folder_->BlobPath(file), kIndexBytesMax));
  MINISGL_ASSIGN_OR_RETURN(const weights::ShardIndex shards,
                           weights::ParseShardIndex(text, file.name));
  return KeepShards(shards, files);
}

Result<PulledModel> Puller::Run() {
  MINISGL_ASSIGN_OR_RETURN(const RepositoryList list, List());
  commit_ = list.commit;
  Result<std::vector<RepositoryFile>> files = ChooseFiles(list.files, options_.patterns);
  if (!files.ok()) return files.status().WithPrefix(repository_.Path());
  MINISGL_ASSIGN_OR_RETURN(folder_,
                           RepositoryFolder::Open(options_.cache_dir, repository_, hooks_.stops));
  for (RepositoryFile& file : *files) MINISGL_RETURN_IF_ERROR(CompleteFromHeaders(&file));
  if (options_.patterns.empty()) {
    const Status kept = KeepShardsOfIndex(&*files);
    if (!kept.ok()) return kept.WithPrefix(repository_.Path());
  }
  MINISGL_RETURN_IF_ERROR(CheckRoom(*files));
  // A file with the contents of another one counts once.
  std::set<std::string> hashes;
  for (const RepositoryFile& file : *files) {
    const uint64_t before = done_bytes_;
    const Status downloaded = Download(file);
    if (!downloaded.ok()) return downloaded.WithPrefix(repository_.Path());
    if (!hashes.insert(file.hash).second) done_bytes_ = before;
  }
  MINISGL_RETURN_IF_ERROR(folder_->SetRef(repository_.revision, commit_));
  return PulledModel{.folder = folder_->SnapshotPath(commit_),
                     .commit = commit_,
                     .num_files = files->size(),
                     .num_bytes = total_bytes_,
                     .downloaded_bytes = downloaded_bytes_};
}

}  // namespace

Result<PulledModel> Pull(const PullOptions& options, const PullHooks& hooks) {
  MINISGL_ASSIGN_OR_RETURN(RepositoryName repository, ParseRepositoryName(options.model));
  PullOptions used = options;
  if (used.endpoint.empty()) used.endpoint = kDefaultEndpoint;
  while (used.endpoint.ends_with('/')) used.endpoint.pop_back();
  MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<HttpClient> client,
                           HttpClient::Open({.endpoint = used.endpoint,
                                             .token = used.token,
                                             .user_agent = used.user_agent,
                                             .stops = hooks.stops}));
  return Puller(std::move(used), hooks, std::move(repository), std::move(client)).Run();
}

}  // namespace minisgl::hub
