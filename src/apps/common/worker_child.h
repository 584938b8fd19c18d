// A worker in a process of its own, for measurements: this program, started again.
#ifndef TALON_APPS_COMMON_WORKER_CHILD_H_
#define TALON_APPS_COMMON_WORKER_CHILD_H_

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace talon {

class WorkerChild {
 public:
  // Starts `talon ARGUMENTS... --port 0` and waits until it listens. A worker that ends before is
  // an error with what it said.
  static Result<std::unique_ptr<WorkerChild>> Start(std::vector<std::string> arguments);
  ~WorkerChild();  // asks it to end, and waits
  WorkerChild(const WorkerChild&) = delete;
  WorkerChild& operator=(const WorkerChild&) = delete;

  const std::string& address() const { return address_; }

 private:
  WorkerChild(pid_t pid, std::FILE* log) : pid_(pid), log_(log) {}
  Status AwaitAddress();
  std::string Said() const;

  const pid_t pid_;
  std::FILE* const log_;  // its standard error, a file without a name
  bool ended_ = false;
  std::string address_;
};

}  // namespace talon

#endif  // TALON_APPS_COMMON_WORKER_CHILD_H_
