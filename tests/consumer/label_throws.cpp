// A file with exceptions beside one without: what the label's function throws is caught all the same.
#include <redlatch/metrics.hpp>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

std::shared_ptr<redlatch::Metrics> plain_metrics();

int main() {
    plain_metrics()->lost({"name", {}});
    redlatch::Metrics labelled{
        {.label = [](std::string_view) -> std::string { throw std::runtime_error{"no label"}; }}};
    labelled.lost({"name", {}});
    const std::string text = labelled.prometheus();
    std::puts(text.c_str());
    return text.find("redlatch_lost_total{lock=\"other\"} 1\n") != std::string::npos ? 0 : 1;
}
