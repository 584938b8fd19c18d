#include "serve/http/http_server.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "base/memory_reserve.h"
#include "base/random.h"
#include "serve/http/access_log.h"
#include "serve/http/completion.h"
#include "serve/http/guard/byte_budget.h"
#include "serve/http/guard/header_lines.h"
#include "serve/http/guard/host_policy.h"
#include "serve/http/handlers.h"
#include "serve/http/page_files.h"
#include "serve/http/prometheus_text.h"
#include "serve/http/request_checks.h"

namespace talon {
namespace {

constexpr const char* kJsonType = "application/json";
constexpr size_t kReserveBytes = size_t{64} << 20;  // more than any tree of a body takes
constexpr size_t kLoggedBytes = 200;                // bytes of what a client sent
constexpr std::chrono::minutes kWorkWait(10);

// The request that this thread serves: the library's handlers see neither socket nor outcome.
struct ServedRequest {
  Connection* connection = nullptr;
  std::optional<ApiError> malformed;  // what is wrong with the lines of its header
  ByteBudget::Share body;             // held until the answer is written, or the prompt is tokens
  ByteBudget::Share work;             // held while it is parsed and encoded
  bool failed = false;
  AccessRecord record;

  void Note(const Completion& completion) {
    const Completion::Progress& progress = completion.progress();
    record.id = completion.id();
    record.prompt_tokens = progress.prompt_tokens;
    record.tokens = progress.tokens;
    record.first_token_seconds = progress.first_token_seconds;
  }
};
thread_local ServedRequest served;

// A connection as the library reads and writes it.
class ConnectionStream : public httplib::Stream {
 public:
  explicit ConnectionStream(Connection* connection) : connection_(connection) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return !connection_->HungUp(); }
  ssize_t read(char* out, size_t size) override {
    return static_cast<ssize_t>(connection_->Read(out, size));
  }
  ssize_t write(const char* bytes, size_t size) override {
    return connection_->Write({bytes, size}) ? static_cast<ssize_t>(size) : -1;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  // The library compares it with what select() can hold; nothing here uses select().
  socket_t socket() const override { return 0; }

 private:
  Connection* connection_;
};

void Answer(const Json& answer, httplib::Response* response) {
  response->status = 200;
  response->set_content(JsonText(answer), kJsonType);
}

void AnswerError(const ApiError& error, httplib::Response* response) {
  response->status = error.status;
  if (error.status == 503) response->set_header("Retry-After", "1");
  response->set_content(JsonText(ErrorJson(error)), kJsonType);
}

void AnswerException(const std::exception_ptr& failure, httplib::Response* response) {
  const WaitForMemory wait;  // the answer needs little
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    AnswerError({.status = 503, .message = "the server is out of memory, try again"}, response);
  } catch (const std::system_error&) {  // a thread that cannot be had
    AnswerError({.status = 503, .message = "the server has too much to do, try again"}, response);
  } catch (const std::exception& error) {
    LogError("a request failed: {}", error.what());
    AnswerError({.status = 500, .message = "the server could not handle the request"}, response);
  }
}

bool AnswerPage(const std::string& path, httplib::Response* response) {
  for (const PageFile& page : PageFiles()) {
    if (page.path != path) continue;
    response->status = 200;
    response->set_content(page.content.data(), page.content.size(), std::string(page.content_type));
    return true;
  }
  return false;
}

}  // namespace

// The library parses requests and writes answers; sockets and threads are the Listener's.
class HttpServer::Impl : private httplib::Server {
 public:
  Impl(const ServeParts& parts, const HttpOptions& options);

  Status Listen();
  int port() const { return listener_->port(); }
  void Drain();
  void Stop();

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;
  using TextHandler = std::function<void(std::string body, Response*)>;
  using PlainHandler = std::optional<ApiError> (*)(const ServeParts&, std::string, std::string*);

