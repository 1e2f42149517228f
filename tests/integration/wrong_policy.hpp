#pragma once

#include <redlatch/redlatch.hpp>

namespace redlatch::test {

/// Answers an extension with what no lock answers.
struct Wrong : Simple {
    static const LockScripts& scripts() {
        static const LockScripts changed = [] {
            LockScripts scripts = Simple::scripts();
            scripts.extend = Script{"return {'wrong', {'wrong'}}"};
            return scripts;
        }();
        return changed;
    }
};

}  // namespace redlatch::test
