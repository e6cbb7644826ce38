# SPDX-License-Identifier: Apache-2.0
"""Of NeMo 2 the name alone."""