  bool Serve(Connection* connection);
  void AddHooks();
  void AddRoutes();
  void AddPost(const char* path, TextHandler handler);
  TextHandler Plain(PlainHandler handler) const;

  // True: the response is there, the body was not read.
  bool AnswerEarly(const Request& request, Response* response) const;
  std::optional<ApiError> CheckHeader(const Request& request) const;
  std::optional<ApiError> CheckAccess(const Request& request) const;
  void AnswerHealth(Response* response) const;
  void AnswerGet(const std::string& path, Response* response) const;
  void AnswerPreflight(const Request& request, Response* response) const;
  void AnswerCompletion(Endpoint endpoint, std::string body, Response* response) const;
  void AddCommonHeaders(const Request& request, Response* response) const;

  const ServeParts parts_;
  const HttpOptions options_;
  const HostPolicy hosts_;
  ByteBudget bodies_;  // held by requests that are read or answered
  ByteBudget work_;    // bodies that are parsed and encoded now, which takes many times their bytes
  std::atomic<bool> draining_{false};
  std::unique_ptr<Listener> listener_;
};

HttpServer::Impl::Impl(const ServeParts& parts, const HttpOptions& options)
    : parts_(parts),
      options_(options),
      hosts_({.listen_host = options.listen.host,
              .needs_key = options.keys.required(),
              .allowed_hosts = options.allowed_hosts,
              .cors_origin = options.cors_origin}),
      bodies_(options.max_inflight_bytes),
      work_(options.max_inflight_bytes / 4) {
  svr_sock_ = 0;  // the library writes streams only while this socket is valid
  set_keep_alive_timeout(options.listen.limits.idle.count() / 1000);
  set_keep_alive_max_count(1000);
  AddHooks();
  AddRoutes();
}

Status HttpServer::Impl::Listen() {
  KeepMemoryReserve(kReserveBytes);  // before there is a lack of it
  auto listener =
      Listener::Open(options_.listen, [this](Connection* connection) { return Serve(connection); });
  if (!listener.ok()) return listener.status();
  listener_ = std::move(*listener);
  return OkStatus();
}

void HttpServer::Impl::Drain() {
  draining_ = true;
  listener_->StopAccepting();
}

void HttpServer::Impl::Stop() {
  draining_ = true;
  listener_->Stop();
}

bool HttpServer::Impl::Serve(Connection* connection) {
  KeepMemoryReserve(kReserveBytes);
  const RequestLine line = ParseRequestLine(connection->header());
  served = {.connection = connection,
            .malformed = CheckHeaderLines(connection->header()),
            .record = {.id = fmt::format("req-{:016x}", RandomSeed()),
                       .client = connection->ClientAddress(),
                       .method = std::string(line.method.substr(0, kLoggedBytes)),
                       .path = std::string(line.path.substr(0, kLoggedBytes))}};
  ConnectionStream stream(connection);
  bool close = false;
  const bool answered = process_request(stream, draining_, close, nullptr);
  if (!answered && served.record.status < 400) served.record.status = 499;
  LogAccess(served.record);
  // After an error a body may be unread, and the next request could not be told from it.
  const bool keep = answered && !close && !served.failed && !draining_;
  served = {};
  return keep;
}

void HttpServer::Impl::AddHooks() {
  set_pre_routing_handler([this](const Request& request, Response& response) {
    return AnswerEarly(request, &response) ? HandlerResponse::Handled : HandlerResponse::Unhandled;
  });
  set_error_handler([](const Request&, Response& response) {  // the library's own errors
    if (!response.body.empty()) return;
    const int status = response.status;
    AnswerError({.status = status, .message = fmt::format("malformed request ({})", status)},
                &response);
  });
  set_exception_handler([](const Request&, Response& response, const std::exception_ptr& failure) {
    AnswerException(failure, &response);
  });
  set_post_routing_handler(
      [this](const Request& request, Response& response) { AddCommonHeaders(request, &response); });
}

