# SPDX-License-Identifier: Apache-2.0
import sys

from mpt.capture import main

sys.exit(main())
