#include "history.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <utility>

namespace redlatch::test::fault {
namespace {

void read_file(const std::filesystem::path& path, History& history) {
    std::ifstream file{path};
    std::string line;
    while (std::getline(file, line)) {
        const bool cut_off = file.eof();
        if (cut_off) return;
        try {
            history.push_back(from_line(line));
        } catch (const std::runtime_error& error) {
            throw std::runtime_error{path.string() + ": " + error.what() + ": " + line};
        }
    }
}

bool hits(const Event& event, const char* fault, int process) {
    if (event.op != Op::fault || event.outcome != fault) return false;
    const auto target = event.counts.find("target");
    return target != event.counts.end() && target->second == process;
}

}  // namespace

History read_history(const std::string& folder) {
    History history;
    for (const auto& entry : std::filesystem::directory_iterator{folder}) {
        if (entry.path().extension() == ".jsonl") read_file(entry.path(), history);
    }
    std::ranges::stable_sort(history, {}, &Event::at);
    return history;
}

std::vector<Call> calls_of(const History& history) {
    std::vector<Call> calls;
    std::map<std::pair<int, std::uint64_t>, std::size_t> open;
    for (const Event& event : history) {
        const std::pair key{event.process, event.call};
        if (event.stage == Stage::invoke) {
            open[key] = calls.size();
            calls.push_back({event, std::nullopt});
        } else if (event.stage != Stage::note) {
            const auto found = open.find(key);
            if (found == open.end()) throw std::runtime_error{"no invoke: " + to_line(event)};
            auto& completion = calls[found->second].completion;
            if (!completion) completion = event;
        }
    }
    return calls;
}

std::vector<Span> merged(std::vector<Span> spans) {
    std::erase_if(spans, [](const Span& span) { return span.end <= span.begin; });
    std::ranges::sort(spans, {}, &Span::begin);
    std::vector<Span> result;
    for (const Span& span : spans) {
        if (result.empty() || result.back().end < span.begin) {
            result.push_back(span);
        } else {
            result.back().end = std::max(result.back().end, span.end);
        }
    }
    return result;
}

Time covered(Span whole, std::vector<Span> spans) {
    Time sum{};
    for (const Span& span : merged(std::move(spans))) {
        const Time length = std::min(whole.end, span.end) - std::max(whole.begin, span.begin);
        sum += std::max(length, Time{});
    }
    return sum;
}

std::vector<Span> disturbances(const History& history, Time settle) {
    std::vector<Span> spans;
    for (const Call& call : calls_of(history)) {
        if (call.invoke.op != Op::fault) continue;
        const Time end = call.completion ? call.completion->at + settle : Time::max();
        spans.push_back({call.invoke.at, end});
    }
    return spans;
}

std::vector<Span> frozen_spans(const History& history, int process) {
    std::vector<Span> spans;
    for (const Call& call : calls_of(history)) {
        const bool all = call.invoke.op == Op::fault && call.invoke.outcome == standstill;
        const bool stopped = all || hits(call.invoke, "freeze client", process) ||
                             hits(call.invoke, "stop and go", process);
        if (!stopped) continue;
        spans.push_back({call.invoke.at, call.completion ? call.completion->at : Time::max()});
    }
    return spans;
}

History until_closed(const History& history) {
    std::map<int, std::uint64_t> closing;  // the call, by process
    History result;
    for (const Event& event : history) {
        if (event.op == Op::close && event.stage == Stage::invoke) {
            closing[event.process] = event.call;
            result.push_back(event);
            continue;
        }
        const auto closed = closing.find(event.process);
        const bool after = closed != closing.end() && event.call != closed->second;
        const bool own_word =
            event.op != Op::snapshot && event.op != Op::fault && event.op != Op::write;
        if (!(after && own_word)) result.push_back(event);
    }
    return result;
}

std::optional<Time> killed_at(const History& history, int process) {
    for (const Event& event : history) {
        if (hits(event, "kill client", process)) return event.at;
    }
    return std::nullopt;
}

}  // namespace redlatch::test::fault
