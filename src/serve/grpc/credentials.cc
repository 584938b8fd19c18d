#include "serve/grpc/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <charconv>

#include "base/file.h"

namespace talon {
namespace {

constexpr const char* kCertificateMark = "-----BEGIN CERTIFICATE-----";
constexpr const char* kKeyMark = "PRIVATE KEY-----";  // "RSA PRIVATE KEY", "EC PRIVATE KEY"

struct HostAndPort {
  std::string_view host;
  std::string_view port;  // empty: none
};

// A bare IPv6 address has no port; with one it is written in brackets.
HostAndPort Split(std::string_view address) {
  if (address.starts_with('[')) {
    const size_t end = address.find(']');
    if (end == std::string_view::npos) return {address, {}};
    const std::string_view rest = address.substr(end + 1);
    return {address.substr(1, end - 1), rest.starts_with(':') ? rest.substr(1) : rest};
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || address.find(':') != colon) return {address, {}};
  return {address.substr(0, colon), address.substr(colon + 1)};
}

Result<std::string> ReadPem(const char* setting, const std::string& path, const char* mark) {
  auto text = ReadFile(path);
  if (!text.ok()) return text.status().WithContext(setting);
  if (text->find(mark) == std::string::npos) {
    return InvalidArgument("{}: {}: no PEM text with '{}'", setting, path, mark);
  }
  return text;
}

struct PemTexts {
  std::string cert;
  std::string key;
  std::string ca;
};

Result<PemTexts> ReadAll(const RpcSecurity& security) {
  if (security.cert_file.empty() != security.key_file.empty()) {
    return InvalidArgument("tls_cert_file and tls_key_file belong together, only {} is given",
                           security.cert_file.empty() ? "the key" : "the certificate");
  }
  PemTexts texts;
  if (!security.cert_file.empty()) {
    TALON_ASSIGN_OR_RETURN(texts.cert,
                           ReadPem("tls_cert_file", security.cert_file, kCertificateMark));
    TALON_ASSIGN_OR_RETURN(texts.key, ReadPem("tls_key_file", security.key_file, kKeyMark));
  }
  if (!security.ca_file.empty()) {
    TALON_ASSIGN_OR_RETURN(texts.ca, ReadPem("tls_ca_file", security.ca_file, kCertificateMark));
  }
  return texts;
}

// Both sides must agree on one of the two.
Status CheckPlaintext(const RpcSecurity& security, std::string_view address) {
  if (security.insecure || IsLoopbackAddress(address)) return OkStatus();
  return InvalidArgument(
      "{}: not on this machine; give certificates (--tls-cert-file, --tls-key-file, "
      "--tls-ca-file), or --insecure for plaintext that others can read",
      address);
}

Status CheckNotBoth(const RpcSecurity& security) {
  if (!security.insecure || !security.uses_tls()) return OkStatus();
  return InvalidArgument("insecure: certificates are given too; it is one or the other");
}

}  // namespace

bool IsLoopbackAddress(std::string_view address) {
  if (address.starts_with("unix:")) return true;
  const std::string_view host = Split(address).host;
  if (host == "localhost" || host == "::1") return true;
  return host.starts_with("127.") &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

Status CheckAddress(std::string_view name, std::string_view address) {
  const auto [host, port] = Split(address);
  int number = 0;
  const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool is_number = error == std::errc() && stop == port.data() + port.size();
  if (!host.empty() && is_number && number >= 1 && number <= 65535) return OkStatus();
  return InvalidArgument("{}: '{}', must be HOST:PORT with a port of 1 to 65535", name, address);
}

Result<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const RpcSecurity& security,
                                                                       const std::string& host) {
  TALON_RETURN_IF_ERROR(CheckNotBoth(security));
  if (!security.uses_tls()) {
    TALON_RETURN_IF_ERROR(CheckPlaintext(security, host));
    return grpc::InsecureServerCredentials();
  }
  if (security.cert_file.empty() && security.key_file.empty()) {
    return InvalidArgument("tls_ca_file: a server also needs tls_cert_file and tls_key_file");
  }
  TALON_ASSIGN_OR_RETURN(PemTexts texts, ReadAll(security));
  grpc::SslServerCredentialsOptions options(
      texts.ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                       : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = std::move(texts.ca);
  options.pem_key_cert_pairs.push_back({std::move(texts.key), std::move(texts.cert)});
  return grpc::SslServerCredentials(options);
}

Result<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const RpcSecurity& security, const std::string& address) {
  TALON_RETURN_IF_ERROR(CheckNotBoth(security));
  if (!security.uses_tls()) {
    TALON_RETURN_IF_ERROR(CheckPlaintext(security, address));
    return grpc::InsecureChannelCredentials();
  }
  if (security.ca_file.empty()) {
    return InvalidArgument("tls_ca_file: needed to verify the worker's certificate");
  }
  TALON_ASSIGN_OR_RETURN(PemTexts texts, ReadAll(security));
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = std::move(texts.ca);
  options.pem_private_key = std::move(texts.key);
  options.pem_cert_chain = std::move(texts.cert);
  return grpc::SslCredentials(options);
}

}  // namespace talon