void HttpServer::Impl::AddRoutes() {
  AddPost("/v1/completions", [this](std::string body, Response* response) {
    AnswerCompletion(Endpoint::kCompletions, std::move(body), response);
  });
  AddPost("/v1/chat/completions", [this](std::string body, Response* response) {
    AnswerCompletion(Endpoint::kChat, std::move(body), response);
  });
  AddPost("/v1/embeddings", [this](std::string body, Response* response) {
    AnswerCompletion(Endpoint::kEmbeddings, std::move(body), response);
  });
  AddPost("/v1/responses", [this](std::string body, Response* response) {
    AnswerCompletion(Endpoint::kResponses, std::move(body), response);
  });
  AddPost("/tokenize", Plain(Tokenize));
  AddPost("/detokenize", Plain(Detokenize));
}

void HttpServer::Impl::AddPost(const char* path, TextHandler handler) {
  Post(path, [this, handler = std::move(handler)](const Request& request, Response& response,
                                                  const httplib::ContentReader& reader) {
    const BodyLimits limits{.max_bytes = options_.max_request_bytes, .budget = &bodies_};
    std::string body;
    if (auto error = ReadBody(request, reader, limits, &served.body, &body)) {
      return AnswerError(*error, &response);
    }
    served.work = work_.Take(body.size(), kWorkWait);
    if (!served.work) return AnswerError(Overloaded(), &response);
    handler(std::move(body), &response);
    served.work.Release();
  });
}

HttpServer::Impl::TextHandler HttpServer::Impl::Plain(PlainHandler handler) const {
  return [this, handler](std::string body, Response* response) {
    std::string answer;
    if (auto error = handler(parts_, std::move(body), &answer)) {
      return AnswerError(*error, response);
    }
    response->status = 200;
    response->set_header("Content-Type", kJsonType);
    response->body = std::move(answer);  // set_content would copy it
  };
}

std::optional<ApiError> HttpServer::Impl::CheckHeader(const Request& request) const {
  if (served.malformed) return served.malformed;
  return hosts_.Check(request.get_header_value("Host"), request.get_header_value("Origin"));
}

std::optional<ApiError> HttpServer::Impl::CheckAccess(const Request& request) const {
  if (auto error = CheckRoute(request)) return error;
  const auto pages = PageFiles();
  const bool page = std::any_of(pages.begin(), pages.end(), [&request](const PageFile& each) {
    return each.path == request.path;
  });
  const bool open = page || request.path == "/health";
  if (!open && !options_.keys.Admits(request.get_header_value("Authorization"))) {
    return ApiError{.status = 401,
                    .message = "no valid API key; send it as Authorization: Bearer KEY",
                    .code = "invalid_api_key"};
  }
  if (draining_) return ApiError{.status = 503, .message = "the server is shutting down"};
  if (request.method != "POST") return std::nullopt;
  return CheckBodyHeaders(request, options_.max_request_bytes);
}

bool HttpServer::Impl::AnswerEarly(const Request& request, Response* response) const {
  if (auto error = CheckHeader(request)) {
    AnswerError(*error, response);
    return true;
  }
  if (request.method == "OPTIONS" && !MethodsOf(request.path).empty()) {
    AnswerPreflight(request, response);
    return true;
  }
  if (auto error = CheckAccess(request)) {
    if (error->status == 405) response->set_header("Allow", MethodsOf(request.path));
    if (error->status == 401) response->set_header("WWW-Authenticate", "Bearer");
    AnswerError(*error, response);
    return true;
  }
  if (request.method == "POST") return false;
  AnswerGet(request.path, response);
  return true;
}

void HttpServer::Impl::AnswerHealth(Response* response) const {
  const Status health = parts_.engine->snapshot().health;
  if (health.ok()) return Answer({{"status", "ok"}}, response);
  Answer({{"status", "stopped"}, {"error", health.message()}}, response);
  response->status = 503;
}

