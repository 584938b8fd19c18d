#include "apps/common/worker_child.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

namespace talon {
namespace {

constexpr const char* kProgram = "/proc/self/exe";
constexpr std::string_view kListening = "listening on ";
constexpr auto kPatience = std::chrono::seconds(120);
constexpr auto kPause = std::chrono::milliseconds(10);

Result<pid_t> Spawn(const std::vector<std::string>& arguments, int error_file) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return Unavailable("{}: cannot start it again", kProgram);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // a worker does not outlive its measurement
    dup2(error_file, STDERR_FILENO);
    execv(kProgram, argv.data());
    _exit(127);
  }
  return pid;
}

}  // namespace

Result<std::unique_ptr<WorkerChild>> WorkerChild::Start(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "talon");
  arguments.insert(arguments.end(), {"--port", "0"});
  std::FILE* log = std::tmpfile();
  if (log == nullptr) return Unavailable("no temporary file for a worker's messages");
  const Result<pid_t> pid = Spawn(arguments, fileno(log));
  if (!pid.ok()) {
    std::fclose(log);
    return pid.status();
  }
  auto child = std::unique_ptr<WorkerChild>(new WorkerChild(*pid, log));
  const Status status = child->AwaitAddress();
  if (!status.ok()) return status.WithContext(arguments[1]);
  return child;
}

WorkerChild::~WorkerChild() {
  if (!ended_) {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  std::fclose(log_);
}

std::string WorkerChild::Said() const {
  std::string text(1 << 14, '\0');
  const ssize_t count = pread(fileno(log_), text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

Status WorkerChild::AwaitAddress() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    ended_ = waitpid(pid_, nullptr, WNOHANG) == pid_;
    const std::string said = Said();
    const size_t at = said.find(kListening);
    const size_t stop = at == std::string::npos ? at : said.find('\n', at);
    if (stop != std::string::npos) {
      const size_t begin = at + kListening.size();
      address_ = said.substr(begin, stop - begin);
      return OkStatus();
    }
    if (ended_) return Unavailable("ended at its start: {}", said);
    std::this_thread::sleep_for(kPause);
  }
  return DeadlineExceeded("does not listen yet: {}", Said());
}

}  // namespace talon
