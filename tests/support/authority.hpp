#pragma once

#include "support/temp_folder.hpp"

#include <string>

namespace redlatch::test {

/// A certificate and its key, as files in PEM.
struct Certificate {
    std::string file;
    std::string key_file;
};

/// A certificate authority of the test's own, made by the program `openssl`. Its files go with it.
class Authority {
public:
    /// Throws std::runtime_error where openssl fails.
    Authority();

    /// The certificate to trust.
    [[nodiscard]] const std::string& file() const { return own_.file; }

    /// A certificate for `names`, such as "DNS:localhost,IP:127.0.0.1". It ends in `days`; negative
    /// for one that has expired.
    [[nodiscard]] Certificate issue(const std::string& names, int days = 30);

    /// One that nobody vouches for but itself.
    [[nodiscard]] Certificate self_signed(const std::string& names);

    /// The same key under a pass phrase.
    [[nodiscard]] Certificate with_password(const Certificate& certificate,
                                            const std::string& password);

private:
    [[nodiscard]] Certificate next();

    TempFolder folder_;
    int issued_ = 0;
    Certificate own_;
};

}  // namespace redlatch::test
