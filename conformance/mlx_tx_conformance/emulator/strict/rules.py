"""The closed list of rules of the strict check, each with the reason it exists."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

RULES: Mapping[str, str] = MappingProxyType(
    {
        # Language: what the Metal Shading Language leaves out of C++ (its specification, 1.5.4 and chapter 2).
        "double": "MSL has no double",
        "wide-type": "MSL has no long long and no long double",
        "unsuffixed-literal": "a floating literal without f or h is a double to every other C++ compiler",
        "heap": "no new, delete, malloc or free",
        "exceptions": "no try, throw or catch",
        "virtual": "no virtual functions",
        "goto": "no goto",
        "static-local": "no static variable inside a function, except `static constant constexpr`",
        "global-variable": "a variable at program scope must be `constant`",
        "lambda": "lambdas need Metal 3.2 (macOS 15)",
        "recursion": "no recursion",
        "std": "the C++ standard library does not exist; MSL's is `metal::`",
        "structured-binding": "no structured bindings: C++17 comes with Metal 4.0 only",
        "inheritance": "no derived classes",
        "thread-local": "no thread_local",
        "rtti": "no dynamic_cast or typeid",
        "cxx-feature": "a C++ feature later than what every supported Metal version takes",
        "assembly": "no inline assembly",
        "variable-length-array": "array sizes must be compile-time constants",
        "non-ascii": "the source reaches Apple's compiler as ASCII",
        "include": "only the metal_* system headers exist when MLX compiles a kernel at run time",
        "missing-include": "simdgroup matrices need their headers; MLX's preamble does not include them",
        "unbalanced": "brackets do not match",
        # Address spaces.
        "address-space": "a value of one address space used where another is needed",
        "address-space-cast": "a cast that changes the address space",
        "unqualified-pointer": "every pointer and reference names its address space",
        "member-address-space": "member functions and constructors end in `thread`: Metal 4.1 made `this` generic",
        "threadgroup-scope": "threadgroup variables live in a kernel's body only",
        "threadgroup-initialiser": "threadgroup variables take no initialiser",
        "threadgroup-memory": "a threadgroup has at most 32768 bytes",
        "threadgroup-size": "a threadgroup has at most 1024 threads, and 256 fit every device",
        "const-write": "a write to something that is const or `constant`",
        "function-constant": "mx.fast.metal_kernel cannot set function constants",
        # Types.
        "double-arithmetic": "an operation that C++ does in double",
        "bfloat-narrowing": "float and half do not convert to bfloat implicitly",
        "half-bfloat": "half and bfloat do not mix",
        "vector-conversion": "vectors convert to nothing implicitly",
        "ambiguous-call": "max, min, clamp, select and fma take operands of one type",
        "no-matching-call": "no form of the function takes these arguments",
        "undeclared": "a name that is not declared",
        "type-error": "anything else a C++ compiler refuses",
        # Names.
        "name-never": "no shipped MLX kernel uses this MSL name",
        "name-m5": "exists on M5 with Metal 4 only",
        "name-bfloat-only": "MLX ships only the bfloat form of this function and never calls the float one",
        "name-unknown": "neither MSL as MLX uses it, nor MLX's preamble, nor this source has the name",
        "name-clash": "a name that `using namespace metal` or MSL's keywords already give a meaning",
        # What mx.fast.metal_kernel makes of a source.
        "no-attribute": "a kernel that uses no attribute may get a parameter list closed too early",
        "accidental-attribute": "a kernel attribute found by substring adds a parameter nobody uses",
        "accidental-shape": "a _shape, _strides or _ndim found by substring adds a buffer slot nobody uses",
        "buffer-slots": "Metal has 31 buffer slots",
        "template-value": "template values are dtypes, booleans and non-negative integers",
        "kernel-name": "kernel and argument names are identifiers, and each is used once",
        # Control flow.
        "divergent-barrier": "a barrier or simdgroup operation that not every thread reaches",
    }
)
