# SPDX-License-Identifier: Apache-2.0
"""Frameworks started on CPU processes, compared with one process: a file for each framework, and harness.py for what they share."""
