#include "run_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace redlatch::test::fault {

RunFolder::RunFolder(const std::string& name)
    : path_{(std::filesystem::temp_directory_path() / ("redlatch-fault-" + name + "-XXXXXX"))
                .string()} {
    if (::mkdtemp(path_.data()) == nullptr) {
        throw std::system_error{errno, std::generic_category(), "mkdtemp " + path_};
    }
}

RunFolder::~RunFolder() {
    std::error_code ignored;
    if (!kept_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace redlatch::test::fault
