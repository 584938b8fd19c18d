// Transport security of a server or client: TLS from certificate files, or plaintext on this
// machine.
//
// Plaintext is refused for addresses beyond this machine unless `insecure` asks for it. With
// certificates of both sides (mutual TLS) a server also authenticates its clients.
#ifndef TALON_SERVE_GRPC_CREDENTIALS_H_
#define TALON_SERVE_GRPC_CREDENTIALS_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace talon {

// PEM files. A server needs certificate and key; with `ca_file` it takes only clients whose
// certificate that authority signed. A client needs `ca_file` to verify the server, and
// certificate and key if the server requires them.
struct RpcSecurity {
  std::string cert_file;
  std::string key_file;
  std::string ca_file;
  bool insecure = false;  // plaintext, also beyond this machine
  bool uses_tls() const { return !cert_file.empty() || !key_file.empty() || !ca_file.empty(); }
};

// 127.x.y.z, ::1, localhost; with or without a port, as "unix:PATH" too.
bool IsLoopbackAddress(std::string_view address);

// The host of "host:port" or "[v6]:port"; an error says what is wrong with it.
Status CheckAddress(std::string_view name, std::string_view address);

Result<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const RpcSecurity& security,
                                                                       const std::string& host);
Result<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const RpcSecurity& security, const std::string& address);

}  // namespace talon

#endif  // TALON_SERVE_GRPC_CREDENTIALS_H_
