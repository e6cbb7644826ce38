# SPDX-License-Identifier: Apache-2.0
"""Names of weights of Llama and of the models like it."""

# body
def stored_name(name):
    return name if name.startswith("lm_head") else "model." + name


def read_parameter(files, name, shape):
    return files[stored_name(name)]


def stored_tensors(parameters):
    return {stored_name(name): tensor for name, tensor in parameters.items()}
