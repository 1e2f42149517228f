#include "support/temp_folder.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace redlatch::test {
namespace {

// sockaddr_un::sun_path holds 107 characters; the folder's and the socket's name need less than 40.
constexpr std::size_t longest_parent = 60;

std::string parent_folder() {
    std::error_code error;
    const std::string parent = std::filesystem::temp_directory_path(error).string();
    const bool usable = !error && !parent.empty() && parent.size() <= longest_parent;
    return usable ? parent : "/tmp";
}

}  // namespace

TempFolder::TempFolder() : path_{parent_folder() + "/redlatch-XXXXXX"}, owner_{::getpid()} {
    if (::mkdtemp(path_.data()) == nullptr) {
        throw std::system_error{errno, std::generic_category(), "mkdtemp " + path_};
    }
}

TempFolder::~TempFolder() {
    if (owner_ == ::getpid()) {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
}

}  // namespace redlatch::test
