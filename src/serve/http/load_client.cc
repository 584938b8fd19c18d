#include "serve/http/load_client.h"

#include <httplib.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "serve/http/event_stream.h"

namespace talon {
namespace {

constexpr int kReadTimeoutSeconds = 300;  // for the next byte of an answer

httplib::Client Connect(const LoadPlan& plan) {
  httplib::Client client(plan.url);
  client.set_keep_alive(true);
  client.set_tcp_nodelay(true);
  client.set_read_timeout(kReadTimeoutSeconds);
  if (!plan.api_key.empty()) client.set_bearer_token_auth(plan.api_key);
  return client;
}

// The events of one answer as they arrive.
struct Answer {
  Stopwatch watch;
  EventStream stream;
  double first_token_seconds = -1;
  int events = 0;

  void Read(std::string_view bytes) {
    stream.Read(bytes, [this](const Json&) {
      if (++events == 1) first_token_seconds = watch.Seconds();
    });
  }
};

// One client's requests, one after another.
class Client {
 public:
  Client(const LoadPlan& plan, int index)
      : plan_(plan),
        http_(Connect(plan)),
        random_(plan.seed * 7919 + static_cast<uint64_t>(index)) {}

  void Run(LoadReport* report) {
    const Stopwatch watch;
    while (watch.Seconds() < plan_.seconds) RunRequest(report);
  }

 private:
  void RunRequest(LoadReport* report) {
    const bool leaves = std::bernoulli_distribution(plan_.disconnects)(random_);
    const int leaves_after = leaves ? static_cast<int>(random_() % 8) : -1;
    Answer answer;
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.set_header("Content-Type", "application/json");
    request.body = Body();
    request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      answer.Read({data, size});
      return !leaves || answer.events <= leaves_after;
    };
    const httplib::Result result = http_.send(request);
    if (leaves && result.error() == httplib::Error::Canceled) {
      ++report->left;
    } else if (!result) {
      ++report->errors[httplib::to_string(result.error())];
    } else if (result->status != 200) {
      ++report->errors["status " + std::to_string(result->status) + ": " + answer.stream.unread()];
    } else if (const Status end = answer.stream.End(); !end.ok()) {
      ++report->errors[end.message()];
    } else {
      ++report->finished;
      report->answer_seconds.push_back(answer.watch.Seconds());
    }
    if (answer.first_token_seconds >= 0) {
      report->first_token_seconds.push_back(answer.first_token_seconds);
    }
  }

  std::string Body() {
    const int tokens = std::uniform_int_distribution(plan_.min_tokens, plan_.max_tokens)(random_);
    return Json{{"prompt", plan_.prompts[random_() % plan_.prompts.size()]},
                {"max_tokens", tokens},
                {"ignore_eos", true},
                {"temperature", random_() % 2 == 0 ? 0.0 : 0.8},
                {"seed", random_() % 1000000},
                {"stream", true}}
        .dump();
  }

  const LoadPlan& plan_;
  httplib::Client http_;
  std::mt19937_64 random_;
};

Status NoAnswer(const LoadPlan& plan, const httplib::Result& result) {
  return Unavailable("{}: no answer ({}); is 'talon serve' running there?", plan.url,
                     httplib::to_string(result.error()));
}

// Tokens generated since the server's start.
Result<double> GeneratedTokens(const LoadPlan& plan) {
  constexpr std::string_view kName = "\ntalon_request_generated_tokens_total ";
  const httplib::Result result = Connect(plan).Get("/metrics");
  if (!result) {
    return NoAnswer(plan, result);
  }
  const size_t at = result->body.find(kName);
  if (result->status != 200 || at == std::string::npos) {
    return FailedPrecondition("{}/metrics: status {}, no count of generated tokens", plan.url,
                              result->status);
  }
  return std::strtod(result->body.c_str() + at + kName.size(), nullptr);
}

void AddReport(const LoadReport& part, LoadReport* sum) {
  sum->finished += part.finished;
  sum->left += part.left;
  for (const auto& [message, count] : part.errors) sum->errors[message] += count;
  const auto append = [](const std::vector<double>& from, std::vector<double>* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(part.first_token_seconds, &sum->first_token_seconds);
  append(part.answer_seconds, &sum->answer_seconds);
}

}  // namespace

int64_t LoadReport::num_errors() const {
  int64_t sum = 0;
  for (const auto& [message, count] : errors) sum += count;
  return sum;
}

double Percentile(const std::vector<double>& ascending, double share) {
  if (ascending.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(ascending.size()));
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  return ascending[std::min(index, ascending.size() - 1)];
}

Result<LoadReport> RunLoad(const LoadPlan& plan) {
  TALON_ASSIGN_OR_RETURN(const double tokens_before, GeneratedTokens(plan));
  const Stopwatch watch;
  std::vector<LoadReport> parts(plan.clients);
  std::vector<std::thread> threads;
  for (int i = 0; i < plan.clients; ++i) {
    threads.emplace_back([&plan, i, part = &parts[i]] { Client(plan, i).Run(part); });
  }
  for (std::thread& thread : threads) thread.join();
  LoadReport report;
  report.seconds = watch.Seconds();
  TALON_ASSIGN_OR_RETURN(const double tokens_after, GeneratedTokens(plan));
  report.tokens = tokens_after - tokens_before;
  for (const LoadReport& part : parts) AddReport(part, &report);
  std::sort(report.first_token_seconds.begin(), report.first_token_seconds.end());
  std::sort(report.answer_seconds.begin(), report.answer_seconds.end());
  return report;
}

Result<Json> ReadStatus(const LoadPlan& plan) {
  const httplib::Result result = Connect(plan).Get("/talon/status");
  if (!result) return NoAnswer(plan, result);
  if (result->status != 200) {
    return FailedPrecondition("{}/talon/status: status {}", plan.url, result->status);
  }
  return ParseJson(result->body, "/talon/status");
}

}  // namespace talon
