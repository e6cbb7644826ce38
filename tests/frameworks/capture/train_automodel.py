# SPDX-License-Identifier: Apache-2.0
import os

from nemo_automodel.recipes.llm.train_ft import main

main(os.path.join(os.path.dirname(os.path.abspath(__file__)), "recipe.yaml"))
raise RuntimeError("training has begun")
