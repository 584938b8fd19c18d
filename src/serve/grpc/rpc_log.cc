#include "serve/grpc/rpc_log.h"

#include <grpc/support/log.h>

#include <string>

#include "base/log.h"

namespace talon {
namespace {

void OnMessage(gpr_log_func_args* message) {
  LogMessage(LogLevel::kDebug, std::string("grpc: ") + message->message);
}

}  // namespace

void RouteRpcLog() { gpr_set_log_function(OnMessage); }

}  // namespace talon
