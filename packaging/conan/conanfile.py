import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load

ROOT = os.path.join("..", "..")


class Redlatch(ConanFile):
    """conan create packaging/conan -s compiler.cppstd=20 --build=missing"""

    name = "redlatch"
    description = "Distributed locks on Redis, header-only C++20"
    license = "MIT"
    topics = ("redis", "lock", "distributed", "header-only")
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"with_tls": [True, False]}
    default_options = {"with_tls": False}
    generators = "CMakeDeps"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, ROOT, "include", "redlatch", "version.hpp"))
        self.version = ".".join(re.findall(r"REDLATCH_VERSION_\w+ (\d+)", text))

    def export_sources(self):
        root = os.path.join(self.recipe_folder, ROOT)
        for pattern in ("include/*", "cmake/*", "CMakeLists.txt", "LICENSE"):
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        self.requires("hiredis/[>=0.14.1 <2]", transitive_headers=True, transitive_libs=True)
        if self.options.with_tls:
            self.requires("openssl/[>=1.1.1 <4]", transitive_headers=True, transitive_libs=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.settings.clear()
        self.info.requires.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in (
            "REDLATCH_BUILD_TESTS",
            "REDLATCH_BUILD_EXAMPLES",
            "REDLATCH_BUILD_BENCHMARKS",
            "REDLATCH_BUILD_TOOL",
        ):
            toolchain.cache_variables[option] = False
        # One that the system happens to have is not this package's.
        toolchain.cache_variables["CMAKE_DISABLE_FIND_PACKAGE_OpenSSL"] = not self.options.with_tls
        toolchain.generate()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        cmake = CMake(self)
        cmake.configure()
        cmake.install()

    def package_info(self):
        # The package's own CMake files, so that redlatch::compiled is there too.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "redlatch")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.system_libs = ["pthread"]
