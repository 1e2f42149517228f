// Writes the library's scripts as they are sent to a server into the folder that is its argument: one file
// for each script and each kind of lock.

#include <redlatch/policy/lua.hpp>

#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string_view>
#include <utility>

namespace {

using redlatch::LockScripts;
using redlatch::Script;

bool write(const std::filesystem::path& folder, const LockScripts& scripts) {
    using Named = std::pair<std::string_view, const Script*>;
    std::filesystem::create_directories(folder);
    bool written = true;
    for (const auto& [name, script] : std::array{
             Named{"acquire.lua", &scripts.acquire}, Named{"extend.lua", &scripts.extend},
             Named{"release.lua", &scripts.release}, Named{"inspect.lua", &scripts.inspect},
             Named{"force_unlock.lua", &scripts.force_unlock}, Named{"nest.lua", &scripts.nest},
             Named{"move.lua", &scripts.move}, Named{"tombstone.lua", &scripts.tombstone},
             Named{"downgrade.lua", &scripts.downgrade},
             Named{"set_permits.lua", &scripts.set_permits}}) {
        if (script->source().empty()) continue;
        written = bool{std::ofstream{folder / name} << script->source() << '\n'} && written;
    }
    return written;
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: write_scripts FOLDER\n";
        return 2;
    }
    const std::filesystem::path folder{arguments[1]};
    const bool written = write(folder / "string", redlatch::lua::on_string()) &&
                         write(folder / "hash", redlatch::lua::on_hash()) &&
                         write(folder / "redisson", redlatch::lua::on_hash_for_redisson()) &&
                         write(folder / "shared", redlatch::lua::on_shared_claims()) &&
                         write(folder / "permits", redlatch::lua::on_permits());
    return written ? 0 : 1;
}
