// Any text as a URI: it is taken apart, or refused with a reason.

#include <redlatch/net/uri_parser.hpp>
#include <redlatch/uri.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    const auto uri = redlatch::detail::parse_uri(redlatch::Uri{text});
    if (!uri) {
        require(uri.error().code == redlatch::Errc::invalid_argument);
        require(!uri.error().message.empty());
        return 0;
    }
    require(!uri->name().empty());
    const bool several = uri->kind != redlatch::detail::UriParts::Kind::server;
    require(several == !uri->hosts.empty());
    return 0;
}
