#!/usr/bin/env python3
"""Writes kvjit/_abi.py: the constants, structs and functions of kvjit.h for ctypes.

The C compiler removes comments and expands macros, and pycparser reads the rest. Every declaration of the header is
translated; a declaration that this script cannot translate is an error.

usage: generate_abi.py KVJIT_H OUT.py [--cc COMPILER]
SPDX-License-Identifier: MIT
"""
import argparse
import pathlib
import re
import subprocess

from pycparser import c_ast, c_parser

# Types of the headers that kvjit.h includes.
TYPEDEFS = "typedef unsigned long size_t; typedef long ptrdiff_t;\n"
NUMBERS = {"char": "c_char", "int": "c_int", "unsigned": "c_uint", "float": "c_float", "double": "c_double",
           "size_t": "c_size_t", "kvjit_index": "c_ssize_t", "kvjit_status": "c_int"}

HEAD = '''"""kvjit.h for ctypes, written by generate_abi.py. The header is the manual."""
import ctypes as c

'''


def class_name(struct):
    """kvjit_attention_call -> AttentionCall"""
    return "".join(word.capitalize() for word in struct.removeprefix("kvjit_").split("_"))


class Translator:
    def __init__(self, tree):
        self.structs = {node.name: node.type.type for node in tree.ext
                        if isinstance(node, c_ast.Typedef) and isinstance(node.type, c_ast.TypeDecl)
                        and isinstance(node.type.type, c_ast.Struct) and node.type.type.decls}

    def value(self, node):
        """The ctypes expression of a type."""
        if isinstance(node, c_ast.TypeDecl):
            name = " ".join(node.type.names)
            if name in self.structs:
                return class_name(name)
            return "c." + NUMBERS[name]
        if isinstance(node, c_ast.ArrayDecl):
            return f"{self.value(node.type)} * {int(node.dim.value)}"
        if isinstance(node, c_ast.PtrDecl):
            return self.pointer(node.type)
        raise TypeError(f"a declaration that is not translated: {node}")

    def pointer(self, to):
        if isinstance(to, c_ast.FuncDecl):
            parameters = [self.value(parameter.type) for parameter in to.args.params]
            is_void = isinstance(to.type, c_ast.TypeDecl) and to.type.type.names == ["void"]
            return f"c.CFUNCTYPE({', '.join(['None' if is_void else self.value(to.type), *parameters])})"
        if isinstance(to, c_ast.TypeDecl):
            name = " ".join(to.type.names)
            if name in self.structs:
                return f"c.POINTER({class_name(name)})"
            if name == "char":
                return "c.c_char_p"
        return "c.c_void_p"  # arrays of devices, handles, places that receive handles

    def struct(self, name):
        members = "".join(f'\n        ("{member.name}", {self.value(member.type)}),'
                          for member in self.structs[name].decls)
        return f"class {class_name(name)}(c.Structure):\n    _fields_ = [{members}\n    ]\n"

    def function(self, node):
        result = node.type.type
        parameters = [self.value(parameter.type) for parameter in node.type.args.params
                      if not is_void(parameter.type)]
        returned = "None" if is_void(result) else self.value(result)
        return f'    "{node.name}": ({returned}, [{", ".join(parameters)}]),\n'


def is_void(node):
    return isinstance(node, c_ast.TypeDecl) and isinstance(node.type, c_ast.IdentifierType) and \
        node.type.names == ["void"]


def constants(text, tree):
    """Names and numbers: enumerators, and macros that are numbers."""
    found = {}
    for node in tree.ext:
        enum = getattr(getattr(node, "type", None), "type", None) or getattr(node, "type", None)
        for one in (enum, getattr(enum, "type", None)):
            if isinstance(one, c_ast.Enum) and one.values:
                found |= {entry.name: entry.value.value for entry in one.values.enumerators}
    found |= re.findall(r"^#define (KVJIT_\w+) (\d+)\s*(?:/\*.*)?$", text, re.MULTILINE)
    return "".join(f"{name.removeprefix('KVJIT_')} = {value}\n" for name, value in found.items())


def abi(header, compiler):
    text = header.read_text()
    without_includes = re.sub(r"^#include.*$", "", text, flags=re.MULTILINE)
    plain = subprocess.run([compiler, "-E", "-P", "-x", "c", "-DKVJIT_API=", "-U__GNUC__", "-"],
                           input=without_includes, capture_output=True, text=True, check=True).stdout
    tree = c_parser.CParser().parse(TYPEDEFS + plain)
    translator = Translator(tree)
    structs = "\n\n".join(translator.struct(name) for name in translator.structs)
    functions = "".join(translator.function(node) for node in tree.ext
                        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl))
    return f"{HEAD}{constants(text, tree)}\n\n{structs}\n\n# Function: its result, its parameters.\n" \
           f"FUNCTIONS = {{\n{functions}}}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("header", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--cc", default="cc")
    args = parser.parse_args()
    args.output.write_text(abi(args.header, args.cc))


if __name__ == "__main__":
    main()
