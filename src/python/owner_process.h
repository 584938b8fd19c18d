// The process that made an object whose work is done by threads. A child that fork() makes has a
// copy of the object but none of its threads: waiting for them would never end, and so would
// joining them.
#ifndef TALON_PYTHON_OWNER_PROCESS_H_
#define TALON_PYTHON_OWNER_PROCESS_H_

#include <sys/types.h>
#include <unistd.h>

#include "base/status.h"

namespace talon {

class OwnerProcess {
 public:
  bool here() const { return getpid() == pid_; }
  // Says in a child what is wrong and what to do.
  Status Check(const char* what) const {
    if (here()) return OkStatus();
    return FailedPrecondition(
        "{}: was made before fork(), and its threads are in process {} only; make it in the child "
        "process, or start processes with multiprocessing's 'spawn'",
        what, pid_);
  }

 private:
  const pid_t pid_ = getpid();
};

}  // namespace talon

#endif  // TALON_PYTHON_OWNER_PROCESS_H_
