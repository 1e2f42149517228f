#include "support/authority.hpp"

#include "support/process.hpp"

#include <fcntl.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

void openssl(const std::string& log, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "openssl");
    const UniqueFd output{::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
    ProcessHandle process =
        spawn({.argv = std::move(arguments), .output = output.get(), .error = output.get()});
    const auto status = process.wait();
    if (status && status->success()) return;
    std::ostringstream text;
    text << std::ifstream{log}.rdbuf();
    throw std::runtime_error{"openssl: " + text.str()};
}

const std::vector<std::string> new_key{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                                       "-nodes"};

std::vector<std::string> with_new_key(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, new_key.begin(), new_key.end());
    return arguments;
}

}  // namespace

Authority::Authority() : own_(next()) {
    openssl(folder_.file("log"),
            with_new_key({"req", "-x509", "-keyout", own_.key_file, "-out", own_.file, "-subj",
                          "/CN=redlatch test authority", "-days", "30"}));
}

Certificate Authority::issue(const std::string& names, int days) {
    Certificate certificate = next();
    const std::string request = folder_.file("request");
    const std::string extensions = folder_.file("extensions");
    std::ofstream{extensions} << "subjectAltName=" << names << '\n';
    openssl(folder_.file("log"), with_new_key({"req", "-keyout", certificate.key_file, "-out",
                                               request, "-subj", "/CN=redlatch test"}));
    openssl(folder_.file("log"),
            {"x509", "-req", "-in", request, "-CA", own_.file, "-CAkey", own_.key_file,
             "-set_serial", std::to_string(issued_), "-extfile", extensions, "-days",
             std::to_string(days), "-out", certificate.file});
    return certificate;
}

Certificate Authority::self_signed(const std::string& names) {
    Certificate certificate = next();
    openssl(folder_.file("log"),
            with_new_key({"req", "-x509", "-keyout", certificate.key_file, "-out", certificate.file,
                          "-subj", "/CN=redlatch test", "-addext", "subjectAltName=" + names,
                          "-days", "30"}));
    return certificate;
}

Certificate Authority::with_password(const Certificate& certificate, const std::string& password) {
    Certificate result{.file = certificate.file, .key_file = next().key_file};
    openssl(folder_.file("log"), {"ec", "-in", certificate.key_file, "-aes256", "-passout",
                                  "pass:" + password, "-out", result.key_file});
    return result;
}

Certificate Authority::next() {
    const std::string number = std::to_string(++issued_);
    return {.file = folder_.file(number + ".pem"), .key_file = folder_.file(number + ".key")};
}

}  // namespace redlatch::test