void HttpServer::Impl::AnswerGet(const std::string& path, Response* response) const {
  static const std::string kModel = "/v1/models/";
  if (AnswerPage(path, response)) return;
  if (path == "/health") return AnswerHealth(response);
  if (path == "/version") return Answer({{"version", options_.version}}, response);
  if (path == "/talon/status") return Answer(DescribeStatus(parts_), response);
  if (path == "/v1/models") return Answer(ListModels(parts_), response);
  if (path == "/metrics") {
    response->status = 200;
    return response->set_content(PrometheusText(parts_.engine->metrics()), kPrometheusContentType);
  }
  Json answer;
  if (auto error = DescribeModel(parts_, path.substr(kModel.size()), &answer)) {
    return AnswerError(*error, response);
  }
  Answer(answer, response);
}

// A browser asks before it lets a page of another origin send a request.
void HttpServer::Impl::AnswerPreflight(const Request& request, Response* response) const {
  response->status = 204;
  response->set_header("Allow", MethodsOf(request.path) + ", OPTIONS");
  if (options_.cors_origin.empty()) return;
  response->set_header("Access-Control-Allow-Methods", MethodsOf(request.path));
  response->set_header("Access-Control-Max-Age", "600");
  const std::string headers = request.get_header_value("Access-Control-Request-Headers");
  if (!headers.empty()) response->set_header("Access-Control-Allow-Headers", headers);
}

void HttpServer::Impl::AddCommonHeaders(const Request& request, Response* response) const {
  served.record.status = response->status;
  const bool unread = request.method != "POST" && HasBody(request);
  served.failed = response->status >= 400 || unread;
  if (served.failed) response->set_header("Connection", "close");
  if (!options_.cors_origin.empty()) {
    response->set_header("Access-Control-Allow-Origin", options_.cors_origin);
    if (options_.cors_origin != "*") response->set_header("Vary", "Origin");
  }
  response->set_header("X-Content-Type-Options", "nosniff");
  response->set_header("X-Frame-Options", "DENY");
  response->set_header("Content-Security-Policy", "frame-ancestors 'none'");
  response->set_header("X-Request-Id", served.record.id);
}

void HttpServer::Impl::AnswerCompletion(Endpoint endpoint, std::string body,
                                        Response* response) const {
  ApiRequest request;
  if (auto error = ParseApiRequest(body, endpoint, parts_.defaults, &request)) {
    return AnswerError(*error, response);
  }
  body = std::string();
  if (!request.ignored.empty()) {
    response->set_header("X-Talon-Warning",
                         fmt::format("ignored: {}", fmt::join(request.ignored, ", ")));
  }
  if (auto error = CheckModel(parts_, request.model)) return AnswerError(*error, response);
  const bool streams = request.stream;
  std::unique_ptr<Completion> started;
  if (auto error = Completion::Start(parts_, std::move(request), &started)) {
    return AnswerError(*error, response);
  }
  served.work.Release();
  served.body.Release();
  served.Note(*started);
  if (!streams) {
    Json answer;
    const auto client_gone = [] { return served.connection->HungUp(); };
    const auto error = started->Collect(client_gone, &answer);
    served.Note(*started);
    if (error) return AnswerError(*error, response);
    return Answer(answer, response);
  }
  response->status = 200;
  response->set_header("Cache-Control", "no-cache");
  // Shared because the library copies its provider; it ends with the response.
  response->set_chunked_content_provider(
      "text/event-stream", [completion = std::shared_ptr<Completion>(std::move(started))](
                               size_t, httplib::DataSink& sink) {
        const std::string events = completion->NextEvents();
        served.Note(*completion);
        if (!events.empty() && !sink.write(events.data(), events.size())) return false;
        if (completion->ended()) sink.done();
        return !served.connection->HungUp();
      });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const ServeParts& parts,
                                                      const HttpOptions& options) {
  auto impl = std::make_unique<Impl>(parts, options);
  TALON_RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

int HttpServer::port() const { return impl_->port(); }
void HttpServer::Drain() { impl_->Drain(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace talon
