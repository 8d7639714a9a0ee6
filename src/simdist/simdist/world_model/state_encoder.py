"""From an observation and its history to the latent state that planning starts from."""

from __future__ import annotations

import numpy as np
import torch

from simdist.observation import Observation
from simdist.world_model.network import WorldModel


class StateEncoder:
    """The frozen encoder of a world model, for one robot.

    The encoder never learns on the robot, so latent states stay valid across model updates.
    """

    def __init__(self, model: WorldModel) -> None:
        self._model = model.eval()

    @torch.inference_mode()
    def encode(self, observation: Observation) -> tuple[np.ndarray, np.ndarray]:
        """Context ``(2H + 1, D)`` and latent ``(D,)`` of ``observation``, float32."""
        context, latent = self._model.encode(
            torch.from_numpy(observation.proprioception_history)[None],
            torch.from_numpy(observation.scan.astype(np.float32))[None],
            torch.from_numpy(observation.action_history)[None],
        )
        return context[0].numpy(), latent[0].numpy()
